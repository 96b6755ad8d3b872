"""Modules with the names and argument order of fast-transformers.

Queries, keys and values are (batch, length, heads, dim). Masks are objects of the classes in this file, or of
fast_transformers.masking: attention masks have the properties all_ones and lower_triangular, and length masks
have the property lengths. A length mask can also be a tensor (batch,) of integers, or None.
"""

from typing import Optional

import torch
from torch import Tensor, nn

from . import _functions as functions
from . import _recurrent as recurrent


class FullMask:
    """Allows all pairs of a query and a key."""

    all_ones = True
    lower_triangular = False


class TriangularCausalMask:
    """Allows the pairs whose key is not after the query. The length is accepted, and not needed."""

    all_ones = False
    lower_triangular = True

    def __init__(self, length: Optional[int] = None, device=None):
        self.length = length


class LengthMask:
    """Allows the first `lengths` (batch,) positions of each sequence."""

    def __init__(self, lengths: Tensor, max_len: Optional[int] = None, device=None):
        self.lengths = lengths


def _is_causal(mask, name: str, allow_full: bool = True, allow_causal: bool = True) -> bool:
    """Returns whether a mask is causal. Throws if it is another mask, or one that the module does not support."""
    if mask is None or getattr(mask, "all_ones", False):
        causal = False
    elif getattr(mask, "lower_triangular", False):
        causal = True
    else:
        raise ValueError(f"{name} supports no mask, FullMask and TriangularCausalMask, not {type(mask).__name__}")
    if causal and not allow_causal:
        raise ValueError(f"{name} does not support causal masks")
    if not causal and not allow_full:
        raise ValueError(f"{name} supports only causal masks")
    return causal


def _get_lengths(mask) -> Optional[Tensor]:
    return mask if mask is None or isinstance(mask, Tensor) else mask.lengths


class FullAttention(nn.Module):
    """Softmax attention."""

    def __init__(self, softmax_temp: Optional[float] = None, attention_dropout: float = 0.1, event_dispatcher=""):
        super().__init__()
        self.softmax_temp = softmax_temp
        self.attention_dropout = attention_dropout

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        return functions.softmax_attention(
            queries, keys, values,
            causal=_is_causal(attn_mask, "FullAttention"),
            lengths=_get_lengths(key_lengths),
            scale=self.softmax_temp,
            dropout_p=self.attention_dropout if self.training else 0.0,
        )  # fmt: skip


class LinearAttention(nn.Module):
    """Linear attention to all keys. `query_dimensions` is accepted, and not needed."""

    def __init__(self, query_dimensions=None, feature_map="elu_plus_one", eps: float = 1e-6, event_dispatcher=""):
        super().__init__()
        self.feature_map = feature_map or "elu_plus_one"
        self.eps = eps
        functions.find_feature_map(self.feature_map)

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        _is_causal(attn_mask, "LinearAttention", allow_causal=False)
        return functions.linear_attention(
            queries, keys, values, lengths=_get_lengths(key_lengths), feature_map=self.feature_map, eps=self.eps
        )


class CausalLinearAttention(LinearAttention):
    """Linear attention to the keys that are not after the query."""

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        if attn_mask is not None:
            _is_causal(attn_mask, "CausalLinearAttention", allow_full=False)
        return functions.linear_attention(
            queries, keys, values, causal=True, lengths=_get_lengths(key_lengths), feature_map=self.feature_map,
            eps=self.eps,
        )  # fmt: skip


