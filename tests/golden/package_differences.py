"""Prints differences between public implementations of attention and their papers, in float64.

docs/survey-parity.md names the equations. Run this script with the Python and the packages of make_packages_golden.py, and
sinkhorn-transformer 0.11.4.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

BATCH, LENGTH, HEADS, DIM = 2, 24, 2, 8
WIDTH = HEADS * DIM


def difference(actual: Tensor, expected: Tensor) -> float:
    """Returns the largest difference, divided by the largest magnitude of the expected values."""
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def split(x: Tensor) -> Tensor:
    """Returns x (batch, length, width) as (batch, heads, length, dim)."""
    return x.unflatten(-1, (HEADS, DIM)).transpose(1, 2)


def merged(x: Tensor) -> Tensor:
    """Returns x (batch, heads, length, dim) as (batch, length, width)."""
    return x.transpose(1, 2).flatten(2)


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float = DIM**-0.5) -> Tensor:
    return (q @ k.transpose(-1, -2) * scale).softmax(-1) @ v


def linformer(x: Tensor) -> None:
    from linformer import LinformerSelfAttention

    module = LinformerSelfAttention(WIDTH, LENGTH, k=5, heads=HEADS, share_kv=True)
    keys = split(module.proj_k.T @ module.to_k(x))
    expected = module.to_out(merged(attention(split(module.to_q(x)), keys, keys)))
    print(f"linformer, share_kv: difference from attention with keys as values: {difference(module(x), expected):.1e}")


def memory_compressed(x: Tensor) -> None:
    from memory_compressed_attention import MemoryCompressedAttention

    module = MemoryCompressedAttention(WIDTH, heads=HEADS)
    q, k, v = module.to_qkv(x).chunk(3, -1)
    keys, values = (torch.cat((torch.zeros(BATCH, 1, WIDTH), module.compress_fn(y)), 1) for y in (k, v))
    for name, scale in (("sqrt(dim)", DIM**-0.5), ("sqrt(width)", WIDTH**-0.5)):
        expected = module.to_out(merged(attention(split(q), split(keys), split(values), scale)))
        print(f"memory-compressed-attention: difference from scores divided by {name}: {difference(module(x), expected):.1e}")
    everything = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    change = difference(module(x, input_mask=everything), module(x))
    print(f"memory-compressed-attention: change of the result by a mask that masks no token: {change:.1e}")


def performer(q: Tensor, k: Tensor, v: Tensor) -> None:
    from performer_pytorch import FastAttention

    module = FastAttention(DIM, nb_features=16, causal=True)
    larger = k.clone()
    larger[:, :, -1] *= 3
    change = difference(module(q, larger, v)[:, :, :-1], module(q, k, v)[:, :, :-1])
    print(f"performer-pytorch, causal: change of earlier results by a last key with three times the norm: {change:.1e}")


def routing(q: Tensor, v: Tensor) -> None:
    from routing_transformer.routing_transformer import KmeansAttention

    module = KmeansAttention(1, LENGTH, HEADS, DIM, shared_qk=True).eval()
    keys = nn.functional.normalize(q, dim=-1)
    itself = torch.eye(LENGTH, dtype=torch.bool)
    scores = q @ keys.transpose(-1, -2) * DIM**-0.5
    result = module(q, q, v)[0]
    for name, expected in (("all keys", scores), ("all other keys", scores.masked_fill(itself, -torch.inf))):
        print(f"routing-transformer, shared_qk: difference from attention to {name}: {difference(result, expected.softmax(-1) @ v):.1e}")


def sinkhorn(q: Tensor, k: Tensor, v: Tensor) -> None:
    from sinkhorn_transformer.sinkhorn_transformer import SinkhornAttention

    blocks = 4
    module = SinkhornAttention(LENGTH // blocks, WIDTH, DIM, HEADS, LENGTH, non_permutative=False, sinkhorn_iter=7)

    def seeded(compute: Callable[[], Tensor]) -> Tensor:
        torch.manual_seed(7)
        return compute()

    matrix = seeded(lambda: module.sort_net(q.flatten(0, 1), k.flatten(0, 1), topk=1))
    queries, keys, values = (x.flatten(0, 1).unflatten(1, (blocks, -1)) for x in (q, k, v))
    mixed = lambda x: torch.einsum("buv,bvtd->butd", matrix, x)
    result = seeded(lambda: module(q, k, v))
    for name, mixed_values in (("values", mixed(values)), ("keys", mixed(keys))):
        out = attention(queries, torch.cat((mixed(keys), keys), 2), torch.cat((mixed_values, values), 2))
        expected = out.flatten(1, 2).unflatten(0, (BATCH, HEADS))
        print(f"sinkhorn-transformer: difference from attention with mixed {name} as values: {difference(result, expected):.1e}")


def big_bird(x: Tensor) -> None:
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    block, random_blocks = 2, 2
    config = BigBirdConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, block_size=block, num_random_blocks=random_blocks,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    module = BigBirdBlockSparseAttention(config, seed=1).eval()
    blocked, band, queries, keys = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(BATCH, LENGTH), block)
    result = module(x, band_mask=band, from_mask=queries, to_mask=keys, from_blocked_mask=blocked, to_blocked_mask=blocked)[0]
    blocks = LENGTH // block
    count = torch.zeros(blocks, blocks)  # how often a block of queries attends to a block of keys
    for i in range(blocks):
        count[i, [j for j in (i - 1, i, i + 1) if 0 <= j < blocks]] = 1
    count[:, [0, -1]] = count[[0, -1]] = 1
    for name, weight in (("once", 1), ("three times", 1 + random_blocks)):
        weighted = count.clone()
        weighted[1:-1, 0] = weight
        bias = weighted.repeat_interleave(block, 0).repeat_interleave(block, 1).log()
        scores = split(module.query(x)) @ split(module.key(x)).transpose(-1, -2) * DIM**-0.5 + bias
        expected = merged(scores.softmax(-1) @ split(module.value(x)))
        print(f"transformers, Big Bird in evaluation: difference from attention to block 0 {name}: {difference(result, expected):.1e}")


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(3)
    torch.set_default_dtype(torch.float64)
    x = torch.randn(BATCH, LENGTH, WIDTH)
    q, k, v = (torch.randn(BATCH, HEADS, LENGTH, DIM) for _ in range(3))
    with torch.no_grad():
        linformer(x)
        memory_compressed(x)
        performer(q, k, v)
        routing(q, v)
        sinkhorn(q, k, v)
        big_bird(x)


if __name__ == "__main__":
    main()
