"""The translation model of Tapeformer in PyTorch: pre-norm or post-norm layers, softmax attention, shared embeddings.

The projections of one input to queries, keys and values are one product, and logits are computed for real tokens only.
Sizes in comments: B sentences, S source length, T target length, N real target tokens, W width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model import Relu, sinusoidal_positions
from translation_data import Pair, Settings

Batch = tuple[Tensor, Tensor, Tensor, Tensor]  # source (B, S), lengths (B,), tokens (B, T + 1), rows of real targets (N,)


def make_batch(pairs: list[Pair], end: int) -> Batch:
    """Returns sentences with end tokens behind them. `tokens` also begin with an end token."""
    source_width = max(len(source) for source, _ in pairs) + 1
    width = max(len(target) for _, target in pairs) + 1
    source = [s + [end] * (source_width - len(s)) for s, _ in pairs]
    tokens = [[end, *t] + [end] * (width - len(t)) for _, t in pairs]
    rows = [i * width + j for i, (_, t) in enumerate(pairs) for j in range(len(t) + 1)]
    return torch.tensor(source), torch.tensor([len(s) + 1 for s, _ in pairs]), torch.tensor(tokens), torch.tensor(rows)


class Attention(nn.Module):
    """Self-attention, or attention of x to a source."""

    def __init__(self, width: int, heads: int, bias: bool, cross: bool):
        super().__init__()
        self.heads, self.cross = heads, cross
        names = (("query",), ("key", "value")) if cross else (("query", "key", "value"),)
        self.names = names  # of the projections that each product computes
        self.projections = nn.ModuleList(nn.Linear(width, len(part) * width, bias) for part in names)
        self.out_projection = nn.Linear(width, width, bias)

    def forward(self, x: Tensor, source: Tensor | None, mask: Tensor | None) -> Tensor:
        if self.cross:
            q, (k, v) = self.projections[0](x), self.projections[1](source).chunk(2, -1)
        else:
            q, k, v = self.projections[0](x).chunk(3, -1)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.out_projection(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, model: dict, decoder: bool):
        super().__init__()
        width = model["heads"] * model["head_dim"]
        sizes = (width, model["heads"], model["projection_biases"])
        self.pre_norm, self.rate = model["norm"] == "pre", model["dropout"]
        self.attention = Attention(*sizes, cross=False)
        self.cross_attention = Attention(*sizes, cross=True) if decoder else None
        self.linear1, self.linear2 = nn.Linear(width, model["feedforward"]), nn.Linear(model["feedforward"], width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.cross_norm = nn.LayerNorm(width) if decoder else None

    def dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, self.training)

    def feedforward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(Relu.apply(self.linear1(x))))

    def forward(self, x: Tensor, mask: Tensor | None, source: Tensor | None, source_mask: Tensor) -> Tensor:
        branches = [(self.norm1, lambda y: self.attention(y, None, mask))]
        if source is not None:
            branches.append((self.cross_norm, lambda y: self.cross_attention(y, source, source_mask)))
        branches.append((self.norm2, self.feedforward))
        for norm, branch in branches:
            x = x + self.dropout(branch(norm(x))) if self.pre_norm else norm(x + self.dropout(branch(x)))
        return x


class Stack(nn.Module):
    def __init__(self, model: dict, layers: int, decoder: bool):
        super().__init__()
        self.layers = nn.ModuleList(Layer(model, decoder) for _ in range(layers))
        self.norm = nn.LayerNorm(model["heads"] * model["head_dim"])

    def forward(self, x: Tensor, mask: Tensor | None, source: Tensor | None, source_mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask, source, source_mask)
        return self.norm(x)


class TranslationModel(nn.Module):
    """The model of a config. Initial weights have the distributions of Tapeformer."""

    def __init__(self, settings: Settings):
        super().__init__()
        settings.require(
            attention=("softmax",), cross_attention=("softmax",), norm=("pre", "post"), activation=("relu",),
            positions=("sinusoidal",), shared_embeddings=(True,), reversible=(False,), attention_dropout=(0.0,),
        )  # fmt: skip
        model = settings.config["model"]
        width = model["heads"] * model["head_dim"]
        self.end, self.max_length = settings.end, settings.max_length
        self.smoothing, self.rate, self.scale = model["label_smoothing"], model["dropout"], math.sqrt(width)
        self.embedding = nn.Embedding(settings.vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=1 / self.scale)
        self.bias = nn.Parameter(torch.empty(settings.vocabulary).uniform_(-1 / self.scale, 1 / self.scale))
        self.encoder = Stack(model, model["layers"], decoder=False)
        self.decoder = Stack(model, model["decoder_layers"] or model["layers"], decoder=True)
        self.register_buffer("positions", sinusoidal_positions(self.max_length, width).float(), persistent=False)

    def embed(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]]
        return F.dropout(x, self.rate, self.training)

    def encode(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the states (B, S, W) and the mask of real tokens (B, 1, 1, S)."""
        mask = (torch.arange(source.shape[1], device=source.device) < lengths[:, None])[:, None, None]
        return self.encoder(self.embed(source), mask, None, mask), mask

    def decode(self, inputs: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        return self.decoder(self.embed(inputs), None, states, mask)

    def predict(self, decoded: Tensor) -> Tensor:
        return F.linear(decoded, self.embedding.weight, self.bias)

    def loss(self, source: Tensor, lengths: Tensor, tokens: Tensor, rows: Tensor) -> Tensor:
        """Returns the mean loss of the real target tokens, with label smoothing in training."""
        decoded = self.decode(tokens[:, :-1], *self.encode(source, lengths)).flatten(0, 1)
        smoothing = self.smoothing if self.training else 0.0
        logits = self.predict(decoded.index_select(0, rows))
        return F.cross_entropy(logits, tokens[:, 1:].flatten().index_select(0, rows), label_smoothing=smoothing)

    @torch.inference_mode()
    def translate(self, source: Tensor, lengths: Tensor) -> list[list[int]]:
        """Returns greedy translations of at most 50 tokens more than their sources."""
        states, mask = self.encode(source, lengths)
        tokens = torch.full((len(source), 1), self.end)
        limits = (lengths + 50).clamp(max=self.max_length)
        open_rows = torch.ones(len(source), dtype=torch.bool)
        while open_rows.any():
            last = self.predict(self.decode(tokens, states, mask)[:, -1]).argmax(-1)
            tokens = torch.cat((tokens, torch.where(open_rows, last, self.end)[:, None]), 1)
            open_rows &= (last != self.end) & (tokens.shape[1] - 1 < limits)
        rows = (row[1:] for row in tokens.tolist())
        return [row[: row.index(self.end)] if self.end in row else row for row in rows]

    def load(self, weights: dict[str, Tensor]) -> None:
        """Sets the weights to the tensors of a model.safetensors."""
        weights = {name.replace("predictor.bias", "bias"): tensor for name, tensor in weights.items()}
        for name, module in self.named_modules():
            if isinstance(module, Attention):
                for i, parts in enumerate(module.names):
                    for kind in ("weight", "bias") if module.out_projection.bias is not None else ("weight",):
                        own = [weights.pop(f"{name}.{part}_projection.{kind}") for part in parts]
                        weights[f"{name}.projections.{i}.{kind}"] = torch.cat(own)
        self.load_state_dict(weights)
