"""Short convolutions and gated norms, as they surround gated linear attention, as differentiable functions."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.compiler import is_compiling

from .. import _core
from ._arguments import check_dense, read_gate, read_lengths
from ._ops import Operator, compute_dtype, empty_like

ACTIVATIONS = {None: 0, "silu": 1, "swish": 1, "sigmoid": 2}
_FUNCTIONS = (lambda x: x, F.silu, torch.sigmoid)

MAX_KERNEL = 32


def short_conv(
    x: Tensor,
    weight: Tensor,
    *,
    activation: Optional[str] = None,
    history: Optional[Tensor] = None,
    lengths: Optional[Tensor] = None,
    boundaries: Optional[Tensor] = None,
) -> Tensor:
    """Computes a causal depthwise convolution over time.

    out[b, t, c] = activation(sum_j weight[c, j] x[b, t + j - (kernel - 1), c]), where x is 0 before the first token.

    Args:
        x: (batch, length, channels), float32, float64 or bfloat16.
        weight: (channels, kernel), of at most 32 taps. The last tap multiplies the current token.
        activation: None, "silu" or "sigmoid".
        history: The tokens before the first token, (batch, kernel - 1, channels).
        lengths: Numbers of valid tokens (batch,). Later results are 0.
        boundaries: Integers (batch, length). A 1 starts a sequence, which does not read earlier tokens.

    Returns:
        A contiguous tensor (batch, length, channels).
    """
    _check_tensor("short_conv", "x", x, "(batch, length, channels)")
    _check_tensor("short_conv", "weight", weight, "(channels, kernel)")
    if weight.shape[0] != x.shape[2]:
        raise ValueError(f"short_conv: expected a weight ({x.shape[2]}, kernel), not {tuple(weight.shape)}")
    if history is not None:
        _check_tensor("short_conv", "history", history, "(batch, kernel - 1, channels)", x.dtype)
    if boundaries is not None:
        _check_tensor("short_conv", "boundaries", boundaries, "(batch, length)")
        boundaries = boundaries.to(torch.int64)
    number, lengths = _find_activation("short_conv", activation), read_lengths(lengths)
    if _is_transformed():
        return _convolve(x, weight, history, lengths, boundaries, number)
    return conv(x, read_gate("weight", weight, compute_dtype(x)), history, lengths, boundaries, number)


def gated_rms_norm(
    x: Tensor, weight: Optional[Tensor] = None, gate: Optional[Tensor] = None, *, activation: Optional[str] = "silu",
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Computes x / sqrt(mean(x^2) + eps) * weight * activation(gate), with means over the last dimension.

    Args:
        x: (..., dim), float32, float64 or bfloat16, which is computed in float32 and rounded once.
        weight: (dim,), by default 1.
        gate: (..., dim) in the dtype of x, by default none.
        activation: Of the gate: None, "silu" or "sigmoid".

    Returns:
        A contiguous tensor like x.
    """
    _check_tensor("gated_rms_norm", "x", x, None)
    if gate is not None:
        _check_tensor("gated_rms_norm", "gate", gate, None, x.dtype)
    number = _find_activation("gated_rms_norm", activation)
    if _is_transformed():
        return _normalize(x, weight, gate, number, eps)
    return norm(x, read_gate("weight", weight, compute_dtype(x)), gate, number, float(eps))


def _is_transformed() -> bool:
    """Returns whether a transform of torch.func is active. The weights have no batch that vmap could extend."""
    return not is_compiling() and peek_interpreter_stack() is not None


def _check_tensor(op, name, x, dimensions, dtype=None) -> None:
    """Raises an error for a wrong number of dimensions, which are "(..., dim)" if `dimensions` is None."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: {name} must be a torch.Tensor, not {type(x).__name__}")
    check_dense(f"{op}: {name}", x)
    if dtype is not None and x.dtype != dtype:
        raise TypeError(f"{op}: {name} is {x.dtype}, expected {dtype}")
    if x.dim() == 0 if dimensions is None else x.dim() != dimensions.count(",") + 1:
        raise ValueError(f"{op}: expected {name} {dimensions or '(..., dim)'}, not {tuple(x.shape)}")


def _find_activation(op, name) -> int:
    if not (name is None or isinstance(name, str)) or name not in ACTIVATIONS:
        raise ValueError(f"{op}: activation must be None, 'silu' or 'sigmoid', not {name!r}")
    return ACTIVATIONS[name]


def _convolve(x, weight, history, lengths, boundaries, activation):
    """Computes short_conv() with functions of torch."""
    kernel, length = weight.shape[1], x.shape[1]
    positions = torch.arange(length, device=x.device)
    if lengths is not None:
        x = x.masked_fill((positions >= lengths[:, None])[:, :, None], 0)
    if history is None:
        padded = F.pad(x, (0, 0, kernel - 1, 0))
    else:
        padded = torch.cat([history, x], 1)
    sequences = None if boundaries is None else F.pad(boundaries.cumsum(1), (kernel - 1, 0))
    out = torch.zeros_like(x, dtype=compute_dtype(x))
    for j in range(kernel):
        part = padded[:, j : j + length]
        if sequences is not None:
            part = part.masked_fill((sequences[:, j : j + length] != sequences[:, kernel - 1 :])[:, :, None], 0)
        out = out + part.to(out.dtype) * weight[:, j].to(out.dtype)
    out = _FUNCTIONS[activation](out)
    if lengths is not None:
        out = out.masked_fill((positions >= lengths[:, None])[:, :, None], 0)
    return out.to(x.dtype)


def _normalize(x, weight, gate, activation, eps):
    """Computes gated_rms_norm() with functions of torch."""
    out = x.to(compute_dtype(x))
    out = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + eps)
    if weight is not None:
        out = out * weight.to(out.dtype)
    if gate is not None:
        out = out * _FUNCTIONS[activation](gate.to(out.dtype))
    return out.to(x.dtype)


# The operators. A second, empty result makes the results a tuple, which torch.library needs.


def _conv_forward(
    x: Tensor, weight: Tensor, history: Optional[Tensor], lengths: Optional[Tensor], boundaries: Optional[Tensor],
    activation: int,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    out = x.new_empty(x.shape)
    _core.conv_forward(torch.get_num_threads(), x, weight, history, lengths, boundaries, activation, out)
    return out, x.new_empty(0)


def _conv_fake(x, weight, history, lengths, boundaries, activation):
    return x.new_empty(x.shape), x.new_empty(0)


def _conv_backward(gradients, tensors, outputs, constants):
    targets = [None if x is None else empty_like(x) for x in tensors[:3]]
    _core.conv_backward(torch.get_num_threads(), *tensors, *constants, gradients[0], *targets)
    return targets


conv = Operator("short_conv", _conv_forward, _conv_fake, _conv_backward, 5, 3)


def _norm_forward(
    x: Tensor, weight: Optional[Tensor], gate: Optional[Tensor], activation: int, eps: float
) -> Tuple[Tensor, Tensor]:
    out = x.new_empty(x.shape)
    _core.norm_forward(torch.get_num_threads(), x, weight, gate, activation, eps, out)
    return out, x.new_empty(0)


def _norm_fake(x, weight, gate, activation, eps):
    return x.new_empty(x.shape), x.new_empty(0)


def _norm_backward(gradients, tensors, outputs, constants):
    targets = [None if x is None else empty_like(x) for x in tensors]
    _core.norm_backward(torch.get_num_threads(), *tensors, *constants, gradients[0], *targets)
    return targets


norm = Operator("gated_rms_norm", _norm_forward, _norm_fake, _norm_backward, 3, 3)
