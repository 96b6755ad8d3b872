"""Shared code of the benchmarks of attention, which measure each length in a separate process.

The reported peak is the peak memory of a run, with inputs and gradients, minus the memory before the inputs are created. On
the CPU, it is resident memory. On a device, it is allocated memory.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable

import measure


def add_options(parser: argparse.ArgumentParser, head_dim: int) -> None:
    parser.add_argument("--from", dest="first", type=int, default=9, help="shortest length, as a power of 2")
    parser.add_argument("--to", dest="last", type=int, default=16, help="longest length, as a power of 2")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=head_dim)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    measure.add_common_options(parser)


def report_one(
    prepare_run: Callable[[], Callable[[], object]], batch: int, length: int, repeats: int, baseline: int, **fields
) -> None:
    """Measures the function that prepare_run() returns. `baseline` is measure.current() before the inputs were created."""
    run = prepare_run()
    measure.times(run, 0, warmup=1)
    measure.reset_peak()
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
    """Runs this program with --one for each case, and prints one JSON object with all results.

    If a run fails, exits with its status. The last lines of standard error are then the error of the run.
    """
    results = []
    for words in cases:
        command = [sys.executable, *sys.argv, "--one", *words]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if run.returncode != 0:
            sys.exit(run.returncode)
        results.append(json.loads(run.stdout))
        print(run.stdout, end="", file=sys.stderr)
    shown = {k: v for k, v in vars(options).items() if k != "one"}
    measure.report(benchmark=benchmark, **shown, results=results)
