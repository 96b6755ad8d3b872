"""Recurrent forms of causal attention: one token in, one result out. No gradients are computed."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from .. import _core
from ._functions import find_feature_map, read_scale
from ._ops import UNLIMITED


class LinearState(NamedTuple):
    """The state of linear attention. A step changes the tensors in place."""

    kv: Tensor  # (batch, heads, dim, value_dim): sum of phi(k) v^T
    key_sum: Tensor  # (batch, heads, dim): sum of phi(k)


class KeyValueState(NamedTuple):
    """The keys and values of earlier tokens. A step changes the tensors in place if they have room.

    The tensors have the dtype of the tokens. A state with bfloat16 tensors for float32 tokens halves their memory.
    """

    keys: Tensor  # (batch, capacity, heads, dim)
    values: Tensor  # (batch, capacity, heads, value_dim)
    length: int  # number of tokens


def linear_attention_step(
    q: Tensor, k: Tensor, v: Tensor, state: Optional[LinearState] = None, *, feature_map: str = "elu_plus_one",
    eps: float = 1e-6,
) -> Tuple[Tensor, LinearState]:  # fmt: skip
    """Processes one token of causal linear attention.

    Args:
        q: Query (batch, heads, dim), float32 or float64.
        k: Key (batch, heads, dim).
        v: Value (batch, heads, value_dim).
        state: The state after the previous token, which is changed in place; None before the first token.

    Returns:
        The result (batch, heads, value_dim), and the state.
    """
    q, k, v = _prepare("linear_attention_step", q, k, v)
    batch, heads, dim = q.shape
    if state is None:
        state = LinearState(q.new_zeros((batch, heads, dim, v.shape[2])), q.new_zeros((batch, heads, dim)))
    out = v.new_empty(v.shape)
    _core.linear_step(torch.get_num_threads(), q, k, v, state.kv, state.key_sum, find_feature_map(feature_map), eps, out)
    return out, state


def softmax_attention_step(
    q: Tensor, k: Tensor, v: Tensor, state: Optional[KeyValueState] = None, *, scale: Optional[float] = None,
    window: Optional[int] = None,
) -> Tuple[Tensor, KeyValueState]:  # fmt: skip
    """Processes one token of causal softmax attention.

    Args:
        q, k, v: See linear_attention_step().
        state: The keys and values of the previous tokens; None before the first token.
        scale: Multiplier of q . k; by default 1 / sqrt(dim).
        window: The token attends to itself and to the `window` - 1 tokens before it; None: to all tokens. The
            state then has a constant size. All steps of a sequence have the same window.

    Returns:
        The result (batch, heads, value_dim), and the state.
    """
    q, k, v = _prepare("softmax_attention_step", q, k, v)
    if window is not None and window < 1:
        raise ValueError(f"softmax_attention_step: window must be at least 1, not {window}")
    if state is None:
        state = KeyValueState(*(x.new_empty((x.shape[0], window or 16, *x.shape[1:])) for x in (k, v)), 0)
    if window is None and state.length == state.keys.shape[1]:
        grown = (torch.cat([x, torch.empty_like(x)], dim=1) for x in state[:2])
        state = KeyValueState(*grown, state.length)
    out = v.new_empty(v.shape)
    before = UNLIMITED if window is None else window - 1
    length = _core.softmax_step(torch.get_num_threads(), q, k, v, state.keys, state.values, state.length, read_scale(scale), before, out)
    return out, state._replace(length=length)


def gated_linear_attention_step(
    q: Tensor, k: Tensor, v: Tensor, state: Optional[Tensor] = None, *, log_decay: Optional[Tensor] = None,
    erase: Optional[Tensor] = None, beta: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """Processes one token of gated linear attention.

    Args:
        q, k, v: See linear_attention_step().
        state: (batch, heads, dim, value_dim), which is changed in place; None before the first token.
        log_decay: (batch, heads), (batch, heads, dim) or (heads,).
        erase: (batch, heads, dim).
        beta: (batch, heads).

    Returns:
        The result (batch, heads, value_dim), and the state.
    """
    q, k, v, erase = _prepare("gated_linear_attention_step", q, k, v, erase)
    log_decay, beta = (x if x is None else x.resolve_neg() for x in (log_decay, beta))
    if state is None:
        state = q.new_zeros((*q.shape, v.shape[2]))
    out = v.new_empty(v.shape)
    _core.gated_step(torch.get_num_threads(), q, k, v, log_decay, erase, beta, state, out)
    return out, state


def _prepare(op, *tensors):
    if torch._C._is_tracing() or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY):
        raise RuntimeError(f"{op} is no operator of torch, so it cannot be traced")
    for x in tensors:
        if x is not None and x.dim() != 3:
            raise ValueError(f"{op}: expected tensors (batch, heads, dim), not {tuple(x.shape)}")
    return [x if x is None else x.resolve_neg() if x.stride(2) == 1 else x.contiguous() for x in tensors]
