#!/usr/bin/env python3
"""Converts a PyTorch model to a run directory that `tapeformer eval`, `generate` and `model.init` read.

The input is a state dict, in a file of torch.save or of safetensors, and a Tapeformer config that describes the model.
The state dict contains the weights of fast-transformers' TransformerEncoder or of torch.nn.TransformerEncoder, which may
be a part of a larger model. Files of torch.save are read with weights_only=True, so they run no code.

Names of the encoder are translated. Names outside of the encoder must become `value_embedding.weight`,
`predictor.weight` and `predictor.bias`:

    convert.py model.pt --config configs/mnist/linear.toml --out runs/converted \\
        --rename embed=value_embedding --rename head=predictor --drop positions.pe

The model must compute what the config describes: value embedding and sinusoidal positions are concatenated, the encoder
ends in a layer norm, and layer norms have eps 1e-5. Missing biases become zeros.
"""

import argparse
import json
import re
import sys
import tomllib
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

LAYER_PARTS = (
    "attention.query_projection",
    "attention.key_projection",
    "attention.value_projection",
    "attention.out_projection",
    "linear1",
    "linear2",
    "norm1",
    "norm2",
)
# Names of the first layer that identify the library. The text before them is the path of the encoder.
FAST_TRANSFORMERS = re.compile(r"^(.*?)layers\.0\.attention\.query_projection\.weight$")
TORCH = re.compile(r"^(.*?)layers\.0\.self_attn\.in_proj_weight$")

Weights = dict[str, np.ndarray]


class ConversionError(Exception):
    """A problem with the arguments or the state dict, for the user."""


def read_state_dict(path: Path) -> Weights:
    """Returns the tensors of a file of safetensors or torch.save, in float32."""
    if path.suffix == ".safetensors":
        state = load_file(path)
    else:
        state = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("state_dict", "model_state_dict", "model_state", "model"):
        if isinstance(state.get(key), dict):
            state = state[key]
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    return {name: value.detach().float().numpy() for name, value in tensors.items()}


def encoder_prefix(names: list[str]) -> tuple[str, str]:
    """Returns the library and the path of the encoder in the model, such as "transformer."."""
    for library, pattern in (("fast-transformers", FAST_TRANSFORMERS), ("torch", TORCH)):
        found = [match.group(1) for match in map(pattern.match, names) if match]
        if len(found) > 1:
            raise ConversionError(f"the state dict has several encoders: {', '.join(found)}")
        if found:
            return library, found[0]
    raise ConversionError(
        "the state dict has no encoder: expected a name that ends in layers.0.attention.query_projection.weight "
        "(fast-transformers) or layers.0.self_attn.in_proj_weight (torch.nn.TransformerEncoder)"
    )


def split_attention(weights: Weights) -> Weights:
    """Translates the names of torch.nn.MultiheadAttention: in_proj holds the rows of query, key and value."""
    result: Weights = {}
    for name, value in weights.items():
        match = re.match(r"^(layers\.\d+)\.self_attn\.(in_proj_|out_proj\.)(weight|bias)$", name)
        if not match:
            result[name] = value
        elif match[2] == "out_proj.":
            result[f"{match[1]}.attention.out_projection.{match[3]}"] = value
        else:
            for part, rows in zip(("query", "key", "value"), np.split(value, 3)):
                result[f"{match[1]}.attention.{part}_projection.{match[3]}"] = rows
    return result


def rename(name: str, renames: list[tuple[str, str]]) -> str:
    """Applies the first rename whose old name is `name` or the name of a module that contains `name`."""
    for old, new in renames:
        if name == old or name.startswith(old + "."):
            return new + name[len(old) :]
    return name


def convert(state: Weights, renames: list[tuple[str, str]], drops: list[str]) -> Weights:
    """Translates the names of a state dict to the names of a Tapeformer checkpoint."""
    library, prefix = encoder_prefix(list(state))
    dropped = [name for name in state if any(name == drop or name.startswith(drop + ".") for drop in drops)]
    encoder, others = {}, {}
    for name, value in state.items():
        if name in dropped:
            continue
        if re.match(re.escape(prefix) + r"(layers\.\d+\.|norm\.)", name):
            encoder[name[len(prefix) :]] = value
        else:
            others[rename(name, renames)] = value
    if library == "torch":
        encoder = split_attention(encoder)
    return encoder | others


def expected_names(model: dict) -> dict[str, bool]:
    """Maps the name of each parameter of a config's model to whether zeros may replace the parameter if it is missing."""
    shared = model.get("attention") == "lsh"
    layers = [
        f"layers.{i}.{part}"
        for i in range(model.get("layers", 8))
        for part in LAYER_PARTS
        if not (shared and part == "attention.key_projection")
    ]
    names = {"value_embedding.weight": False}
    for part in (*layers, "norm", "predictor"):
        names[f"{part}.weight"] = False
        names[f"{part}.bias"] = not part.split(".")[-1].startswith("norm")
    return names


