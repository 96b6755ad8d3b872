"""Writes golden files to this folder: float64 values and gradients of PyTorch, with which C++ tests compare their results.

README.md lists the files and their keys. Run this script with the Python of tests/bench/peers/setup.sh. The repository
contains the files, so the script is only needed to add cases.
"""

import sys
from pathlib import Path
from unittest import mock

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "bench" / "peers"))

from model import (  # noqa: E402
    MIN_LOG_SCALE,
    TINY_CDF,
    ImageModel,
    ModelConfig,
    mixture_of_logistics_loss,
    mixture_of_logistics_nll,
    sinusoidal_positions,
)
from radam import RAdam, clip_per_tensor  # noqa: E402

OPTIMIZER_STEPS = 12
TRAINING_STEPS = 8


def write(name: str, tensors: dict[str, Tensor]) -> None:
    tensors = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
    for key, value in tensors.items():
        if value.is_floating_point():
            assert value.dtype == torch.float64 and value.isfinite().all(), key
    path = FOLDER / f"{name}.safetensors"
    save_file(tensors, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


def mixture_branches(parameters: Tensor, y: Tensor) -> Tensor:
    """Returns the branch of each component (n, K): 0 low edge, 1 high edge, 2 difference of sigmoids, 3 density."""
    _, means, log_scales = parameters.chunk(3, -1)
    inverse = torch.exp(-log_scales.clamp(min=MIN_LOG_SCALE))
    centered = y.unsqueeze(-1) - means
    delta = torch.sigmoid(inverse * (centered + 1 / 255)) - torch.sigmoid(inverse * (centered - 1 / 255))
    assert ((delta / TINY_CDF - 1).abs() > 1e-2).all(), "too close to a change of the formula"
    assert ((log_scales - MIN_LOG_SCALE).abs() > 1e-2).all(), "too close to the clamp"
    inside = torch.where(delta > TINY_CDF, 2, 3)
    low, high = (y < -0.999).unsqueeze(-1), (y > 0.999).unsqueeze(-1)
    return torch.where(low, 0, torch.where(high, 1, inside)).to(torch.int32)


def mixture_case(parameters: Tensor, values: Tensor) -> dict[str, Tensor]:
    """Returns the tensors of a group of mixture.safetensors for parameters (n, 3 K) and bytes `values` (n,)."""
    parameters = parameters.clone().requires_grad_()
    y = values.double() / 255 * 2 - 1
    nll = mixture_of_logistics_nll(parameters, y)
    cotangent = torch.randn_like(nll)
    (weighted,) = torch.autograd.grad(nll, parameters, cotangent)
    loss = mixture_of_logistics_loss(parameters, y)
    (mean,) = torch.autograd.grad(loss, parameters)
    return {
        "parameters": parameters,
        "values": values,
        "nll": nll,
        "loss": loss.reshape(1),
        "branch": mixture_branches(parameters, y),
        "clamped": (parameters.chunk(3, -1)[2] < MIN_LOG_SCALE).to(torch.uint8),
        "cotangent": cotangent,
        "gradient": weighted,
        "gradient_of_loss": mean,
    }


def mixture() -> None:
    """Writes mixture.safetensors: rows for each branch with 3 components, and random rows with 10 and with 1 component."""
    rows = [  # each row: a byte, and the logits, means and log-scales of three components
        (128, (0.3, -0.2, 0.1), (0.1, -0.4, 0.6), (-1.0, -2.0, -0.5)),  # ordinary values
        (77, (1.0, 0.0, -1.0), (-0.4, -0.39, 0.2), (-3.0, -4.5, -1.5)),
        (0, (0.5, 0.2, -0.7), (-0.9, 0.3, -1.4), (-2.0, -1.0, -3.0)),  # lowest byte; means near, far and outside
        (0, (0.0, 0.0, 0.0), (0.9, 1.5, 0.5), (-5.0, -6.5, -8.0)),  # lowest byte in the far tail; one log-scale is clamped
        (255, (0.1, 0.4, -0.3), (0.9, -0.3, 1.4), (-2.0, -1.0, -3.0)),  # highest byte; means near, far and outside
        (255, (0.0, 0.5, 0.0), (-0.9, -1.5, -0.5), (-5.0, -6.5, -8.0)),
        (1, (0.2, 0.1, 0.0), (-1.0, -0.99, 0.0), (-3.0, -5.0, -2.0)),  # second lowest byte
        (254, (0.2, 0.1, 0.0), (1.0, 0.99, 0.0), (-3.0, -5.0, -2.0)),
        (60, (0.0, 0.3, 0.6), (0.5, -1.0, 1.2), (-4.0, -4.0, -5.0)),  # tiny differences in the far tail
        (200, (0.0, -0.3, 0.6), (0.57, 0.2, -0.8), (-3.0, -3.8, -4.2)),  # one component near, others with tiny differences
        (90, (0.4, 0.0, -0.4), (-0.294, -0.29, -0.3), (-8.0, -7.5, -20.0)),  # clamped log-scales, means near the byte
        (90, (0.4, 0.0, -0.4), (0.3, -0.2, -0.35), (-8.0, -9.0, -7.5)),  # clamped log-scales and tiny differences
        (140, (0.0, 1.0, 2.0), (0.1, 0.0, -0.1), (6.0, 12.0, 3.0)),  # large scales and tiny differences
        (140, (40.0, -40.0, 0.0), (0.1, 0.0, -0.1), (-2.0, -3.0, -1.0)),  # one component has all the weight
    ]
    values = torch.tensor([row[0] for row in rows], dtype=torch.uint8)
    parameters = torch.tensor([sum(row[1:], ()) for row in rows], dtype=torch.float64)
    made = mixture_case(parameters, values)
    assert set(made["branch"].unique().tolist()) == {0, 1, 2, 3} and made["clamped"].any()

    values = torch.randint(0, 256, (12,), dtype=torch.uint8)
    parameters = torch.randn(12, 30, dtype=torch.float64)
    parameters[:, 20:] -= 2
    random = mixture_case(parameters, values)
    single = mixture_case(parameters[:6, [0, 10, 20]], values[:6])
    cases = {"made": made, "random": random, "single": single}
    write("mixture", {f"{case}.{key}": value for case, tensors in cases.items() for key, value in tensors.items()})


def trajectory(
    make_optimizer, start: list[Tensor], gradients: list[Tensor], clip: float = 0.0, clip_value: float = 0.0
) -> list[Tensor]:
    """Returns each parameter (steps + 1, ...) before the first step and after each step with the gradients (steps, ...)."""
    parameters = [p.clone().requires_grad_() for p in start]
    optimizer = make_optimizer(parameters)
    history = [[p.detach().clone()] for p in parameters]
    for step in range(OPTIMIZER_STEPS):
        for p, g in zip(parameters, gradients):
            p.grad = g[step].clone()
        if clip:
            clip_per_tensor(parameters, clip)
        if clip_value:
            torch.nn.utils.clip_grad_value_(parameters, clip_value)
        optimizer.step()
        for p, past in zip(parameters, history):
            past.append(p.detach().clone())
    return [torch.stack(past) for past in history]


class Muon:
    """torch.optim.Muon for the first parameter, a matrix, in float64 throughout, and AdamW for the second."""

    def __init__(self, parameters: list[Tensor], **options: float) -> None:
        matrix, vector = parameters
        self.parts = (
            torch.optim.Muon([matrix], adjust_lr_fn="match_rms_adamw", **options),
            torch.optim.AdamW([vector], lr=options["lr"], weight_decay=options["weight_decay"]),
        )

    def step(self) -> None:
        with mock.patch.object(torch, "bfloat16", torch.float64):
            for part in self.parts:
                part.step()


def optimizers() -> None:
    """Writes twelve steps of each optimizer for a matrix and a vector. Some gradient norms are below 1 and some above."""
    start = [torch.randn(3, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)]
    scale = torch.tensor([0.05, 3.0, 0.4, 1.0, 0.01, 8.0, 0.2, 0.6, 2.0, 0.1, 0.3, 1.5], dtype=torch.float64)
    gradients = [torch.randn(OPTIMIZER_STEPS, *p.shape, dtype=torch.float64) for p in start]
    gradients = [g * scale.reshape(-1, *[1] * (g.dim() - 1)) for g in gradients]
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients])
    assert (norms > 1).any(1).all() and (norms < 1).any(1).all()

    optim = torch.optim
    runs = {
        "radam": (lambda p: RAdam(p, lr=1e-2), 0.0),
        "radam_decay_clip": (lambda p: RAdam(p, lr=1e-2, weight_decay=0.01), 1.0),
        "adam": (lambda p: optim.Adam(p, lr=1e-2), 0.0),
        "adam_l2": (lambda p: optim.Adam(p, lr=1e-2, weight_decay=0.01), 0.0),
        "adamw": (lambda p: optim.AdamW(p, lr=1e-2, weight_decay=0.01), 0.0),
        "sgd": (lambda p: optim.SGD(p, lr=1e-2, momentum=0.9), 0.0),
        "sgd_l2": (lambda p: optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.01), 0.0),
        "adam_value": (lambda p: optim.Adam(p, lr=1e-2), 0.0, 0.5),
        "adafactor": (lambda p: optim.Adafactor(p, lr=1e-2), 0.0),
        "adafactor_decay_clip": (lambda p: optim.Adafactor(p, lr=1e-2, weight_decay=0.01), 1.0),
        "muon": (lambda p: Muon(p, lr=1e-2, weight_decay=0.0), 0.0),
        "muon_decay_clip": (lambda p: Muon(p, lr=1e-2, weight_decay=0.1, momentum=0.8, ns_steps=3), 1.0),
        "adafactor_relative": (lambda p: optim.Adafactor(p, lr=0.5, beta2_decay=-0.6, d=1.5), 0.0),
    }
    tensors = {"gradient.matrix": gradients[0], "gradient.vector": gradients[1]}
    for name, (make, *clip) in runs.items():
        tensors[f"{name}.matrix"], tensors[f"{name}.vector"] = trajectory(make, start, gradients, *clip)
    write("optimizers", tensors)


