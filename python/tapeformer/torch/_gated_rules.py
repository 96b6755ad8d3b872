"""The recurrences, convolutions and norms of other libraries' gated layers, with the arguments of these libraries.

The functions return NotImplemented for tensors and arguments that they do not compute: the caller then calls the
function that it replaced. States and gates are float32, as in these libraries.
"""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

from ._arguments import needs_gradient
from ._functions import gated_linear_attention
from ._layers import ACTIVATIONS, MAX_KERNEL, gated_rms_norm, short_conv
from ._recurrent import gated_linear_attention_step

_RULE_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def computes(*tensors: Optional[Tensor], dtypes=_DTYPES) -> bool:
    """Returns whether the tensors, of which some can be None, are floats on the CPU."""
    return all(x is None or (x.device.type == "cpu" and x.dtype in dtypes) for x in tensors)


def chunk_delta_rule(
    query, key, value, g, beta, chunk_size=64, initial_state=None, output_final_state=False,
    use_qk_l2norm_in_kernel=False, cu_seqlens=None, **kwargs,
):  # fmt: skip
    """Computes the gated delta rule of transformers. g is (batch, length, heads) or (batch, length, heads, dim)."""
    if not computes(query, key, value, g, beta, initial_state, dtypes=_RULE_DTYPES):
        return NotImplemented
    out, state = run_rule(
        query, key, value, g, beta, initial_state=initial_state, normalize=use_qk_l2norm_in_kernel,
        cu_seqlens=cu_seqlens,
    )  # fmt: skip
    return out.to(query.dtype), state if output_final_state else None


def recurrent_delta_rule(
    query, key, value, g, beta, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False, **kwargs
):
    return chunk_delta_rule(
        query, key, value, g, beta, 64, initial_state, output_final_state, use_qk_l2norm_in_kernel, **kwargs
    )


