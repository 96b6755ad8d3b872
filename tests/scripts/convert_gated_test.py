"""Tests of scripts/convert.py for the kind "gated-delta".

Usage: convert_gated_test.py PROGRAM. Exits with 77, which ctest reports as skipped, where PyTorch is not installed. Where
transformers is installed, its layer Qwen3NextGatedDeltaNet is converted too.
"""

import json
import sys
import tempfile
from pathlib import Path

from convert_test import (
    LENGTH,
    RENAMES,
    WIDTH,
    TextModel,
    check_text_run,
    convert,
    converted,
    write_text_config,
)  # exits if PyTorch is not installed

import torch
import torch.nn.functional as F
from torch import nn

HEADS, DIM, KERNEL = 2, WIDTH // 2, 4


class GatedDeltaNet(nn.Module):
    """The function of the layer GatedDeltaNet of flash-linear-attention, which needs a GPU, with its names."""

    def __init__(self, conv: bool, gate: bool, beta_range: float):
        super().__init__()
        self.beta_range = beta_range
        for part in "qkvo" + "g" * gate:
            setattr(self, f"{part}_proj", nn.Linear(WIDTH, WIDTH, bias=False))
        for part in "qkv" if conv else "":
            setattr(self, f"{part}_conv1d", nn.Conv1d(WIDTH, WIDTH, KERNEL, groups=WIDTH, bias=False))
        self.a_proj, self.b_proj = (nn.Linear(WIDTH, HEADS, bias=False) for _ in range(2))
        self.A_log, self.dt_bias = (nn.Parameter(torch.zeros(HEADS)) for _ in range(2))
        self.o_norm = nn.RMSNorm(DIM, 1e-5)

    def projected(self, x: torch.Tensor, part: str) -> torch.Tensor:
        y = getattr(self, f"{part}_proj")(x)
        if hasattr(self, f"{part}_conv1d"):
            y = getattr(self, f"{part}_conv1d")(F.pad(y.mT, (KERNEL - 1, 0))).mT
        return F.silu(y).unflatten(-1, (HEADS, DIM))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.projected(x, part) for part in "qkv")
        q, k = (y * torch.rsqrt((y * y).sum(-1, keepdim=True) + 1e-6) for y in (q, k))
        decay = torch.exp(-self.A_log.exp() * F.softplus(self.a_proj(x) + self.dt_bias))[..., None, None]
        beta = self.beta_range * torch.sigmoid(self.b_proj(x))[..., None]
        state, out = torch.zeros(x.shape[0], HEADS, DIM, DIM), []
        for t in range(x.shape[1]):
            state = state * decay[:, t]
            written = beta[:, t] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
            state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], written)
            out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t] / DIM**0.5))
        y = self.o_norm(torch.stack(out, 1)).flatten(2)
        return self.o_proj(y * F.silu(self.g_proj(x)) if hasattr(self, "g_proj") else y)


def qwen_layer() -> nn.Module | None:
    """Returns Qwen3NextGatedDeltaNet with the eps of the program's norm, or None if transformers is not installed."""
    try:
        from transformers import Qwen3NextConfig
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet
    except ImportError as error:
        print(f"without transformers: {error}")
        return None
    config = Qwen3NextConfig(
        hidden_size=WIDTH, linear_num_key_heads=HEADS, linear_num_value_heads=HEADS, linear_key_head_dim=DIM,
        linear_value_head_dim=DIM, linear_conv_kernel_dim=KERNEL, rms_norm_eps=1e-5, num_hidden_layers=1,
        layer_types=["linear_attention"],
    )  # fmt: skip
    return Qwen3NextGatedDeltaNet(config, 0)


class Layer(nn.Module):
    """A pre-norm layer whose attention is the module `name`."""

    def __init__(self, name: str, attention: nn.Module):
        super().__init__()
        self.name = name
        setattr(self, name, attention)
        self.linear1, self.linear2 = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + getattr(self, self.name)(self.norm1(x))
        return x + self.linear2(F.relu(self.linear1(self.norm2(x))))


class GatedModel(TextModel):
    """A language model whose layers are `layers` instead of those of torch.nn.TransformerEncoder."""

    def __init__(self, layers: list[nn.Module]):
        super().__init__(256, {})
        self.transformer = nn.Module()
        self.transformer.layers, self.transformer.norm = nn.ModuleList(layers), nn.LayerNorm(WIDTH)
        for name, parameter in self.transformer.named_parameters():
            nn.init.normal_(parameter, std=0.3 if "linear" in name else 1)
        self.eval()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.transformer.layers:
            causal = isinstance(layer, nn.TransformerEncoderLayer)
            mask = {"src_mask": nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])} if causal else {}
            x = layer(x, **mask)
        return self.head(self.transformer.norm(x))


def softmax_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, HEADS, 32, 0.0, batch_first=True, norm_first=True)


