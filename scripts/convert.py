#!/usr/bin/env python3
"""Converts a PyTorch model to a run directory that `tapeformer eval`, `generate` and `model.init` read.

The input is a state dict, in a file of torch.save or of safetensors, and a Tapeformer config that describes the model.
The state dict contains the weights of fast-transformers' TransformerEncoder or of torch.nn.TransformerEncoder, which may
be a part of a larger model. Files of torch.save are read with weights_only=True, so they run no code.

Names of the encoder are translated. Names outside of the encoder must become `value_embedding.weight`,
`predictor.weight` and `predictor.bias`:

    convert.py model.pt --config configs/mnist/linear.toml --out runs/converted \\
        --rename embed=value_embedding --rename head=predictor --drop positions.pe

The model must compute what the config describes: value embedding and sinusoidal positions are concatenated, learned
positions (`positions.0`, with model.positions = "axial" and one axis) are added, the encoder ends in a layer norm, and
layer norms have eps 1e-5. For the kind "gated-delta", the attention of a layer is GatedDeltaNet of flash-linear-attention or
Qwen3NextGatedDeltaNet of transformers, in a module "attention", "attn", "self_attn" or "linear_attn", with equal numbers and
sizes of key and value heads and eps 1e-5 of the norm. Missing biases become zeros. If model.tied_embeddings is true,
`predictor.weight` may be missing.

The run has no optimizer state: `tapeformer train --resume` starts with a new one at step 0. It has no tokenizer either: the
program makes the tokenizer from the table [data] of the config, so that the file in data.sentencepiece_model or, with
data.tokenizer = "characters", the text must stay where it is.

The exit status is 0 after a conversion. It is 2 after an error, which is printed on standard error, for example if a file
cannot be read or does not match the config.
"""

import argparse
import json
import re
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

from convert_config import ConversionError, attention_kinds, option, read_config, size, sizes, toml_text, toml_value

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
# Attention kinds without parameters of their own, which have the projections of the encoder. The kinds in SHARED_KINDS
# use the query projection for the keys.
ATTENTION_KINDS = (
    "softmax", "linear", "lsh", "shared-softmax", "local", "sparse", "axial-row", "axial-column", "image",
    "big-bird", "longformer", "performer",
)  # fmt: skip
SHARED_KINDS = ("lsh", "shared-softmax")
GATED_KIND = "gated-delta"
GATED_OPTIONS = {"preset": "gated-delta-net", "conv": 4, "output_gate": "silu", "negative_eigenvalues": False}
# Names of flash-linear-attention, and of transformers if they differ, and the names in a layer of a checkpoint.
GATED_NAMES = {
    "q_proj.weight": "query_projection.weight",
    "k_proj.weight": "key_projection.weight",
    "v_proj.weight": "value_projection.weight",
    "o_proj.weight": "out_projection.weight",
    "out_proj.weight": "out_projection.weight",
    "conv1d.weight": "conv.weight",
    "a_proj.weight": "inner_attention.gates.decay.weight",
    "b_proj.weight": "inner_attention.gates.beta.weight",
    "A_log": "inner_attention.gates.log_rate",
    "dt_bias": "inner_attention.gates.time_step",
    "g_proj.weight": "inner_attention.output_gate.weight",
    "o_norm.weight": "inner_attention.norm.weight",
    "norm.weight": "inner_attention.norm.weight",
}
# Names of the first layer that identify the library. The text before them is the path of the encoder.
FAST_TRANSFORMERS = re.compile(r"^(.*?)layers\.0\.attention\.query_projection\.weight$")
TORCH = re.compile(r"^(.*?)layers\.0\.self_attn\.in_proj_weight$")
GATED = re.compile(r"^(.*?)layers\.0\.(?:attention|attn|self_attn|linear_attn)\.A_log$")
GATED_LAYER = re.compile(r"^(layers\.\d+)\.(attention|attn|self_attn|linear_attn)\.A_log$")

Weights = dict[str, np.ndarray]
Sources = dict[str, str]  # the names in the state dict of the tensors with translated names


def read_file(path: Path):
    """Returns the contents of a file of safetensors or torch.save."""
    library = "safetensors" if path.suffix == ".safetensors" else "torch"
    path.open("rb").close()  # raises OSError if the file cannot be opened
    try:
        with warnings.catch_warnings(action="ignore"):
            return load_file(path) if library == "safetensors" else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # the readers raise exceptions of many types
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConversionError(f"{path}: {library} cannot read it as a file of tensors: {reason}") from error


