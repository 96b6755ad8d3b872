"""Models that map one byte to the parameters of the next one: the recurrent and the cached forms of model.py.

Sizes in comments: B batch, L length, H heads, D head_dim, K mixtures.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from model import NORMALIZER_EPS, AttentionLayer, ImageModel, feature_map


class StepModel:
    """A model that maps one byte to the mixture parameters of the next byte, with tensors of state for each layer."""

    def __init__(self, model: ImageModel, *states: Tensor):
        self.model = model
        self.states = states  # each (layers, B, ...)

    def reset(self) -> None:
        for state in self.states:
            state.zero_()

    def step(self, values: Tensor, position: Tensor | int) -> Tensor:
        """Maps values (B,) int64 at a position, a number or a tensor of one int64, to mixture parameters (B, 3 K)."""
        model = self.model
        x = torch.cat((model.value_embedding(values), model.positions[position].expand(len(values), -1)), -1)
        for layer, *states in zip(model.layers, *self.states):
            x = layer(x, lambda y: self.attention_step(layer.attention, y, position, *states))
        return model.predictor(model.norm(x))

    def projections(self, attention: AttentionLayer, x: Tensor) -> list[Tensor]:
        """Returns queries, keys and values (B, H, D) of one position with the features x (B, d_model)."""
        layers = (attention.query_projection, attention.key_projection, attention.value_projection)
        return [layer(x).unflatten(-1, (attention.config.heads, attention.config.head_dim)) for layer in layers]


class RecurrentModel(StepModel):
    """The linear model as an RNN (eq. 16 to 20), with the states s (B, H, D, D) and z (B, H, D) of each layer."""

    def __init__(self, model: ImageModel, batch: int):
        config = model.config
        if config.attention != "linear":
            raise ValueError("only linear attention has a state of constant size")
        shape = (config.layers, batch, config.heads, config.head_dim)
        zeros = model.predictor.weight.new_zeros
        super().__init__(model, zeros(*shape, config.head_dim), zeros(shape))

    def attention_step(self, attention: AttentionLayer, x: Tensor, position: Tensor | int, s: Tensor, z: Tensor) -> Tensor:
        """Computes s += phi(k) v^T and z += phi(k), and then y = phi(q)^T s / (phi(q) . z + eps) (eq. 18 to 20)."""
        q, k, v = self.projections(attention, x)
        q, k = feature_map(q), feature_map(k)
        s.add_(k.unsqueeze(-1) * v.unsqueeze(-2))
        z.add_(k)
        numerator = (q.unsqueeze(-2) @ s).squeeze(-2)
        denominator = (q * z).sum(-1, keepdim=True) + NORMALIZER_EPS
        return attention.out_projection((numerator / denominator).flatten(1))


class GatedDeltaModel(StepModel):
    """The gated-delta model as an RNN, with the state (B, H, D, D) of each layer."""

    def __init__(self, model: ImageModel, batch: int):
        config = model.config
        shape = (config.layers, batch, config.heads, config.head_dim, config.head_dim)
        super().__init__(model, model.predictor.weight.new_zeros(shape))

    def attention_step(self, attention: AttentionLayer, x: Tensor, position: Tensor | int, state: Tensor) -> Tensor:
        q, k, v = (projected.unsqueeze(2) for projected in self.projections(attention, x))
        return attention.out_projection(attention.gated(q, k, v, x.unsqueeze(1), state).flatten(1))


class CachedModel(StepModel):
    """The softmax or local model with a cache of the keys and values (B, H, L, D) of each layer. Positions are numbers."""

    def __init__(self, model: ImageModel, batch: int, dtype: torch.dtype):
        config = model.config
        if config.attention not in ("softmax", "local"):
            raise ValueError("only softmax and local attention have a cache of keys and values")
        shape = (config.layers, batch, config.heads, config.max_length, config.head_dim)
        super().__init__(model, *(torch.zeros(shape, dtype=dtype) for _ in range(2)))

    def attention_step(self, attention: AttentionLayer, x: Tensor, position: int, keys: Tensor, values: Tensor) -> Tensor:
        q, k, v = (projected.unsqueeze(2) for projected in self.projections(attention, x))
        # torch.compile would compile the assignment of keys[:, :, position] again for each position.
        keys[:, :, position : position + 1] = k
        values[:, :, position : position + 1] = v
        first = max(position + 1 - attention.config.window, 0) if attention.config.attention == "local" else 0
        seen = (cache[:, :, first : position + 1] for cache in (keys, values))
        return attention.out_projection(F.scaled_dot_product_attention(q, *seen).flatten(1))
