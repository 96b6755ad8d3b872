"""Compares the speed of two copies of the Python package, such as a wheel and a build for the processor of this machine.

Measures attention of tapeformer.torch, forward and backward, and a training step of configs/copy. A round runs both copies, each
in a new process; the order alternates. Prints the medians of the rounds in milliseconds, and their ratio, as Markdown. Needs
PyTorch. Example:

    pip install --no-deps --target wheel dist/tapeformer-*.whl
    pip install --no-deps --target native .
    tests/bench/compare_packages.py wheel native
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="two folders that contain the package")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if len(options.folders) not in (0, 2):
        parser.error("expected two folders")
    return options


def measure_call(attend) -> float:
    import torch

    inputs = [torch.randn(1, 2048, 8, 32, requires_grad=True) for _ in range(3)]
    cotangent = torch.randn(1, 2048, 8, 32)
    seconds = []
    for repeat in range(12):
        start = time.perf_counter()
        attend(*inputs).backward(cotangent)
        if repeat >= 2:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def measure_step(threads: int, attention: str) -> float:
    import tapeformer

    settings = {
        "train.steps": 12, "train.log_every": 1, "train.eval_every": 0, "train.checkpoint_every": 0, "run.threads": threads,
        "data.eval_limit": 1, "data.batch_size": 4, "model.attention": attention,
    }  # fmt: skip
    times = []
    with tempfile.TemporaryDirectory() as folder:
        tapeformer.train("copy/linear", set=settings, run_dir=f"{folder}/run", on_metrics=lambda _: times.append(time.perf_counter()))
    return statistics.median(b - a for a, b in zip(times[2:11], times[3:12]))


def measure_copy(threads: int) -> None:
    """Prints one JSON object of seconds."""
    import torch

    import tapeformer.torch as tt

    torch.set_num_threads(threads)
    seconds = {
        "softmax attention, 2,048 tokens": measure_call(lambda q, k, v: tt.softmax_attention(q, k, v, causal=True)),
        "linear attention, 2,048 tokens": measure_call(lambda q, k, v: tt.linear_attention(q, k, v, causal=True)),
        "gated linear attention, 2,048 tokens": measure_call(lambda q, k, v: tt.gated_linear_attention(q, k, v)[0]),
        "training step, linear": measure_step(threads, "linear"),
        "training step, softmax": measure_step(threads, "softmax"),
    }
    print(json.dumps(seconds))


def main() -> None:
    options = parse()
    if not options.folders:
        measure_copy(options.threads)
        return
    rounds: list = [[], []]
    for number in range(options.rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            environment = {**os.environ, "PYTHONPATH": options.folders[side], "OMP_NUM_THREADS": str(options.threads)}
            command = [sys.executable, __file__, "--threads", str(options.threads)]
            result = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
            rounds[side].append(json.loads(result.stdout))
    print(f"| | {' | '.join(options.folders)} | ratio |\n|---|---|---|---|")
    for name in rounds[0][0]:
        first, second = (1e3 * statistics.median(x[name] for x in side) for side in rounds)
        print(f"| {name} | {first:.2f} ms | {second:.2f} ms | {first / second:.3f} |")


if __name__ == "__main__":
    main()
