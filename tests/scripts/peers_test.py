"""Tests of run.py, generate.py and wheels.py in tests/bench/peers, and of `results.py --peers`. They need neither PyTorch nor a
build.
"""

import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

PEERS = Path(__file__).resolve().parents[1] / "bench" / "peers"
sys.path[:0] = [str(PEERS), str(PEERS.parents[2] / "scripts")]

import generate  # noqa: E402
import results  # noqa: E402
import run  # noqa: E402
import wheels  # noqa: E402


def pair_of(*figures: run.Figure) -> run.Pair:
    return run.Pair("one", ("one",), ("one.py",), figures)


TIME = run.Field(("rows", 1, "milliseconds"), 1e-3)
FIGURE = run.Figure("one figure", TIME, run.Field(("seconds",)), run.Field(("bytes",)))
LINES = (["ours"], ["theirs"])


class Programs:
    """A function that replaces run_program(): returns the next report of a command, or raises its error."""

    def __init__(self, ours: list, theirs: list):
        self.reports = {"ours": list(ours), "theirs": list(theirs)}
        self.order = []

    def __call__(self, command: list) -> tuple[dict, int]:
        self.order.append(command[0])
        value = self.reports[command[0]].pop(0)
        if isinstance(value, str):
            raise run.RunError(value)
        return value, 3000


def ours(milliseconds: float) -> dict:
    return {"rows": [{}, {"milliseconds": milliseconds}], "bytes": 1500}


