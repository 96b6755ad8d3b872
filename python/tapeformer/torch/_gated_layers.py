"""Whole gated layers with the parameters of flash-linear-attention, so that its state dicts load."""

import math
from typing import Any, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import _gated_rules as rules
from ._layers import ACTIVATIONS, gated_rms_norm


class GatedDeltaState(NamedTuple):
    """The state of a GatedDeltaNet after a token."""

    recurrent: Tensor  # (batch, value_heads, dim, value_dim), float32
    q_conv: Optional[Tensor]  # (batch, conv_size - 1, channels): the last inputs of the convolution, if there is one
    k_conv: Optional[Tensor]
    v_conv: Optional[Tensor]


class ShortConvolution(nn.Conv1d):
    """A causal depthwise convolution of (batch, length, hidden_size); see short_conv()."""

    def __init__(self, hidden_size: int, kernel_size: int, bias: bool = False, activation: Optional[str] = "silu"):
        super().__init__(hidden_size, hidden_size, kernel_size, groups=hidden_size, bias=bias, padding=kernel_size - 1)
        if activation not in ACTIVATIONS:
            raise ValueError(f"ShortConvolution: activation must be None, 'silu' or 'sigmoid', not {activation!r}")
        self.activation = activation

    def forward(self, x, history=None, lengths=None, boundaries=None):
        """Returns the results; `history` contains the inputs before the first, (batch, kernel_size - 1, hidden_size)."""
        return rules.apply_conv(
            x, self.weight[:, 0], self.bias, self.activation, history=history, lengths=lengths, boundaries=boundaries
        )

    def append(self, x, history=None) -> Tensor:
        """Returns the last kernel_size - 1 inputs, as the history of later tokens."""
        count = self.kernel_size[0] - 1
        x = F.pad(x, (0, 0, count, 0)) if history is None else torch.cat([history, x], 1)
        return x[:, x.shape[1] - count :].detach()


class GatedRMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight * activation(gate); see gated_rms_norm()."""

    def __init__(self, hidden_size: int, eps: float = 1e-5, activation: str = "silu"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps
        self.activation = activation

    def forward(self, x, gate=None):
        return gated_rms_norm(x, self.weight, gate, activation=self.activation, eps=self.eps)


class GatedDeltaNet(nn.Module):
    """The layer of Gated DeltaNet (Yang et al. 2024), as in flash-linear-attention, Qwen3-Next and Qwen3.5.

    Queries, keys and values are projections after short convolutions with SiLU. Queries and keys are normalised. With
    g = -exp(A_log) softplus(a_proj(x) + dt_bias) and beta = sigmoid(b_proj(x)), gated_linear_attention() with erase = k
    computes the results. o_norm, gated by g_proj(x), and o_proj follow. Parameters have the names of
    fla.layers.GatedDeltaNet, whose state dicts load; from_layer() converts layers of transformers.

    Args:
        hidden_size: Channels of the inputs and outputs.
        expand_v: value_dim / head_dim.
        head_dim: Dimension of queries and keys.
        num_heads: Number of heads of queries and keys.
        num_v_heads: Number of heads of values, a multiple of `num_heads`; by default the same.
        use_gate: Whether there is a g_proj.
        use_short_conv: Whether there are convolutions; otherwise only SiLU.
        allow_neg_eigval: beta = 2 sigmoid(b_proj(x)).
        conv_size: Taps of the convolutions.
        conv_bias: Whether the convolutions have a bias.
        norm_eps: eps of o_norm.
    """

    def __init__(
        self, hidden_size: int = 2048, expand_v: float = 2.0, head_dim: int = 256, num_heads: int = 6,
        num_v_heads: Optional[int] = None, use_gate: bool = True, use_short_conv: bool = True,
        allow_neg_eigval: bool = False, conv_size: int = 4, conv_bias: bool = False, norm_eps: float = 1e-5,
    ):  # fmt: skip
        super().__init__()
        num_v_heads = num_v_heads or num_heads
        if num_v_heads % num_heads or not math.isclose(int(head_dim * expand_v), head_dim * expand_v):
            raise ValueError(
                f"GatedDeltaNet: num_v_heads must be a multiple of num_heads, and head_dim * expand_v an integer, not "
                f"{num_v_heads}, {num_heads} and {head_dim * expand_v}"
            )
        self.head_dim, self.value_dim = head_dim, int(head_dim * expand_v)
        self.use_short_conv, self.allow_neg_eigval = use_short_conv, allow_neg_eigval
        widths = {"q": num_heads * head_dim, "k": num_heads * head_dim, "v": num_v_heads * self.value_dim}
        for name, width in (*widths.items(), ("a", num_v_heads), ("b", num_v_heads)):
            setattr(self, f"{name}_proj", nn.Linear(hidden_size, width, bias=False))
        self.A_log = nn.Parameter(torch.empty(num_v_heads).uniform_(0.01, 16).log())
        dt = torch.empty(num_v_heads).uniform_(math.log(1e-3), math.log(0.1)).exp()
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))  # softplus(dt_bias) = dt
        if use_short_conv:
            for name, width in widths.items():
                setattr(self, f"{name}_conv1d", ShortConvolution(width, conv_size, conv_bias))
        if use_gate:
            self.g_proj = nn.Linear(hidden_size, widths["v"], bias=False)
        self.o_norm = GatedRMSNorm(self.value_dim, norm_eps)
        self.o_proj = nn.Linear(widths["v"], hidden_size, bias=False)

    def forward(
        self, x: Tensor, state: Optional[GatedDeltaState] = None, *, attention_mask: Optional[Tensor] = None,
        boundaries: Optional[Tensor] = None,
    ) -> Tuple[Tensor, Optional[GatedDeltaState]]:  # fmt: skip
        """Returns the results (batch, length, hidden_size), and the state for the next tokens.

        Args:
            x: (batch, length, hidden_size).
            state: The state after the tokens before x; None at the start. It is not changed.
            attention_mask: (batch, length), 0 for padding before the first token, whose inputs are then 0.
            boundaries: Starts of packed sequences (batch, length), integers 0 and 1.
        """
        if attention_mask is not None:
            x = x * attention_mask[:, :, None].to(x.dtype)
        histories = (None, None, None) if state is None else state[1:]
        inputs = [self.q_proj(x), self.k_proj(x), self.v_proj(x)]
        kept = [None, None, None]
        if self.use_short_conv:
            convs = self.q_conv1d, self.k_conv1d, self.v_conv1d
            kept = [conv.append(y, h) for conv, y, h in zip(convs, inputs, histories)]
            inputs = [conv(y, h, boundaries=boundaries) for conv, y, h in zip(convs, inputs, histories)]
        else:
            inputs = [F.silu(y) for y in inputs]
        q, k, v = (y.unflatten(2, (-1, d)) for y, d in zip(inputs, (self.head_dim, self.head_dim, self.value_dim)))
        beta = self.b_proj(x).float().sigmoid() * (2 if self.allow_neg_eigval else 1)
        if attention_mask is not None:
            beta = beta * attention_mask[:, :, None]  # padding writes nothing, also if convolutions have a bias
        log_decay = -self.A_log.float().exp() * F.softplus(self.a_proj(x).float() + self.dt_bias.float())
        out, recurrent = rules.run_rule(
            q, k, v, log_decay, beta, initial_state=None if state is None else state.recurrent, normalize=True,
            boundaries=boundaries,
        )  # fmt: skip
        gate = self.g_proj(x).unflatten(2, (-1, self.value_dim)) if hasattr(self, "g_proj") else None
        out = self.o_proj(self.o_norm(out.to(x.dtype), gate).flatten(2))
        return out, GatedDeltaState(recurrent.detach(), *kept)

    @classmethod
    def from_layer(cls, layer: Any) -> "GatedDeltaNet":
        """Returns a layer with copies of the weights of a GatedDeltaNet of transformers (Qwen3-Next and Qwen3.5)."""
        old = layer.state_dict()
        heads, value_heads = layer.num_k_heads, layer.num_v_heads
        dims = layer.head_k_dim, layer.head_k_dim, layer.head_v_dim
        counts = heads, heads, value_heads
        new = cls(
            layer.hidden_size, dims[2] / dims[0], dims[0], heads, value_heads, conv_size=layer.conv_kernel_size,
            norm_eps=layer.norm.variance_epsilon,
        )  # fmt: skip
        widths = [n * d for n, d in zip(counts, dims)]
        weights = {"A_log": old["A_log"], "dt_bias": old["dt_bias"]}
        weights["o_norm.weight"], weights["o_proj.weight"] = old["norm.weight"], old["out_proj.weight"]
        for name, part in zip("qkv", old["conv1d.weight"].split(widths)):
            weights[f"{name}_conv1d.weight"] = part
        if "in_proj_qkvz.weight" in old:  # for each head of the keys, the rows of q, k, its values and its gates
            values = value_heads // heads * dims[2]
            parts = old["in_proj_qkvz.weight"].unflatten(0, (heads, -1)).split([dims[0], dims[1], values, values], 1)
            both = old["in_proj_ba.weight"].unflatten(0, (heads, -1)).chunk(2, 1)
            parts = [x.flatten(0, 1) for x in (*parts, *both)]
        else:
            parts = [*old["in_proj_qkv.weight"].split(widths), *(old[f"in_proj_{n}.weight"] for n in "zba")]
        for name, part in zip("qkvgba", parts):
            weights[f"{name}_proj.weight"] = part
        new.load_state_dict(weights)
        return new.to(old["out_proj.weight"])
