#!/usr/bin/env python3
"""Compares the speed of two programs, such as the program of a wheel (tapeformer/bin/tapeformer) and a native build.

Measures training steps and attention with `tapeformer bench`. Each round runs both programs in turn, each in a new process.
Prints the medians of the rounds in milliseconds and their ratio as Markdown. Usage: compare_programs.py PROGRAM PROGRAM
"""

import argparse
import json
import os
import statistics
import subprocess

STEP = ["train-step", "--batch", "4", "--layers", "4", "--repeats", "5"]
CALL = ["attention", "--shortest", "2048", "--longest", "2048", "--repeats", "9", "--kind"]
MEASUREMENTS = {
    "training step, linear": STEP,
    "training step, softmax": [*STEP, "--attention", "softmax"],
    "softmax attention, forward and backward": [*CALL, "softmax"],
    "linear attention, forward and backward": [*CALL, "linear"],
    "gated delta rule, forward and backward": [*CALL, "gated-delta"],
}


def find_seconds(value):
    return value["seconds_per_step"] if "seconds_per_step" in value else value["lengths"][0]["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="2")
    options = parser.parse_args()
    environment = {**os.environ, "OMP_PROC_BIND": "true"}
    print(f"| | {' | '.join(options.programs)} | ratio |\n|---|---|---|---|")
    for name, arguments in MEASUREMENTS.items():
        seconds: list = [[], []]
        for number in range(options.rounds):
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                command = [options.programs[side], "bench", *arguments, "--threads", options.threads, "--json"]
                result = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
                seconds[side].append(find_seconds(json.loads(result.stdout)))
        first, second = (1e3 * statistics.median(x) for x in seconds)
        print(f"| {name} | {first:.2f} ms | {second:.2f} ms | {first / second:.3f} |", flush=True)


if __name__ == "__main__":
    main()
