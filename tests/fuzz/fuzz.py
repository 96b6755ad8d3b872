#!/usr/bin/env python3
"""Runs the program with mutated configs, checkpoints, data, models, environment variables and command lines.

    tests/fuzz/fuzz.py --program build/asan/tapeformer --seed 1 --runs 10000
    tests/fuzz/fuzz.py --program build/release/tapeformer --mode kills --runs 100
    tests/fuzz/fuzz.py --program build/release/tapeformer --mode full-disk --runs 20

A run must end within a time limit and with a documented exit status. It must not print a sanitizer report, messages of
libraries or control characters. It must not use more than 1 GiB of memory (3 GiB in a build with sanitizers), and must
write only into its folder. Each finding names its case: the same seed with --case N repeats it, and --keep DIR keeps its
files. The exit status is 0 without findings, 1 with findings and 2 for wrong usage. The script needs only the standard
library of Python.
"""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import shlex
import shutil
import stat
import sys
import tempfile

import durability
from inputs import make_base
from kinds import KINDS, RARE, make_case
from runner import Case, Program, problems_of


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="path of the program tapeformer")
    parser.add_argument("--mode", choices=["inputs", "kills", "full-disk"], default="inputs",
                        help="inputs: mutated inputs; kills: killed trainings; full-disk: trainings on small disks")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random numbers (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=400, help="number of runs (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default: %(default)s)")
    parser.add_argument("--case", type=int, help="run only this case and print its output")
    parser.add_argument("--only", default=",".join(KINDS),
                        help=f"kinds of cases, separated by commas: {', '.join(KINDS)}")
    parser.add_argument("--keep", help="folder for the files of findings")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(),
                        help="number of parallel runs (default: one per processor)")
    parser.add_argument("--seconds", type=float, default=20,
                        help="time limit of a run in seconds, five times that with sanitizers (default: %(default)s)")
    options = parser.parse_args()
    options.kinds = options.only.split(",")
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    if not os.access(options.program, os.X_OK):
        parser.error(f"{options.program} is not a program")
    return options


def show(number, kind, case, problems, outcome):
    words = shlex.join([*case.prefix, *case.arguments])
    print(f"case {number} ({kind}): {' '.join(f'{k}={v!r}' for k, v in case.variables.items())} tapeformer {words.encode(errors='backslashreplace').decode()!r:.600}")
    for path in case.files:
        print(f"  changed {str(path).encode(errors='backslashreplace').decode()!r}")
    for problem in problems:
        print(f"  PROBLEM: {problem}")
    print(f"  status {outcome.status}, {outcome.seconds:.1f} s, {outcome.peak >> 20} MiB, standard error:")
    print("    " + ascii(outcome.err[-1500:].decode(errors="backslashreplace")), flush=True)


def kind_of(options, number):
    """Returns the kind of a case. Kinds take turns, and each has three times as many cases as the rare kinds."""
    kinds = [kind for kind in options.kinds for _ in range(1 if kind in RARE else 3)]
    return kinds[number % len(kinds)]


def run_case(options, work, number):
    """Runs one case, prints its problems, and returns its kind, its exit status and its problems."""
    program = Program(options.program, options.seconds)
    kind, rng = kind_of(options, number), random.Random(f"{options.seed}/{number}")
    folder = work / f"case-{number}"
    case = make_case(kind, rng, work / "base", folder)
    outcome = program.run(case, folder)
    problems = problems_of(case, outcome, program)
    if case.check and outcome.status == 0:
        problems += case.check(folder)
    if (folder / "escaped").exists():
        problems.append("a command of a data file was run")
    if problems or options.case is not None:
        show(number, kind, case, problems, outcome)
        if options.keep:
            target = pathlib.Path(options.keep) / f"case-{number}"
            shutil.copytree(folder, target, symlinks=True, dirs_exist_ok=True,
                            ignore=lambda _, names: [n for n in names if stat.S_ISFIFO(os.lstat(f"{_}/{n}").st_mode)])
    shutil.rmtree(folder)
    return kind, outcome.status, problems


def foreign_files(work):
    return [path.name for path in work.iterdir() if path.name != "base" and not path.name.startswith("case-")]


def fuzz_inputs(options, work):
    program = Program(options.program, 60)

    def run_valid(arguments):
        outcome = program.run(Case(arguments, {0}), work / "base")
        if outcome.status != 0:
            print(f"a valid input failed: tapeformer {shlex.join(arguments)}\n{outcome.err.decode()}")
        return outcome.status == 0

    (work / "base").mkdir()
    reader = pathlib.Path(options.program).resolve().parent / "tests/pretrained/read_files"
    if reader.exists():
        (work / "base/read_files").symlink_to(reader)
    for kind, reason in make_base(work / "base", run_valid).items():
        if kind in options.kinds:
            print(f"skipped: {kind}: {reason}")
            options.kinds.remove(kind)
    if options.case is not None:
        return len(run_case(options, work, options.case)[2])
    statuses, findings = collections.Counter(), 0
    numbers = range(options.first, options.first + options.runs)
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for kind, status, problems in pool.map(run_case, *zip(*((options, work, n) for n in numbers)), chunksize=8):
            statuses[kind, status] += 1
            findings += bool(problems)
    if foreign := foreign_files(work):
        print(f"PROBLEM: files outside of the folders of the cases: {foreign}")
        findings += 1
    for kind in options.kinds:
        counts = {status: n for (k, status), n in sorted(statuses.items()) if k == kind}
        print(f"{kind}: {sum(counts.values())} runs, by exit status {counts}")
    return findings


def main():
    options = parse()
    sys.stdout.reconfigure(errors="backslashreplace")
    with tempfile.TemporaryDirectory(prefix="tapeformer-fuzz-") as folder:
        if options.mode == "inputs":
            findings = fuzz_inputs(options, pathlib.Path(folder))
        else:
            mode = durability.kills if options.mode == "kills" else durability.full_disks
            findings = mode(Program(options.program), folder, options.seed, options.runs, print)
    print(f"seed {options.seed}, {options.mode}: {options.runs} runs, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