class PairTest(unittest.TestCase):
    def test_programs_alternate_and_ratios_compare_rounds(self):
        programs = Programs([ours(100), ours(200), ours(400)], [{"seconds": s} for s in (0.3, 0.2, 0.8)])
        pair = pair_of(FIGURE)
        ((figure, *sides),) = run.measure_pair(pair, LINES, 3, programs)
        self.assertEqual(programs.order, ["ours", "theirs"] * 3)
        row = run.row_of(pair, figure, *sides)
        self.assertEqual([round(ratio, 9) for ratio in row["ratios"]], [3, 1, 2])
        self.assertAlmostEqual(row["ratio"], 2)
        self.assertAlmostEqual(row["tapeformer"]["median_seconds"], 0.2)
        self.assertAlmostEqual(row["pytorch"]["median_seconds"], 0.3)
        # The figure has a field only for the memory of Tapeformer. The memory of PyTorch is the resident set,
        # 3000 bytes.
        self.assertAlmostEqual(row["memory_share"], 0.5)

    def test_failed_program_is_reported_and_the_other_runs_all_rounds(self):
        programs = Programs(["error: no bfloat16"], [{"seconds": 1.0}] * 3)
        pair = pair_of(FIGURE)
        ((figure, *sides),) = run.measure_pair(pair, LINES, 3, programs)
        self.assertEqual(programs.order, ["ours", "theirs", "theirs", "theirs"])
        row = run.row_of(pair, figure, *sides)
        self.assertEqual(row["tapeformer"]["error"], "error: no bfloat16")
        self.assertEqual(row["pytorch"]["seconds"], [1.0] * 3)
        self.assertNotIn("ratio", row)
        text = run.table({}, [row])
        self.assertIn("| one figure | failed: error: no bfloat16 | 1 s |", text)

    def test_program_that_fails_later_has_no_ratio(self):
        programs = Programs([ours(1), "error: killed"], [{"seconds": 1.0}] * 2)
        pair = pair_of(FIGURE)
        ((figure, *sides),) = run.measure_pair(pair, LINES, 2, programs)
        row = run.row_of(pair, figure, *sides)
        self.assertNotIn("ratio", row)
        self.assertIn("failed: error: killed", run.table({}, [row]))

    def test_table(self):
        side = {"median_seconds": 0.0123456, "memory_bytes": 12.4e6}
        other = {"median_seconds": 2.5e-5, "memory_bytes": 1e9}
        row = {"figure": "f", "tapeformer": side, "pytorch": other, "ratio": 1.5, "ratios": [1.25, 1.5, 2.0],
               "memory_share": 0.0124}  # fmt: skip
        lines = run.table({"cores": 2}, [row]).splitlines()
        self.assertEqual(lines[0], "- cores: 2")
        self.assertEqual(lines[-1], "| f | 12.3 ms | 25 µs | **1.50** (1.25 to 2.00) | 12 MB | 1000 MB | 0.01 |")
        self.assertEqual(lines[-3].count("|"), lines[-1].count("|"))
        self.assertEqual(run.time_text(353.2e-3), "353 ms")

    def test_choose_pairs(self):
        self.assertEqual([pair.name for pair in run.choose_pairs("lstm,ctc,lstm-float32")],
                         ["lstm-float32", "lstm-bfloat16", "ctc"])  # fmt: skip
        self.assertEqual(len({pair.name for pair in run.all_pairs()}), len(run.all_pairs()))
        with self.assertRaises(SystemExit) as stopped:
            run.choose_pairs("ctc,lst")
        self.assertIn("unknown pair 'lst'", str(stopped.exception))

    def test_both_programs_get_the_same_threads(self):
        for pair in run.all_pairs():
            for line in run.commands(pair, "tapeformer", 7):
                self.assertEqual(line[line.index("--threads") + 1], str(pair.threads or 7))
            self.assertTrue((PEERS / pair.theirs[0]).exists())

    def test_processor(self):
        text = "processor : 0\nmodel name : Some CPU\ncpu family : 26\nmodel : 2\nflags : fpu avx2 avx512f\n"
        self.assertEqual(run.processor(text + text.replace("avx2", "x")), {
            "processor": "Some CPU (cpu family 26, model 2)",
            "flags": "avx2: yes avx512f: yes avx512_bf16: no amx_bf16: no",
        })  # fmt: skip

    def test_run_program(self):
        script = "import os, sys; print('{\"bound\": \"' + os.environ['OMP_PROC_BIND'] + '\"}')"
        report, resident = run.run_program([sys.executable, "-c", script])
        self.assertEqual(report, {"bound": "true"})
        self.assertGreater(resident, 1 << 20)
        with self.assertRaises(run.RunError) as failure:
            run.run_program([sys.executable, "-c", "import sys; sys.exit('first\\nlast line')"])
        self.assertEqual(str(failure.exception), "last line")

    def test_error_line(self):
        self.assertEqual(run.error_line("Traceback\n  x\na.b.TypeError: no\nImportError: short\n\nSet X for more\n"), "ImportError: short")
        self.assertEqual(run.error_line("info: a\nerror: b\n"), "error: b")
        self.assertEqual(run.error_line("Killed"), "Killed")
        self.assertEqual(run.error_line(""), "")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            program.write_text("#!/bin/sh\n[ \"$1\" = info ] && echo '{\"version\": \"9\"}' && exit 0\n"
                               "echo '{\"milliseconds\": 5}'\n")  # fmt: skip
            program.chmod(0o755)
            (Path(folder) / "torch.py").write_text("raise ImportError('no torch in this test')\n")
            out = Path(folder) / "out"
            subprocess.run(
                [sys.executable, "-B", PEERS / "run.py", "--pairs", "ctc", "--rounds", "2", "--program", program, "--out", out],
                env=os.environ | {"PYTHONPATH": folder}, check=True, capture_output=True,
            )  # fmt: skip
            results = json.loads((out / "peers.json").read_text())
            self.assertEqual(results["machine"]["tapeformer"], "9")
            (row,) = results["rows"]
            self.assertEqual(row["tapeformer"]["seconds"], [0.005] * 2)
            self.assertIn("no torch in this test", row["pytorch"]["error"])
            self.assertIn("| CTC loss and gradient | 5 ms | failed: ", (out / "peers.md").read_text())


