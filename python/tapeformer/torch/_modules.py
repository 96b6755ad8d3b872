"""Modules with the names and argument order of fast-transformers.

Queries, keys and values are (batch, length, heads, dim). Masks are objects of the classes in _masks.py, or of
fast_transformers.masking: attention masks have the properties all_ones and lower_triangular, and length masks
have the property lengths. A length mask can also be a tensor (batch,) of integers, or None.
"""

from typing import Optional

import torch
from torch import nn

from . import _functions as functions
from . import _recurrent as recurrent
from ._masks import get_lengths, is_causal


class FullAttention(nn.Module):
    """Softmax attention."""

    def __init__(self, softmax_temp: Optional[float] = None, attention_dropout: float = 0.1, event_dispatcher=""):
        super().__init__()
        self.softmax_temp = softmax_temp
        self.attention_dropout = attention_dropout

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        return functions.softmax_attention(
            queries, keys, values,
            causal=is_causal(attn_mask, "FullAttention"),
            lengths=get_lengths(key_lengths),
            scale=self.softmax_temp,
            dropout_p=self.attention_dropout if self.training else 0.0,
        )  # fmt: skip


class LinearAttention(nn.Module):
    """Linear attention to all keys. `query_dimensions` is accepted, and not needed.

    `feature_map` is a name, or a function of tensors (..., dim).
    """

    def __init__(self, query_dimensions=None, feature_map="elu_plus_one", eps: float = 1e-6, event_dispatcher=""):
        super().__init__()
        self.feature_map = feature_map or "elu_plus_one"
        self.eps = eps
        if not callable(self.feature_map):
            functions.find_feature_map(self.feature_map)

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        is_causal(attn_mask, "LinearAttention", allow_causal=False)
        return functions.linear_attention(
            queries, keys, values, lengths=get_lengths(key_lengths), feature_map=self.feature_map, eps=self.eps
        )


class CausalLinearAttention(LinearAttention):
    """Linear attention to the keys that are not after the query."""

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        is_causal(attn_mask, "CausalLinearAttention", allow_full=False)
        return functions.linear_attention(
            queries, keys, values, causal=True, lengths=get_lengths(key_lengths), feature_map=self.feature_map,
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
        causal = is_causal(attn_mask, "ReformerAttention") or self.masked
        return functions.lsh_attention(
            queries, values,
            causal=causal,
            lengths=get_lengths(key_lengths),
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
            causal=is_causal(attn_mask, "LocalAttention"),
            lengths=get_lengths(key_lengths),
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
        self._check_attention(attention)
        d_keys = d_keys or d_model // n_heads
        d_values = d_values or d_model // n_heads
        d_model_keys = d_model_keys or d_model
        self.inner_attention = attention
        self.query_projection = nn.Linear(d_model, d_keys * n_heads)
        self.key_projection = nn.Linear(d_model_keys, d_keys * n_heads)
        self.value_projection = nn.Linear(d_model_keys, d_values * n_heads)
        self.out_projection = nn.Linear(d_values * n_heads, d_model)
        self.n_heads = n_heads

    @staticmethod
    def _check_attention(attention) -> None:
        if isinstance(attention, (RecurrentLinearAttention, RecurrentFullAttention)):
            raise TypeError(f"AttentionLayer: {type(attention).__name__} needs a RecurrentAttentionLayer")

    def _project(self, queries, keys, values, dimensions):
        for x in (queries, keys, values):
            if x.dim() != len(dimensions.split()):
                raise ValueError(f"{type(self).__name__}: expected tensors ({dimensions}), not {tuple(x.shape)}")
        projections = self.query_projection, self.key_projection, self.value_projection
        return [f(x).unflatten(-1, (self.n_heads, -1)) for f, x in zip(projections, (queries, keys, values))]

    def forward(self, queries, keys, values, attn_mask=None, query_lengths=None, key_lengths=None):
        q, k, v = self._project(queries, keys, values, "batch, length, d_model")
        out = self.inner_attention(q, k, v, attn_mask, query_lengths, key_lengths)
        return self.out_projection(out.flatten(2))


class RecurrentAttentionLayer(AttentionLayer):
    """One token (batch, d_model) of an AttentionLayer, whose state dict it loads.

    `attention` is RecurrentLinearAttention for the weights of a layer with CausalLinearAttention, and
    RecurrentFullAttention for FullAttention with a causal mask. Returns the result (batch, d_model) and the state,
    which is the argument of the next call.
    """

    @staticmethod
    def _check_attention(attention) -> None:
        if isinstance(attention, (FullAttention, LinearAttention, ReformerAttention, LocalAttention)):
            raise TypeError(
                f"RecurrentAttentionLayer: {type(attention).__name__} has no state; expected RecurrentLinearAttention "
                "or RecurrentFullAttention"
            )

    def forward(self, query, key, value, state=None, memory=None):
        q, k, v = self._project(query, key, value, "batch, d_model")
        out, state = self.inner_attention(q, k, v, memory if state is None else state)
        return self.out_projection(out.flatten(1)), state


class RecurrentLinearAttention(nn.Module):
    """One token of CausalLinearAttention: query, key (batch, heads, dim) and value (batch, heads, value_dim).

    Returns the result and the state, which is the argument of the next call.
    """

    def __init__(self, query_dimensions=None, feature_map="elu_plus_one", eps: float = 1e-6, event_dispatcher=""):
        super().__init__()
        self.feature_map = feature_map or "elu_plus_one"
        self.eps = eps
        if not callable(self.feature_map):
            functions.find_feature_map(self.feature_map)

    def forward(self, query, key, value, state=None, memory=None):
        state = memory if state is None else state
        return recurrent.linear_attention_step(query, key, value, state, feature_map=self.feature_map, eps=self.eps)


class RecurrentFullAttention(nn.Module):
    """One token of FullAttention with a causal mask; see RecurrentLinearAttention."""

    def __init__(self, softmax_temp: Optional[float] = None, attention_dropout: float = 0.1, event_dispatcher=""):
        super().__init__()
        self.softmax_temp = softmax_temp

    def forward(self, query, key, value, state=None, memory=None):
        state = memory if state is None else state
        return recurrent.softmax_attention_step(query, key, value, state, scale=self.softmax_temp)