def run_rule(
    q, k, v, log_decay=None, beta=None, *, initial_state=None, normalize=False, scale=None, delta=True, cu_seqlens=None,
    boundaries=None,
):  # fmt: skip
    """Returns the float32 results and final states of a gated rule, with the erase key k if `delta` is true.

    q and k can have fewer heads than v. With `cu_seqlens` (sequences + 1,), the tokens of a batch of one are packed
    sequences, and states are (sequences, heads, dim, value_dim).
    `boundaries` are the starts of sequences without states (batch, length).
    """
    scale = k.shape[3] ** -0.5 if scale is None else scale
    q, k, v = q.float(), k.float(), v.float()
    log_decay, beta, initial_state = (x if x is None else x.float() for x in (log_decay, beta, initial_state))
    if normalize:
        q, k = l2_norm(q, scale), l2_norm(k, 1.0)
    else:
        q = q * scale
    if k.shape[2] != v.shape[2]:
        q, k = (x.repeat_interleave(v.shape[2] // k.shape[2], 2) for x in (q, k))
    tokens = None
    if cu_seqlens is not None:
        tokens, lengths = find_tokens(cu_seqlens)
        q, k, v, log_decay, beta = (x if x is None else unpack(x, tokens) for x in (q, k, v, log_decay, beta))
    inputs = [q, k, v, log_decay, beta, initial_state]
    if tokens is None and boundaries is None and q.shape[1] == 1 and not (is_compiling() or needs_gradient(inputs)):
        state = None if initial_state is None else initial_state.clone(memory_format=torch.contiguous_format)
        q, k, v, log_decay, beta = (x if x is None else x[:, 0] for x in inputs[:5])
        erase = k if delta else None
        out, state = gated_linear_attention_step(q, k, v, state, log_decay=log_decay, erase=erase, beta=beta)
        return out[:, None], state
    out, state = gated_linear_attention(
        q, k, v, log_decay=log_decay, erase=k if delta else None, beta=beta, initial_state=initial_state,
        lengths=None if tokens is None else lengths, boundaries=boundaries,
    )  # fmt: skip
    return (out if tokens is None else out[tokens][None]), state


def l2_norm(x: Tensor, scale: float, eps: float = 1e-6) -> Tensor:
    """Computes scale * x / sqrt(sum(x^2) + eps)."""
    dim = x.shape[-1]
    return gated_rms_norm(x, x.new_full((dim,), scale * dim**-0.5), eps=eps / dim)


def find_tokens(cu_seqlens: Tensor):
    """Returns the bool matrix of the tokens of padded sequences (sequences, longest), and the lengths."""
    lengths = cu_seqlens.diff()
    longest = int(lengths.max()) if lengths.numel() > 0 else 0
    return torch.arange(longest, device=lengths.device) < lengths[:, None], lengths


def unpack(x: Tensor, tokens: Tensor) -> Tensor:
    """Returns packed sequences (1, tokens, ...) as padded sequences."""
    padded = x.new_zeros((*tokens.shape, *x.shape[2:]))
    padded[tokens] = x[0]
    return padded


def convolve(hidden_states, weight, bias=None, activation=None, seq_idx=None, **kwargs):
    """Computes the causal convolution of transformers, of (batch, channels, length)."""
    if not computes(hidden_states, weight, bias) or activation not in ACTIVATIONS or weight.shape[1] > MAX_KERNEL:
        return NotImplemented
    if kwargs.get("initial_states") is not None or kwargs.get("return_final_states"):
        return NotImplemented
    boundaries = None if seq_idx is None else F.pad(seq_idx.diff(dim=1) != 0, (1, 0))
    x = hidden_states.transpose(1, 2)
    return apply_conv(x, weight, bias, activation, boundaries=boundaries).transpose(1, 2)


def apply_conv(x, weight, bias, activation, **options) -> Tensor:
    """Returns short_conv() with a bias (channels,) or None."""
    if bias is None:
        return short_conv(x, weight, activation=activation, **options)
    out = short_conv(x, weight, **options) + bias.to(x.dtype)
    return out if activation is None else torch.sigmoid(out) if activation == "sigmoid" else F.silu(out)


def convolve_token(hidden_states, conv_state, weight, bias=None, activation=None, **kwargs):
    """Computes the convolution of one token (batch, channels, 1), and appends it to the state."""
    kernel = weight.shape[1]
    is_token = hidden_states.dim() == 3 and hidden_states.shape[2] == 1 and conv_state.shape[2] >= kernel - 1
    if not is_token or not computes(hidden_states, conv_state, weight, bias) or activation not in ACTIVATIONS:
        return NotImplemented
    tokens = torch.cat([conv_state, hidden_states.to(conv_state.dtype)], 2)
    conv_state.copy_(tokens[:, :, -conv_state.shape[2] :])
    dtype = torch.promote_types(torch.float32, tokens.dtype)
    out = (tokens[:, :, -kernel:].to(dtype) * weight.to(dtype)).sum(2, keepdim=True)
    if bias is not None:
        out = out + bias[:, None].to(dtype)
    return (out if activation is None else torch.sigmoid(out) if activation == "sigmoid" else F.silu(out)).to(
        hidden_states.dtype
    )


def normalize(module, hidden_states, gate=None):
    """Computes the forward pass of a gated RMS norm of transformers."""
    activation = getattr(module, "activation", None)
    if (
        gate is None
        or activation not in ("silu", "swish", "sigmoid")
        or gate.dtype != hidden_states.dtype
        or gate.shape != hidden_states.shape
        or not computes(hidden_states, gate, module.weight)
    ):
        return NotImplemented
    return gated_rms_norm(hidden_states, module.weight, gate, activation=activation, eps=module.variance_epsilon)


def scan_mamba2(
    hidden_states, dt, A, B, C, chunk_size, D=None, dt_bias=None, initial_states=None, dt_softplus=False,
    dt_limit=(0.0, float("inf")), return_final_states=False, z=None, seq_idx=None, **kwargs,
):  # fmt: skip
    """Computes Mamba-2 with the arguments of mamba_chunk_scan_combined. States are (batch, heads, dim, state)."""
    tensors = hidden_states, dt, A, B, C, D, dt_bias, initial_states
    if z is not None or A.dim() != 1 or (D is not None and D.dim() != 1) or not computes(*tensors, dtypes=_RULE_DTYPES):
        return NotImplemented
    if dt_bias is not None:
        dt = dt + dt_bias.to(dt.dtype)
    if dt_softplus:
        dt = F.softplus(dt)
    dt = dt.clamp(*dt_limit).float()
    x = hidden_states.float()
    state = None if initial_states is None else initial_states.float().transpose(2, 3)
    heads = x.shape[2] // B.shape[2]
    B, C = (y.float().repeat_interleave(heads, 2) for y in (B, C))
    out, state = gated_linear_attention(
        C, B, x, log_decay=A.float() * dt, beta=dt, initial_state=state,
        boundaries=None if seq_idx is None else F.pad(seq_idx.diff(dim=1) != 0, (1, 0)),
    )  # fmt: skip
    if D is not None:
        out = torch.addcmul(out, D.to(out.dtype)[:, None], x.to(out.dtype))
    return (out, state.transpose(2, 3)) if return_final_states else out


def step_mamba2(state, hidden_states, dt, A, B, C, D=None, dt_bias=None, dt_softplus=False, z=None, **kwargs):
    """Processes one token of Mamba-2 with the arguments of selective_state_update, and changes the state in place.

    A, dt, D and dt_bias are expanded from one number for each head.
    """
    tensors = state, hidden_states, dt, A, B, C, D, dt_bias
    is_expanded = A.dim() == 3 and _is_expanded(A, 1) and _is_expanded(A, 2) and dt.dim() == 3 and _is_expanded(dt, 2)
    is_expanded = is_expanded and (dt_bias is None or (dt_bias.dim() == 2 and _is_expanded(dt_bias, 1)))
    if z is not None or not is_expanded or not computes(*tensors, dtypes=_RULE_DTYPES) or needs_gradient(tensors):
        return NotImplemented
    dt = dt[..., 0]
    if dt_bias is not None:
        dt = dt + dt_bias[:, 0].to(dt.dtype)
    if dt_softplus:
        dt = F.softplus(dt)
    heads = hidden_states.shape[1] // B.shape[1]
    B, C = (y.repeat_interleave(heads, 1) for y in (B, C))
    decay = torch.exp(dt.float() * A[:, 0, 0].float())
    written = (dt[..., None] * hidden_states)[..., None] * B[:, :, None, :]
    state.mul_(decay[..., None, None].to(state.dtype)).add_(written.to(state.dtype))
    out = (state.to(C.dtype) @ C[..., None])[..., 0]
    if D is not None:
        out = (out + hidden_states * D).to(out.dtype)
    return out.to(hidden_states.dtype)


def _is_expanded(x: Tensor, dim: int) -> bool:
    return x.shape[dim] == 1 or x.stride(dim) == 0