def gated_layers(name: str, conv: bool = True, gate: bool = True, beta_range: float = 1) -> list[nn.Module]:
    return [Layer(name, GatedDeltaNet(conv, gate, beta_range)) for _ in range(2)]


def test_layers(folder: Path) -> None:
    """Converts each form of the layer. The program then computes the loss of the model in PyTorch."""
    text = "the sea was calm\nand old ships went by\n" * 40
    (folder / "train.txt").write_text(text)
    (folder / "test.txt").write_text(text[: 5 * LENGTH + 1])
    tokens = torch.tensor(list((folder / "test.txt").read_bytes()))
    hybrid = {"attention": ["gated-delta", "softmax"]}
    cases = {
        "fla": (gated_layers("attn"), {}, {}),
        "plain": (gated_layers("attention", conv=False, gate=False), {}, {"conv": 0, "output_gate": "none"}),
        "negative": (gated_layers("self_attn", beta_range=2), {}, {"negative_eigenvalues": True}),
        "hybrid": ([gated_layers("attn")[0], softmax_layer()], hybrid, {"gated-delta": {"conv": 4}}),
    }
    if qwen_layer():
        cases["qwen"] = ([Layer("linear_attn", qwen_layer()) for _ in range(2)], {}, {})
    for name, (layers, options, kind_options) in cases.items():
        model = GatedModel(layers)
        config = write_text_config(folder / f"{name}.toml", {"attention": "gated-delta", "norm": "pre"} | options,
                                   optimizer={"lr": 0}, attention=kind_options)  # fmt: skip
        check_text_run(folder, converted(folder, name, model.state_dict(), config, *RENAMES), model, tokens)


def test_errors(folder: Path) -> None:
    state = GatedModel(gated_layers("attn")).state_dict()
    path = "transformer.layers.1.attn."
    bias = {f"{path}q_conv1d.bias": torch.zeros(WIDTH)}
    packed = {f"{path}in_proj_ba.weight": torch.zeros(3, WIDTH)}
    heads = {f"{path}{part}_proj.weight": torch.zeros(WIDTH // 2, WIDTH) for part in "qk"}  # half as many key heads
    packed_heads = {f"{path}in_proj_qkvz.weight": torch.zeros(3 * WIDTH, WIDTH)}
    more = {f"{path}{name}": torch.zeros(2 * HEADS) for name in ("A_log", "dt_bias")}
    more |= {f"{path}{part}_proj.weight": torch.zeros(2 * HEADS, WIDTH) for part in "ab"}
    more[f"{path}o_norm.weight"] = torch.ones(DIM // 2)
    conv = ", ".join(f"transformer.layers.0.attn.{part}_conv1d.weight" for part in "qkv")
    cases = {
        "options": (state, {"decay": "channel"}, 'attention.decay is "channel": expected only the options conv'),
        "preset": (state, {"preset": "kda"}, 'attention.preset is "kda": expected only the options conv'),
        "kernel": (state, {"conv": 3}, f"{conv}: expected the shape (48, 3), found (48, 4)"),
        "gate": (state, {"output_gate": "none"}, "unknown (see --drop): transformer.layers.0.attn.g_proj.weight, "),
        "bias": (state | bias, {}, f"unknown (see --drop): {path}q_conv1d.bias"),
        "packed": (state | packed, {}, f"{path}in_proj_ba.weight: expected 2 parts with the rows of 2 heads, found (3, 16)"),
        "heads": (state | heads, {}, f"{path}q_proj.weight has 8 rows, and 2 value heads of 8 need 16: key and value heads"),
        "packed heads": (state | packed_heads, {}, f"{path}in_proj_qkvz.weight has 48 rows, and 2 value heads of 8 need 64"),
        "more heads": (state | more, {}, f"{path}a_proj.weight: the layer has 4 heads, and model.heads is 2"),
    }
    for name, (tensors, options, expected) in cases.items():
        torch.save(tensors, folder / f"wrong-{name}.pt")
        config = write_text_config(folder / f"wrong-{name}.toml", {"attention": "gated-delta", "norm": "pre"},
                                   attention=options)  # fmt: skip
        wrong = convert(folder / f"wrong-{name}.pt", "--config", config, "--out", folder / "new", *RENAMES)
        assert wrong.returncode == 2 and expected in wrong.stderr, (name, wrong.stderr)
        assert not (folder / "new").exists(), json.dumps(options)
    torch.save(GatedModel([softmax_layer(), softmax_layer()]).state_dict(), folder / "softmax.pt")
    config = write_text_config(folder / "softmax.toml", {"norm": "pre"}, attention={"conv": 4})
    wrong = convert(folder / "softmax.pt", "--config", config, "--out", folder / "new", *RENAMES)
    assert wrong.returncode == 2 and 'attention.conv: expected 0 for the kind "softmax"' in wrong.stderr, wrong.stderr


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        test_errors(Path(name))
        test_layers(Path(name))
    print("all conversions agree")


if __name__ == "__main__":
    main()
