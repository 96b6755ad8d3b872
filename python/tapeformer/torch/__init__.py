"""Attention for PyTorch on the CPU and on CUDA devices.

The functions take tensors (batch, length, heads, dim) of float32, float64 or bfloat16 without copying them, and
are differentiable. They run in parallel on torch.get_num_threads() threads without the GIL. In a build with
CUDA, they take CUDA tensors, too, and run in the order of the current stream of PyTorch. torch.compile treats
them as opaque operators. With torch.autocast to bfloat16, float32 queries, keys and values are cast to bfloat16;
decays and states stay float32. Wrong shapes and devices raise ValueError, and wrong dtypes TypeError.
"""

from ._attention_interface import register_attention
from ._encoders import (
    RecurrentEncoderBuilder,
    RecurrentTransformerEncoder,
    RecurrentTransformerEncoderLayer,
    TransformerEncoder,
    TransformerEncoderBuilder,
    TransformerEncoderLayer,
    make_mirror,
)
from ._fla import patch_fla
from ._functions import (
    gated_linear_attention,
    linear_attention,
    local_attention,
    lsh_attention,
    softmax_attention,
)
from ._gated_layers import GatedDeltaNet, GatedDeltaState, GatedRMSNorm, ShortConvolution
from ._layers import gated_rms_norm, short_conv
from ._masks import FullMask, LengthMask, TriangularCausalMask
from ._modules import (
    AttentionLayer,
    CausalLinearAttention,
    FullAttention,
    LinearAttention,
    LocalAttention,
    RecurrentAttentionLayer,
    RecurrentFullAttention,
    RecurrentLinearAttention,
    ReformerAttention,
)
from ._recurrent import (
    KeyValueState,
    LinearState,
    gated_linear_attention_step,
    linear_attention_step,
    softmax_attention_step,
)
from ._transformers import patch_transformers

__all__ = [
    "AttentionLayer",
    "CausalLinearAttention",
    "FullAttention",
    "FullMask",
    "GatedDeltaNet",
    "GatedDeltaState",
    "GatedRMSNorm",
    "KeyValueState",
    "LengthMask",
    "LinearAttention",
    "LinearState",
    "LocalAttention",
    "RecurrentAttentionLayer",
    "RecurrentEncoderBuilder",
    "RecurrentFullAttention",
    "RecurrentLinearAttention",
    "RecurrentTransformerEncoder",
    "RecurrentTransformerEncoderLayer",
    "ReformerAttention",
    "ShortConvolution",
    "TransformerEncoder",
    "TransformerEncoderBuilder",
    "TransformerEncoderLayer",
    "TriangularCausalMask",
    "gated_linear_attention",
    "gated_linear_attention_step",
    "gated_rms_norm",
    "linear_attention",
    "linear_attention_step",
    "local_attention",
    "lsh_attention",
    "make_mirror",
    "patch_fla",
    "patch_transformers",
    "register_attention",
    "short_conv",
    "softmax_attention",
    "softmax_attention_step",
]