def tiny_model(**fields) -> ImageModel:
    shape = dict(layers=2, heads=2, head_dim=8, feedforward=32, mixtures=3, max_length=11, form="quadratic")
    return ImageModel(ModelConfig(**(shape | fields))).double()


def model() -> None:
    """Writes the weights of a model with two layers, the losses and gradients of three models with them, and positions."""
    first = tiny_model()
    with torch.no_grad():
        for name, parameter in first.named_parameters():
            if "norm" in name:  # ones and zeros would hide errors
                parameter += 0.2 * torch.randn_like(parameter)
    weights = first.state_dict()
    write("model_weights", weights)

    images = torch.randint(0, 256, (2, 12), dtype=torch.uint8)
    images[0, 3], images[1, 5] = 0, 255  # both edges of the loss
    variants = {
        "linear": {},
        "softmax": {"attention": "softmax"},
        "linear_pre_gelu": {"norm": "pre", "activation": "gelu"},
    }
    for name, fields in variants.items():
        variant = tiny_model(**fields)
        variant.load_state_dict(weights)
        output = variant(images[:, :-1].long())
        loss = variant.loss(images)
        loss.backward()
        tensors = {"images": images, "output": output, "loss": loss.reshape(1)}
        tensors |= {f"gradient.{key}": p.grad for key, p in variant.named_parameters()}
        if fields.get("attention") != "softmax":
            chunked = tiny_model(**fields | {"form": "chunked", "chunk": 4})
            chunked.load_state_dict(weights)
            assert (chunked(images[:, :-1].long()) - output).abs().max() < 1e-12
        tensors["losses"] = training_losses(variant, images)
        write(f"model_{name}", tensors)
    write(
        "positions",
        {"width_8": sinusoidal_positions(11, 8), "width_128": sinusoidal_positions(784, 128)[[0, 1, 2, 100, 783]]},
    )