def checked(weights: Weights, model: dict) -> Weights:
    """Returns the parameters of the config's model. Raises ConversionError if names are missing or unknown."""
    if model.get("type", "image") == "speech":
        raise ConversionError('model.type is "speech": expected "image" or "sequence"')
    expected = expected_names(model)
    missing = [name for name, optional in expected.items() if name not in weights and not optional]
    unknown = [name for name in weights if name not in expected]
    if model.get("attention") == "lsh":  # queries are the keys, so fast-transformers' key projection has no effect
        unknown = [name for name in unknown if ".key_projection." not in name]
    if missing or unknown:
        lines = ["the state dict does not match the config's model"]
        lines += ["  missing: " + ", ".join(missing)] if missing else []
        lines += ["  unknown (see --rename and --drop): " + ", ".join(unknown)] if unknown else []
        if missing == ["norm.weight", "norm.bias"]:
            lines.append("  the encoder has no final layer norm, which Tapeformer's models always have")
        raise ConversionError("\n".join(lines))
    width = model.get("heads", 8) * model.get("head_dim", 32)
    found = weights["layers.0.attention.query_projection.weight"].shape[0]
    if found != width:
        raise ConversionError(f"the encoder's width is {found}, and heads x head_dim of the config is {width}")
    result = {}
    for name in expected:
        if name in weights:
            result[name] = np.ascontiguousarray(weights[name])
        else:
            result[name] = np.zeros(weights[name.removesuffix("bias") + "weight"].shape[0], np.float32)
    return result


def read_config(path: Path) -> dict:
    """Returns the tables of a config and of the configs that it extends."""
    with path.open("rb") as file:
        config = tomllib.load(file)
    parent = config.pop("extends", None)
    if parent is None:
        return config
    merged = read_config(path.parent / parent)
    attention = merged.get("model", {}).get("attention")
    if config.get("model", {}).get("attention", attention) != attention:
        merged.pop("attention", None)  # removes the options of another attention kind
    for table, keys in config.items():
        merged[table] = merged.get(table, {}) | keys
    return merged


def toml_text(config: dict) -> str:
    """Returns tables as TOML. Their values are numbers, strings, booleans and lists, which TOML and JSON write alike."""
    lines = []
    for table, keys in config.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items()]
        lines.append("")
    return "\n".join(lines)


def crc32(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def state_text(files: dict[str, bytes]) -> str:
    """Returns state.json of a checkpoint at step 0. Its last entry is the checksum of the text before it."""
    state = {
        "step": 0,
        "evaluated_step": -1,
        "optimizer_steps": 0,
        "best_loss": None,
        "seconds": 0.0,
        "plateau_factor": 1.0,
        "plateau_best": 1e300,
        "plateau_bad_evaluations": 0,
        "files": {name: {"bytes": len(content), "crc32": crc32(content)} for name, content in files.items()},
    }
    text = json.dumps(state, indent=2).removesuffix("\n}")
    return f'{text},\n  "crc32": "{crc32(text.encode())}"\n}}\n'


def write_run(out: Path, weights: Weights, config: str) -> None:
    """Writes a run directory with one checkpoint. Raises ConversionError if `out` is not empty."""
    if out.exists() and any(out.iterdir()):
        raise ConversionError(f"{out} is not empty")
    checkpoint = out / "checkpoints" / "step-00000000"
    checkpoint.mkdir(parents=True)
    save_file(weights, checkpoint / "model.safetensors", {"format": "pt"})
    save_file({}, checkpoint / "optimizer.safetensors", {"format": "pt"})
    (checkpoint / "config.toml").write_text(config)
    names = ("model.safetensors", "optimizer.safetensors", "config.toml")
    files = {name: (checkpoint / name).read_bytes() for name in names}
    (checkpoint / "state.json").write_text(state_text(files))
    (out / "checkpoints" / "latest").symlink_to(checkpoint.name)
    (out / "config.toml").write_text(config)


def pair(text: str) -> tuple[str, str]:
    old, separator, new = text.partition("=")
    if not separator or not old or not new:
        raise argparse.ArgumentTypeError(f"expected OLD=NEW, got {text!r}")
    return old, new


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("state_dict", type=Path, help="file of torch.save or .safetensors")
    parser.add_argument("--config", type=Path, required=True, help="Tapeformer config of the model (TOML)")
    parser.add_argument("--out", type=Path, required=True, help="run directory to write")
    parser.add_argument("--rename", type=pair, action="append", default=[], metavar="OLD=NEW",
                        help="renames a parameter or module outside of the encoder; may be repeated")
    parser.add_argument("--drop", action="append", default=[], metavar="NAME",
                        help="ignores a tensor or module; may be repeated")
    options = parser.parse_args()
    try:
        config = read_config(options.config)
        if not config.setdefault("train", {}).keys() & {"steps", "epochs"}:
            config["train"]["steps"] = 1  # every config needs train.steps or train.epochs
        weights = convert(read_state_dict(options.state_dict), options.rename, options.drop)
        write_run(options.out, checked(weights, config.get("model", {})), toml_text(config))
    except (ConversionError, OSError, tomllib.TOMLDecodeError) as error:
        print(f"convert.py: {error}", file=sys.stderr)
        return 2
    count = sum(value.size for value in weights.values())
    print(f"{options.out}: {len(weights)} tensors, {count} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
