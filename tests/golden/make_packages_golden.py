"""Writes packages.safetensors: results and gradients of public implementations of attention, in float64.

Each case gives a package queries, keys and values, instead of its own projections of an input. README.md lists the keys.
Run this script with the Python of tests/bench/peers/setup.sh and these packages:
  axial-attention 0.6.1, linformer 0.2.3, local-attention 1.11.2, memory-compressed-attention 0.0.7,
  performer-pytorch 1.1.4, reformer-pytorch 1.4.4, routing-transformer 1.6.1, transformers 5.23.0
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

BATCH, LENGTH, HEADS, DIM = 1, 24, 2, 4
WIDTH = HEADS * DIM
SHAPE = (BATCH, LENGTH, HEADS, DIM)


class Given(nn.Module):
    """A layer that ignores its input and returns a copy of a given tensor."""

    def __init__(self, value: Tensor):
        super().__init__()
        self.value = value

    def forward(self, _: Tensor) -> Tensor:
        return self.value.clone()


class Part(nn.Module):
    """A layer that returns the features from `begin` to `end` of its input."""

    def __init__(self, begin: int, end: int):
        super().__init__()
        self.begin, self.end = begin, end

    def forward(self, x: Tensor) -> Tensor:
        return x[..., self.begin : self.end]


def merged(x: Tensor) -> Tensor:
    """Returns x (batch, length, heads, dim) as (batch, length, width)."""
    return x.flatten(2)


def split(x: Tensor) -> Tensor:
    """Returns x (batch, length, width) as (batch, length, heads, dim)."""
    return x.unflatten(-1, (HEADS, DIM))


def heads_first(x: Tensor) -> Tensor:
    """Swaps the dimensions of length and heads."""
    return x.transpose(1, 2)


def record(attend: Callable, inputs: dict[str, Tensor], constants: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Returns the inputs, the result of attend(**inputs), a cotangent, the gradients of the inputs and the constants."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in inputs.items()}
    out = attend(**leaves)
    cotangent = torch.randn_like(out)
    gradients = torch.autograd.grad(out, list(leaves.values()), cotangent)
    named = {f"gradient.{name}": gradient for name, gradient in zip(leaves, gradients)}
    return leaves | {"out": out, "cotangent": cotangent} | named | (constants or {})


def inputs_of(names: str = "qkv", length: int = LENGTH) -> dict[str, Tensor]:
    return {name: torch.randn(BATCH, length, HEADS, DIM) for name in names}


def linformer(length: int) -> dict[str, Tensor]:
    from linformer import LinformerSelfAttention

    module = LinformerSelfAttention(WIDTH, LENGTH, k=5, heads=HEADS)
    module.to_out = nn.Identity()
    del module.proj_k, module.proj_v

    def attend(q: Tensor, k: Tensor, v: Tensor, key_projection: Tensor, value_projection: Tensor) -> Tensor:
        module.to_q, module.to_k, module.to_v = (Given(merged(x)) for x in (q, k, v))
        module.proj_k, module.proj_v = key_projection[0].T, value_projection[0].T
        return split(module(merged(q)))

    projections = {f"{name}_projection": torch.randn(1, 5, LENGTH) for name in ("key", "value")}
    return record(attend, inputs_of(length=length) | projections)


def axial(axis: int) -> dict[str, Tensor]:
    """The attention within the rows (axis 1) or the columns (axis 0) of images with 4 rows of 6 tokens."""
    from axial_attention import AxialAttention

    module = AxialAttention(3 * WIDTH, 2, heads=HEADS, dim_heads=DIM, dim_index=-1)
    permutation = module.axial_attentions[axis]
    permutation.fn.to_q, permutation.fn.to_kv = Part(0, WIDTH), Part(WIDTH, 3 * WIDTH)
    permutation.fn.to_out = nn.ConstantPad1d((0, 2 * WIDTH), 0.0)  # the result has as many features as the input

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        images = torch.cat([merged(x) for x in (q, k, v)], -1).unflatten(1, (4, 6))
        return split(permutation(images).flatten(1, 2)[..., :WIDTH])

    return record(attend, inputs_of())


def local(exact: bool, length: int) -> dict[str, Tensor]:
    from local_attention import LocalAttention

    module = LocalAttention(6, causal=True, look_backward=1, look_forward=0, exact_windowsize=exact, autopad=True)
    return record(
        lambda q, k, v: heads_first(module(*(heads_first(x) for x in (q, k, v)))), inputs_of(length=length)
    )


def performer(kernel: str, causal: bool) -> dict[str, Tensor]:
    """Features of the softmax kernel have no eps, because the eps of the package depends on the largest key."""
    from performer_pytorch import performer_pytorch as package

    features = 16
    module = package.FastAttention(DIM, features, causal=False, generalized_attention=kernel == "relu")
    module.causal = causal
    module.causal_linear_fn = partial(package.causal_linear_attention_noncuda, eps=0)
    softmax_kernel = package.softmax_kernel
    package.softmax_kernel = partial(softmax_kernel, eps=0)
    projection = module.projection_matrix.double()
    module.projection_matrix = projection
    tensors = record(
        lambda q, k, v: heads_first(module(*(heads_first(x) for x in (q, k, v)))), inputs_of(),
        {"projection": projection},
    )  # fmt: skip
    package.softmax_kernel = softmax_kernel
    return tensors


def memory_compressed(causal: bool) -> dict[str, Tensor]:
    from memory_compressed_attention import MemoryCompressedAttention

    module = MemoryCompressedAttention(WIDTH, heads=HEADS, causal=causal)
    module.to_out = nn.Identity()
    convolution = module.compress_fn.conv
    weight, bias = convolution.weight.detach(), convolution.bias.detach()
    null_k, null_v = torch.randn(1, 1, WIDTH), torch.randn(1, 1, WIDTH)
    with torch.no_grad():
        module.null_k.copy_(null_k)
        module.null_v.copy_(null_v)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        module.to_qkv = Given(torch.cat([merged(x) for x in (q, k, v)], -1))
        return split(module(merged(q)))

    # Conv1d has the weight (heads * dim of outputs, dim of inputs, 3).
    matrices = weight.view(HEADS, DIM, DIM, 3).permute(0, 3, 2, 1).reshape(HEADS, 3 * DIM, DIM)
    constants = {"weight": matrices, "bias": bias.view(HEADS, 1, DIM), "first_key": split(null_k), "first_value": split(null_v)}
    return record(attend, inputs_of(), constants)


def lsh(causal: bool) -> dict[str, Tensor]:
    from reformer_pytorch import LSHAttention

    rounds, chunk = 3, 4
    buckets = LENGTH // chunk
    module = LSHAttention(bucket_size=chunk, n_hashes=rounds, causal=causal)
    drawn = torch.randint(buckets, (BATCH, HEADS, rounds, LENGTH))
    offsets = buckets * torch.arange(rounds).unsqueeze(-1)
    module.hash_vectors = lambda *_, **__: (drawn + offsets).flatten(0, 1).flatten(1)

    def attend(q: Tensor, v: Tensor) -> Tensor:
        out = module(*(heads_first(x).flatten(0, 1) for x in (q, v)))[0]
        return heads_first(out.unflatten(0, (BATCH, HEADS)))

    return record(attend, inputs_of("qv"), {"buckets": drawn.int()})


def routing(causal: bool) -> dict[str, Tensor]:
    """The attention of the package with unnormalised shared keys, and without its learned key."""
    from routing_transformer.routing_transformer import KmeansAttention

    clusters, size = 3, 8
    module = KmeansAttention(clusters, size, HEADS, DIM, causal=causal).eval()
    centroids = nn.functional.normalize(torch.randn(HEADS, clusters, DIM), dim=-1)
    module.kmeans.means.copy_(centroids)
    module.kmeans.initted.fill_(True)
    module.num_mem_kv = 0
    module.mem_key = module.mem_value = nn.Parameter(torch.empty(HEADS, clusters, 0, DIM))

    def attend(q: Tensor, v: Tensor) -> Tensor:
        queries = heads_first(q)
        return heads_first(module(queries, queries, heads_first(v))[0])

    return record(attend, inputs_of("qv"), {"centroids": centroids})


def longformer() -> dict[str, Tensor]:
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = LongformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_window=[6], num_hidden_layers=1,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    module = LongformerSelfAttention(config, 0)
    global_tokens = 2
    mask = torch.zeros(BATCH, LENGTH)
    mask[:, :global_tokens] = 10000.0

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        length_first = [merged(x).transpose(0, 1) for x in (q, k, v)]
        module.query, module.key, module.value = (Given(x) for x in length_first)
        module.query_global = Given(length_first[0][:global_tokens])
        module.key_global, module.value_global = (Given(x) for x in length_first[1:])
        return split(
            module(
                merged(q), attention_mask=mask, is_index_masked=mask < 0, is_index_global_attn=mask > 0,
                is_global_attn=True,
            )[0]
        )  # fmt: skip

    return record(attend, inputs_of())


def big_bird() -> dict[str, Tensor]:
    """The package draws random blocks in training only."""
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    block, random_blocks = 2, 2
    config = BigBirdConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, block_size=block, num_random_blocks=random_blocks,
        max_position_embeddings=LENGTH,
    )  # fmt: skip
    module = BigBirdBlockSparseAttention(config, seed=1).train()
    draw, drawn = module._bigbird_block_rand_mask_with_head, []
    module._bigbird_block_rand_mask_with_head = lambda **options: drawn.append(draw(**options)) or drawn[-1]
    masks = dict(
        zip(
            ("from_blocked_mask", "band_mask", "from_mask", "to_mask"),
            BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(BATCH, LENGTH), block),
        )
    )
    masks["to_blocked_mask"] = masks["from_blocked_mask"]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        module.query, module.key, module.value = (Given(merged(x)) for x in (q, k, v))
        return split(module(merged(q), **masks)[0])

    tensors = record(attend, inputs_of())
    # The first and the last block attend to all blocks, so they have no random blocks.
    table = torch.full((HEADS, LENGTH // block, random_blocks), -1, dtype=torch.int32)
    table[:, 1:-1] = torch.stack([torch.tensor(head) for head in drawn[0]])
    return tensors | {"key_blocks": table}


def main() -> None:
    torch.manual_seed(13)
    torch.set_default_dtype(torch.float64)
    cases = {
        "linformer": linformer(LENGTH),
        "linformer.short": linformer(17),
        "axial.row": axial(1),
        "axial.column": axial(0),
        "local.blocks": local(False, LENGTH),
        "local.blocks.short": local(False, 23),
        "local.sliding": local(True, LENGTH),
        "big_bird": big_bird(),
        "longformer": longformer(),
    }
    for name, causal in (("full", False), ("causal", True)):
        cases[f"performer.softmax.{name}"] = performer("softmax", causal)
        cases[f"performer.relu.{name}"] = performer("relu", causal)
        cases[f"memory_compressed.{name}"] = memory_compressed(causal)
        cases[f"lsh.{name}"] = lsh(causal)
        cases[f"routing.{name}"] = routing(causal)
    tensors = {f"{case}.{key}": value for case, values in cases.items() for key, value in values.items()}
    path = Path(__file__).resolve().parent / "packages.safetensors"
    save_file({key: value.detach().clone().contiguous() for key, value in tensors.items()}, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
