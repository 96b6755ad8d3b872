"""Tests that the package tensorboard reads the event files of a small run.

Usage: tensorboard_test.py PROGRAM. Exits with 77, which ctest reports as skipped, where tensorboard is not installed.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: this interpreter has no tensorboard")
    sys.exit(77)

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TINY = ["train.log_every=2", "train.eval_every=4", "data.batch_size=2", "data.eval_limit=2", "model.layers=1",
        "model.head_dim=2", "model.feedforward=8", "run.tensorboard=true"]


def run(program: str, folder: str, steps: int, *options: str) -> None:
    command = [program, "train", str(CONFIGS / "copy/linear.toml"), "--run-dir", folder, "--threads", "1", *options]
    for setting in [*TINY, f"train.steps={steps}"]:
        command += ["--set", setting]
    subprocess.run(command, check=True, capture_output=True)


def main(program: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run(program, folder, 8)
        events = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        records = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
        for split in ("train", "test"):
            written = [(r["step"], r["loss_nats"]) for r in records if r["split"] == split]
            read = [(e.step, e.value) for e in events.Scalars(f"{split}/loss_nats")]
            assert len(read) == len(written) > 0, (read, written)
            for (step, value), (other_step, other) in zip(read, written, strict=True):
                assert step == other_step and abs(value - other) < 1e-5 * abs(other), (read, written)
        assert "train/lr" in events.Tags()["scalars"], events.Tags()
        (config,) = events.Tensors("config/text_summary" if "config/text_summary" in events.Tags()["tensors"] else "config")
        text = config.tensor_proto.string_val[0].decode()
        assert text == "```toml\n" + Path(folder, "config.toml").read_text() + "```\n", text
    print("TensorBoard reads the scalars and the config")


if __name__ == "__main__":
    main(sys.argv[1])
