"""Benchmark of attention of public packages, forward and backward, for attention kinds of "Efficient Transformers: A Survey".

The benchmark replaces the projection layers of the packages, so that they return copies of given queries, keys and values.
setup.sh installs the packages.
Prints one JSON object with a list of results (lengths.py).
"""

import argparse
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import lengths
import measure

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "golden"))


def heads_first(module: Callable) -> Callable:
    """Returns attention of tensors (batch, length, heads, dim) by a module that reads tensors (batch, heads, length, dim)."""
    return lambda *inputs: module(*(x.transpose(1, 2) for x in inputs)).transpose(1, 2)


# The following functions return attention of q, k and v (batch, length, heads, dim). The result has as many elements
# as q.


def linformer(options: argparse.Namespace) -> Callable:
    from linformer import LinformerSelfAttention
    from make_packages_golden import Given, merged
    from torch import nn

    module = LinformerSelfAttention(options.heads * options.head_dim, options.one, k=256, heads=options.heads)
    module.to_out = nn.Identity()

    def attend(q, k, v):
        module.to_q, module.to_k, module.to_v = (Given(merged(x)) for x in (q, k, v))
        return module(merged(q))

    return attend


def performer(options: argparse.Namespace, causal: bool = False) -> Callable:
    from performer_pytorch import FastAttention

    with contextlib.redirect_stdout(sys.stderr):  # without its CUDA extension, the package prints a warning
        return heads_first(FastAttention(options.head_dim, nb_features=256, causal=causal))


def local(options: argparse.Namespace) -> Callable:
    from local_attention import LocalAttention

    return heads_first(LocalAttention(256, causal=True, look_backward=1, look_forward=0))


def memory_compressed(options: argparse.Namespace) -> Callable:
    import torch
    from make_packages_golden import Given, merged
    from memory_compressed_attention import MemoryCompressedAttention

    module = MemoryCompressedAttention(options.heads * options.head_dim, heads=options.heads, causal=True)
    module.to_out = torch.nn.Identity()

    def attend(q, k, v):
        module.to_qkv = Given(torch.cat([merged(x) for x in (q, k, v)], -1))
        return module(merged(q))

    return attend


def sinkhorn(options: argparse.Namespace) -> Callable:
    from sinkhorn_transformer.sinkhorn_transformer import SinkhornAttention

    width = options.heads * options.head_dim
    return heads_first(
        SinkhornAttention(128, width, options.head_dim, options.heads, options.one, non_permutative=False, sinkhorn_iter=8)
    )


def routing(options: argparse.Namespace) -> Callable:
    from routing_transformer.routing_transformer import KmeansAttention

    module = KmeansAttention(8, options.one // 8, options.heads, options.head_dim, causal=True, shared_qk=True)
    attend = heads_first(lambda q, v: module(q, q, v)[0])
    return lambda q, k, v: attend(q, v)


def axial(options: argparse.Namespace, axis: int) -> Callable:
    """The attention within the rows (axis 1) or the columns (axis 0) of images with rows of 32 tokens."""
    import torch
    from axial_attention import AxialAttention
    from make_packages_golden import Part

    width = options.heads * options.head_dim
    module = AxialAttention(3 * width, 2, heads=options.heads, dim_heads=options.head_dim, dim_index=-1)
    permutation = module.axial_attentions[axis]
    permutation.fn.to_q, permutation.fn.to_kv = Part(0, width), Part(width, 3 * width)
    permutation.fn.to_out = torch.nn.ConstantPad1d((0, 2 * width), 0.0)

    def attend(q, k, v):
        images = torch.cat([x.flatten(2) for x in (q, k, v)], -1).unflatten(1, (-1, 32))
        return permutation(images).flatten(1, 2)[..., :width]

    return attend


def longformer(options: argparse.Namespace) -> Callable:
    import torch
    from make_packages_golden import Given, merged
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = LongformerConfig(
        hidden_size=options.heads * options.head_dim, num_attention_heads=options.heads, attention_window=[512],
        num_hidden_layers=1, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    module = LongformerSelfAttention(config, 0)
    mask = torch.zeros(options.batch, options.one)
    mask[:, 0] = 10000.0

    def attend(q, k, v):
        length_first = [merged(x).transpose(0, 1) for x in (q, k, v)]
        module.query, module.key, module.value = (Given(x) for x in length_first)
        module.query_global = Given(length_first[0][:1])
        module.key_global, module.value_global = (Given(x) for x in length_first[1:])
        return module(
            merged(q), attention_mask=mask, is_index_masked=mask < 0, is_index_global_attn=mask > 0, is_global_attn=True
        )[0]

    return attend


def big_bird(options: argparse.Namespace) -> Callable:
    import torch
    from make_packages_golden import Given, merged
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

    config = BigBirdConfig(
        hidden_size=options.heads * options.head_dim, num_attention_heads=options.heads, block_size=64,
        num_random_blocks=3, max_position_embeddings=options.one,
    )  # fmt: skip
    module = BigBirdBlockSparseAttention(config, seed=1).train()
    blocked, band, queries, keys = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(options.batch, options.one), 64)

    def attend(q, k, v):
        module.query, module.key, module.value = (Given(merged(x)) for x in (q, k, v))
        return module(merged(q), band, queries, keys, blocked, blocked)[0]

    return attend


KINDS = {
    "linformer": linformer,
    "performer": performer,
    "causal-performer": lambda options: performer(options, causal=True),
    "local": local,
    "memory-compressed": memory_compressed,
    "sinkhorn": sinkhorn,
    "routing": routing,
    "axial-row": lambda options: axial(options, 1),
    "axial-column": lambda options: axial(options, 0),
    "longformer": longformer,
    "big-bird": big_bird,
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--one", type=int, metavar="LENGTH", help="measure only this length")
    lengths.add_options(parser, head_dim=64)
    return parser.parse_args()


def measure_one(options: argparse.Namespace) -> None:
    torch = measure.prepare(options)
    attend = KINDS[options.kind](options)
    shape = (options.batch, options.one, options.heads, options.head_dim)

    def prepare_run():
        inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        cotangent = torch.randn(shape)

        def run():
            for x in inputs:
                x.grad = None
            y = attend(*inputs)
            y.backward(cotangent.reshape(y.shape))

        return run

    lengths.report_one(prepare_run, options.batch, options.one, options.repeats, measure.current(), kind=options.kind)


def main() -> None:
    options = parse()
    if options.one:
        measure_one(options)
        return
    lengths.run_each("survey", options, [[str(2**i)] for i in range(options.first, options.last + 1)])


if __name__ == "__main__":
    main()
