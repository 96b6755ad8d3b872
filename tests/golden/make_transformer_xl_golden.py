"""Writes transformer_xl.safetensors: attention with relative positions and a memory, in PyTorch and float64.

attention() follows Dai et al. (2019): it computes the scores of all distances and then shifts the rows of the (queries,
distances) matrix. README.md lists the keys. Run this script with the Python of tests/bench/peers/setup.sh.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

BATCH, SEGMENT, HEADS, DIM = 2, 5, 2, 4
WIDTH = HEADS * DIM


def shifted(x: Tensor) -> Tensor:
    """Shifts row i of x (…, queries, keys) left by queries - 1 - i. Elements that enter from the right are arbitrary."""
    queries, keys = x.shape[-2:]
    padded = torch.cat((x.new_zeros(*x.shape[:-1], 1), x), -1)
    return padded.reshape(*x.shape[:-2], keys + 1, queries)[..., 1:, :].reshape(*x.shape[:-2], queries, keys)


def sinusoids(distances: Tensor) -> Tensor:
    """Returns interleaved sines and cosines of the distances, (distances, WIDTH)."""
    angles = distances.unsqueeze(1) / 10000 ** (torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    return torch.stack((angles.sin(), angles.cos()), -1).reshape(len(distances), WIDTH)


def attention(q: Tensor, k: Tensor, v: Tensor, u: Tensor, w: Tensor, projection: Tensor, clamp: int) -> Tensor:
    """Returns causal attention of q (batch, SEGMENT, heads, dim) to k and v (batch, keys, heads, dim).

    u and w are biases (heads, dim). Distances above clamp are replaced by clamp unless it is 0.
    """
    keys = k.shape[1]
    distances = torch.arange(keys - 1, -1, -1, dtype=torch.float64)
    table = sinusoids(distances.clamp(max=clamp) if clamp else distances) @ projection.T
    content = torch.einsum("bihd,bjhd->bhij", q + u, k)
    position = shifted(torch.einsum("bihd,jhd->bhij", q + w, table.reshape(keys, HEADS, DIM)))
    future = torch.ones(SEGMENT, keys, dtype=torch.bool).triu(keys - SEGMENT + 1)
    scores = ((content + position) / DIM**0.5).masked_fill(future, -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v)


def case(memory: int, clamp: int) -> dict[str, Tensor]:
    """Returns the inputs, the result and the gradients of all inputs."""
    rows = {"q": SEGMENT, "k": memory + SEGMENT, "v": memory + SEGMENT}
    inputs = {name: torch.randn(BATCH, length, HEADS, DIM, dtype=torch.float64) for name, length in rows.items()}
    inputs |= {name: torch.randn(HEADS, DIM, dtype=torch.float64) for name in ("content_bias", "position_bias")}
    inputs["position_projection.weight"] = torch.randn(WIDTH, WIDTH, dtype=torch.float64)
    leaves = [tensor.requires_grad_() for tensor in inputs.values()]
    out = attention(*leaves, clamp)
    cotangent = torch.randn_like(out)
    gradients = torch.autograd.grad(out, leaves, cotangent)
    return inputs | {"out": out, "cotangent": cotangent} | {f"gradient.{n}": g for n, g in zip(inputs, gradients)}


def main() -> None:
    torch.manual_seed(7)
    tensors = {}
    for memory, clamp in ((0, 0), (3, 0), (7, 4)):
        for key, value in case(memory, clamp).items():
            tensors[f"memory_{memory}.{key}"] = value.detach().clone().contiguous()
    path = Path(__file__).resolve().parent / "transformer_xl.safetensors"
    save_file(tensors, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
