"""Evaluates a checkpoint of an image model without Tapeformer, with safetensors, PyTorch and the model of model.py.

Prints one JSON object with nats_per_dim, bits_per_dim and examples.
"""

import argparse
import gzip
import math
import tomllib
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from model import ImageModel, ModelConfig, mixture_of_logistics_nll

MODEL_KEYS = (
    "layers",
    "heads",
    "head_dim",
    "feedforward",
    "mixtures",
    "value_dim",
    "attention",
    "norm",
    "activation",
    "positions",
)
ATTENTION_KEYS = ("rotation", "conv", "conv_activation")


def read_model_fields(config: dict) -> dict:
    """Returns the arguments of ModelConfig for a config file of Tapeformer. Raises ValueError for several attention kinds."""
    fields = {key: value for key, value in config["model"].items() if key in MODEL_KEYS}
    if isinstance(kinds := fields.get("attention"), list):
        if len(set(kinds)) > 1:
            raise ValueError(f"attention = {kinds} is not supported, expected one kind")
        fields["attention"] = kinds[0]
    options = config.get("attention", {})
    options = options.get(fields.get("attention", "linear"), options)
    if (feature_map := options.get("feature_map", "elu_plus_one")) != "elu_plus_one":
        raise ValueError(f"feature_map = {feature_map!r} is not supported")
    return fields | {key: options[key] for key in ATTENTION_KEYS if key in options}


def load_weights(model: torch.nn.Module, folder: Path) -> None:
    """Loads model.safetensors. Exits with a message if the tensors are those of a model with other options."""
    try:
        model.load_state_dict(load_file(folder / "model.safetensors"))
    except RuntimeError as error:
        line = next(filter(None, map(str.strip, str(error).splitlines()[1:])), str(error))
        raise SystemExit(f"{folder}/model.safetensors: the model has options that this script does not support: {line}") from None


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="folder with model.safetensors and config.toml")
    parser.add_argument("images", type=Path, help="IDX file (plain or .gz), CIFAR-10 .bin, or .npy of bytes (images, …)")
    parser.add_argument("--limit", type=int, help="number of images, from the first")
    parser.add_argument("--downscale", type=int, default=1, help="average square blocks with this side; halves are rounded up")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--form", choices=("chunked", "quadratic"), default="chunked")
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def read_images(path: Path) -> np.ndarray:
    """Returns the bytes of all images: (images, height, width) or (images, height, width, channels)."""
    if path.suffix == ".npy":
        return np.load(path)
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if path.suffix == ".bin":
        records = np.frombuffer(content, np.uint8).reshape(-1, 3073)
        return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    if content[:3] != b"\0\0\x08":
        raise SystemExit(f"{path}: not an IDX file of bytes")
    rank = content[3]
    shape = np.frombuffer(content, ">u4", rank, 4).astype(np.int64)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def downscale(images: np.ndarray, side: int) -> np.ndarray:
    """Averages square blocks and rounds halves up: (n, h, w, ...) becomes (n, h / side, w / side, ...)."""
    count, height, width, *rest = images.shape
    blocks = images.reshape(count, height // side, side, width // side, side, *rest)
    area = side * side
    return ((blocks.sum((2, 4), dtype=np.int64) + area // 2) // area).astype(np.uint8)


def load_model(folder: Path, grid: tuple[int, int, int], form: str, dtype: torch.dtype) -> ImageModel:
    """Returns the model of config.toml with the weights of model.safetensors, in `dtype`."""
    file = tomllib.loads((folder / "config.toml").read_text())
    if (kind := file["model"].get("type", "image")) != "image":
        raise SystemExit(f"{folder}: model.type is {kind!r}, expected 'image'")
    try:
        config = ModelConfig(**read_model_fields(file), form=form, max_length=math.prod(grid) - 1, grid=grid)
    except ValueError as error:
        raise SystemExit(f"{folder}/config.toml: [model] {error}") from None
    model = ImageModel(config).to(dtype)
    load_weights(model, folder)
    return model.eval()


@torch.inference_mode()
def nats_per_dim(model: ImageModel, images: torch.Tensor, batch: int) -> float:
    """Returns the mean negative log-likelihood of all bytes except the first byte of each image."""
    total = 0.0
    for part in images.split(batch):
        target = part[:, 1:].to(model.predictor.weight.dtype) / 255 * 2 - 1
        total += mixture_of_logistics_nll(model(part[:, :-1].long()), target).double().sum().item()
    return total / images[:, 1:].numel()


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    images = read_images(options.images)[: options.limit]
    if options.downscale > 1:
        images = downscale(images, options.downscale)
    grid = (*images.shape[1:], 1)[:3]
    images = torch.from_numpy(images.reshape(len(images), -1).copy())
    model = load_model(options.checkpoint, grid, options.form, getattr(torch, options.dtype))
    nats = nats_per_dim(model, images, options.batch)
    print(f'{{"nats_per_dim": {nats:.17g}, "bits_per_dim": {nats / math.log(2):.17g}, "examples": {len(images)}}}')


if __name__ == "__main__":
    main()
