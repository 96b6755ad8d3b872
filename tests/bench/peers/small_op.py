"""Benchmark of a small operation: chains of additions of 16 elements, forward with recording, and backward."""

import argparse
import time

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=16)
    parser.add_argument("--chain", type=int, default=1000, help="number of additions before backward")
    parser.add_argument("--repeats", type=int, default=200)
    measure.add_common_options(parser)
    parser.set_defaults(threads=1)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch = measure.prepare(options)
    x = torch.randn(options.elements, requires_grad=True)
    y = torch.randn(options.elements, requires_grad=True)
    cotangent = torch.ones(options.elements)
    forward, backward = [], []
    for repeat in range(options.repeats + 20):
        x.grad = y.grad = None
        start = time.perf_counter()
        z = x
        for _ in range(options.chain):
            z = z + y
        middle = time.perf_counter()
        z.backward(cotangent)
        end = time.perf_counter()
        if repeat >= 20:
            forward.append(middle - start)
            backward.append(end - middle)
    per_op = 1e6 / options.chain
    measure.report(
        benchmark="small_op",
        torch=torch.__version__,
        **vars(options),
        microseconds_forward=measure.median(forward) * per_op,
        microseconds_backward=measure.median(backward) * per_op,
        microseconds=measure.median([a + b for a, b in zip(forward, backward)]) * per_op,
        microseconds_best=min(a + b for a, b in zip(forward, backward)) * per_op,
    )


if __name__ == "__main__":
    main()
