"""Recurrent forms of causal attention: one token in, one result out.

The extension computes a step and changes the state in place. If gradients are recorded, and in transforms of torch.func,
functions of torch compute a new state instead. In other traced code, such as that of torch.compile, they change the state in
place.
"""

from typing import Callable, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from .. import _core
from .._arguments import read_integer
from ._arguments import cast_for_autocast, check_dense, check_inputs, needs_gradient, read_gate
from ._functions import apply_feature_map, find_feature_map, gated_linear_attention, read_scale, softmax_attention
from ._ops import FEATURE_FUNCTIONS, UNLIMITED, is_traced


class LinearState(NamedTuple):
    """The state of linear attention. For bfloat16 tokens, the tensors are float32."""

    kv: Tensor  # (batch, heads, dim, value_dim): sum of phi(k) v^T
    key_sum: Tensor  # (batch, heads, dim): sum of phi(k)


class KeyValueState(NamedTuple):
    """The keys and values of earlier tokens. Token t is at position t % capacity.

    The tensors have the dtype of the tokens. A state with bfloat16 tensors for float32 tokens halves their memory.
    """

    keys: Tensor  # (batch, capacity, key_heads, dim)
    values: Tensor  # (batch, capacity, key_heads, value_dim)
    length: int  # number of tokens


def linear_attention_step(
    q: Tensor, k: Tensor, v: Tensor, state: Optional[LinearState] = None, *,
    feature_map: Union[str, Callable[[Tensor], Tensor]] = "elu_plus_one", eps: float = 1e-6,
) -> Tuple[Tensor, LinearState]:  # fmt: skip
    """Processes one token of causal linear attention.

    Args:
        q: Query (batch, heads, dim), float32, float64 or bfloat16.
        k: Key (batch, heads, dim).
        v: Value (batch, heads, value_dim).
        state: The state after the previous token; None before the first token. It is changed in place, unless gradients are
            recorded.
        feature_map: See linear_attention().
        eps: Added to the denominators.

    Returns:
        The result (batch, heads, value_dim), and the state.
    """
    (q, k, v), dtype = _prepare("linear_attention_step", q, k, v)
    phi = feature_map if callable(feature_map) else FEATURE_FUNCTIONS[find_feature_map(feature_map)]
    if state is not None:
        _check_state("linear_attention_step", state, LinearState)
    if callable(feature_map) or is_traced() or needs_gradient([q, k, v, *(state or ())]):
        return _step_features(apply_feature_map(phi, q), apply_feature_map(phi, k), v, state, eps, dtype)
    if state is None:
        state = LinearState(q.new_zeros((*q.shape, v.shape[2])), q.new_zeros(q.shape))
    out = v.new_empty(v.shape, dtype=dtype)
    _core.linear_step(torch.get_num_threads(), q, k, v, *state, find_feature_map(feature_map), float(eps), out)
    _mark_changed(state)
    return out, state


def _step_features(q, k, v, state, eps, dtype) -> Tuple[Tensor, LinearState]:
    """Processes one token of linear attention with features."""
    added = k[..., None] * v[:, :, None], k
    if state is None:
        state = LinearState(added[0], k.clone())  # k can belong to the caller
    elif _needs_new_state([q, k, v, *state]):
        state = LinearState(*(x + y for x, y in zip(state, added)))
    else:
        for x, y in zip(state, added):
            x.add_(y)
    sums = (q[:, :, None] @ state.kv)[:, :, 0]
    return (sums / ((q * state.key_sum).sum(2, keepdim=True) + eps)).to(dtype), state