def read_state_dict(path: Path) -> Weights:
    """Returns the tensors of a file of safetensors or torch.save, in float32."""
    state = read_file(path)
    for key in ("state_dict", "model_state_dict", "model_state", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict):
        raise ConversionError(f"{path}: expected a state dict, found an object of type {type(state).__name__}")
    tensors = {str(name): value for name, value in state.items() if isinstance(value, torch.Tensor)}
    for name, value in tensors.items():
        if value.layout != torch.strided or value.is_quantized or value.is_complex():
            raise ConversionError(f"{path}: {name}: expected a dense tensor of real numbers")
    return {name: value.detach().float().numpy() for name, value in tensors.items()}


def encoder_prefix(names: list[str]) -> str:
    """Returns the path of the encoder in the model, such as "transformer."."""
    for pattern in (FAST_TRANSFORMERS, TORCH, GATED):
        found = [match.group(1) for match in map(pattern.match, names) if match]
        if len(found) > 1:
            raise ConversionError(f"the state dict has several encoders: {', '.join(found)}")
        if found:
            return found[0]
    raise ConversionError(
        "the state dict has no encoder: expected a name that ends in layers.0.attention.query_projection.weight "
        "(fast-transformers), layers.0.self_attn.in_proj_weight (torch.nn.TransformerEncoder) or layers.0.attention.A_log "
        "(flash-linear-attention)"
    )


def split_attention(weights: Weights, sources: Sources) -> Weights:
    """Translates the names of torch.nn.MultiheadAttention: in_proj holds the rows of query, key and value."""
    result: Weights = {}
    for name, value in weights.items():
        match = re.match(r"^(layers\.\d+)\.self_attn\.(in_proj_|out_proj\.)(weight|bias)$", name)
        parts = {name: value}
        if match and match[2] == "out_proj.":
            parts = {f"{match[1]}.attention.out_projection.{match[3]}": value}
        elif match and (value.ndim == 0 or value.shape[0] % 3 != 0):
            raise ConversionError(f"{sources[name]}: expected the rows of query, key and value, found the shape {value.shape}")
        elif match:
            names = (f"{match[1]}.attention.{part}_projection.{match[3]}" for part in ("query", "key", "value"))
            parts = dict(zip(names, np.split(value, 3), strict=True))
        result |= parts
        sources |= dict.fromkeys(parts, sources[name])
    return result


def heads_of_rows(name: str, value: np.ndarray, heads: int, parts: int) -> list[np.ndarray]:
    """Returns the parts of a projection whose rows are, for each head, the rows of each part."""
    if value.ndim != 2 or heads == 0 or value.shape[0] % (heads * parts) != 0:
        raise ConversionError(f"{name}: expected {parts} parts with the rows of {heads} heads, found {value.shape}")
    return [part.reshape(-1, value.shape[1]) for part in value.reshape(heads, parts, -1, value.shape[1]).swapaxes(0, 1)]


def check_heads(name: str, value: np.ndarray | None, parts: int, layer: Weights) -> None:
    """Raises ConversionError if the rows of a projection are not `parts` times the rows of the value heads of its layer."""
    heads, norm = layer["A_log"].size, layer.get("o_norm.weight", layer.get("norm.weight"))
    if value is not None and norm is not None and value.ndim == 2 and value.shape[0] != parts * heads * norm.size:
        raise ConversionError(f"{name} has {value.shape[0]} rows, and {heads} value heads of {norm.size} need "
                              f"{parts * heads * norm.size}: key and value heads must have equal numbers and sizes")  # fmt: skip


