#!/usr/bin/env python3
"""Checks that every config in a folder trains, and that a run that was stopped and resumed equals an uninterrupted run.

    scripts/resume-check.py PROGRAM                           200 steps of every config in configs/survey
    scripts/resume-check.py PROGRAM --device cuda-emulated --small --steps 6 performer routing

For each config, the script trains STEPS steps in one run, and in a second run half of the steps and, after --resume,
the other half. It compares the losses of all steps and evaluations in metrics.jsonl, and the weights and the state of
the optimizer in the last checkpoint, bit for bit. Images are random digits in the format of MNIST, and texts are
sentences of random words, so the script needs no data sets. Exits with 1 if a config fails.
"""

import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[1] / "configs" / "survey"
# Sizes at which the emulated device trains a step in less than a second.
SMALL = {
    "copy": ["data.batch_size=2", "data.max_length=64", "data.eval_limit=2"],
    "listops": ["data.batch_size=2", "data.max_length=32", "data.eval_limit=2"],
    "mnist": ["data.batch_size=1", "data.eval_limit=1", "model.feedforward=32", "model.mixtures=2"],
    "text": ["data.batch_size=2", "data.eval_limit=2"],
    "set-maximum": ["data.batch_size=4", "data.eval_limit=4"],
    "set-mixture": ["data.batch_size=2", "data.min_length=20", "data.max_length=40", "data.eval_limit=2"],
}


def write_idx(path: Path, shape: tuple[int, ...], payload: bytes) -> None:
    """Writes an array of bytes in the IDX format."""
    path.write_bytes(struct.pack(f">4B{len(shape)}I", 0, 0, 8, len(shape), *shape) + payload)


def write_data(folder: Path) -> None:
    """Writes random digits to mnist/, and a text to text.txt."""
    draw = random.Random(1)
    mnist = folder / "mnist"
    mnist.mkdir()
    for name, count in (("train", 600), ("t10k", 100)):
        labels = bytes(i % 10 for i in range(count))
        pixels = b"".join(draw.randbytes(4 * label + 4).ljust(784, bytes([label * 20])) for label in labels)
        write_idx(mnist / f"{name}-images-idx3-ubyte", (count, 28, 28), pixels)
        write_idx(mnist / f"{name}-labels-idx1-ubyte", (count,), labels)
    words = ["".join(draw.choices("etaoinshr", k=draw.randint(2, 7))) for _ in range(200)]
    (folder / "text.txt").write_text(" ".join(draw.choices(words, k=60000)) + "\n")


def merged(path: Path) -> dict:
    """Returns the tables of a config and of its base files."""
    config = tomllib.loads(path.read_text())
    base = merged(path.parent / config.pop("extends")) if "extends" in config else {}
    for table, keys in config.items():
        base.setdefault(table, {}).update(keys)
    return base


def losses(run: Path) -> list[dict]:
    """Returns the records of metrics.jsonl without times, rates and memory."""
    kept = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        kept.append({key: value for key, value in record.items() if "second" not in key and key not in ("time", "memory_bytes")})
    return kept


def last_checkpoint(run: Path, steps: int) -> dict[str, bytes]:
    """Returns the weights and the optimizer state of the checkpoint after the last step."""
    folder = run / "checkpoints" / f"step-{steps:08}"
    return {name: (folder / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")}


class Check:
    """The runs of one config."""

    def __init__(self, options: argparse.Namespace, data: Path, name: str):
        self.options, self.data, self.name = options, data, name
        self.config = CONFIGS / f"{name}.toml"
        self.dataset = merged(self.config)["data"]["dataset"]

    def train(self, run: Path, steps: int, resume: bool = False) -> None:
        """Trains the config up to a step. Raises RuntimeError with the messages of the program if it fails."""
        half = self.options.steps // 2
        settings = [f"train.steps={steps}", f"train.checkpoint_every={half}", f"train.log_every={max(half // 10, 1)}",
                    f"train.eval_every={self.options.steps}"]  # fmt: skip
        if self.dataset == "text":
            settings.append(f"data.path={self.data / 'text.txt'}")
        if self.options.small:
            settings += SMALL[self.dataset]
        command = [self.options.program, "train", self.config, "--run-dir", run, "--quiet", "--json",
                   "--device", self.options.device]  # fmt: skip
        for setting in settings:
            command += ["--set", setting]
        ended = subprocess.run(command + ["--resume"] * resume, capture_output=True, text=True,
                               env={**os.environ, "TAPEFORMER_DATA": str(self.data)})  # fmt: skip
        if ended.returncode != 0:
            raise RuntimeError(ended.stderr.strip() or f"exit status {ended.returncode}")

    def run(self, folder: Path) -> dict:
        """Trains the uninterrupted and the resumed run, and returns the result. Raises RuntimeError if the runs differ."""
        steps = self.options.steps
        whole, parts = folder / f"{self.name}-whole", folder / f"{self.name}-parts"
        start = time.monotonic()
        self.train(whole, steps)
        seconds = time.monotonic() - start
        self.train(parts, steps // 2)
        self.train(parts, steps, resume=True)
        first = losses(whole)
        # The first part of the second run ends with an evaluation that the uninterrupted run does not make.
        second = [record for record in losses(parts) if record["split"] == "train" or record["step"] == steps]
        trained = [record["loss_nats"] for record in first if record["split"] == "train"]
        if len(first) != len(second):
            raise RuntimeError(f"{len(first)} and {len(second)} records of metrics")
        for one, other in zip(first, second):
            if one != other:
                raise RuntimeError(f"the metrics differ: {one} and {other}")
        if last_checkpoint(whole, steps) != last_checkpoint(parts, steps):
            raise RuntimeError("the last checkpoints differ")
        return {"config": self.name, "device": self.options.device, "steps": steps, "seconds": round(seconds, 1),
                "first_loss_nats": trained[0], "last_loss_nats": trained[-1]}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="tapeformer")
    parser.add_argument("names", nargs="*", help="configs, such as performer; default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=200, help="an even number of steps")
    parser.add_argument("--small", action="store_true", help="small models and sequences, for an emulated device")
    options = parser.parse_intermixed_args()
    names = options.names or sorted(path.stem for path in CONFIGS.glob("*.toml") if path.stem != "base")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        for name in names:
            try:
                print(json.dumps(Check(options, Path(folder), name).run(Path(folder))), flush=True)
            except RuntimeError as error:
                failed += 1
                print(json.dumps({"config": name, "device": options.device, "error": str(error)}), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
