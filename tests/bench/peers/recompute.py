"""Encoders for generate.py whose forward pass is repeated for each byte: torch.nn.TransformerEncoder, and the Reformer of the
PyPI package transformers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model import LAYER_NORM_EPS, EncoderLayer, ImageModel, ModelConfig


class ReformerAttention(nn.Module):
    """LSH attention of Reformer in transformers. Pads the length to whole chunks, as ReformerModel of the package does."""

    def __init__(self, config: ModelConfig, rounds: int, chunk: int, buckets: int):
        super().__init__()
        from transformers import ReformerConfig
        from transformers.models.reformer.modeling_reformer import LSHSelfAttention

        sizes = ReformerConfig(
            hidden_size=config.d_model,
            num_attention_heads=config.heads,
            attention_head_size=config.head_dim,
            lsh_attn_chunk_length=chunk,
            num_buckets=buckets,
            num_hashes=rounds,
            lsh_attention_probs_dropout_prob=0.0,
            is_decoder=True,
        )
        self.chunk = chunk
        self.attention = LSHSelfAttention(sizes, layer_idx=0)
        self.out_projection = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        padded = F.pad(x, (0, 0, 0, -length % self.chunk))
        return self.out_projection(self.attention(padded).hidden_states[:, :length])


class Transformer(nn.Module):
    """torch.nn.TransformerEncoder with a causal mask and the weights of layers with softmax attention."""

    def __init__(self, layers: list[EncoderLayer], config: ModelConfig):
        super().__init__()
        sizes = (config.d_model, config.heads, config.feedforward)
        options = {"dropout": 0.0, "layer_norm_eps": LAYER_NORM_EPS, "batch_first": True}
        layer = nn.TransformerEncoderLayer(*sizes, **options)
        self.encoder = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
        for ours, theirs in zip(layers, self.encoder.layers):
            state = ours.state_dict()
            inputs = [f"attention.{name}_projection" for name in ("query", "key", "value")]
            for kind in ("weight", "bias"):
                joined = torch.cat([state.pop(f"{name}.{kind}") for name in inputs])
                state[f"self_attn.in_proj_{kind}"] = joined
                state[f"self_attn.out_proj.{kind}"] = state.pop(f"attention.out_projection.{kind}")
            theirs.load_state_dict(state)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.encoder(x, mask, is_causal=True)


def encoder_of(model: ImageModel, options) -> nn.Module:
    """Returns the layers of the model with the attention of options.kind, which map (B, L, d_model) to (B, L, d_model)."""
    if options.kind == "softmax":
        return Transformer(model.layers, model.config).eval()
    for layer in model.layers:
        layer.attention = ReformerAttention(model.config, options.rounds, options.chunk, options.buckets)
    return nn.Sequential(*model.layers).eval()


def next_parameters(model: ImageModel, encoder: nn.Module, values: Tensor) -> Tensor:
    """Maps bytes (B, L) to the mixture parameters (B, 3 K) of byte L + 1."""
    return model.predictor(model.norm(encoder(model.embed(values))[:, -1]))
