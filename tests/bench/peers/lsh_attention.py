"""LSH attention alone, forward and backward, at growing lengths, by the PyPI package reformer-pytorch.

Its options are those of reformer_pytorch.LSHAttention as it comes: keys of other buckets in a chunk are seen, a key met
twice counts twice, the first chunk looks back at the last one, scores over the root of the dimension, length /
bucket_size buckets. The same with this tree:
  tapeformer bench lsh-attention --wrap global --duplicates none --across_buckets yes --scale rsqrt_dim --shortest N
    --longest N --buckets N/64
Each length runs in a process of its own, so that a peak is that length's. Prints one JSON object with a list of results.
Needs `pip install reformer-pytorch` in the virtual environment of setup.sh.
"""

import argparse
import json
import subprocess
import sys

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=9, help="the shortest length is 2 to this")
    parser.add_argument("--to", dest="last", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--within-buckets", action="store_true", help="do not see keys of other buckets")
    parser.add_argument("--no-duplicates", action="store_true", help="a key met twice counts once")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", type=int, metavar="LENGTH", help="measure this and nothing else")
    measure.add_common_options(parser)
    return parser.parse_args()


def measure_one(options: argparse.Namespace) -> None:
    torch = measure.prepare(options)
    from reformer_pytorch import LSHAttention

    attend = LSHAttention(
        bucket_size=options.chunk,
        n_hashes=options.rounds,
        causal=True,
        attend_across_buckets=not options.within_buckets,
        allow_duplicate_attention=not options.no_duplicates,
    )
    shape = (options.batch * options.heads, options.one, options.head_dim)

    def prepare_run():
        inputs = [torch.randn(shape, requires_grad=True) for _ in range(2)]
        cotangent = torch.randn(shape)

        def run():
            for x in inputs:
                x.grad = None
            attend(*inputs)[0].backward(cotangent)

        return run

    baseline = measure.current_rss()
    run = prepare_run()
    measure.times(run, 0, warmup=1)
    measure.forget_peak()
    seconds = measure.median(measure.times(run, options.repeats, warmup=0))
    tokens = options.batch * options.one
    measure.report(
        length=options.one,
        seconds=seconds,
        microseconds_per_token=1e6 * seconds / tokens,
        peak_bytes=measure.recent_peak_rss() - baseline,
        bytes_per_token=(measure.recent_peak_rss() - baseline) / tokens,
    )


def main() -> None:
    options = parse()
    if options.one:
        measure_one(options)
        return
    results = []
    for exponent in range(options.first, options.last + 1):
        command = [sys.executable, *sys.argv, "--one", str(2**exponent)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        results.append(json.loads(output))
        print(output, end="", file=sys.stderr)
    shown = {k: v for k, v in vars(options).items() if k != "one"}
    measure.report(benchmark="lsh-attention", **shown, results=results)


if __name__ == "__main__":
    main()
