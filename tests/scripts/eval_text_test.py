"""Tests that eval_text.py, a program in PyTorch, gets the bits per byte of `tapeformer eval` for a checkpoint in float64.

Usage: eval_text_test.py PROGRAM. Exits with 77, which ctest reports as skipped, where PyTorch is not installed.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import safetensors  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM = sys.argv.pop(1)
PEER = Path(__file__).resolve().parents[1] / "bench" / "peers" / "eval_text.py"

CONFIG = """
[run]
device = "cpu"
[data]
dataset = "text"
path = "TEXT"
tokenizer = "TOKENIZER"
sequence_length = 48
batch_size = 8
valid_share = 0.1
test_share = 0.2
[model]
type = "sequence"
attention = "ATTENTION"
positions = "POSITIONS"
layers = 2
heads = 2
head_dim = 16
feedforward = 64
norm = "pre"
activation = "gelu"
[optimizer]
kind = "adam"
lr = 1e-2
[train]
steps = 20
"""


class EvalText(unittest.TestCase):
    def compare(self, folder: Path, context: str, *settings: str, **values: str) -> None:
        config = CONFIG
        for name, value in {**values, "TEXT": str(folder / "text")}.items():
            config = config.replace(name, value)
        (folder / "a.toml").write_text(config)
        run = folder / "-".join((*values.values(), *settings))
        subprocess.run([PROGRAM, "train", folder / "a.toml", "--run-dir", run, "--quiet", "--json", *settings], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        options = ["--dtype", "float64", "--context", context, "--json"]
        ours = json.loads(subprocess.run([PROGRAM, "eval", run, *options], check=True, capture_output=True).stdout)
        peer = [sys.executable, PEER, run / "checkpoints" / "latest", folder / "text", "--context", context]
        theirs = json.loads(subprocess.run(peer, check=True, capture_output=True).stdout)
        self.assertEqual(ours["tokens"], theirs["tokens"])
        self.assertLess(abs(ours["bits_per_byte"] - theirs["bits_per_byte"]), 1e-6)
        self.assertLess(ours["bits_per_byte"], 7)

    def test_kinds_positions_and_contexts(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            words = ("the ", "king ", "of ", "river\n", "and ", "sea ")
            (folder / "text").write_text("".join(words[i * i % 17 % 6] for i in range(1200)))
            for attention, positions, tokenizer, context, *settings in (
                ("softmax", "sinusoidal", "bytes", "0"),
                ("linear", "rotary", "characters", "30"),
                ("linear", "rotary", "bytes", "0", "--set", "attention.rotation=features"),
                ("softmax", "rotary", "characters", "7"),
                ("linear", "none", "bytes", "0"),
            ):
                with self.subTest(attention=attention, positions=positions, tokenizer=tokenizer, settings=settings):
                    values = {"ATTENTION": attention, "POSITIONS": positions, "TOKENIZER": tokenizer}
                    self.compare(folder, context, *settings, **values)


if __name__ == "__main__":
    unittest.main()
