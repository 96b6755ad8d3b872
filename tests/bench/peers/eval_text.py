"""Evaluates a checkpoint of a language model without Tapeformer, with safetensors, PyTorch and the model of text_model.py.

Prints one JSON object with nats_per_token, bits_per_byte and tokens. Every token of the split but the first is scored once.
Each window but the first begins with at least data.eval_context predictions that are not scored.
"""

import argparse
import gzip
import math
import tomllib
from pathlib import Path

import torch
import torch.nn.functional as F

from eval_checkpoint import load_weights, read_model_fields
from model import ModelConfig
from text_model import TextModel, encode, read_task, split_bytes


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="folder with model.safetensors, config.toml and state.json")
    parser.add_argument("text", type=Path, help="file of data.path, plain or .gz")
    parser.add_argument("--split", choices=("train", "valid", "test"), default="test")
    parser.add_argument("--context", type=int, help="predictions of a window that are not scored (default: data.eval_context)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def load_model(folder: Path, length: int, vocabulary: int, dtype: torch.dtype) -> TextModel:
    """Returns the model of config.toml with the weights of model.safetensors, in `dtype`."""
    try:
        fields = read_model_fields(tomllib.loads((folder / "config.toml").read_text()))
        config = ModelConfig(**fields, form="quadratic", max_length=length)
    except ValueError as error:
        raise SystemExit(f"{folder}/config.toml: [model] {error}") from None
    model = TextModel(config, vocabulary).to(dtype)
    load_weights(model, folder)
    return model.eval()


@torch.inference_mode()
def total_nats(model: TextModel, tokens: torch.Tensor, length: int, context: int, batch: int) -> float:
    """Returns the sum of the losses of tokens[1:] in nats, computed in windows of `length` predictions."""
    stride, last = length - context, len(tokens) - 1 - length
    starts = [min(i * stride, last) for i in range(1 + math.ceil(max(last, 0) / stride))]
    total, predicted = 0.0, 0  # tokens up to `predicted` are scored
    for first in range(0, len(starts), batch):
        part = starts[first : first + batch]
        windows = torch.stack([tokens[start : start + length + 1] for start in part])
        logits = model(windows[:, :-1])
        losses = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="none").view(len(part), length)
        for start, row in zip(part, losses):
            total += row[predicted - start :].double().sum().item()
            predicted = start + length
    return total


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    data = tomllib.loads((options.checkpoint / "config.toml").read_text())["data"]
    task = read_task(options.checkpoint)
    text = options.text.read_bytes()
    if options.text.suffix == ".gz":
        text = gzip.decompress(text)
    text = split_bytes(text, options.split, data["valid_share"], data["test_share"])
    tokens = torch.from_numpy(encode(text, task))
    context = data.get("eval_context", 0) if options.context is None else options.context
    model = load_model(options.checkpoint, data["sequence_length"], task["vocabulary"], getattr(torch, options.dtype))
    nats = total_nats(model, tokens, data["sequence_length"], context, options.batch)
    first = 1 if task["tokenizer"] == "bytes" else len(task["characters"][tokens[0]].encode())
    bits = nats / math.log(2) / (len(text) - first)
    count = len(tokens) - 1
    print(f'{{"nats_per_token": {nats / count:.17g}, "bits_per_byte": {bits:.17g}, "tokens": {count}}}')


if __name__ == "__main__":
    main()
