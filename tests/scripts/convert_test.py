"""Tests of scripts/convert.py: it converts models of PyTorch, and `tapeformer eval` and `generate` read the results.

Usage: convert_test.py PROGRAM. Exits with 77, which ctest reports as skipped, where PyTorch is not installed.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file, save_file
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "bench" / "peers"))

from eval_checkpoint import nats_per_dim  # noqa: E402
from model import ImageModel, ModelConfig, sinusoidal_positions  # noqa: E402

SIDE = 7  # the height and width of images of 28 x 28 pixels, averaged over blocks of 4 x 4
SIZES = {"layers": 2, "heads": 2, "head_dim": 8, "feedforward": 32, "mixtures": 3}


def peer(**fields) -> ImageModel:
    torch.manual_seed(1)
    return ImageModel(ModelConfig(**SIZES | fields, max_length=SIDE * SIDE - 1)).eval()


class TorchModel(nn.Module):
    """The image model with torch.nn.TransformerEncoder. Its parameters outside of the encoder have other names."""

    def __init__(self, config: ModelConfig, final_norm: bool = True):
        super().__init__()
        width = config.d_model
        layer = nn.TransformerEncoderLayer(
            width, config.heads, config.feedforward, 0.0, config.activation, batch_first=True,
            norm_first=config.norm == "pre",
        )  # fmt: skip
        norm = nn.LayerNorm(width) if final_norm else None
        self.embed = nn.Embedding(256, width // 2)
        self.body = nn.TransformerEncoder(layer, config.layers, norm, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3 * config.mixtures)
        self.register_buffer("positions", sinusoidal_positions(SIDE * SIDE - 1, width // 2).float())

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        positions = self.positions[: values.shape[1]].expand(values.shape[0], -1, -1)
        mask = nn.Transformer.generate_square_subsequent_mask(values.shape[1])
        return self.head(self.body(torch.cat((self.embed(values), positions), -1), mask, is_causal=True))


def write_images(folder: Path, count: int) -> torch.Tensor:
    """Writes images in the format of MNIST that consist of blocks of 4 x 4 equal bytes. Returns the blocks (count, 49)."""
    torch.manual_seed(2)
    small = torch.randint(0, 256, (count, SIDE, SIDE), dtype=torch.uint8)
    large = small.repeat_interleave(4, 1).repeat_interleave(4, 2)
    folder.mkdir()
    sizes = b"".join(n.to_bytes(4, "big") for n in (count, 28, 28))
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte").write_bytes(b"\0\0\x08\x03" + sizes + large.numpy().tobytes())
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + sizes[:4] + bytes(count))
    return small.flatten(1)


def write_config(path: Path, **model) -> Path:
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in (SIZES | model).items())
    path.with_name("base.toml").write_text('[data]\ndataset = "mnist"\ndownscale = 4\n')
    path.write_text(f'extends = "base.toml"\n[model]\n{keys}')
    return path


def convert(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-B", ROOT / "scripts" / "convert.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def program(*arguments) -> dict:
    """Runs the program with --json and returns the object that it prints."""
    command = [sys.argv[1], *arguments, "--json", "--device", "cpu", "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_run(run: Path, model: ImageModel, images: torch.Tensor, data: Path) -> None:
    """Checks that a run has the weights of `model` with their names, and that the program computes its loss and images."""
    saved = load_file(run / "checkpoints" / "latest" / "model.safetensors")
    expected = model.state_dict()
    assert saved.keys() == expected.keys(), saved.keys() ^ expected.keys()
    for name, value in expected.items():
        assert torch.equal(saved[name], value), name
    found = program("eval", run, "--data-dir", data)["nats_per_dim"]
    nats = nats_per_dim(model, images, 8)
    assert abs(found - nats) < 1e-5 * abs(nats), (found, nats)
    drawn = program("generate", run, "--count", "2", "--data-dir", data, "--out", run / "samples.png")
    assert drawn["count"] == 2


def test_fast_transformers(folder: Path, images: torch.Tensor) -> None:
    model = peer(attention="linear")
    state = {f"net.encoder.{k}" if k.startswith(("layers", "norm")) else k: v for k, v in model.state_dict().items()}
    state["position.pe"] = torch.zeros(1, 3, 4)
    state = {"embed.weight" if k == "value_embedding.weight" else k: v for k, v in state.items()}
    torch.save({"epoch": 3, "model_state": state}, folder / "fast.pt")
    config = write_config(folder / "fast.toml", attention="linear")
    arguments = (folder / "fast.pt", "--config", config, "--out", folder / "fast", "--rename", "embed=value_embedding")
    wrong = convert(*arguments)
    assert wrong.returncode == 2 and "unknown (see --rename and --drop): position.pe" in wrong.stderr, wrong.stderr
    done = convert(*arguments, "--drop", "position")
    assert done.returncode == 0, done.stderr
    check_run(folder / "fast", model, images, folder / "data")
    again = convert(*arguments, "--drop", "position")
    assert again.returncode == 2 and "is not empty" in again.stderr, again.stderr


def test_torch(folder: Path, images: torch.Tensor, norm: str, activation: str) -> None:
    fields = {"attention": "softmax", "norm": norm, "activation": activation}
    torch.manual_seed(3)
    model = TorchModel(ModelConfig(**SIZES | fields)).eval()
    for parameter in model.parameters():  # constants, to which biases and norms are initialised, would hide wrong names
        nn.init.normal_(parameter, std=0.3)
    save_file(model.state_dict(), folder / f"{norm}.safetensors")
    config = write_config(folder / f"{norm}.toml", **fields)
    run = folder / norm
    done = convert(folder / f"{norm}.safetensors", "--config", config, "--out", run, "--drop", "positions",
                   "--rename", "embed=value_embedding", "--rename", "head=predictor")  # fmt: skip
    assert done.returncode == 0, done.stderr
    converted = peer(**fields)
    converted.load_state_dict(load_file(run / "checkpoints" / "latest" / "model.safetensors"))
    with torch.no_grad():
        inputs = images[:, :-1].long()
        logits, expected = converted(inputs), model(inputs)
    assert (logits - expected).abs().max() < 1e-5 * expected.abs().max(), (logits - expected).abs().max()
    check_run(run, converted, images, folder / "data")


def test_errors(folder: Path) -> None:
    fields = {"attention": "softmax"}
    model = TorchModel(ModelConfig(**SIZES | fields), final_norm=False)
    torch.save(model.state_dict(), folder / "bare.pt")
    arguments = ("--drop", "positions", "--rename", "embed=value_embedding", "--rename", "head=predictor")
    config = write_config(folder / "bare.toml", **fields)
    wrong = convert(folder / "bare.pt", "--config", config, "--out", folder / "bare", *arguments)
    assert wrong.returncode == 2 and "no final layer norm" in wrong.stderr, wrong.stderr
    config = write_config(folder / "heads.toml", **fields | {"heads": 3})
    torch.save(TorchModel(ModelConfig(**SIZES | fields)).state_dict(), folder / "heads.pt")
    wrong = convert(folder / "heads.pt", "--config", config, "--out", folder / "bare", *arguments)
    assert wrong.returncode == 2 and "the encoder's width is 16" in wrong.stderr, wrong.stderr
    torch.save({"x": torch.zeros(1)}, folder / "none.pt")
    wrong = convert(folder / "none.pt", "--config", config, "--out", folder / "bare")
    assert wrong.returncode == 2 and "has no encoder" in wrong.stderr, wrong.stderr


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        images = write_images(folder / "data" / "mnist", 8)
        test_fast_transformers(folder, images)
        test_torch(folder, images, "post", "relu")
        test_torch(folder, images, "pre", "gelu")
        test_errors(folder)
    print("all conversions agree")


if __name__ == "__main__":
    main()
