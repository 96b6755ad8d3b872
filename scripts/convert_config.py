"""Reads and writes configs of Tapeformer for convert.py, as the program combines and checks them."""

import codecs
import json
import os
import re
import tomllib
from pathlib import Path

MAX_SIZE = 1 << 20  # largest value of model.layers and of other sizes
PATHS = {
    "data": ("path", "valid_path", "test_path", "sentencepiece_model", "tokenizer_file", "image_cache", "lexicon", "feature_cache"),
    "model": ("init",),
}


class ConversionError(Exception):
    """A problem with the arguments or the state dict, for the user."""


def option(table: dict, name: str, default):
    """Returns the option `name`, such as "model.layers". Raises ConversionError if its type is not that of the default."""
    value = table.get(name.partition(".")[2], default)
    if type(value) is not type(default):
        raise ConversionError(f"{name}: expected a value such as {toml_value(default)}, got {toml_value(value)}")
    return value


def size(model: dict, name: str, default: int, smallest: int = 1) -> int:
    value = option(model, f"model.{name}", default)
    if not smallest <= value <= MAX_SIZE:
        raise ConversionError(f"model.{name}: expected an integer from {smallest} to {MAX_SIZE}, got {value}")
    return value


def sizes(model: dict, name: str) -> list[int]:
    values = option(model, f"model.{name}", [])
    return [size({f"{name}[{i}]": value}, f"{name}[{i}]", 1) for i, value in enumerate(values)]


def attention_kinds(model: dict) -> list[str]:
    """Returns the attention kinds, which repeat over the layers."""
    kinds = model.get("attention", "linear")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise ConversionError("model.attention: expected the name of an attention kind or a list of names")
    return kinds


def decoded(path: Path) -> str:
    """Returns the contents of a UTF-8 file. Raises ValueError for files in other encodings."""
    content = path.read_bytes()
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)) or b"\0" in content:
        raise ValueError("expected a TOML file in UTF-8, found UTF-16, UTF-32 or data that is not text")
    return content.decode("utf-8-sig")


def read_tables(path: Path, chain: tuple[str, ...] = ()) -> list[dict]:
    """Returns the tables of a config, after the tables of the configs that it extends."""
    try:
        real = os.path.realpath(path)
        if real in chain:
            raise ConversionError(f"{path}: extends itself")
        config = tomllib.loads(decoded(path))
    except ValueError as error:
        raise ConversionError(f"{path}: {error}") from error
    parent = config.pop("extends", None)
    for name, table in config.items():
        if not isinstance(table, dict):
            raise ConversionError(f"{path}: {name}: expected a table")
    if parent is None:
        return [config]
    if not isinstance(parent, str):
        raise ConversionError(f"{path}: extends: expected the name of a file")
    return [*read_tables(path.parent / parent, (*chain, real)), config]


def read_config(path: Path) -> dict:
    """Returns the tables of a config and of the configs that it extends as `tapeformer train` combines them.

    Paths become absolute. They are relative to the working directory, as in the program.
    """
    merged: dict = {"data": {}, "model": {}, "train": {}}
    kind_options: dict[str, dict] = {}
    for config in read_tables(path):
        train = config.get("train", {})
        for name, other in (("steps", "epochs"), ("epochs", "steps")):
            if name in train and other not in train:
                merged["train"].pop(other, None)
        options = config.pop("attention", {})
        for table, keys in config.items():
            merged[table] = merged.get(table, {}) | keys
        kinds = attention_kinds(merged["model"])
        for name, value in options.items():
            kind, entry = (name, value) if isinstance(value, dict) else (kinds[0], {name: value})
            kind_options[kind] = kind_options.get(kind, {}) | entry
    used = {kind: kind_options[kind] for kind in attention_kinds(merged["model"]) if kind in kind_options}
    merged["attention"] = used if len(set(kinds)) > 1 else used.get(kinds[0], {})
    for table, names in PATHS.items():
        for name in names:
            if isinstance(merged[table].get(name), str) and merged[table][name]:
                merged[table][name] = os.path.abspath(merged[table][name])
    if not merged["train"].keys() & {"steps", "epochs"}:
        merged["train"]["steps"] = 1  # every config needs train.steps or train.epochs
    return merged


def toml_value(value) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_value(key)


def toml_text(config: dict) -> str:
    lines = []
    for table, keys in config.items():
        lines.append(f"[{toml_key(table)}]")
        lines += [f"{toml_key(key)} = {toml_value(value)}" for key, value in keys.items()]
        lines.append("")
    return "\n".join(lines)
