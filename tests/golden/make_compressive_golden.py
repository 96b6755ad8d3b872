"""Writes compressive.safetensors: a layer of a Compressive Transformer over five segments, in PyTorch and float64.

The program follows algorithms 1 and 2 of Rae et al. (2020): the memories are concatenated with the segment, the oldest
inputs are compressed by a convolution, and the reconstruction loss compares content-based attention to both. Relative
positions are gathered by index. README.md lists the keys. Run this script with the Python of tests/bench/peers/setup.sh.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

BATCH, SEGMENT, SEGMENTS, HEADS, DIM, RATE = 2, 4, 5, 2, 4, 2
MEMORY, COMPRESSED = 6, 3
WIDTH = HEADS * DIM
LINEAR = ("query_projection", "key_projection", "value_projection", "out_projection")


def parameters() -> dict[str, Tensor]:
    result = {}
    for name in LINEAR:
        result[f"{name}.weight"] = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
        result[f"{name}.bias"] = torch.randn(WIDTH)
    inner = "inner_attention."
    result[inner + "content_bias"] = torch.randn(HEADS, DIM)
    result[inner + "position_bias"] = torch.randn(HEADS, DIM)
    result[inner + "position_projection.weight"] = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
    # torch.nn.functional.conv1d has the shape (out, in, kernel).
    result["conv1d.weight"] = torch.randn(WIDTH, WIDTH, RATE) / (RATE * WIDTH) ** 0.5
    result["conv1d.bias"] = torch.randn(WIDTH)
    return {name: tensor.requires_grad_() for name, tensor in result.items()}


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, DIM)).transpose(1, 2)


def project(p: dict[str, Tensor], name: str, x: Tensor, detached: bool = False) -> Tensor:
    weight, bias = p[f"{name}.weight"], p[f"{name}.bias"]
    if detached:
        weight, bias = weight.detach(), bias.detach()
    return functional.linear(x, weight, bias)


def attention(p: dict[str, Tensor], segment: Tensor, memory: Tensor) -> Tensor:
    """Returns the attention of the segment to the memory and the segment, with relative positions."""
    source = torch.cat((memory, segment), 1)
    keys, first = source.shape[1], memory.shape[1]
    q, k, v = (heads(project(p, name, x)) for name, x in zip(LINEAR, (segment, source, source)))
    distance = first + torch.arange(SEGMENT).unsqueeze(1) - torch.arange(keys)  # (queries, keys)
    angles = distance.clamp(min=0).unsqueeze(-1) / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    sinusoids = torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)
    relative = (sinusoids @ p["inner_attention.position_projection.weight"].T).unflatten(-1, (HEADS, DIM))
    content = (q + p["inner_attention.content_bias"].unsqueeze(1)) @ k.transpose(-1, -2)
    position = torch.einsum("bhid,ijhd->bhij", q + p["inner_attention.position_bias"].unsqueeze(1), relative)
    scores = ((content + position) / DIM**0.5).masked_fill(distance < 0, -torch.inf)
    return project(p, "out_projection", (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def compress(p: dict[str, Tensor], old: Tensor) -> Tensor:
    return functional.conv1d(old.transpose(1, 2), p["conv1d.weight"], p["conv1d.bias"], stride=RATE).transpose(1, 2)


def reconstruction_loss(p: dict[str, Tensor], segment: Tensor, old: Tensor, new: Tensor) -> Tensor:
    def attend(memory: Tensor) -> Tensor:
        q = heads(project(p, "query_projection", segment, True))
        k = heads(project(p, "key_projection", memory, True))
        v = heads(project(p, "value_projection", memory, True))
        return functional.scaled_dot_product_attention(q, k, v)

    return functional.mse_loss(attend(new), attend(old))


def main() -> None:
    torch.manual_seed(11)
    torch.set_default_dtype(torch.float64)
    p = parameters()
    text = torch.randn(BATCH, SEGMENT * SEGMENTS, WIDTH)
    memory, compressed = torch.zeros(BATCH, 0, WIDTH), torch.zeros(BATCH, 0, WIDTH)
    outputs, loss = [], torch.zeros(())
    for segment in text.split(SEGMENT, 1):
        outputs.append(attention(p, segment, torch.cat((compressed, memory), 1)))
        inputs = torch.cat((memory, segment), 1)
        old = inputs[:, : max(inputs.shape[1] - MEMORY, 0)]
        if old.shape[1] > 0:
            new = compress(p, old)
            loss = loss + reconstruction_loss(p, segment, old, new)
            compressed = torch.cat((compressed, new.detach()), 1)[:, -COMPRESSED:]
        memory = inputs[:, -MEMORY:]
    out = torch.cat(outputs, 1)
    cotangent = torch.randn_like(out)
    gradients = torch.autograd.grad((out * cotangent).sum() + loss, list(p.values()))
    tensors = {"text": text, "out": out, "cotangent": cotangent, "loss": loss} | p
    tensors |= {f"gradient.{name}": g for name, g in zip(p, gradients)}
    # The layer stores the convolution as a matrix (out, kernel * in).
    for prefix in ("", "gradient."):
        weight = tensors.pop(prefix + "conv1d.weight")
        tensors[prefix + "inner_attention.compression.weight"] = weight.transpose(1, 2).flatten(1)
        tensors[prefix + "inner_attention.compression.bias"] = tensors.pop(prefix + "conv1d.bias")
    path = Path(__file__).resolve().parent / "compressive.safetensors"
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}, path)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
