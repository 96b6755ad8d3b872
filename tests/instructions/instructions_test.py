"""Compares the instructions of training and decoding steps with the counts in counts.json.

Times depend on the load of a machine, but instructions do not. A loop that the compiler no longer vectorizes, a copy, or a call
for each element changes a count, and the test fails if a count differs by more than 5 %. --write replaces the stored counts.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

STORED = pathlib.Path(__file__).with_name("counts.json")
TOLERANCE = 0.05
SKIPPED = 77


def count(program, valgrind, folder):
    """Returns the number of instructions of each case of the program."""
    files = pathlib.Path(folder) / "counts"
    # valgrind computes fused multiply-adds 100 times slower than other instructions, so OpenBLAS must use none.
    environment = os.environ | {"OPENBLAS_CORETYPE": "Sandybridge"}
    done = subprocess.run([valgrind, "--tool=callgrind", f"--callgrind-out-file={files}", "--instr-atstart=no", program],
                          env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the program failed ({done.returncode}):\n{done.stdout}{done.stderr}"
    names = done.stdout.splitlines()
    texts = [pathlib.Path(f"{files}.{number}").read_text() for number in range(1, len(names) + 1)]
    return {name: int(re.search(r"^totals: (\d+)", text, re.M)[1]) for name, text in zip(names, texts)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--valgrind", default="valgrind")
    parser.add_argument("--compiler", required=True, help="name and version, such as GNU-12.2.0")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    compiler = args.compiler.split(".")[0]
    stored = json.loads(STORED.read_text())
    if compiler not in stored and not args.write:
        print(f"skipped: counts.json has no counts of {compiler}")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        counts = count(args.program, args.valgrind, folder)
    if args.write:
        STORED.write_text(json.dumps(stored | {compiler: counts}, indent=1) + "\n")
        return 0
    expected = stored[compiler]
    wrong = [f"{name}: {counts.get(name, 'missing')}, stored: {expected.get(name, 'missing')}"
             for name in sorted(counts.keys() | expected.keys())
             if abs(counts.get(name, 0) / expected.get(name, 1) - 1) > TOLERANCE]
    assert not wrong, "instructions of:\n" + "\n".join(wrong)
    print(f"{len(counts)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
