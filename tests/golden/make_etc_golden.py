"""Writes etc.safetensors: the attention of ETC with padding and segments, in PyTorch and float64.

attention() follows Ainslie et al. (2020, section 3): four products between the global and the long input, labels of relative
positions (equation 3), and one softmax per input. All pairs of tokens are scored, and masks select the pairs.
README.md lists the keys. Run this script with the Python of tests/bench/peers/setup.sh.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

BATCH, LENGTH, GLOBALS, HEADS, DIM = 2, 23, 3, 2, 4
RADIUS, CLIP = 4, 2
VALID = (23, 14)  # tokens of each sequence; the others are padding
SEGMENT = (LENGTH - 1) // GLOBALS  # long tokens of a segment; the last segment also has the remaining tokens


def clipped_distances(count: int) -> Tensor:
    """Returns the labels (count, count) of the pairs of one input: the distance of the key, from -CLIP to CLIP, plus CLIP."""
    positions = torch.arange(count)
    return (positions.unsqueeze(0) - positions.unsqueeze(1)).clamp(-CLIP, CLIP) + CLIP


def scores(q: Tensor, k: Tensor, table: Tensor, labels: Tensor) -> Tensor:
    """Returns q (k + label) / sqrt(DIM) for all pairs, (batch, heads, queries, keys)."""
    content = torch.einsum("bihd,bjhd->bhij", q, k)
    position = torch.einsum("bihd,ijhd->bhij", q, table[labels])
    return (content + position) / DIM**0.5


def attention(inputs: dict[str, Tensor], segment_mask: bool) -> Tensor:
    global_q, long_q = inputs["q"].split((GLOBALS, LENGTH - GLOBALS), 1)
    global_k, long_k = inputs["k"].split((GLOBALS, LENGTH - GLOBALS), 1)
    long = LENGTH - GLOBALS
    segments = (torch.arange(long) // SEGMENT).clamp(max=GLOBALS - 1)
    same = (segments.unsqueeze(0) == torch.arange(GLOBALS).unsqueeze(1)).long()  # (globals, long)
    positions = torch.arange(long)
    near = (positions.unsqueeze(0) - positions.unsqueeze(1)).abs() <= RADIUS
    valid = torch.arange(LENGTH).unsqueeze(0) < torch.tensor(VALID).unsqueeze(1)  # (batch, keys)

    table = inputs["segment_labels"]  # other and same segment of a global query, then of a long query
    global_to_long = scores(global_q, long_k, table, same)
    if segment_mask:
        global_to_long = global_to_long.masked_fill(same == 0, -torch.inf)
    global_to_global = scores(global_q, global_k, inputs["global_labels"], clipped_distances(GLOBALS))
    long_to_global = scores(long_q, global_k, table, 2 + same.T)
    long_to_long = scores(long_q, long_k, inputs["long_labels"], clipped_distances(long)).masked_fill(~near, -torch.inf)

    rows = torch.cat(
        (torch.cat((global_to_global, global_to_long), -1), torch.cat((long_to_global, long_to_long), -1)), -2
    )
    weights = rows.masked_fill(~valid[:, None, None, :], -torch.inf).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", weights, inputs["v"])


def case(segment_mask: bool) -> dict[str, Tensor]:
    """Returns the inputs, the result and the gradients of all inputs. Padded queries have zero results and cotangents."""
    inputs = {name: torch.randn(BATCH, LENGTH, HEADS, DIM) for name in "qkv"}
    for name, labels in {"long_labels": 2 * CLIP + 1, "global_labels": 2 * CLIP + 1, "segment_labels": 4}.items():
        inputs[name] = torch.randn(labels, HEADS, DIM)
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items()}
    valid = (torch.arange(LENGTH).unsqueeze(0) < torch.tensor(VALID).unsqueeze(1))[..., None, None]
    out = attention(leaves, segment_mask) * valid
    cotangent = torch.randn(out.shape) * valid
    gradients = torch.autograd.grad(out, list(leaves.values()), cotangent)
    return leaves | {"out": out, "cotangent": cotangent} | {f"gradient.{n}": g for n, g in zip(leaves, gradients)}


def main() -> None:
    torch.manual_seed(12)
    torch.set_default_dtype(torch.float64)
    tensors = {"lengths": torch.tensor(VALID)}
    for prefix, segment_mask in (("open", False), ("segments", True)):
        for key, value in case(segment_mask).items():
            tensors[f"{prefix}.{key}"] = value.detach().clone().contiguous()
    path = Path(__file__).resolve().parent / "etc.safetensors"
    save_file(tensors, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
