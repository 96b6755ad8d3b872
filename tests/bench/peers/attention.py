"""Benchmark of causal attention, forward and backward, for several lengths: time per token and peak memory (lengths.py).

With --tokens, longer sequences have smaller batches, as in figure 1 of the paper. Prints one JSON object with a list of
results. The kind "gated-delta" includes the gates and the norm, which it computes from the input of the layer. The kind "fla"
is linear attention with the kernels of the PyPI package flash-linear-attention, which needs a GPU.
"""

import argparse

import lengths
import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="linear,softmax")
    parser.add_argument("--softmax-to", type=int, default=14, help="longest length of softmax attention, as a power of 2")
    parser.add_argument("--tokens", type=int, default=0, help="batch times length; 0 means a batch of one")
    parser.add_argument("--compile", choices=("none", "attention"), default="attention")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "LENGTH"), help="measure only this case")
    lengths.add_options(parser, head_dim=32)
    return parser.parse_args()


def measure_one(options: argparse.Namespace) -> None:
    torch = measure.prepare(options)
    import torch.nn.functional as F
    from model import GatedDelta, linear_attention_chunked

    kind, length = options.one[0], int(options.one[1])
    batch = max(1, options.tokens // length)
    shape = (batch, options.heads, length, options.head_dim)
    dtype = torch.bfloat16 if options.precision == "bfloat16" else torch.float32
    if kind == "softmax":
        attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    elif kind == "fla":
        from fla.ops.linear_attn import chunk_linear_attn
        from model import feature_map

        def attend(q, k, v):
            y = chunk_linear_attn(feature_map(q), feature_map(k), v, scale=1.0, normalize=True)
            return y[0] if isinstance(y, tuple) else y

        shape = (batch, length, options.heads, options.head_dim)
    else:
        if kind == "gated-delta":
            attend = GatedDelta(options.heads, options.head_dim, options.chunk)
        else:
            attend = lambda q, k, v: linear_attention_chunked(q, k, v, options.chunk)
        if options.compile == "attention":
            attend = torch.compile(attend)

    def prepare_run():
        inputs = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
        if kind == "gated-delta":  # the input of the layer
            inputs.append(torch.randn(batch, length, options.heads * options.head_dim, dtype=dtype, requires_grad=True))
        cotangent = torch.randn(shape, dtype=dtype)

        def run():
            for x in inputs:
                x.grad = None
            attend(*inputs).backward(cotangent)

        return run

    prepare_run()()  # compiles the kernels
    lengths.report_one(prepare_run, batch, length, options.repeats, measure.current(), kind=kind)


def main() -> None:
    options = parse()
    if options.one:
        measure_one(options)
        return
    cases = []
    for kind in options.kinds.split(","):
        last = min(options.last, options.softmax_to) if kind == "softmax" else options.last
        cases += [[kind, str(2**exponent)] for exponent in range(options.first, last + 1)]
    lengths.run_each("attention", options, cases)


if __name__ == "__main__":
    main()
