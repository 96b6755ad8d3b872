"""Checks and conversions of tensors before the extension reads them."""

from typing import Optional

import torch
from torch import Tensor


def check_inputs(op: str, dimensions: str, tensors) -> None:
    """Raises an error if queries, keys or values are no tensors or have other dimensions. A fourth can be None."""
    for x in tensors if len(tensors) < 4 or tensors[3] is not None else tensors[:3]:
        if not isinstance(x, Tensor):
            raise TypeError(f"{op}: expected tensors {dimensions} of torch, not {type(x).__name__}")
        if x.dim() != dimensions.count(",") + 1:
            shapes = ", ".join(str(tuple(x.shape)) for x in tensors if isinstance(x, Tensor))
            raise ValueError(f"{op}: expected tensors {dimensions}, not {shapes}")


def check_dense(name: str, x: Tensor) -> None:
    if x.layout != torch.strided:
        raise TypeError(f"{name} is {x.layout}, expected a dense tensor")


def needs_gradient(tensors) -> bool:
    """Returns whether autograd records a function of these tensors, of which some can be None."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def cast_for_autocast(tensors):
    """Returns the tensors, in bfloat16 instead of float32 with autocast to bfloat16."""
    device = "cuda" if tensors[0].is_cuda else "cpu"
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        if dtype == torch.bfloat16:
            return [x.to(dtype) if x is not None and x.dtype == torch.float32 else x for x in tensors]
    return tensors


def read_lengths(lengths: Optional[Tensor]) -> Optional[Tensor]:
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor):
        raise TypeError(f"lengths must be a torch.Tensor (batch,), not {type(lengths).__name__}")
    check_dense("lengths", lengths)
    dtype = lengths.dtype
    if dtype == torch.int64:
        return lengths
    if dtype == torch.bool:
        raise TypeError("lengths must be integers, not torch.bool; lengths of a mask of valid keys: mask.sum(1)")
    if dtype.is_floating_point or dtype.is_complex:
        raise TypeError(f"lengths must be integers, not {dtype}")
    return lengths.to(torch.int64)


def read_gate(name: str, x: Optional[Tensor], dtype: torch.dtype) -> Optional[Tensor]:
    """Returns a decay, a beta or a state in the dtype of the computation."""
    if x is None:
        return None
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, not {type(x).__name__}")
    if not x.dtype.is_floating_point:
        raise TypeError(f"{name} must be floats, not {x.dtype}")
    check_dense(name, x)
    return x if x.dtype == dtype else x.to(dtype)
