#!/usr/bin/env python3
"""A model of the time of data-parallel training, for docs/distributed.md.

A step of N processes takes T = compute + exposed. A ring of processes reduces the gradient of P parameters in buckets:

    reduce = 2 (N - 1) / N * bytes / bandwidth + buckets * 2 * log2(N) * latency
    exposed = max(reduce - overlap * backward, last)

All times are in seconds. `backward` is 2/3 of `compute`. `last` is the time of the last bucket, which no computation overlaps.
The efficiency is compute / T. The batch of each process is fixed. Without arguments, the program prints the tables as
Markdown. With --parameters, --compute, --bandwidth and --latency, it prints the prediction for one machine.
"""

import argparse
import math

BUCKET = 4 << 20

# For each model: its name, parameters, tokens of a process, operations per second of a process, and transferred bytes
# per element of the gradient. The rates are assumptions; a device reaches less with small models. The CPU is two cores
# of a Xeon.
MODELS = [
    ("MNIST, linear, CPU", 6.4e6, 7830, 0.25e12, 4),
    ("MNIST, linear, device", 6.4e6, 7830, 50e12, 4),
    ("CIFAR-10, linear, device", 12.7e6, 12288, 50e12, 4),
    ("speech, linear, device", 4.0e6, 20000, 50e12, 4),
    ("1 billion, device", 1.0e9, 16384, 300e12, 2),
]
# For each network: its name, bytes per second of a process, latency in seconds, and the share of `backward` that hides
# communication.
NETWORKS = [
    ("10 GbE", 1.1e9, 30e-6, 1.0),
    ("200 Gb/s InfiniBand", 22e9, 3e-6, 1.0),
    ("NVLink", 350e9, 3e-6, 1.0),
]
SIZES = (1, 2, 4, 8, 64, 1024)

def reduce_seconds(processes: int, nbytes: float, bandwidth: float, latency: float) -> float:
    if processes == 1:
        return 0.0
    buckets = max(1, math.ceil(nbytes / BUCKET))
    transfer = 2 * (processes - 1) / processes * nbytes / bandwidth
    return transfer + buckets * 2 * math.log2(processes) * latency


def step_seconds(processes: int, nbytes: float, compute: float, bandwidth: float, latency: float, overlap: float) -> float:
    if processes == 1:
        return compute
    backward = 2 / 3 * compute
    last = reduce_seconds(processes, min(nbytes, BUCKET), bandwidth, latency)
    return compute + max(reduce_seconds(processes, nbytes, bandwidth, latency) - overlap * backward, last)


def compute_seconds(parameters: float, tokens: float, rate: float) -> float:
    return 6 * parameters * tokens / rate


def tables() -> None:
    for name, bandwidth, latency, overlap in NETWORKS:
        print(f"\n{name}: step time in milliseconds, and efficiency\n")
        print("| model | " + " | ".join(str(n) for n in SIZES) + " |")
        print("|---|" + "---|" * len(SIZES))
        for model, parameters, tokens, rate, width in MODELS:
            compute = compute_seconds(parameters, tokens, rate)
            cells = []
            for n in SIZES:
                step = step_seconds(n, parameters * width, compute, bandwidth, latency, overlap)
                cells.append(f"{float(f'{1e3 * step:.3g}'):g} ({100 * compute / step:.0f} %)")
            print(f"| {model} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=float, help="number of parameters, with gradients in float32")
    parser.add_argument("--compute", type=float, help="seconds of a step of one process alone")
    parser.add_argument("--bandwidth", type=float, help="bytes per second of all_reduce")
    parser.add_argument("--latency", type=float, default=1e-5, help="seconds of a small message")
    parser.add_argument(
        "--overlap", type=float, default=0.0, help="share of the backward pass that hides communication (default: 0)"
    )
    options = parser.parse_args()
    if options.compute is None:
        tables()
        return
    for n in (2, 4):
        step = step_seconds(
            n, 4 * options.parameters, options.compute, options.bandwidth, options.latency, options.overlap
        )
        print(f"{n} processes: {step:.4f} s, efficiency {options.compute / step:.3f}")


if __name__ == "__main__":
    main()
