"""What the benchmarks of attention alone share: a process for each length, and the time and peak of one.

Each length runs in a process of its own, so that a peak is that length's: what is resident at most (on a device:
allocated), inputs and gradients included, above what the process held without them.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable

import measure


def add_options(parser: argparse.ArgumentParser, head_dim: int) -> None:
    parser.add_argument("--from", dest="first", type=int, default=9, help="the shortest length is 2 to this")
    parser.add_argument("--to", dest="last", type=int, default=16)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=head_dim)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    measure.add_common_options(parser)


def report_one(
    prepare_run: Callable[[], Callable[[], object]], batch: int, length: int, repeats: int, baseline: int, **fields
) -> None:
    """Times the call that prepare_run() makes, whose inputs it holds; baseline: measure.current() without them."""
    run = prepare_run()
    measure.times(run, 0, warmup=1)
    measure.forget_peak()
    seconds = measure.median(measure.times(run, repeats, warmup=0))
    peak = measure.recent_peak() - baseline
    tokens = batch * length
    measure.report(
        **fields,
        length=length,
        batch=batch,
        seconds=seconds,
        microseconds_per_token=1e6 * seconds / tokens,
        peak_bytes=peak,
        bytes_per_token=peak / tokens,
    )


def run_each(benchmark: str, options: argparse.Namespace, cases: list[list[str]]) -> None:
    """Runs this program once for each case, with --one and the case's words; prints one JSON object with all results."""
    results = []
    for words in cases:
        command = [sys.executable, *sys.argv, "--one", *words]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        results.append(json.loads(output))
        print(output, end="", file=sys.stderr)
    shown = {k: v for k, v in vars(options).items() if k != "one"}
    measure.report(benchmark=benchmark, **shown, results=results)
