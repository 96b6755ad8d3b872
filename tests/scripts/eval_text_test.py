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
    def train(self, folder: Path, *settings: str, **values: str) -> Path:
        config = CONFIG
        for name, value in {**values, "TEXT": str(folder / "text")}.items():
            config = config.replace(name, value)
        (folder / "a.toml").write_text(config)
        run = folder / "-".join((*values.values(), *settings))
        subprocess.run([PROGRAM, "train", folder / "a.toml", "--run-dir", run, "--quiet", "--json", *settings], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        return run

    def peer(self, run: Path, folder: Path, context: str) -> list:
        return [sys.executable, PEER, run / "checkpoints" / "latest", folder / "text", "--context", context]

    def compare(self, folder: Path, context: str, *settings: str, **values: str) -> None:
        run = self.train(folder, *settings, **values)
        options = ["--dtype", "float64", "--context", context, "--json"]
        ours = json.loads(subprocess.run([PROGRAM, "eval", run, *options], check=True, capture_output=True).stdout)
        theirs = json.loads(subprocess.run(self.peer(run, folder, context), check=True, capture_output=True).stdout)
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
                ("softmax", "rotary", "bytes", "0", "--set", "attention.conv=3"),
                ("linear", "none", "bytes", "0", "--set", "attention.conv=4", "--set", "attention.conv_activation=silu"),
            ):
                with self.subTest(attention=attention, positions=positions, tokenizer=tokenizer, settings=settings):
                    values = {"ATTENTION": attention, "POSITIONS": positions, "TOKENIZER": tokenizer}
                    self.compare(folder, context, *settings, **values)

    def test_unsupported_models_are_errors_of_one_line(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "text").write_text("a line of text\n" * 200)
            for setting, problem in (
                ("model.attention=gated-delta", "attention = 'gated-delta' is not supported"),
                ("attention.feature_map=exponential", "feature_map = 'exponential' is not supported"),
                ("model.tied_embeddings=true", "the model has options that this script does not support"),
            ):
                with self.subTest(setting=setting):
                    run = self.train(folder, "--set", setting, "--set", "train.steps=1", ATTENTION="linear", POSITIONS="none",
                                     TOKENIZER="bytes")  # fmt: skip
                    peer = subprocess.run(self.peer(run, folder, "0"), capture_output=True, text=True)
                    self.assertEqual(peer.returncode, 1)
                    self.assertIn(problem, peer.stderr)
                    self.assertEqual(peer.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