def softmax_attention_step(
    q: Tensor, k: Tensor, v: Tensor, state: Optional[KeyValueState] = None, *, scale: Optional[float] = None,
    window: Optional[int] = None,
) -> Tuple[Tensor, KeyValueState]:  # fmt: skip
    """Processes one token of causal softmax attention.

    Args:
        q: Query (batch, heads, dim), float32, float64 or bfloat16.
        k: Key (batch, key_heads, dim), where `key_heads` divides `heads`.
        v: Value (batch, key_heads, value_dim).
        state: The keys and values of the previous tokens; None before the first token. It is changed in place if it has
            room, unless gradients are recorded.
        scale: Multiplier of q . k; by default 1 / sqrt(dim).
        window: The token attends to itself and to the `window` - 1 tokens before it; None: to all tokens. The
            state then has a constant size. All steps of a sequence have the same window.

    Returns:
        The result (batch, heads, value_dim), and the state.
    """
    name = "softmax_attention_step"
    (q, k, v), dtype = _prepare(name, q, k, v)
    before = UNLIMITED if window is None else read_integer(f"{name}: window", window, 1, UNLIMITED) - 1
    if state is None:
        state = KeyValueState(*(_make_cached_rows(x, window or 16, dtype) for x in (k, v)), 0)
    _check_state(name, state, KeyValueState)
    length = read_integer(f"{name}: the length of the state", state.length)
    if window is None and all(x.dim() == 4 and x.shape[1] == length for x in state[:2]):
        state = KeyValueState(*(_grow(x, max(length, 16)) for x in state[:2]), length)
    if is_traced() or needs_gradient([q, k, v, *state[:2]]):
        out, state = _step_softmax(q, k, v, KeyValueState(*state[:2], length), scale, window)
        return out.to(dtype), state
    out = v.new_empty((*q.shape[:2], v.shape[2]))
    length = _core.softmax_step(
        torch.get_num_threads(), q, k, v, *state[:2], length, read_scale(scale), before, out
    )
    _mark_changed(state[:2])
    return out if out.dtype == dtype else out.to(dtype), state._replace(length=length)


def _make_cached_rows(like: Tensor, capacity: int, dtype: torch.dtype) -> Tensor:
    """Returns (batch, capacity, key_heads, width) for tokens or rows. The rows of one head are adjacent, as they are read."""
    batch, *_, heads, width = like.shape
    return like.new_empty((batch, heads, capacity, width), dtype=dtype).transpose(1, 2)


def _grow(rows: Tensor, count: int) -> Tensor:
    length = rows.shape[1]
    grown = _make_cached_rows(rows, length + count, rows.dtype)
    grown[:, :length] = rows
    return grown


def _step_softmax(q, k, v, state, scale, window) -> Tuple[Tensor, KeyValueState]:
    """Processes one token of softmax attention with functions of torch."""
    length, capacity, sizes = state.length, state.keys.shape[1], (k.shape, v.shape)
    if any((x.shape[0], *x.shape[2:]) != size for x, size in zip(state[:2], sizes)) or state.values.shape[1] != capacity:
        shapes = ", ".join(str(tuple(x.shape)) for x in (*state[:2], k, v))
        raise ValueError(f"softmax_attention_step: the state does not match k and v: {shapes}")
    if length >= capacity and (window is None or window > capacity):
        raise ValueError(f"softmax_attention_step: the state is full: capacity {capacity}, length {length}")
    position = torch.arange(length, length + 1, device=q.device) % capacity
    tokens = [y[:, None].to(x.dtype) for x, y in zip(state[:2], (k, v))]
    if _needs_new_state([q, k, v, *state[:2]]):
        kept = [x.index_copy(1, position, y) for x, y in zip(state[:2], tokens)]
    else:
        kept = [x.index_copy_(1, position, y) for x, y in zip(state[:2], tokens)]
    keys, values = (x.to(q.dtype) for x in kept)
    if window is None or window == capacity:  # the order of the keys has no effect
        lengths = torch.arange(length + 1, length + 2, device=q.device).clamp(max=capacity).expand(q.shape[0])
    else:
        lengths = None
        positions = torch.arange(max(0, length + 1 - window), length + 1, device=q.device) % capacity
        keys, values = keys.index_select(1, positions), values.index_select(1, positions)
    out = softmax_attention(q[:, None], keys, values, lengths=lengths, scale=scale)
    return out[:, 0], KeyValueState(*kept, length + 1)


