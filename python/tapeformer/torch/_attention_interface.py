"""Attention of Tapeformer in transformers' registry of attention implementations."""

from typing import Optional, Tuple

import torch.nn.functional as F
from torch import Tensor

from ._functions import linear_attention, softmax_attention

SOFTMAX, LINEAR = "tapeformer", "tapeformer-linear"

_MASKED = -1e4  # of a key's channels: elu(x) + 1 and exp(x) are 0 there


def register_attention() -> Tuple[str, str]:
    """Registers two attention implementations in transformers, version 5 or later.

    `attn_implementation="tapeformer"` in from_pretrained() or model.set_attn_implementation() selects
    softmax_attention() for models that use the registry, such as Llama, Qwen and GPT-2. Masks of padding, sliding
    windows and packed sequences have the same results as with "sdpa". `attn_implementation="tapeformer-linear"` is
    linear_attention() with elu(x) + 1 and the model's weights, for experiments: a model trained with softmax attention
    must be trained further. It supports causal models, and padding, but no other masks. With a cache, it reads all keys
    for each token.

    Both raise ValueError for what they do not support: position biases, soft caps of scores, attention sinks and
    attention weights as a result.

    Returns:
        The two names.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(SOFTMAX, attend_softmax)
    AttentionMaskInterface.register(SOFTMAX, sdpa_mask)
    AttentionInterface.register(LINEAR, attend_linear)
    AttentionMaskInterface.register(LINEAR, make_padding_mask)
    return SOFTMAX, LINEAR


def attend_softmax(
    module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor], dropout: float = 0.0,
    scaling: Optional[float] = None, is_causal: Optional[bool] = None, **kwargs,
) -> Tuple[Tensor, None]:  # fmt: skip
    """Computes attention of (batch, heads, length, dim); the result is (batch, length, heads, dim)."""
    _check(SOFTMAX, kwargs)
    length, key_length = query.shape[2], key.shape[2]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = bool(causal) and attention_mask is None and length > 1
    if causal and key_length > length:  # an empty static cache: later keys are masked
        key, value = key[:, :, :length], value[:, :, :length]
    if attention_mask is not None:
        attention_mask = attention_mask[..., :key_length]
    groups = query.shape[1] // max(key.shape[1], 1)
    is_packed = length == 1 and groups > 1 and (attention_mask is None or attention_mask.shape[1] == 1)
    if is_packed:  # the queries of a group are like tokens of one head, so that keys are read once
        query = query.unflatten(1, (-1, groups)).flatten(2, 3)
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    out = softmax_attention(q, k, v, causal=causal, scale=scaling, dropout_p=dropout, mask=attention_mask)
    return (out.transpose(1, 2).flatten(1, 2).unsqueeze(1) if is_packed else out), None


def attend_linear(
    module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor], dropout: float = 0.0,
    scaling: Optional[float] = None, is_causal: Optional[bool] = None, **kwargs,
) -> Tuple[Tensor, None]:  # fmt: skip
    """Computes linear attention, with a mask (batch, key_length) of the tokens that are not padding."""
    _check(LINEAR, kwargs)
    length, key_length = query.shape[2], key.shape[2]
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    if attention_mask is not None:
        if attention_mask.dim() != 2:
            raise ValueError(f'"{LINEAR}" supports masks of padding only, not {tuple(attention_mask.shape)}')
        k = k.masked_fill(~attention_mask.bool()[:, :, None, None], _MASKED)
    if not causal or length == 1:
        return linear_attention(q, k, v), None
    if length < key_length:  # tokens after a cache
        q = F.pad(q, (0, 0, 0, 0, key_length - length, 0))
    return linear_attention(q, k, v, causal=True)[:, key_length - length :], None


def make_padding_mask(
    q_length: int, kv_length: int, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None, local_size=None,
    use_vmap: bool = False, **kwargs,
) -> Optional[Tensor]:  # fmt: skip
    """Returns the mask (batch, key_length) of the tokens that are not padding, or None without padding.

    Raises ValueError for other patterns than all keys and the keys that are not after the query.
    """
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

    if use_vmap or local_size is not None or mask_function not in (causal_mask_function, bidirectional_mask_function):
        raise ValueError(f'"{LINEAR}" does not support sliding windows, packed sequences and custom masks')
    if mask_function is causal_mask_function and int(q_offset) + q_length != int(kv_offset) + kv_length:
        raise ValueError(f'"{LINEAR}" does not support caches with room for later tokens, such as a StaticCache')
    if attention_mask is None or bool(attention_mask[:, kv_offset : kv_offset + kv_length].all()):
        return None
    return attention_mask[:, kv_offset : kv_offset + kv_length]


def _check(name: str, options) -> None:
    for option in ("position_bias", "softcap", "s_aux"):
        if options.get(option) is not None:
            raise ValueError(f'attn_implementation="{name}" does not support {option}; use "eager"')
    if options.get("output_attentions"):
        raise ValueError(f'attn_implementation="{name}" computes no attention weights; use "eager"')