class ReformerAttention(nn.Module):
    """LSH attention with the algorithm of fast-transformers. Queries are also the keys; `keys` is ignored.

    `preset` and `buckets` are not in fast-transformers: see lsh_attention(). By default, there are 2**bits
    buckets. softmax_temp must be None, which stands for 1 / sqrt(dim).
    """

    def __init__(
        self, chunk_size: int = 32, bits: int = 8, rounds: int = 4, masked: bool = False, softmax_temp=None,
        attention_dropout: float = 0.1, event_dispatcher="", preset: str = "fast_transformers",
        buckets: Optional[int] = None,
    ):  # fmt: skip
        super().__init__()
        if softmax_temp is not None:
            raise ValueError("ReformerAttention: softmax_temp must be None")
        self.chunk_size = chunk_size
        self.rounds = rounds
        self.masked = masked
        self.attention_dropout = attention_dropout
        self.preset = preset
        self.buckets = 2**bits if buckets is None else buckets

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        causal = _is_causal(attn_mask, "ReformerAttention") or self.masked
        return functions.lsh_attention(
            queries, values,
            causal=causal,
            lengths=_get_lengths(key_lengths),
            preset=self.preset,
            rounds=self.rounds,
            chunk_length=self.chunk_size,
            buckets=self.buckets,
            dropout_p=self.attention_dropout if self.training else 0.0,
        )  # fmt: skip


class LocalAttention(nn.Module):
    """Softmax attention to the `local_context` nearest earlier tokens and, without a causal mask, later tokens.

    In fast-transformers, the window of `local_context` tokens is centred at the query.
    """

    def __init__(
        self, local_context: int, softmax_temp: Optional[float] = None, attention_dropout: float = 0.1,
        event_dispatcher="",
    ):  # fmt: skip
        super().__init__()
        self.local_context = local_context
        self.softmax_temp = softmax_temp
        self.attention_dropout = attention_dropout

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        return functions.local_attention(
            queries, keys, values,
            window=self.local_context,
            causal=_is_causal(attn_mask, "LocalAttention"),
            lengths=_get_lengths(key_lengths),
            scale=self.softmax_temp,
            dropout_p=self.attention_dropout if self.training else 0.0,
        )  # fmt: skip


class AttentionLayer(nn.Module):
    """Projects inputs (batch, length, d_model) to queries, keys and values, attends, and projects the results.

    The parameters have the names of fast-transformers, so its state dicts load.
    """

    def __init__(
        self, attention: nn.Module, d_model: int, n_heads: int, d_keys: Optional[int] = None,
        d_values: Optional[int] = None, d_model_keys: Optional[int] = None, event_dispatcher="",
    ):  # fmt: skip
        super().__init__()
        d_keys = d_keys or d_model // n_heads
        d_values = d_values or d_model // n_heads
        d_model_keys = d_model_keys or d_model
        self.inner_attention = attention
        self.query_projection = nn.Linear(d_model, d_keys * n_heads)
        self.key_projection = nn.Linear(d_model_keys, d_keys * n_heads)
        self.value_projection = nn.Linear(d_model_keys, d_values * n_heads)
        self.out_projection = nn.Linear(d_values * n_heads, d_model)
        self.n_heads = n_heads

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        q, k, v = (
            projection(x).unflatten(2, (self.n_heads, -1))
            for projection, x in (
                (self.query_projection, queries),
                (self.key_projection, keys),
                (self.value_projection, values),
            )
        )
        out = self.inner_attention(q, k, v, attn_mask, query_lengths, key_lengths)
        return self.out_projection(out.flatten(2))


class RecurrentLinearAttention(nn.Module):
    """One token of CausalLinearAttention: query, key (batch, heads, dim) and value (batch, heads, value_dim).

    Returns the result and the state, which is the argument of the next call.
    """

    def __init__(self, query_dimensions=None, feature_map="elu_plus_one", eps: float = 1e-6, event_dispatcher=""):
        super().__init__()
        self.feature_map = feature_map or "elu_plus_one"
        self.eps = eps

    def forward(self, query, key, value, state=None, memory=None):
        state = memory if state is None else state
        with torch.no_grad():
            return recurrent.linear_attention_step(
                query, key, value, state, feature_map=self.feature_map, eps=self.eps
            )


class RecurrentFullAttention(nn.Module):
    """One token of FullAttention with a causal mask; see RecurrentLinearAttention."""

    def __init__(self, softmax_temp: Optional[float] = None, attention_dropout: float = 0.1, event_dispatcher=""):
        super().__init__()
        self.softmax_temp = softmax_temp

    def forward(self, query, key, value, state=None, memory=None):
        state = memory if state is None else state
        with torch.no_grad():
            return recurrent.softmax_attention_step(query, key, value, state, scale=self.softmax_temp)