def training_losses(variant: ImageModel, images: Tensor) -> Tensor:
    """Trains a model with RAdam on one batch, and returns the loss before each of the first steps."""
    optimizer = RAdam(variant.parameters(), lr=1e-2, weight_decay=0.01)
    losses = []
    for _ in range(TRAINING_STEPS):
        optimizer.zero_grad()
        loss = variant.loss(images)
        loss.backward()
        clip_per_tensor(optimizer.parameters, 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def sample(function, *inputs: Tensor) -> dict[str, Tensor]:
    """Returns the inputs x0, x1, ..., the output y, a random cotangent gy and the gradients gx0, gx1, ... of the inputs."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = function(*inputs)
    cotangent = torch.randn_like(y)
    gradients = torch.autograd.grad(y, inputs, cotangent)
    result = {"y": y, "gy": cotangent}
    for i, (x, g) in enumerate(zip(inputs, gradients)):
        result |= {f"x{i}": x, f"gx{i}": g}
    return result


def functions() -> None:
    """Writes functions.safetensors."""
    line = torch.cat((torch.linspace(-6, 6, 24, dtype=torch.float64), torch.tensor([-30.0, 30.0], dtype=torch.float64)))
    rows = torch.randn(4, 7, dtype=torch.float64) * 2
    weight, bias = torch.randn(2, 7, dtype=torch.float64)
    far = torch.cat((rows, rows[:1] + 1000, rows[:1] - 1000))  # exp() overflows unless the maximum is subtracted
    labels = torch.tensor([0, 6, 3, 3, 1, 2])
    cases = {
        "gelu_erf": sample(F.gelu, line),
        "gelu_tanh": sample(lambda x: F.gelu(x, approximate="tanh"), line),
        "layer_norm": sample(lambda x, w, b: F.layer_norm(x, (7,), w, b, 1e-5), rows, weight, bias),
        "logsumexp": sample(lambda x: x.logsumexp(-1), far),
        "cross_entropy": sample(lambda x: F.cross_entropy(x, labels, reduction="none"), far),
        "cross_entropy_mean": sample(lambda x: F.cross_entropy(x, labels).reshape(1), far),
        "mse_loss": sample(lambda x, y: F.mse_loss(x, y).reshape(1), rows, rows.flip(0)),
        "bce_with_logits": sample(
            lambda x, y: F.binary_cross_entropy_with_logits(x, y).reshape(1), line, torch.rand(26, dtype=torch.float64)
        ),
        "cross_entropy_smooth": sample(lambda x: F.cross_entropy(x, labels, label_smoothing=0.2).reshape(1), far),
        "cross_entropy_z": sample(
            lambda x: (F.cross_entropy(x, labels) + 0.1 * x.logsumexp(-1).square().mean()).reshape(1), rows.repeat(2, 1)[:6]
        ),
    }
    for case in ("cross_entropy", "cross_entropy_mean", "cross_entropy_smooth", "cross_entropy_z"):
        cases[case]["labels"] = labels
    write("functions", {f"{case}.{key}": value for case, tensors in cases.items() for key, value in tensors.items()})


def main() -> None:
    torch.set_num_threads(1)
    for topic in (mixture, optimizers, model, functions):
        torch.manual_seed(7)
        topic()


if __name__ == "__main__":
    main()
