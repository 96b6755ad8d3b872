"""Tests of scripts/convert.py: it converts models of PyTorch, and the commands of tapeformer read the results.

Usage: convert_test.py PROGRAM. Exits with 77, which ctest reports as skipped, where PyTorch is not installed.
"""

import base64
import io
import json
import re
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

try:
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file, save_file
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "bench" / "peers"), str(ROOT / "scripts")]

from convert import ATTENTION_KINDS, GATED_KIND  # noqa: E402
from convert import main as main_of_convert  # noqa: E402
from eval_checkpoint import nats_per_dim  # noqa: E402
from model import ImageModel, ModelConfig, sinusoidal_positions  # noqa: E402

SIDE = 7  # the height and width of images of 28 x 28 pixels, averaged over blocks of 4 x 4
LENGTH, WIDTH = 12, 16  # the number of predictions per window and the width of text models
RENAMES = ("--rename", "embed=value_embedding", "--rename", "head=predictor")
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


class TextModel(nn.Module):
    """A language model with torch.nn.TransformerEncoder and learned positions, if `options` has "positions"."""

    def __init__(self, vocabulary: int, options: dict):
        super().__init__()
        torch.manual_seed(4)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, options.get("activation", "relu"), batch_first=True,
                                           norm_first=options.get("norm") == "pre")  # fmt: skip
        self.embed = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH) if "positions" in options else None
        self.transformer = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, vocabulary)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)
        if options.get("tied_embeddings"):
            self.head.weight = self.embed.weight
        self.eval()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inputs = self.embed(tokens)
        if self.positions is not None:
            inputs = inputs + self.positions.weight[: tokens.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.transformer(inputs, mask, is_causal=True))

    @torch.no_grad()
    def nats(self, tokens: torch.Tensor) -> float:
        """Returns the mean loss of predictions in windows of LENGTH predictions."""
        windows = tokens.unfold(0, LENGTH + 1, LENGTH)
        return F.cross_entropy(self(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten()).item()


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


def toml(value) -> str:
    """Returns a value as TOML, tables as inline tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value)


def write_text_config(path: Path, model: dict, **tables) -> Path:
    """Writes a config of a text model. `tables` are the keys of other tables, in addition to the defaults here."""
    sizes = {"type": "sequence", "layers": 2, "heads": 2, "head_dim": 8, "feedforward": 32}
    defaults = {"positions": "none", "attention": "softmax"}
    tables = {"model": sizes | defaults | model, "train": {"steps": 1}} | tables
    text = {"dataset": "text", "path": "train.txt", "sequence_length": LENGTH, "batch_size": 2}
    text |= {"valid_path": "test.txt", "test_path": "test.txt"}
    tables["data"] = text | tables.get("data", {})
    path.write_text("".join(f"{name} = {toml(keys)}\n" for name, keys in tables.items()))
    return path


def convert(*arguments, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """Runs convert.py in this process, because importing PyTorch takes seconds."""
    out, err = io.StringIO(), io.StringIO()
    command = ["convert.py", *map(str, arguments)]
    with chdir(cwd or "."), redirect_stdout(out), redirect_stderr(err), mock.patch.object(sys, "argv", command):
        code = main_of_convert()
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def converted(folder: Path, name: str, state: dict, config: Path, *arguments) -> Path:
    """Converts a state dict and returns the run directory."""
    torch.save(state, folder / f"{name}.pt")
    done = convert(folder / f"{name}.pt", "--config", config, "--out", folder / name, *arguments, cwd=folder)
    assert done.returncode == 0, (name, done.stderr)
    return folder / name


def program(*arguments, cwd: Path | None = None) -> dict:
    """Runs the program with --json and returns the object that it prints."""
    command = [Path(sys.argv[1]).resolve(), *arguments, "--json", "--device", "cpu", "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
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
    command = [sys.executable, "-B", ROOT / "scripts" / "convert.py", *arguments, "--drop", "position"]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
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
                   *RENAMES)  # fmt: skip
    assert done.returncode == 0, done.stderr
    converted = peer(**fields)
    converted.load_state_dict(load_file(run / "checkpoints" / "latest" / "model.safetensors"))
    with torch.no_grad():
        inputs = images[:, :-1].long()
        logits, expected = converted(inputs), model(inputs)
    assert (logits - expected).abs().max() < 1e-5 * expected.abs().max(), (logits - expected).abs().max()
    check_run(run, converted, images, folder / "data")


def check_text_run(folder: Path, run: Path, model: TextModel, tokens: torch.Tensor) -> None:
    """Checks that all commands for text models take a converted run, in another folder than the conversion."""
    nats = model.nats(tokens)
    found = program("eval", run)["nats_per_dim"]
    assert abs(found - nats) < 1e-5 * nats, (run.name, found, nats)
    assert len(program("generate", run, "--prompt", "the", "--length", "4")["texts"][0]) > 0
    assert program("score", run, folder / "test.txt")["lines"] > 0
    steps = ("--set", "train.steps=3")  # the learning rate of the config is 0
    first = program("train", run / "config.toml", "--run-dir", folder / f"{run.name}-tuned",
                    "--set", f"model.init={run}", *steps)  # fmt: skip
    assert first["step"] == 3 and abs(first["nats_per_dim"] - nats) < 1e-5 * nats, (run.name, first, nats)
    resumed = program("train", run / "config.toml", "--run-dir", run, "--resume", *steps)
    assert resumed["step"] == 3 and abs(resumed["nats_per_dim"] - nats) < 1e-5 * nats, (run.name, resumed, nats)


def test_text(folder: Path) -> None:
    """Converts text models with each tokenizer and with each option of the model that changes its parameters."""
    lines = "the sea was calm\nand old ships went by\n"
    (folder / "train.txt").write_text(lines * 40)
    (folder / "test.txt").write_text((lines * 2)[: 5 * LENGTH + 1])
    text = (folder / "test.txt").read_bytes()
    characters = sorted(set(lines.encode()))
    numbers = torch.tensor([characters.index(byte) for byte in text])
    learned = {"positions": "axial", "axial_shape": [LENGTH], "axial_dims": [WIDTH]}
    cases = {
        "bytes": {},
        "characters": {},
        "tied": {"tied_embeddings": True},
        "tied-positions": learned | {"tied_embeddings": True},
        "positions": learned,
        "pre-gelu": {"norm": "pre", "activation": "gelu"},
        "chunks": {"feedforward_chunks": 2, "loss_chunks": 3, "recompute": True, "attention": ["softmax"]},
    }
    for name, options in cases.items():
        tokenizer = "characters" if name == "characters" else "bytes"
        vocabulary, tokens = (len(characters), numbers) if name == "characters" else (256, torch.tensor(list(text)))
        model = TextModel(vocabulary, options)
        state = model.state_dict()
        if "positions" in options:
            state["positions.0"] = state.pop("positions.weight")
        if name == "tied":  # many programs save a tied weight once
            del state["head.weight"]
        config = write_text_config(folder / f"{name}.toml", options, data={"tokenizer": tokenizer}, optimizer={"lr": 0})
        check_text_run(folder, converted(folder, name, state, config, *RENAMES), model, tokens)
    state["head.weight"] = state["head.weight"] + 1
    torch.save(state, folder / "untied.pt")
    config = write_text_config(folder / "untied.toml", {"tied_embeddings": True})
    wrong = convert(folder / "untied.pt", "--config", config, "--out", folder / "untied", *RENAMES)
    assert wrong.returncode == 2 and "value_embedding.weight and predictor.weight differ" in wrong.stderr, wrong.stderr


def test_sentencepiece(folder: Path) -> None:
    data = {"tokenizer": "sentencepiece", "vocabulary": 277}
    config = write_text_config(folder / "pieces.toml", {}, data=data)
    program("train", config, "--run-dir", folder / "pieces-trained", cwd=folder)
    state = json.loads((folder / "pieces-trained/checkpoints/latest/state.json").read_text())
    (folder / "pieces.model").write_bytes(base64.b64decode(state["task"]["model"]))
    model = TextModel(277, {})
    torch.save(model.state_dict(), folder / "pieces.pt")
    wrong = convert(folder / "pieces.pt", "--config", config, "--out", folder / "pieces", *RENAMES)
    assert wrong.returncode == 2 and "set data.sentencepiece_model" in wrong.stderr, wrong.stderr
    data["sentencepiece_model"] = "pieces.model"
    run = converted(folder, "pieces", model.state_dict(), write_text_config(config, {}, data=data), *RENAMES)
    assert program("eval", run)["tokens"] > 0
    assert program("score", run, folder / "test.txt")["lines"] > 0


def test_sinusoidal_positions(folder: Path) -> None:
    """The value embedding has model.value_dim features, and the config's data set is not a text."""
    state = TextModel(11, {}).state_dict()
    state["embed.weight"] = torch.randn(11, 10)
    config = write_text_config(folder / "copy.toml", {"positions": "sinusoidal", "value_dim": 10},
                               data={"dataset": "copy", "max_length": LENGTH})  # fmt: skip
    config.write_text(re.sub(r'\w*path = "\w+\.txt", ', "", config.read_text()))
    run = converted(folder, "copy", state, config, *RENAMES)
    assert program("eval", run, "--limit", "4")["examples"] == 4


def test_optimizers(folder: Path) -> None:
    """A converted run has no optimizer state. Each optimizer continues from it as from model.init."""
    state = TextModel(256, {}).state_dict()
    for kind in ("radam", "adam", "adamw", "sgd", "adafactor", "muon"):
        config = write_text_config(folder / f"{kind}.toml", {}, optimizer={"kind": kind, "ema": 0.5, "lr": 1e-3})
        run = converted(folder, kind, state, config, *RENAMES)
        steps = ("--set", "train.steps=4", "--run-dir")
        tuned = program("train", config, "--set", f"model.init={run}", *steps, folder / f"{kind}-tuned", cwd=folder)
        resumed = program("train", config, *steps, run, "--resume", cwd=folder)
        assert resumed["nats_per_dim"] == tuned["nats_per_dim"], (kind, resumed, tuned)


def test_attention_kinds(folder: Path) -> None:
    """Kinds whose layers have the projections of the encoder are converted, and other kinds are refused."""
    state = TextModel(256, {}).state_dict()
    help_text = subprocess.run([sys.argv[1], "--help"], capture_output=True, text=True, check=True).stdout
    known = help_text.split("Attention kinds: ")[1].split("\n\n")[0].replace("\n", " ").split(", ")
    assert set(ATTENTION_KINDS) < set(known), known
    options = {
        "lsh": {"chunk_length": 4},
        "sparse": {"stride": 4, "summary": 2},
        "axial-row": {"image_width": 4},
        "axial-column": {"image_width": 4},
        "image": {"block": 4, "memory": 4},
        "big-bird": {"block": 2, "random_blocks": 1},
        "longformer": {"window": 4},
    }
    for kind in (kind for kind in known if kind != GATED_KIND):
        config = write_text_config(folder / f"{kind}.toml", {"attention": kind}, attention=options.get(kind, {}))
        if kind in ATTENTION_KINDS:
            run = converted(folder, f"kind-{kind}", state, config, *RENAMES)
            assert program("eval", run)["nats_per_dim"] > 0
            continue
        wrong = convert(folder / "kind-softmax.pt", "--config", config, "--out", folder / "x", *RENAMES)
        assert wrong.returncode == 2 and f'model.attention is "{kind}": expected one of' in wrong.stderr, wrong.stderr


def test_attention_list(folder: Path) -> None:
    """A config that extends another one keeps the options of the kinds that it still uses."""
    base = write_text_config(folder / "several.toml", {"attention": ["local", "lsh"]},
                             attention={"local": {"window": 5}, "lsh": {"rounds": 3, "chunk_length": 4}})  # fmt: skip
    child = folder / "child.toml"
    child.write_text(f'extends = "{base.name}"\n[model]\nattention = ["lsh", "softmax"]\n[train]\nepochs = 2\n')
    state = TextModel(256, {}).state_dict()
    run = converted(folder, "several", state, child, *RENAMES)
    assert (run / "config.toml").read_text().count("rounds = 3") == 1
    assert program("eval", run)["nats_per_dim"] > 0
    child.write_text(f'extends = "{base.name}"\n[model]\nattention = "local"\n')
    run = converted(folder, "one", state, child, *RENAMES)
    assert "[attention]\nwindow = 5\n" in (run / "config.toml").read_text()
    assert program("eval", run)["nats_per_dim"] > 0


def test_mismatches(folder: Path) -> None:
    fields = {"attention": "softmax"}
    model = TorchModel(ModelConfig(**SIZES | fields), final_norm=False)
    torch.save(model.state_dict(), folder / "bare.pt")
    arguments = ("--drop", "positions", *RENAMES)
    config = write_config(folder / "bare.toml", **fields)
    wrong = convert(folder / "bare.pt", "--config", config, "--out", folder / "bare", *arguments)
    assert wrong.returncode == 2 and "no final layer norm" in wrong.stderr, wrong.stderr
    config = write_config(folder / "heads.toml", **fields | {"heads": 3})
    torch.save(TorchModel(ModelConfig(**SIZES | fields)).state_dict(), folder / "heads.pt")
    wrong = convert(folder / "heads.pt", "--config", config, "--out", folder / "bare", *arguments)
    assert wrong.returncode == 2 and "the encoder's width is 16" in wrong.stderr, wrong.stderr


def test_unknown_names_are_names_that_drop_accepts(folder: Path) -> None:
    """Each tensor of the encoder and outside of it that no parameter has is named as in the state dict."""
    state = TextModel(256, {}).state_dict()
    layer = "transformer.layers.1."
    extra = [f"{layer}self_attn.bias_k", f"{layer}self_attn.out_proj.scale", f"{layer}norm3.weight", "transformer.norm.scale",
             "embed.scale", "extra"]  # fmt: skip
    torch.save(state | {name: torch.ones(WIDTH) for name in extra}, folder / "extra.pt")
    arguments = (folder / "extra.pt", "--config", write_text_config(folder / "extra.toml", {}), "--out", folder / "extra", *RENAMES)
    wrong = convert(*arguments)
    named = re.findall(r"unknown \(see ([^)]*)\): (.*)", wrong.stderr)
    assert named == [("--drop", ", ".join(extra[:4])), ("--rename and --drop", ", ".join(extra[4:]))], wrong.stderr
    drops = (word for _, names in named for name in names.split(", ") for word in ("--drop", name))
    done = convert(*arguments, *drops)
    assert done.returncode == 0, done.stderr


def test_errors(folder: Path) -> None:
    """An error is one line on standard error with exit status 2, and no file is written."""
    state = TextModel(256, {}).state_dict()
    wide = {name: value.double() for name, value in state.items()}
    bias = "transformer.layers.1.linear2.bias"
    states = {
        "good": state,
        "none": {"x": torch.zeros(1)},
        "list": [torch.zeros(1)],
        "nan": state | {bias: torch.full((WIDTH,), torch.nan)},
        "overflow": wide | {"embed.weight": wide["embed.weight"] * 1e300},
        "scalar": state | {"embed.weight": torch.tensor(1.0)},
        "query": state | {"transformer.layers.0.self_attn.in_proj_weight": torch.tensor(1.0)},
        "shape": state | {"transformer.layers.0.self_attn.in_proj_weight": torch.zeros(7, WIDTH)},
        "vocabulary": state | {"head.bias": torch.zeros(255)},
        "twice": state | {"predictor.bias": torch.zeros(256)},
        "sparse": state | {bias: torch.zeros(WIDTH).to_sparse()},
        "module": nn.Linear(2, 2),
    }
    for name, value in states.items():
        torch.save(value, folder / f"{name}.pt")
    whole = (folder / "good.pt").read_bytes()
    (folder / "cut.pt").write_bytes(whole[: len(whole) // 2])
    for name in ("text.pt", "text.safetensors"):
        (folder / name).write_text("not a file of tensors\n" * 9)
    for name in ("empty.pt", "empty.safetensors"):
        (folder / name).write_bytes(b"")
    config = write_text_config(folder / "good.toml", {})
    for name, text in CONFIGS.items():
        (folder / name).write_bytes(text)
    cases = [("good.pt", name, expected) for name, expected in CONFIG_ERRORS.items()]
    cases += [(name, config.name, expected) for name, expected in STATE_ERRORS.items()]
    for name, config_name, expected in cases:
        wrong = convert(folder / name, "--config", folder / config_name, "--out", folder / "new", *RENAMES)
        lines = wrong.stderr.splitlines()
        assert wrong.returncode == 2 and len(lines) == 1 and expected in lines[0], (name, config_name, wrong.stderr)
        assert lines[0].startswith("convert.py: ") and not (folder / "new").exists(), wrong.stderr
    (folder / "file").write_text("")
    wrong = convert(folder / "good.pt", "--config", config, "--out", folder / "file", *RENAMES)
    assert wrong.returncode == 2 and len(wrong.stderr.splitlines()) == 1, wrong.stderr


STATE_ERRORS = {
    "missing.pt": "missing.pt: No such file or directory",
    "none.pt": "has no encoder",
    "list.pt": "list.pt: expected a state dict, found an object of type list",
    "nan.pt": f"layers.1.linear2.bias has {WIDTH} non-finite elements of {WIDTH}",
    "overflow.pt": f"embed.weight has {256 * WIDTH} non-finite elements of {256 * WIDTH}",
    "scalar.pt": "embed.weight: expected the shape (256, 16), found ()",
    "query.pt": "in_proj_weight: expected the rows of query, key and value, found the shape ()",
    "shape.pt": "in_proj_weight: expected the rows of query, key and value, found the shape (7, 16)",
    "vocabulary.pt": "head.bias: expected the shape (256,), found (255,)",
    "twice.pt": "another tensor has the name predictor.bias, too",
    "sparse.pt": "expected a dense tensor of real numbers",
    "module.pt": "module.pt: torch cannot read it as a file of tensors: ",
    "cut.pt": "cut.pt: torch cannot read it as a file of tensors: ",
    "text.pt": "text.pt: torch cannot read it as a file of tensors: ",
    "text.safetensors": "text.safetensors: safetensors cannot read it as a file of tensors: ",
    "empty.pt": "empty.pt: torch cannot read it as a file of tensors: ",
    "empty.safetensors": "empty.safetensors: safetensors cannot read it as a file of tensors: ",
}
CONFIGS = {
    "latin.toml": b'[run]\nname = "caf\xe9"\n',
    "syntax.toml": b"[model\n",
    "utf16.toml": '[run]\nname = "x"\n'.encode("utf-16"),
    "utf16-le.toml": '[run]\nname = "x"\n'.encode("utf-16-le"),
    "binary.toml": bytes(range(256)),
    "nested.toml": b"x = " + b"[" * 5000,
    "dotted.toml": b'extends = "good.toml"\n[run]\na' + b".a" * 1500 + b" = 1\n",
    "digits.toml": b"[model]\nlayers = " + b"1" * 5000,
    "path.toml": b'extends = "a\\u0000b"\n',
    "axes.toml": b'[model]\npositions = "axial"\naxial_shape = ["x"]\naxial_dims = [-1]\nlayers = 2\n',
    "layers.toml": b"[model]\nlayers = 1000000\n",
    "cycle.toml": b'extends = "cycle.toml"\n',
    "outside.toml": b"layers = 3\n",
    "words.toml": b'[model]\nlayers = "two"\n',
    "huge.toml": b"[model]\nlayers = 9223372036854775807\n",
    "reversible.toml": b"[model]\nreversible = true\n",
    "speech.toml": b'[model]\ntype = "speech"\n',
    "set.toml": b'[model]\ntype = "set"\n',
    "classification.toml": b'[model]\ntype = "classification"\n',
}
CONFIG_ERRORS = {
    "missing.toml": "missing.toml: No such file or directory",
    "latin.toml": "latin.toml: ",
    "syntax.toml": "syntax.toml: ",
    "utf16.toml": "utf16.toml: expected a TOML file in UTF-8, found UTF-16",
    "utf16-le.toml": "utf16-le.toml: expected a TOML file in UTF-8, found UTF-16",
    "binary.toml": "binary.toml: expected a TOML file in UTF-8",
    "nested.toml": "nested.toml: tables or lists are nested too deeply",
    "dotted.toml": "dotted.toml: tables or lists are nested too deeply",
    "digits.toml": "digits.toml: ",
    "path.toml": "a\\x00b: embedded null byte",
    "axes.toml": 'model.axial_shape[0]: expected a value such as 1, got "x"',
    "layers.toml": "the encoder has 2 layers, and model.layers is 1000000",
    "cycle.toml": "cycle.toml: extends itself",
    "outside.toml": "outside.toml: layers: expected a table",
    "words.toml": 'model.layers: expected a value such as 8, got "two"',
    "huge.toml": "model.layers: expected an integer from 1 to 1048576, got 9223372036854775807",
    "reversible.toml": "model.reversible is true: expected false",
    "speech.toml": 'model.type is "speech": expected "image" or "sequence"',
    "set.toml": 'model.type is "set": expected "image" or "sequence"',
    "classification.toml": 'model.type is "classification": expected "image" or "sequence"',
}


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data").mkdir()
        images = write_images(folder / "data" / "mnist", 8)
        test_fast_transformers(folder, images)
        test_torch(folder, images, "post", "relu")
        test_torch(folder, images, "pre", "gelu")
        test_mismatches(folder)
        for test in (test_text, test_sentencepiece, test_sinusoidal_positions, test_optimizers, test_attention_kinds,
                     test_attention_list, test_unknown_names_are_names_that_drop_accepts, test_errors):  # fmt: skip
            test(folder)
    print("all conversions agree")


if __name__ == "__main__":
    main()
