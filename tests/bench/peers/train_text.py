"""Trains a language model in PyTorch with the settings of a Tapeformer config.

The model equals the model of the config, and windows begin at random positions. The optimizer is AdamW with weight decay of
all parameters, clipping of the global norm, and warm-up and cosine decay of the learning rate. Prints one JSON object with
the nats per token of the validation text and the seconds of the training.
"""

import argparse
import math
import time
import tomllib
from pathlib import Path

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, help="config of Tapeformer without extends")
    parser.add_argument("text", type=Path, help="file of the training text")
    parser.add_argument("--attention", choices=("softmax", "linear"), default="softmax")
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--no-compile", action="store_true")
    measure.add_common_options(parser)
    return parser.parse_args()


def learning_rate(step: int, config: dict) -> float:
    """Returns the learning rate of a step, counted from 1: a linear rise, and then a cosine decay."""
    schedule, steps, rate = config["schedule"], config["train"]["steps"], config["optimizer"]["lr"]
    warmup, floor = schedule["warmup_steps"], schedule["final_lr_ratio"]
    if step <= warmup:
        return rate * step / warmup
    done = (step - 1 - warmup) / (steps - warmup)
    return rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))


def main() -> None:
    options = parse()
    torch = measure.prepare(options)
    from eval_checkpoint import read_model_fields
    from eval_text import total_nats
    from model import ModelConfig
    from text_model import TextModel, encode, split_bytes

    config = tomllib.loads(options.config.read_text())
    data, recipe = config["data"], config["optimizer"]
    text = options.text.read_bytes()
    task = {"tokenizer": data["tokenizer"], "characters": "".join(sorted(set(text.decode())))}
    shares = (data["valid_share"], data["test_share"])
    train, valid = (torch.from_numpy(encode(split_bytes(text, name, *shares), task)) for name in ("train", "valid"))
    length, batch = data["sequence_length"], data["batch_size"]
    fields = read_model_fields(config) | {"attention": options.attention}
    model = TextModel(ModelConfig(**fields, chunk=options.chunk, max_length=length), len(task["characters"]))
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=tuple(recipe["betas"]), weight_decay=recipe["weight_decay"], fused=True
    )
    loss_of = model.loss if options.no_compile else torch.compile(model.loss)
    offsets = torch.arange(length + 1)

    def step(number: int) -> None:
        windows = train[torch.randint(len(train) - length, (batch, 1)) + offsets]
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(number, config)
        optimizer.zero_grad()
        loss_of(windows).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip_norm"])
        optimizer.step()

    step(1)  # compiles the model, so its time is not measured
    start = time.perf_counter()
    for number in range(2, config["train"]["steps"] + 1):
        step(number)
    seconds = time.perf_counter() - start
    nats = total_nats(model.eval(), valid, length, 0, 64) / (len(valid) - 1)
    measure.report(
        benchmark="train_text",
        torch=torch.__version__,
        attention=options.attention,
        seed=options.seed,
        parameters=sum(p.numel() for p in model.parameters()),
        nats_per_token=nats,
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