def gated_linear_attention_step(
    q: Tensor, k: Tensor, v: Tensor, state: Optional[Tensor] = None, *, log_decay: Optional[Tensor] = None,
    erase: Optional[Tensor] = None, beta: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    """Processes one token of gated linear attention.

    Args:
        q, k, v: See linear_attention_step().
        state: (batch, heads, dim, value_dim); None before the first token. For bfloat16 tokens, it is float32. It is changed
            in place, unless gradients are recorded.
        log_decay: (batch, heads), (batch, heads, dim) or (heads,).
        erase: (batch, heads, dim).
        beta: (batch, heads).

    Returns:
        The result (batch, heads, value_dim), and the state.
    """
    (q, k, v, erase), dtype = _prepare("gated_linear_attention_step", q, k, v, erase)
    log_decay, beta = (
        x if x is None else x.resolve_neg()
        for x in (read_gate("log_decay", log_decay, q.dtype), read_gate("beta", beta, q.dtype))
    )
    if state is not None and not isinstance(state, Tensor):
        raise TypeError(f"gated_linear_attention_step: state must be a torch.Tensor or None, not {type(state).__name__}")
    inputs = [q, k, v, log_decay, erase, beta, state]
    if is_traced() or needs_gradient(inputs):
        return _step_gated(*inputs, dtype)
    if log_decay is not None and log_decay.dim() == 3 and log_decay.stride(2) != 1:
        log_decay = log_decay.contiguous()
    if state is None:
        state = q.new_zeros((*q.shape, v.shape[2]))
    out = v.new_empty(v.shape, dtype=dtype)
    _core.gated_step(torch.get_num_threads(), q, k, v, log_decay, erase, beta, state, out)
    _mark_changed([state])
    return out, state


def _step_gated(q, k, v, log_decay, erase, beta, state, dtype) -> Tuple[Tensor, Tensor]:
    """Processes one token of gated linear attention as a sequence."""
    decays = log_decay if log_decay is None or log_decay.dim() == 1 else log_decay[:, None]
    q, k, v, rows, betas = (x if x is None else x[:, None] for x in (q, k, v, erase, beta))
    out, new = gated_linear_attention(q, k, v, log_decay=decays, erase=rows, beta=betas, initial_state=state)
    if state is not None and not _needs_new_state([q, k, v, log_decay, erase, beta, state]):
        new = state.copy_(new)
    return out[:, 0].to(dtype), new


def _needs_new_state(tensors) -> bool:
    """Returns whether a step must not change its state in place."""
    return needs_gradient(tensors) or (not is_compiling() and peek_interpreter_stack() is not None)


def _prepare(op, *tensors):
    """Returns the tokens as the extension reads them, bfloat16 as float32, and the dtype of the result."""
    check_inputs(op, "(batch, heads, dim)", tensors)
    for x in tensors:
        if x is not None:
            check_dense(op, x)
    tensors = cast_for_autocast(tensors)
    dtypes = [x.dtype for x in tensors if x is not None]
    if any(dtype != dtypes[0] for dtype in dtypes):
        raise TypeError(f"{op}: expected tokens of one dtype, not {', '.join(map(str, dtypes))}")
    if dtypes[0] == torch.bfloat16:
        tensors = [x if x is None else x.float() for x in tensors]
    return [x if x is None else (x if x.stride(2) == 1 else x.contiguous()).resolve_neg() for x in tensors], dtypes[0]


def _check_state(op, state, kind) -> None:
    if not isinstance(state, kind):
        raise TypeError(f"{op}: state must be a {kind.__name__} or None, not {type(state).__name__}")
    if is_compiling():  # torch.compile of PyTorch 2.4 does not trace the names of fields
        return
    for name, x in zip(state._fields, state[:2]):
        if not isinstance(x, Tensor):
            raise TypeError(f"{op}: state.{name} must be a torch.Tensor, not {type(x).__name__}")
        check_dense(f"{op}: state.{name}", x)


def _mark_changed(tensors) -> None:
    """Tells autograd that tensors were changed in place, so that a backward pass that needs old values raises."""
    for x in tensors:
        increment_version(x)
