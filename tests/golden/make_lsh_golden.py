"""Writes lsh.safetensors: LSH attention as trax (2020) and fast_transformers compute it, in PyTorch and float64.

Both functions follow the published steps. They sort positions by bucket and divide them into chunks. A query attends to its
chunk and the chunk before it, masked by the original positions. Each round has one softmax, and then the rounds are combined.
The buckets are random, and the file contains them. README.md lists the keys. Run this script with the Python of
tests/bench/peers/setup.sh.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

LENGTH, CHUNK, ROUNDS, BUCKETS, DIM = 24, 4, 3, 12, 6
SELF, FUTURE = -1e5, -1e9  # added to the scores of a query's own position and of later positions


def look_back(x: Tensor) -> Tensor:
    """Returns each chunk joined with the chunk before it. The first chunk is joined with the last chunk."""
    return torch.cat((x, x.roll(1, 0)), 1)


def trax(q: Tensor, v: Tensor, buckets: Tensor, causal: bool) -> Tensor:
    """Computes LSHSelfAttention of trax, in which all rounds form one list of chunks.

    q and v (length, dim), buckets (rounds, length). Returns (length, dim).
    """
    position = torch.arange(LENGTH).repeat(ROUNDS)
    offset = torch.arange(ROUNDS).unsqueeze(1) * BUCKETS
    order = torch.argsort((buckets + offset).reshape(-1) * LENGTH + position)
    keys = q / torch.sqrt(q.square().mean(-1, keepdim=True) + 1e-6) / DIM**0.5
    at = position[order]
    chunked = at.reshape(-1, CHUNK)
    key_positions = look_back(chunked)
    scores = torch.einsum("cid,cjd->cij", q[chunked], keys[key_positions])
    if causal:
        scores = scores + FUTURE * (chunked.unsqueeze(2) < key_positions.unsqueeze(1))
    scores = scores + SELF * (chunked.unsqueeze(2) == key_positions.unsqueeze(1))
    mass = scores.logsumexp(-1, keepdim=True)
    values = torch.einsum("cij,cjd->cid", torch.exp(scores - mass), v[key_positions])
    undo = torch.argsort(order)
    values = values.reshape(-1, v.shape[-1])[undo].reshape(ROUNDS, LENGTH, -1)
    mass = mass.reshape(-1)[undo].reshape(ROUNDS, LENGTH, 1)
    return (values * torch.exp(mass - mass.logsumexp(0, keepdim=True))).sum(0)


def fast(q: Tensor, v: Tensor, buckets: Tensor, causal: bool) -> Tensor:
    """Computes ReformerAttention of fast_transformers, in which the first chunk has no chunk before it.

    The result is the average over the rounds. The arguments have the same shapes as the arguments of trax().
    """
    keys = q / q.norm(dim=-1, keepdim=True)
    results = []
    for hashes in buckets:
        order = torch.argsort(hashes * LENGTH + torch.arange(LENGTH))
        chunked = order.reshape(-1, CHUNK)
        key_positions = look_back(chunked)
        scores = torch.einsum("cid,cjd->cij", q[chunked], keys[key_positions]) / DIM**0.5
        masked = torch.zeros_like(scores, dtype=torch.bool)
        masked[0, :, CHUNK:] = True
        if causal:
            masked |= chunked.unsqueeze(2) < key_positions.unsqueeze(1)
        scores = scores.masked_fill(masked, -torch.inf) + FUTURE * (chunked.unsqueeze(2) == key_positions.unsqueeze(1))
        values = torch.einsum("cij,cjd->cid", scores.softmax(-1), v[key_positions])
        results.append(values.reshape(LENGTH, -1)[torch.argsort(order)])
    return torch.stack(results).mean(0)


def case(function, causal: bool, heads: int = 2) -> dict[str, Tensor]:
    """Returns random inputs (1, length, heads, dim), buckets (1, heads, rounds, length), the result and the gradients."""
    q = torch.randn(1, LENGTH, heads, DIM, dtype=torch.float64, requires_grad=True)
    v = torch.randn(1, LENGTH, heads, DIM, dtype=torch.float64, requires_grad=True)
    buckets = torch.randint(BUCKETS, (1, heads, ROUNDS, LENGTH))
    out = torch.stack([function(q[0, :, h], v[0, :, h], buckets[0, h], causal) for h in range(heads)], 1).unsqueeze(0)
    cotangent = torch.randn_like(out)
    gq, gv = torch.autograd.grad(out, (q, v), cotangent)
    return {"q": q, "v": v, "buckets": buckets.to(torch.int32), "out": out, "cotangent": cotangent, "gq": gq, "gv": gv}


def main() -> None:
    torch.manual_seed(7)
    tensors = {}
    for name, function in (("trax", trax), ("fast_transformers", fast)):
        for causal in (False, True):
            for key, value in case(function, causal).items():
                tensors[f"{name}.{'causal' if causal else 'full'}.{key}"] = value.detach().clone().contiguous()
    path = Path(__file__).resolve().parent / "lsh.safetensors"
    save_file(tensors, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
