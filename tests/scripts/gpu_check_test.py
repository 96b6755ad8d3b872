"""Tests scripts/gpu-check.sh and `results.py --device` with programs that print fixed results or wait."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "gpu-check.sh"
PARTS = ["smoke", "tests", "families", "peers"]
ALL_PARTS = PARTS + ["training", "benchmarks", "sanitizer", "mnist"]

# Each program appends its name and arguments to the file calls, and then runs the file before, if it exists.
HEAD = '#!/bin/bash\nfolder=$(dirname "$0")/..\necho "$(basename "$0") $*" >>"$folder/calls"\n'
HEAD += '[ -e "$folder/before" ] && . "$folder/before"\n'
TAPEFORMER = HEAD + r"""
case "$1 $2" in
  "info --device") exit "$(cat "$folder/info_status")" ;;
  "info --json") echo '{"devices":["cpu","cuda:0: NVIDIA H100 80GB, compute capability 9.0, 81559 MiB"]}' ;;
  "bench train-step") echo '{"batch":1,"seconds_per_step":0.03,"fastest_seconds_per_step":0.02}' ;;
  "bench generate") echo '{"cases":[{"milliseconds_per_token":9.0},{"milliseconds_per_token":0.5}]}' ;;
  "bench attention") echo '{"lengths":[{"seconds":0.1,"seconds_at_matrix_rate":1},{"seconds":0.2,"seconds_at_memory_rate":1}]}' ;;
  "bench lstm") echo '{"milliseconds":7.0}' ;;
  "bench speech-step") echo '{"lengths":[{"seconds":0.4}]}' ;;
  train*)
    while [ "$1" != --run-dir ]; do shift; done
    mkdir -p "$2"
    for step in $(seq 20); do echo '{"step":'"$step"',"split":"train","loss_nats":1.5}'; done >"$2/metrics.jsonl"
    for step in 2000 4000; do echo '{"step":'"$step"',"split":"valid","bits_per_dim":1.25}'; done >>"$2/metrics.jsonl" ;;
esac
"""
TEST = HEAD + r"""
case "$*" in
  *-ltc) printf '%s\n' '[doctest] listing' 'cuda: first, with a comma' 'cuda: every op is right' '[doctest] 2' ;;
  *) printf 'name "%s" \\ tab\there \x01\xff µ\n' "$0" ;;
esac
"""
PYTHON = HEAD + r"""
case "$*" in
  *train_step.py*) echo '{"seconds_per_step": 0.06}' ;;
  *generate.py*) echo '{"milliseconds_per_token": 1.0}' ;;
  *attention.py*) echo '{"results": [{"seconds": 0.8}, {"seconds": 0.4}]}' ;;
  *lstm.py*) echo '{"milliseconds_padded": 14.0, "milliseconds_packed": 99}' ;;
  *"import fla"*) exit 1 ;;
