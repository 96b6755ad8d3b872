"""Puts functions of Tapeformer in place in the layers of flash-linear-attention, which have none for the CPU."""

import importlib
import inspect
import sys
from typing import Any, Dict, Iterator, List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _gated_rules as rules
from ._layers import ACTIVATIONS, MAX_KERNEL, gated_rms_norm
from ._patching import Patch, is_replaced, replace

_RULES = (
    "chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule", "chunk_delta_rule", "fused_recurrent_delta_rule",
    "chunk_kda", "fused_recurrent_kda",
)  # fmt: skip
_ARGUMENTS = {
    "q", "k", "v", "g", "beta", "scale", "initial_state", "output_final_state", "use_qk_l2norm_in_kernel",
    "use_gate_in_kernel", "A_log", "dt_bias", "use_beta_sigmoid_in_kernel", "allow_neg_eigval", "state_v_first",
    "cu_seqlens", "cu_seqlens_cpu", "chunk_indices",
}  # fmt: skip


def patch_fla() -> Patch:
    """Replaces functions of flash-linear-attention (fla) by ours, for CPU tensors, where fla has no kernels.

    The layers are GatedDeltaNet, DeltaNet and KimiDeltaAttention, with their convolutions, norms and caches, and
    packed sequences (cu_seqlens). CUDA tensors and arguments that ours do not support go to the original. fla 0.6 is
    tested. See patch_transformers() for the result.
    """
    importlib.import_module("fla.layers")
    sites, patched, missing = [], [], []
    found = set()
    for owner, name, make in _list_candidates():
        found.add(name if inspect.ismodule(owner) else owner.__name__)
        if not is_replaced(owner, name):
            sites.append(replace(owner, name, make(vars(owner)[name])))
        patched.append(f"{owner.__name__}: {name}" if inspect.ismodule(owner) else f"fla: {owner.__name__}")
    missing += [f"{name} (fla does not have it)" for name in (*_RULES, *_CLASSES) if name not in found]
    missing += [f"{name} (its recurrence is not replaced)" for name in _list_other_layers()]
    return Patch("tapeformer.torch.patch_fla", sites, patched, missing)


def _layer_modules() -> List[Any]:
    return [module for name, module in sorted(sys.modules.items()) if name.startswith("fla.layers.") and module]


def _list_candidates() -> Iterator[Tuple[Any, str, Any]]:
    """Yields the owner and the name of functions, and functions that make the replacement of the original."""
    for module in _layer_modules():
        for name in _RULES:
            if name in vars(module):
                yield module, name, _make_rule
        if "causal_conv1d" in vars(module) and inspect.isfunction(vars(module)["causal_conv1d"]):
            yield module, "causal_conv1d", lambda original: _convolve
    classes = vars(importlib.import_module("fla.modules"))
    for name, forward in _CLASSES.items():
        if name in classes and "forward" in vars(classes[name]):
            yield classes[name], "forward", lambda original, forward=forward: forward


def _list_other_layers() -> Iterator[str]:
    layers = vars(importlib.import_module("fla.layers"))
    for module in _layer_modules():
        for name, kind in vars(module).items():
            is_layer = inspect.isclass(kind) and kind.__module__ == module.__name__ and layers.get(name) is kind
            if is_layer and not any(rule in vars(module) for rule in _RULES):
                yield f"{module.__name__}: {name}"


def _make_rule(original):
    signature = inspect.signature(original)

    def run(*args, **kwargs):
        bound = signature.bind(*args, **kwargs).arguments
        return _run_rule({**bound.pop("kwargs", {}), **bound})

    return run


