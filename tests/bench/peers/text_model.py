"""The language model of Tapeformer in PyTorch: the encoder of model.py, whose predictor returns logits of a vocabulary."""

import json
from pathlib import Path

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from model import ImageModel, ModelConfig


class TextModel(ImageModel):
    """Maps tokens (B, L) to logits (B, L, vocabulary). Position i has the distribution of token i + 1."""

    def __init__(self, config: ModelConfig, vocabulary: int):
        super().__init__(config)
        self.value_embedding = nn.Embedding(vocabulary, self.value_embedding.embedding_dim)
        self.predictor = nn.Linear(config.d_model, vocabulary)

    def loss(self, tokens: Tensor) -> Tensor:
        """Returns the nats per predicted token of tokens (B, L + 1)."""
        tokens = tokens.long()
        return F.cross_entropy(self(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def encode(text: bytes, task: dict) -> np.ndarray:
    """Returns the tokens of a text as int64. `task` is the entry "task" of state.json, which describes the tokenizer."""
    if task["tokenizer"] == "bytes":
        return np.frombuffer(text, np.uint8).astype(np.int64)
    if task["tokenizer"] == "characters":
        number = {character: token for token, character in enumerate(task["characters"])}
        return np.array([number[character] for character in text.decode()], np.int64)
    raise SystemExit(f"the tokenizer {task['tokenizer']!r} is not supported")


def read_task(checkpoint: Path) -> dict:
    return json.loads((checkpoint / "state.json").read_text())["task"]


def split_bytes(text: bytes, split: str, valid_share: float, test_share: float) -> bytes:
    """Returns the part of a text that Tapeformer uses as a split. The text must be ASCII unless tokens are bytes."""
    test = len(text) - int(len(text) * test_share + 0.5)
    valid = len(text) - int(len(text) * test_share + 0.5) - int(len(text) * valid_share + 0.5)
    return {"train": text[:valid], "valid": text[valid:test], "test": text[test:]}[split]