def translate_gated(weights: Weights, sources: Sources) -> Weights:
    """Translates the names of GatedDeltaNet of flash-linear-attention and of transformers."""
    weights = dict(weights)
    for match in [match for match in map(GATED_LAYER.match, list(weights)) if match]:
        path, layer = f"{match[1]}.{match[2]}.", {}
        for name in [name for name in weights if name.startswith(path)]:
            layer[name[len(path) :]] = weights.pop(name)
        origins = {name: sources[path + name] for name in layer}
        for part in "qkvg":
            check_heads(origins.get(f"{part}_proj.weight", ""), layer.get(f"{part}_proj.weight"), 1, layer)
        for packed, parts in (("in_proj_qkvz", "qkvg"), ("in_proj_ba", "ba")):
            if (value := layer.pop(f"{packed}.weight", None)) is not None:
                name = origins[f"{packed}.weight"]
                if parts == "qkvg":
                    check_heads(name, value, 4, layer)
                rows = heads_of_rows(name, value, layer["A_log"].size, len(parts))
                layer |= {f"{part}_proj.weight": part_rows for part, part_rows in zip(parts, rows, strict=True)}
                origins |= {f"{part}_proj.weight": name for part in parts}
        convolutions = [layer.pop(f"{part}_conv1d.weight", None) for part in "qkv"]
        if all(value is not None and value.ndim == 3 for value in convolutions):
            layer["conv1d.weight"] = np.concatenate(convolutions)
            origins["conv1d.weight"] = ", ".join(origins[f"{part}_conv1d.weight"] for part in "qkv")
        conv = layer.get("conv1d.weight")
        if conv is not None and conv.ndim == 3 and conv.shape[1] == 1:
            layer["conv1d.weight"] = conv[:, 0]
        layer["A_log"] = layer["A_log"].reshape(-1, 1)
        for name, value in layer.items():
            translated = f"{match[1]}.attention.{GATED_NAMES.get(name, name)}"
            weights[translated], sources[translated] = value, origins[name]
    return weights


def rename(name: str, renames: list[tuple[str, str]]) -> str:
    """Applies the first rename whose old name is `name` or the name of a module that contains `name`."""
    for old, new in renames:
        if name == old or name.startswith(old + "."):
            return new + name[len(old) :]
    return name


def convert(state: Weights, renames: list[tuple[str, str]], drops: list[str]) -> tuple[Weights, Sources]:
    """Translates the names of a state dict to the names of a Tapeformer checkpoint. Also returns the names before."""
    prefix = encoder_prefix(list(state))
    dropped = [name for name in state if any(name == drop or name.startswith(drop + ".") for drop in drops)]
    encoder, others, sources = {}, {}, {}
    for name, value in state.items():
        if name in dropped:
            continue
        if re.match(re.escape(prefix) + r"(layers\.\d+\.|norm\.)", name):
            encoder[name[len(prefix) :]] = value
            sources[name[len(prefix) :]] = name
        elif (new := rename(name, renames)) in others:
            raise ConversionError(f"{name}: another tensor has the name {new}, too")
        else:
            others[new], sources[new] = value, name
    return translate_gated(split_attention(encoder, sources), sources) | others, sources


def kind_options(config: dict, kind: str) -> dict:
    """Returns the options of an attention kind that the config sets."""
    several = len(set(attention_kinds(config["model"]))) > 1
    return config.get("attention", {}).get(kind, {}) if several else config.get("attention", {})


def gated_options(config: dict) -> dict:
    """Returns the options of the kind "gated-delta". Raises ConversionError for options that GatedDeltaNet does not have."""
    options = kind_options(config, GATED_KIND)
    for name, value in options.items():
        if name not in GATED_OPTIONS or (name == "preset" and value != GATED_OPTIONS[name]):
            raise ConversionError(f"attention.{name} is {toml_value(value)}: expected only the options "
                                  f"{', '.join(list(GATED_OPTIONS)[1:])} of {GATED_OPTIONS['preset']}")  # fmt: skip
    return {name: option(options, f"attention.{name}", value) for name, value in GATED_OPTIONS.items()}