class GenerateTest(unittest.TestCase):
    def test_positions_are_those_of_bench_generate(self):
        options = types.SimpleNamespace(length=784, positions=16)
        found = generate.positions_of(options)
        self.assertEqual((len(found), found[0], found[-1]), (16, 24, 758))
        options.positions = 0
        self.assertEqual(generate.positions_of(options), list(range(783)))

    def test_best_result_of_a_cell_is_recorded(self):
        common = {"kind": "lsh", "rounds": 4, "form": "recomputed", "compile": "none", "package": "transformers 5",
                  "processor": "any", "date": "today"}  # fmt: skip
        runs = [
            {"batch": 1, "threads": 1, "precision": "float32", "seconds": 3.0, "images_per_second": 1 / 3},
            {"batch": 1, "threads": 1, "precision": "float32", "seconds": 2.0, "images_per_second": 1 / 2},
            {"batch": 4, "threads": 2, "precision": "bfloat16", "seconds": 8.0, "images_per_second": 0.5},
            {"batch": 8, "threads": 2, "precision": "bfloat16", "seconds": 10.0, "images_per_second": 0.8},
        ]
        cell = {"status": "measured", "mean": 1.0}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(results, "RESULTS", Path(folder)):
            paths = [Path(folder) / f"{i}.json" for i in range(len(runs))]
            for path, fields in zip(paths, runs):
                path.write_text(json.dumps(common | fields))
            page = Path(folder) / "page.json"
            cells = {"recompute_cpu_seconds": cell, "recompute_images_per_second_bfloat16": cell}
            page.write_text(json.dumps({"rows": [{"name": "lsh-4", "cells": cells}]}))
            results.record_peers("page", paths)
            contents = json.loads(page.read_text())
        self.assertEqual(contents["peers"]["lsh-4:recompute_cpu_seconds"]["value"], 2)
        self.assertEqual(contents["peers"]["lsh-4:recompute_images_per_second_bfloat16"]["batch"], 8)
        table = results.peers_text(contents)[0]
        self.assertIn("| lsh-4, recomputed | 1.000 | 2.000 | 2.00 | – | – | – |", table)
        self.assertIn("| lsh-4, recomputed, bfloat16 | – | – | – | 1.000 | 0.800 | 1.25 |", table)


class WheelsTest(unittest.TestCase):
    def test_wheel_of(self):
        self.assertEqual(wheels.wheel_of("ImportError: libcufile.so.0: cannot open shared object file"), "nvidia-cufile")
        self.assertEqual(wheels.wheel_of("x.so: undefined symbol: cusparseLtInit"), "nvidia-cusparselt-cu13")
        self.assertEqual(wheels.wheel_of("x.so: undefined symbol: cusparseCreate"), "nvidia-cusparse")
        self.assertEqual(wheels.wheel_of("ModuleNotFoundError: No module named 'torch'"), "")

    def test_requirement(self):
        known = ['cuda-toolkit[cublas,cufile]==13.2.2; platform_system == "Linux"', "nvidia-nccl-cu13==2.30.7 ; x",
                 "nvidia-cufile==1.17.1.22.*; extra == 'all'", "nvidia-nvjitlink<14,>=13.2; extra == 'all'", "jinja2"]  # fmt: skip
        self.assertEqual(wheels.requirement("cuda-toolkit", known), "cuda-toolkit==13.2.2")
        self.assertEqual(wheels.requirement("nvidia-nccl-cu13", known), "nvidia-nccl-cu13==2.30.7")
        self.assertEqual(wheels.requirement("nvidia-cufile", known), "nvidia-cufile==1.17.1.22.*")
        self.assertEqual(wheels.requirement("nvidia-nvjitlink", known), "nvidia-nvjitlink<14,>=13.2")
        self.assertEqual(wheels.requirement("nvidia-nccl", known), "")


if __name__ == "__main__":
    unittest.main()
