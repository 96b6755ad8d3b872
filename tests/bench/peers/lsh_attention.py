"""Benchmark of LSH attention with the PyPI package reformer-pytorch, forward and backward, for several lengths.

It uses the defaults of reformer_pytorch.LSHAttention. Queries attend to all buckets of their chunks, duplicate keys are not
corrected, and the first chunk attends to the last. Scores are divided by sqrt(dim), and there are length / bucket_size
buckets. The equivalent command of Tapeformer:
  tapeformer_bench bench lsh-attention --wrap global --duplicates none --across_buckets yes --scale rsqrt_dim --shortest N
    --longest N --buckets N/64
Prints one JSON object with a list of results (lengths.py).
"""

import argparse

import lengths
import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--within-buckets", action="store_true", help="queries attend only to keys of their bucket")
    parser.add_argument("--no-duplicates", action="store_true", help="correct the weights of duplicate keys")
    parser.add_argument("--one", type=int, metavar="LENGTH", help="measure only this length")
    lengths.add_options(parser, head_dim=64)
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
            with measure.mixed_precision(options):
                y = attend(*inputs)[0]
            y.backward(cotangent.to(y.dtype))

        return run

    lengths.report_one(prepare_run, options.batch, options.one, options.repeats, measure.current())


def main() -> None:
    options = parse()
    if options.one:
        measure_one(options)
        return
    lengths.run_each("lsh-attention", options, [[str(2**i)] for i in range(options.first, options.last + 1)])


if __name__ == "__main__":
    main()
