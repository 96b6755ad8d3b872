"""Causal attention alone, forward and backward, at growing lengths: time per token and peak memory.

Each length runs in a process of its own, so that a peak is that length's: what is resident at most, inputs and
gradients included, above what the process held without them. With --tokens the batch shrinks as the length grows, as
in the paper's figure 1. Prints one JSON object with a list of results.
"""

import argparse
import json
import subprocess
import sys

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="linear,softmax")
    parser.add_argument("--from", dest="first", type=int, default=9, help="the shortest length is 2 to this")
    parser.add_argument("--to", dest="last", type=int, default=16)
    parser.add_argument("--softmax-to", type=int, default=14, help="softmax's longest length: its time is quadratic")
    parser.add_argument("--tokens", type=int, default=0, help="batch times length; 0: a batch of one")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=32)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--compile", choices=("none", "attention"), default="attention")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", nargs=2, metavar=("KIND", "LENGTH"), help="measure this and nothing else")
    measure.add_common_options(parser)
    return parser.parse_args()


def measure_one(options: argparse.Namespace) -> None:
    torch = measure.prepare(options)
    import torch.nn.functional as F
    from model import linear_attention_chunked

    kind, length = options.one[0], int(options.one[1])
    batch = max(1, options.tokens // length)
    shape = (batch, options.heads, length, options.head_dim)
    if kind == "softmax":
        attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        attend = lambda q, k, v: linear_attention_chunked(q, k, v, options.chunk)
        if options.compile == "attention":
            attend = torch.compile(attend)

    def prepare_run():
        inputs = [torch.randn(shape, requires_grad=True) for _ in range(3)]
        cotangent = torch.randn(shape)

        def run():
            for x in inputs:
                x.grad = None
            attend(*inputs).backward(cotangent)

        return run

    prepare_run()()  # compiles, and leaves nothing behind but code
    baseline = measure.current_rss()
    run = prepare_run()
    measure.times(run, 0, warmup=1)
    measure.forget_peak()
    seconds = measure.median(measure.times(run, options.repeats, warmup=0))
    measure.report(
        kind=kind,
        length=length,
        batch=batch,
        seconds=seconds,
        microseconds_per_token=1e6 * seconds / (batch * length),
        peak_bytes=measure.recent_peak_rss() - baseline,
        bytes_per_token=(measure.recent_peak_rss() - baseline) / (batch * length),
    )


def main() -> None:
    options = parse()
    if options.one:
        measure_one(options)
        return
    results = []
    for kind in options.kinds.split(","):
        last = min(options.last, options.softmax_to) if kind == "softmax" else options.last
        for exponent in range(options.first, last + 1):
            command = [sys.executable, *sys.argv, "--one", kind, str(2**exponent)]
            output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            results.append(json.loads(output))
            print(output, end="", file=sys.stderr)
    shown = {k: v for k, v in vars(options).items() if k != "one"}
    measure.report(benchmark="attention", **shown, results=results)


if __name__ == "__main__":
    main()