def _run_rule(arguments: Dict[str, Any]):
    x: Dict[str, Any] = {name: value for name, value in arguments.items() if value is not None and value is not False}
    q, k, v = x["q"], x["k"], x["v"]
    g, beta, state = (x.get(name) for name in ("g", "beta", "initial_state"))
    tensors = [value for name, value in x.items() if isinstance(value, Tensor) and not name.startswith(("cu_", "chunk_"))]
    if set(x) - _ARGUMENTS or not rules.computes(*tensors):
        return NotImplemented
    if "use_gate_in_kernel" in x:
        bias, g = x.get("dt_bias"), x["g"]
        g = F.softplus(g.float() if bias is None else g.float() + bias.float().reshape(g.shape[2:]))
        g = -x["A_log"].float().exp().reshape(-1, *[1] * (g.dim() - 3)) * g
    if beta is not None and "use_beta_sigmoid_in_kernel" in x:
        beta = beta.float().sigmoid() * (2 if "allow_neg_eigval" in x else 1)
    if state is not None and "state_v_first" in x:
        state = state.transpose(2, 3)
    out, state = rules.run_rule(
        q, k, v, g, beta, initial_state=state, normalize="use_qk_l2norm_in_kernel" in x, scale=x.get("scale"),
        cu_seqlens=x.get("cu_seqlens"),
    )  # fmt: skip
    if "output_final_state" not in x:
        return out.to(q.dtype), None
    return out.to(q.dtype), state.transpose(2, 3).contiguous() if "state_v_first" in x else state


def _convolve(
    x, weight=None, bias=None, residual=None, initial_state=None, output_final_state=False, activation=None,
    backend=None, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None, cp_context=None, **kwargs,
):  # fmt: skip
    """Returns the convolution of (batch, length, channels), and the state (sequences, channels, kernel) or None."""
    if weight is None or cp_context is not None or not rules.computes(x, weight, bias, residual, initial_state):
        return NotImplemented
    kernel = weight.shape[1]
    if activation not in ACTIVATIONS or kernel > MAX_KERNEL:
        return NotImplemented
    tokens, lengths, inputs = None, None, x
    if cu_seqlens is not None:
        tokens, lengths = rules.find_tokens(cu_seqlens)
        inputs = rules.unpack(x, tokens)
    earlier = None if initial_state is None else initial_state.transpose(1, 2).to(x.dtype)
    history = None if earlier is None else earlier[:, 1:]
    out = rules.apply_conv(inputs, weight, bias, activation, history=history, lengths=lengths)
    if tokens is not None:
        out = out[tokens][None]
    state = None
    if output_final_state:
        all_inputs = F.pad(inputs, (0, 0, kernel, 0)) if earlier is None else torch.cat([earlier, inputs], 1)
        ends = torch.full(inputs.shape[:1], inputs.shape[1]) if lengths is None else lengths
        positions = (ends[:, None] + torch.arange(kernel))[:, :, None].expand(-1, -1, inputs.shape[2])
        state = all_inputs.gather(1, positions).transpose(1, 2).contiguous()
    return (out if residual is None else out + residual), state


def _convolve_module(
    module, x, residual=None, mask=None, cache=None, output_final_state=False, cu_seqlens=None, chunk_indices=None,
    **kwargs,
):  # fmt: skip
    """Computes the forward pass of fla's ShortConvolution. Without gradients, it changes the cache of a token in place."""
    if mask is not None:
        return NotImplemented
    result = _convolve(
        x, module.weight[:, 0], module.bias, residual, cache, output_final_state or cache is not None,
        module.activation, cu_seqlens=cu_seqlens,
    )  # fmt: skip
    if result is NotImplemented or cache is None:
        return result
    out, state = result
    if not torch.is_grad_enabled() and x.shape[0] * x.shape[1] == cache.shape[0]:
        state = cache.copy_(state)
    return out, state if output_final_state else None


def _normalize(module, x, g=None, residual=None, prenorm=False, residual_in_fp32=False):
    """Computes the forward passes of fla's RMSNorm and FusedRMSNormGated."""
    if residual is not None or prenorm or module.bias is not None or not rules.computes(x, g, module.weight):
        return NotImplemented
    if g is not None and (g.dtype != x.dtype or g.shape != x.shape):
        return NotImplemented
    return gated_rms_norm(x, module.weight, g, activation=getattr(module, "activation", None), eps=module.eps)


def _normalize_only(module, x, residual=None, prenorm=False, residual_in_fp32=False):
    return _normalize(module, x, None, residual, prenorm)


_CLASSES = {"ShortConvolution": _convolve_module, "FusedRMSNormGated": _normalize, "RMSNorm": _normalize_only}