esac
"""
SANITIZER = HEAD + 'while [[ "$1" == --* ]]; do shift; [[ "$1" == [a-z1]* ]] && [[ "$1" != env ]] && shift; done\n"$@"\n'


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("bin", "tools"):
            (self.folder / name).mkdir()
        (self.folder / "info_status").write_text("0")
        tests = {f"test_{name}": TEST for name in ("core", "ops", "models", "train")}
        for name, text in {"tapeformer": TAPEFORMER, **tests}.items():
            self.write_program("bin", name, text)
        self.write_program("tools", "python3", PYTHON)
        self.write_program("tools", "compute-sanitizer", SANITIZER)
        self.out = self.folder / "results" / "check.json"

    def write_program(self, folder: str, name: str, text: str) -> None:
        path = self.folder / folder / name
        path.write_text(text)
        path.chmod(0o755)

    def start(self, **variables: str) -> subprocess.Popen:
        environment = {
            **os.environ, "OUT": str(self.out), "PYTHON": str(self.folder / "tools" / "python3"),
            "PATH": f"{self.folder / 'tools'}:{os.environ['PATH']}", **variables,
        }  # fmt: skip
        return subprocess.Popen([str(SCRIPT), str(self.folder)], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)  # fmt: skip

    def run_check(self, **variables: str) -> tuple[int, str]:
        process = self.start(**variables)
        output = process.communicate(timeout=120)[0]
        return process.returncode, output

    def results(self) -> dict:
        return json.loads(self.out.read_text())

    def calls(self, word: str) -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if word in line]

    def before(self, text: str) -> None:
        (self.folder / "before").write_text(text)

    def wait_for_calls(self, word: str) -> None:
        deadline = time.monotonic() + 60
        while not (self.folder / "calls").exists() or not self.calls(word):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_parts_run_in_order_and_measured_times_stand_beside_those_of_pytorch(self):
        status, output = self.run_check()
        self.assertEqual(status, 0, output)
        results = self.results()
        self.assertTrue(results["finished"])
        self.assertEqual(results["running"], "")
        self.assertIn("NVIDIA H100", results["device"])
        self.assertEqual(list(dict.fromkeys(section["part"] for section in results["sections"])), PARTS)
        not_run = [section["title"] for section in results["sections"] if section["result"] != "passed"]
        self.assertEqual(not_run, ["Training steps with NCCL in one process"])  # this folder has no test_distributed
        comparisons = {row.pop("work"): row for row in results["comparisons"]}
        for name in ("Training step, speech, linear attention", "Generated token, bytes of text, softmax attention"):
            self.assertEqual(comparisons[name]["measured_seconds"], {"T": 0.4, "G": 5e-4}[name[0]])
        for name, ours, torch in (
            ("Training step, MNIST, linear attention, batch 256, bfloat16", 0.03, 0.06),
            ("Sampled token, CIFAR-10, linear attention, batch 4096, bfloat16", 5e-4, 1e-3),
            ("Attention, softmax, bfloat16, 16384 tokens, forward and backward", 0.2, 0.4),
            ("Bi-LSTM, bfloat16, forward and backward", 7e-3, 14e-3),
        ):
            expected = {"estimate_seconds": None, "measured_seconds": ours, "pytorch_seconds": torch}
            self.assertEqual(comparisons[name], expected)
        for row in comparisons.values():
            self.assertIsNotNone(row["measured_seconds"])
        self.assertIn("batch 10, bfloat16: estimate –, measured 30 ms, PyTorch 60 ms (PyTorch / measured 2.00)", output)

    def test_both_sides_of_a_comparison_have_the_same_settings(self):
        self.run_check(PARTS="families benchmarks peers")

        def settings(line: str) -> tuple:
            dropout = re.search(r"dropout[ =](\S+)", line)
            tokens = re.search(r"--tokens (\d+)", line) or re.search(r"--length (\d+)", line)
            return (re.search(r"batch(?:_size=| )(\d+)", line)[1], re.search(r"--precision (\S+)", line)[1],
                    dropout and dropout[1], int(tokens[1]) if tokens else 0, "cifar10" in line or "--layers 16" in line)

        fast = [line for line in self.calls("bench") if "cuda_graphs=false" not in line and "float32" not in line]
        ours = [settings(line) for line in fast if "train-step --config" in line and "/linear.toml" in line]
        theirs = [(*settings(line)[:3], 0, settings(line)[4]) for line in self.calls("train_step.py")]
        self.assertEqual(ours, theirs)
        self.assertEqual([one[:3] for one in ours],
                         [(batch, "bfloat16", "0.1") for batch in ("256", "64", "10", "4")])  # fmt: skip
        ours = [settings(line) for line in fast if "generate --config" in line and "/linear.toml" in line]
        # The first token is given, so a sequence of 129 tokens has 128 drawn tokens.
        theirs = [(*settings(line)[:3], settings(line)[3] - 1, settings(line)[4]) for line in self.calls("generate.py")]
        self.assertEqual(ours, theirs)
        self.assertEqual([one[1:4] for one in ours], [("bfloat16", None, 128)] * 4)

    def test_sanitizer_runs_each_test_and_parts_of_the_op_table(self):
        self.run_check(PARTS="sanitizer")
        titles = [section["title"] for section in self.results()["sections"]]
        self.assertEqual(titles[:3], ["memcheck, cuda: first, with a comma", "memcheck, cuda: every op is right, part 1 of 16",
                                      "memcheck, cuda: every op is right, part 2 of 16"])  # fmt: skip
        self.assertEqual(len(titles), 4 * 17)
        # The test program separates filters by commas, so a comma in a name is escaped.
        self.assertIn("-tc=cuda: first\\, with a comma", self.calls("compute-sanitizer")[0])

    def test_texts_of_programs_are_valid_json(self):
        self.before('[ "$(basename "$0")" = test_core ] && { yes "0123456789 µ" | head -n 9000; exit 3; }\n')
        status, output = self.run_check(PARTS="tests")
        self.assertEqual(status, 1)
        sections = {section["title"]: section for section in self.results()["sections"]}
        core, ops = sections["Tests of core"], sections["Every op"]
        self.assertEqual((core["result"], core["status"]), ("failed", 3))
        self.assertIn("\n[…]\n", core["output"])
        self.assertLess(len(core["output"]), 25000)
        self.assertIn('name "', ops["output"])
        self.assertIn("\\ tab\there  µ", ops["output"])
        self.assertEqual(ops["result"], "passed")

    def test_interrupted_run_keeps_its_sections_and_the_output_of_the_last(self):
        self.before('if [[ "$(basename "$0")" = test_ops ]]; then echo begun; echo $$ >"$folder/pid"; exec sleep 60; fi\n')
        for stop, expected in ((signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(stop):
                for name in ("calls", "pid"):
                    (self.folder / name).unlink(missing_ok=True)
                process = self.start(PARTS="smoke tests")
                self.wait_for_calls("test_ops")
                while not (self.folder / "pid").exists():
                    time.sleep(0.05)
                process.send_signal(stop)
                process.communicate(timeout=30)
                self.assertEqual(process.returncode, expected)
                results = self.results()
                sections = {section["title"]: section for section in results["sections"]}
                self.assertEqual(sections["Small sampling"]["result"], "passed")
                self.assertFalse(results["finished"])
                child = int((self.folder / "pid").read_text())
                if stop == signal.SIGTERM:
                    self.assertEqual(sections["Every op"]["result"], "interrupted")
                    self.assertEqual(sections["Every op"]["output"], "begun")
                    with self.assertRaises(ProcessLookupError):
                        os.kill(child, 0)
                else:
                    self.assertEqual(results["running"], "Every op")
                    self.assertEqual(self.out.with_name("check.json.running").read_text(), "begun\n")
                    os.kill(child, signal.SIGKILL)

    def test_run_ends_within_its_budget(self):
        # Programs wait for a minute and ignore the signal at their time limit. The budget includes the time until they are
        # killed, and a loaded machine may add some seconds.
        self.before('[[ "$*" =~ info|-ltc|find_spec ]] || { trap "" TERM; sleep 60 & wait; wait; }\n')
        start = time.monotonic()
        status, output = self.run_check(TOTAL="18", PARTS="tests sanitizer")
        self.assertLess(time.monotonic() - start, 18 + 5)
        sections = self.results()["sections"]
        begun = list(dict.fromkeys(section["part"] for section in sections if section["result"] == "cut off"))
        self.assertEqual(begun, ["tests", "sanitizer"], sections)
        self.assertTrue(self.results()["finished"])
        self.assertIn("no time is left", next(one for one in sections if one["result"] == "not run")["output"])
        self.assertEqual(status, 0, output)

    def test_section_that_exceeds_its_limit_fails(self):
        self.before('[ "$(basename "$0")" = test_core ] && exec sleep 60\n')
        status, output = self.run_check(LIMIT="1", PARTS="tests")
        self.assertEqual(status, 1, output)
        results = {one["title"]: one["result"] for one in self.results()["sections"]}
        self.assertEqual((results["Tests of core"], results["Every op"]), ("timed out", "passed"))

    def test_unusable_device_and_invalid_arguments_have_their_status(self):
        (self.folder / "info_status").write_text("4")
        self.assertEqual(self.run_check()[0], 4)
        self.assertFalse(self.out.exists())
        (self.folder / "info_status").write_text("127")  # the exit status if a shared library is missing
        status, output = self.run_check()
        self.assertEqual(status, 4)
        self.assertIn("a library is missing", output)
        (self.folder / "info_status").write_text("0")
        self.assertEqual(self.run_check(PARTS="tests speed")[0], 2)
        self.assertEqual(self.run_check(TOTAL="0")[0], 2)
        (self.folder / "bin" / "tapeformer").unlink()
        self.assertEqual(self.run_check()[0], 2)

    def test_tests_without_assertions_fail(self):
        self.before('[ "$(basename "$0")" = test_ops ] && echo "[doctest] assertions:  0 |  0 passed | 0 failed |"\n')
        status, _ = self.run_check(PARTS="tests")
        self.assertEqual(status, 1)
        self.assertEqual([one["result"] for one in self.results()["sections"][:3]], ["failed", "failed", "passed"])

    def test_losses_that_differ_fail(self):
        self.write_program("bin", "tapeformer", TAPEFORMER.replace("1.5}'", "1.5'\"$([[ $2 == *device ]] && echo 2)\"'}'"))
        status, _ = self.run_check(PARTS="training")
        self.assertEqual(status, 1)
        self.assertEqual([one["result"] for one in self.results()["sections"]], ["passed", "passed", "failed"])

    def test_libraries_of_python_packages_are_found(self):
        wheels = self.folder / "site" / "nvidia" / "cu13" / "lib"
        wheels.mkdir(parents=True)
        self.write_program("tools", "python3", f'#!/bin/sh\nPYTHONPATH={self.folder / "site"} exec {sys.executable} "$@"\n')
        self.before(f'[[ "$(basename "$0")" != tapeformer || ":$LD_LIBRARY_PATH:" == *:{wheels}:* ]] || exit 127\n')
        status, output = self.run_check(PARTS="smoke")
        self.assertEqual(status, 0, output)

    def test_training_on_mnist_evaluates_every_minute(self):
        status, output = self.run_check(PARTS="mnist", MNIST_MINUTES="3")
        self.assertEqual(status, 0, output)
        training = self.calls("train configs")[0]
        # A step takes 0.03 s, so 2,001 steps take a minute.
        for setting in ("train.steps=6003", "train.time_limit_minutes=3", "train.eval_every=2001", "data.batch_size=256"):
            self.assertIn(setting, training)
        self.assertIn("1.0, 2000, 1.2500\n2.0, 4000, 1.2500", self.results()["sections"][-1]["output"])

    def test_page_merges_runs(self):
        self.run_check(PARTS="smoke families")
        first = self.folder / "first.json"
        shutil.copy(self.out, first)
        self.before('[ "$(basename "$0")" = test_core ] && exit 1\n')
        self.run_check(PARTS="tests peers")
        page = self.folder / "gpu.json"
        page.write_text(json.dumps({"title": "T", "blocks": [{"heading": "Old", "measured": True}, {"heading": "Kept"}]}))
        script = ROOT / "scripts" / "results.py"
        subprocess.run([sys.executable, "-B", script, "--device", page, first, self.out], check=True)
        text = page.with_suffix(".md").read_text()
        self.assertIn("MNIST, linear attention, batch 256, bfloat16 | – | 30 ms | 60 ms | 2.00 |", text)
        self.assertIn("| Tests of core | failed |", text)
        self.assertIn("**Failed, exit status 1.**", text)
        self.assertIn("seconds_per_step: 0.03", text)
        self.assertNotIn("## Old", text)
        self.assertIn("## Kept", text)


if __name__ == "__main__":
    unittest.main()