def gated_shapes(heads: int, dim: int, options: dict) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each parameter of the attention of a layer with the kind "gated-delta"."""
    width = heads * dim
    names = dict.fromkeys(GATED_NAMES.values(), (width, width)) | {"inner_attention.norm.weight": (dim,)}
    names |= dict.fromkeys(("inner_attention.gates.decay.weight", "inner_attention.gates.beta.weight"), (heads, width))
    names |= {"inner_attention.gates.log_rate": (heads, 1), "inner_attention.gates.time_step": (heads,)}
    names["conv.weight"] = (3 * width, options["conv"] if options["conv"] >= 0 else GATED_OPTIONS["conv"])
    if options["conv"] == 0:
        del names["conv.weight"]
    if options["output_gate"] == "none":
        del names["inner_attention.output_gate.weight"]
    return {f"attention.{name}": shape for name, shape in names.items()}


def check_model(model: dict) -> None:
    """Raises ConversionError if the model has parameters that the state dict of an encoder cannot contain."""
    kind = option(model, "model.type", "image")
    if kind not in ("image", "sequence"):
        raise ConversionError(f'model.type is "{kind}": expected "image" or "sequence"')
    for name in attention_kinds(model):
        if name not in (*ATTENTION_KINDS, GATED_KIND):
            raise ConversionError(f'model.attention is "{name}": expected one of {", ".join(ATTENTION_KINDS)}, {GATED_KIND}')
    if option(model, "model.reversible", False):
        raise ConversionError("model.reversible is true: expected false, because the libraries have no reversible layers")


def check_tokenizer(config: dict) -> None:
    """Raises ConversionError if the program would train another tokenizer than the one of the model."""
    data = config.get("data", {})
    if data.get("tokenizer") == "sentencepiece" and not data.get("sentencepiece_model"):
        raise ConversionError('data.tokenizer is "sentencepiece": set data.sentencepiece_model to the file of its model')


def expected_shapes(config: dict, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each parameter of a config's model. A sequence model has `vocabulary` tokens."""
    model = config["model"]
    heads, dim = size(model, "heads", 8), size(model, "head_dim", 32)
    width = heads * dim
    feedforward = size(model, "feedforward", 1024)
    outputs = 3 * size(model, "mixtures", 10) if option(model, "model.type", "image") == "image" else vocabulary
    positions = option(model, "model.positions", "sinusoidal")
    concatenated = positions in ("sinusoidal", "grid")
    values = (size(model, "value_dim", 0, smallest=0) or width // 2) if concatenated else width
    weights = {"value_embedding": (vocabulary, values)}
    shapes: dict[str, tuple[int, ...]] = {}
    if positions == "axial":
        axes = zip(sizes(model, "axial_shape"), sizes(model, "axial_dims"), strict=False)
        shapes |= {f"positions.{axis}": shape for axis, shape in enumerate(axes)}
    kinds = attention_kinds(model)
    for i in range(size(model, "layers", 8)):
        kind = kinds[i % len(kinds)]
        if kind == GATED_KIND:
            gated = gated_shapes(heads, dim, gated_options(config))
            shapes |= {f"layers.{i}.{name}": shape for name, shape in gated.items()}
        elif option(kind_options(config, kind), "attention.conv", 0):
            raise ConversionError(f'attention.conv: expected 0 for the kind "{kind}", whose layers have no convolution')
        for part in LAYER_PARTS if kind != GATED_KIND else LAYER_PARTS[4:]:
            if not (part == "attention.key_projection" and kind in SHARED_KINDS):
                weights[f"layers.{i}.{part}"] = (width, width) if "projection" in part else (width,)
        weights[f"layers.{i}.linear1"] = (feedforward, width)
        weights[f"layers.{i}.linear2"] = (width, feedforward)
    weights |= {"norm": (width,), "predictor": (outputs, width)}
    for module, shape in weights.items():
        shapes[f"{module}.weight"] = shape
        if module != "value_embedding":
            shapes[f"{module}.bias"] = shape[:1]
    if option(model, "model.tied_embeddings", False):
        del shapes["predictor.weight"]
    return shapes


def without_unused(weights: Weights, model: dict) -> Weights:
    """Leaves out parameters of the state dict that are copies or have no effect in the config's model."""
    weights = dict(weights)
    kinds = attention_kinds(model)
    for name in list(weights):
        # Queries are the keys, so fast-transformers' key projection has no effect.
        layer = re.match(r"layers\.(\d+)\.attention\.key_projection\.", name)
        if layer and kinds[int(layer[1]) % len(kinds)] in SHARED_KINDS:
            del weights[name]
    if option(model, "model.tied_embeddings", False) and "predictor.weight" in weights:
        if not np.array_equal(weights.pop("predictor.weight"), weights.get("value_embedding.weight")):
            raise ConversionError("model.tied_embeddings is true, but value_embedding.weight and predictor.weight differ")
    return weights


def describe_mismatch(missing: list[str], unknown: list[str], sources: Sources) -> str:
    """Returns the message about tensors that are missing and tensors that no parameter of the model has."""
    lines = ["the state dict does not match the config's model"]
    lines += ["  missing: " + ", ".join(missing)] if missing else []
    encoder = [name for name in unknown if re.match(r"layers\.\d+\.|norm\.", name)]
    others = [name for name in unknown if name not in encoder]
    for options, names in (("--drop", encoder), ("--rename and --drop", others)):
        found = dict.fromkeys(sources[name] for name in names)
        lines += [f"  unknown (see {options}): " + ", ".join(found)] if found else []
    if missing == ["norm.weight"]:
        lines.append("  the encoder has no final layer norm, which Tapeformer's models always have")
    return "\n".join(lines)


def checked(weights: Weights, sources: Sources, config: dict) -> Weights:
    """Returns the parameters of the config's model. Raises ConversionError if tensors do not match the model."""
    model = config["model"]
    check_model(model)
    weights = without_unused(weights, model)
    layers = {name.split(".")[1] for name in weights if re.match(r"layers\.\d+\.", name)}
    if len(layers) != size(model, "layers", 8):
        raise ConversionError(f"the encoder has {len(layers)} layers, and model.layers is {size(model, 'layers', 8)}")
    embedding = weights.get("value_embedding.weight")
    fixed = option(model, "model.type", "image") == "image" or embedding is None or embedding.ndim == 0
    shapes = expected_shapes(config, 256 if fixed else embedding.shape[0])
    missing = [name for name in shapes if name not in weights and not name.endswith(".bias")]
    unknown = [name for name in weights if name not in shapes]
    if missing or unknown:
        raise ConversionError(describe_mismatch(missing, unknown, sources))
    query = "layers.0.attention.query_projection.weight"
    if weights[query].ndim == 2 and weights[query].shape[0] != shapes[query][0]:
        raise ConversionError(f"the encoder's width is {weights[query].shape[0]}, and heads x head_dim of the config "
                              f"is {shapes[query][0]}")  # fmt: skip
    result = {}
    for name, shape in shapes.items():
        value = weights[name] if name in weights else np.zeros(shape, np.float32)
        source = sources.get(name, name)
        if ".gates." in name and value.shape[1:] == shape[1:] and value.shape != shape:
            raise ConversionError(f"{source}: the layer has {value.shape[0]} heads, and model.heads is {shape[0]}")
        if value.shape != shape:
            raise ConversionError(f"{source}: expected the shape {shape}, found {value.shape}")
        wrong = np.count_nonzero(~np.isfinite(value))
        if wrong:
            raise ConversionError(f"{source} has {wrong} non-finite elements of {value.size}")
        result[name] = np.ascontiguousarray(value)
    return result


def crc32(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def state_text(files: dict[str, bytes]) -> str:
    """Returns state.json of a checkpoint at step 0. Its last entry is the checksum of the text before it."""
    state = {
        "step": 0,
        "converted": True,
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
    (checkpoint / "config.toml").write_text(config, encoding="utf-8")
    names = ("model.safetensors", "optimizer.safetensors", "config.toml")
    files = {name: (checkpoint / name).read_bytes() for name in names}
    (checkpoint / "state.json").write_text(state_text(files))
    (out / "checkpoints" / "latest").symlink_to(checkpoint.name)
    (out / "config.toml").write_text(config, encoding="utf-8")


def pair(text: str) -> tuple[str, str]:
    old, separator, new = text.partition("=")
    if not separator or not old or not new:
        raise argparse.ArgumentTypeError(f"expected OLD=NEW, got {text!r}")
    return old, new


def fail(message: str) -> int:
    """Prints an error without control characters. Returns the exit status."""
    text = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in message)
    print(f"convert.py: {text}", file=sys.stderr)
    return 2


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
        check_tokenizer(config)
        translated = convert(read_state_dict(options.state_dict), options.rename, options.drop)
        weights = checked(*translated, config)
        write_run(options.out, weights, toml_text(config))
    except (ConversionError, OSError) as error:
        path = getattr(error, "filename", None)
        return fail(f"{path}: {error.strerror}" if path else str(error))
    except RecursionError:
        return fail(f"{options.config}: tables or lists are nested too deeply")
    count = sum(value.size for value in weights.values())
    print(f"{options.out}: {len(weights)} tensors, {count} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
