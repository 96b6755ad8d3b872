"""Writes set_transformer.safetensors: a small Set Transformer in PyTorch and float64.

The model has an ISAB layer, pooling by two seeds and a SAB layer. The loss is the negative log-likelihood of
torch.distributions.MixtureSameFamily. README.md lists the keys. Run this script with the Python of
tests/bench/peers/setup.sh.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

BATCH, LENGTH, FEATURES, HEADS, DIM, FEEDFORWARD, POINTS, SEEDS = 3, 7, 2, 2, 4, 6, 3, 2
WIDTH = HEADS * DIM
LENGTHS = (7, 4, 1)
weights: dict[str, Tensor] = {}


def parameter(name: str, *shape: int) -> Tensor:
    """Returns the parameter with this name. Draws it if it does not exist."""
    if name not in weights:
        weights[name] = (0.5 * torch.randn(*shape, dtype=torch.float64)).requires_grad_()
    return weights[name]


def linear(name: str, x: Tensor, out: int) -> Tensor:
    return F.linear(x, parameter(f"{name}.weight", out, x.shape[-1]), parameter(f"{name}.bias", out))


def norm(name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, (WIDTH,), parameter(f"{name}.weight", WIDTH), parameter(f"{name}.bias", WIDTH))


def feedforward(name: str, x: Tensor, hidden: int) -> Tensor:
    return linear(f"{name}linear2", linear(f"{name}linear1", x, hidden).relu(), x.shape[-1])


def multihead(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of projected queries, (batch, rows, WIDTH). The mask (batch, keys) is true for valid keys."""
    q, k, v = (x.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for x in (queries, keys, values))
    bias = None if mask is None else mask[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)


def learned_queries(name: str, count: int, keys: Tensor, values: Tensor, mask: Tensor, hidden: int) -> Tensor:
    """MAB(I, X) with the projected keys and values of X."""
    rows = parameter(f"{name}.queries", count, WIDTH).expand(keys.shape[0], -1, -1)
    attended = multihead(linear(f"{name}.query_projection", rows, WIDTH), keys, values, mask)
    h = norm(f"{name}.norm1", rows + linear(f"{name}.out_projection", attended, WIDTH))
    return norm(f"{name}.norm2", h + feedforward(f"{name}.", h, hidden))


def layer(name: str, x: Tensor, mask: Tensor | None, points: int) -> Tensor:
    """ISAB with `points` inducing points, or SAB if `points` is 0."""
    query, key, value = (linear(f"{name}.attention.{part}_projection", x, WIDTH) for part in ("query", "key", "value"))
    if points:
        inner = f"{name}.attention.inner_attention"
        h = learned_queries(f"{inner}.inducing_points", points, key, value, mask, FEEDFORWARD)
        key, value, mask = linear(f"{inner}.key_projection", h, WIDTH), linear(f"{inner}.value_projection", h, WIDTH), None
    attended = linear(f"{name}.attention.out_projection", multihead(query, key, value, mask), WIDTH)
    h = norm(f"{name}.norm1", x + attended)
    return norm(f"{name}.norm2", h + feedforward(f"{name}.", h, FEEDFORWARD))


def model(elements: Tensor, mask: Tensor) -> Tensor:
    x = norm("norm", layer("layers.0", linear("input_projection", elements, WIDTH), mask, POINTS))
    rows = feedforward("pooling.", x, FEEDFORWARD)
    key, value = (linear(f"pooling.{part}_projection", rows, WIDTH) for part in ("key", "value"))
    pooled = learned_queries("pooling.seeds", SEEDS, key, value, mask, FEEDFORWARD)
    return linear("predictor", layer("layers.1", pooled, None, 0), 1 + 2 * FEATURES)


def loss(elements: Tensor, outputs: Tensor) -> Tensor:
    """Returns the mean over the sets of the mean negative log-likelihood of their elements."""
    means, inputs = outputs[..., 1 : 1 + FEATURES], outputs[..., 1 + FEATURES :]
    nats = []
    for b, length in enumerate(LENGTHS):
        components = Independent(Normal(means[b], F.softplus(inputs[b]) + 1e-3), 1)
        mixture = MixtureSameFamily(Categorical(logits=outputs[b, :, 0]), components)
        nats.append(-mixture.log_prob(elements[b, :length]).mean())
    return torch.stack(nats).mean()


def main() -> None:
    torch.manual_seed(11)
    elements = torch.randn(BATCH, LENGTH, FEATURES, dtype=torch.float64)
    mask = torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]
    outputs = model(elements, mask)
    nats = loss(elements, outputs)
    gradients = torch.autograd.grad(nats, list(weights.values()))
    tensors = {"elements": elements, "lengths": torch.tensor(LENGTHS), "outputs": outputs, "loss": nats.reshape(1)}
    tensors |= weights | {f"gradient.{name}": g for name, g in zip(weights, gradients)}
    path = Path(__file__).resolve().parent / "set_transformer.safetensors"
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
