"""Reads the settings and the tokenizer of a Tapeformer run of a translation model, and its data. Needs no PyTorch."""

import base64
import json
import math
import random
import tomllib
from dataclasses import dataclass
from pathlib import Path

from sentencepiece import SentencePieceProcessor

Pair = tuple[list[int], list[int]]  # tokens of a source and of its translation, without end tokens


@dataclass(frozen=True)
class Settings:
    """The config and the tokenizer of a checkpoint folder. The end token is the last token of the vocabulary."""

    config: dict
    tokenizer: SentencePieceProcessor

    @classmethod
    def read(cls, checkpoint: Path) -> "Settings":
        config = tomllib.loads((checkpoint / "config.toml").read_text())
        if (kind := config["model"]["type"]) != "translation":
            raise SystemExit(f"{checkpoint}: model.type is {kind!r}, expected 'translation'")
        task = json.loads((checkpoint / "state.json").read_text())["task"]
        if task["tokenizer"] != "sentencepiece":
            raise SystemExit(f"{checkpoint}: the tokenizer {task['tokenizer']!r} is not supported")
        return cls(config, SentencePieceProcessor(model_proto=base64.b64decode(task["model"])))

    @property
    def vocabulary(self) -> int:
        return self.tokenizer.get_piece_size() + 1

    @property
    def end(self) -> int:
        return self.vocabulary - 1

    @property
    def max_length(self) -> int:
        """The largest number of tokens of a sentence with its end token: twice the length of training sentences."""
        return 2 * self.config["data"]["max_length"] + 1

    def require(self, **supported: tuple) -> None:
        """Ends the program if an option of the model has another value than the supported ones."""
        for name, values in supported.items():
            if (value := self.config["model"][name]) not in values:
                raise SystemExit(f"model.{name} is {value!r}, expected one of {', '.join(map(repr, values))}")


def read_lines(path: Path) -> list[str]:
    lines = path.read_bytes().decode().split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_texts(settings: Settings, folder: Path, split: str) -> list[tuple[str, str]]:
    """Returns the pairs of sentences of the files SPLIT.LANGUAGE."""
    data = settings.config["data"]
    sides = [read_lines(folder / f"{split}.{data[key]}") for key in ("source_language", "target_language")]
    return [(source, target) for source, target in zip(*sides, strict=True) if source.strip() and target.strip()]


def encode(settings: Settings, texts: list[tuple[str, str]], longest: int = 0) -> list[Pair]:
    """Returns the tokens of pairs of sentences, without the pairs that have a sentence of more than `longest` tokens."""
    sources, targets = (settings.tokenizer.encode([pair[side] for pair in texts]) for side in (0, 1))
    return [p for p in zip(sources, targets) if not longest or max(len(p[0]), len(p[1])) <= longest]


def length(pair: Pair) -> int:
    return max(len(pair[0]), len(pair[1])) + 1


def plan_batches(pairs: list[Pair], batch_tokens: int, shuffle: random.Random | None = None) -> list[list[int]]:
    """Returns batches of indices of pairs of similar length, in which the count times the longest is at most `batch_tokens`.

    If `shuffle` is given, pairs whose lengths differ by at most about 5 % are mixed, and the batches have a random order.
    """
    order = list(range(len(pairs)))
    if shuffle:
        shuffle.shuffle(order)
        order.sort(key=lambda i: int(20 * math.log2(length(pairs[i])) / 1.5))
    else:
        order.sort(key=lambda i: length(pairs[i]))
    batches, longest = [], 0
    for i in order:
        longest = max(longest, length(pairs[i]))
        if not batches or longest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
            longest = length(pairs[i])
        batches[-1].append(i)
    if shuffle:
        shuffle.shuffle(batches)
    return batches
