"""make_gated_golden.py FLA MAMBA: writes gated.safetensors, results and gradients of public implementations of linear
attention with decays and the delta rule, in float64.

FLA is the wheel of fla-core 0.6.0 and MAMBA the source archive of mamba-ssm 2.3.2.post1. Neither package is installed:
  pip download --no-deps fla-core==0.6.0
  pip download --no-deps --no-binary :all: --no-build-isolation mamba-ssm==2.3.2.post1
The script loads single files of them, which need only torch and einops, and computes in float64 where they name float32.
README.md lists the keys.
"""

import re
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

BATCH, LENGTH, HEADS, DIM, VALUE_DIM = 2, 37, 2, 5, 6


def load(source: str, name: str) -> Callable:
    """Returns a function of a source file, in float64."""
    source = re.sub(r"^from mamba_ssm.*$", "", source, flags=re.MULTILINE)
    source = re.sub(r"torch\.float(32)?\b", "torch.float64", source).replace(".float()", ".double()")
    names: dict = {}
    exec(compile(source, name, "exec"), names)
    return names[name]


def read_fla(wheel: str, op: str) -> str:
    with zipfile.ZipFile(wheel) as files:
        return files.read(f"fla/ops/{op}/naive.py").decode()


def read_mamba(archive: str) -> str:
    with tarfile.open(archive) as files:
        (member,) = (m for m in files.getmembers() if m.name.endswith("mamba_ssm/modules/ssd_minimal.py"))
        return files.extractfile(member).read().decode()


def heads_first(x: Tensor) -> Tensor:
    """Swaps the dimensions of length and heads."""
    return x.transpose(1, 2)


def delta_rule(function: Callable) -> Callable:
    def attend(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, initial_state: Tensor) -> tuple[Tensor, Tensor]:
        out, state = function(*(heads_first(x) for x in (q, k, v, beta)), initial_state)
        return heads_first(out), state

    return attend


def ssd(function: Callable) -> Callable:
    """Pads the sequences with tokens that change nothing, because the function needs blocks of equal length."""
    block = 8

    def attend(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, initial_state: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (F.pad(x, (0, 0, 0, 0, 0, -LENGTH % block)) for x in (q, k, v))
        log_decay = F.pad(log_decay, (0, 0, 0, -LENGTH % block))
        out, state = function(v, log_decay, k, q, block, initial_state.mT.unsqueeze(1))
        return out[:, :LENGTH], state.mT

    return attend


def record(attend: Callable, inputs: dict[str, Tensor], cotangents: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    """Returns the results of attend(**inputs), and the gradients of the inputs."""
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in inputs.items()}
    results = dict(zip(("out", "final_state"), attend(**leaves)))
    gradients = torch.autograd.grad(list(results.values()), list(leaves.values()), cotangents[: len(results)])
    return results | {f"gradient.{name}": gradient for name, gradient in zip(leaves, gradients)}


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: make_gated_golden.py FLA MAMBA")
    fla, mamba = sys.argv[1:]
    torch.manual_seed(17)
    torch.set_default_dtype(torch.float64)
    tokens = (BATCH, LENGTH, HEADS)
    inputs = {
        "q": torch.randn(*tokens, DIM),
        "k": F.normalize(torch.randn(*tokens, DIM), dim=-1),
        "v": torch.randn(*tokens, VALUE_DIM),
        "log_decay": -F.softplus(2 * torch.randn(*tokens) - 2),
        "channel_log_decay": -F.softplus(2 * torch.randn(*tokens, DIM) - 2),
        "beta": 2 * torch.rand(*tokens),
        "initial_state": torch.randn(BATCH, HEADS, DIM, VALUE_DIM),
    }
    cotangents = {
        "cotangent": torch.randn(*tokens, VALUE_DIM),
        "cotangent_state": torch.randn(BATCH, HEADS, DIM, VALUE_DIM),
    }
    recurrent_delta = load(read_fla(fla, "gated_delta_rule"), "naive_recurrent_gated_delta_rule")
    kda = load(read_fla(fla, "kda"), "naive_recurrent_kda")
    gla = load(read_fla(fla, "gla"), "naive_recurrent_gla")
    simple_gla = load(read_fla(fla, "simple_gla"), "naive_recurrent_simple_gla")
    retention = load(read_fla(fla, "retention"), "naive_retention")
    delta = load(read_fla(fla, "delta_rule"), "delta_rule_recurrence")
    common = {"output_final_state": True}
    cases = {
        "gated_delta_rule": (lambda log_decay, **x: recurrent_delta(g=log_decay, **x, **common), "log_decay beta"),
        "kda": (lambda channel_log_decay, **x: kda(g=channel_log_decay, **x, **common), "channel_log_decay beta"),
        "gla": (lambda channel_log_decay, **x: gla(gk=channel_log_decay, **x, **common), "channel_log_decay"),
        "simple_gla": (lambda log_decay, **x: simple_gla(g=log_decay, **x, **common), "log_decay"),
        "delta_rule": (delta_rule(delta), "beta"),
        "ssd": (ssd(load(read_mamba(mamba), "ssd_minimal_discrete")), "log_decay"),
    }
    tensors = inputs | cotangents
    results = {}
    for case, (attend, names) in cases.items():
        chosen = {name: inputs[name] for name in ["q", "k", "v", *names.split(), "initial_state"]}
        results[case] = record(attend, chosen, tuple(cotangents.values()))
    results["retention"] = record(
        lambda **x: (heads_first(retention(*(heads_first(y) for y in x.values()))),),
        {name: inputs[name] for name in "qkv"}, tuple(cotangents.values()),
    )  # fmt: skip
    for case, values in results.items():
        tensors |= {f"{case}.{key}": value for key, value in values.items()}
    path = Path(__file__).resolve().parent / "gated.safetensors"
    save_file({key: value.detach().clone().contiguous() for key, value in tensors.items()}, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
