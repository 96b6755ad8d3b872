"""Trains a translation model in PyTorch with the settings, the tokenizer and the data of a Tapeformer run.

Batches hold sentences of similar length up to data.batch_tokens padded tokens. Prints one JSON object with the real target
tokens per second, per wall and per processor second, and with --evaluate the loss and greedy BLEU of the validation split.
"""

import argparse
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="checkpoint folder with config.toml and state.json")
    parser.add_argument("data", type=Path, help="folder with the files train.LANGUAGE and valid.LANGUAGE")
    parser.add_argument("--load", action="store_true", help="start from the weights of the checkpoint")
    parser.add_argument("--steps", type=int, help="number of steps (default: train.steps of the config)")
    parser.add_argument("--warmup", type=int, default=20, help="number of first steps whose time is not measured")
    parser.add_argument("--compile", action="store_true", help="torch.compile with dynamic shapes")
    parser.add_argument("--evaluate", action="store_true", help="compute the loss of the validation split")
    parser.add_argument("--bleu", type=int, default=0, help="number of validation sentences for BLEU (needs sacrebleu)")
    measure.add_common_options(parser)
    return parser.parse_args()


def learning_rate(step: int, config: dict) -> float:
    """Returns the learning rate of a step, counted from 1: a linear rise, and then the schedule."""
    schedule, rate = config["schedule"], config["optimizer"]["lr"]
    warmup = schedule["warmup_steps"]
    if step <= warmup:
        return rate * step / warmup
    if schedule["kind"] == "constant":
        return rate
    if schedule["kind"] == "rsqrt":
        return rate * math.sqrt(max(warmup, 1) / step)
    if schedule["kind"] == "cosine":
        done = min((step - 1 - warmup) / max(config["train"]["steps"] - warmup, 1), 1)
        return rate * (schedule["final_lr_ratio"] + (1 - schedule["final_lr_ratio"]) * (1 + math.cos(math.pi * done)) / 2)
    raise SystemExit(f"schedule.kind {schedule['kind']!r} is not supported")


def make_optimizer(torch, model, recipe: dict):
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    if recipe["kind"] not in kinds:
        raise SystemExit(f"optimizer.kind {recipe['kind']!r} is not supported")
    return kinds[recipe["kind"]](
        model.parameters(), betas=tuple(recipe["betas"]), eps=recipe["eps"], weight_decay=recipe["weight_decay"], fused=True
    )


def batches_of(pairs: list, batch_tokens: int, seed: int) -> Iterator[list]:
    """Yields the batches of all epochs as lists of pairs."""
    from translation_data import plan_batches

    shuffle = random.Random(seed)
    while True:
        for batch in plan_batches(pairs, batch_tokens, shuffle):
            yield [pairs[i] for i in batch]


def train(torch, model, settings, data: Path, options: argparse.Namespace) -> dict:
    """Trains the model and returns measurements of the steps after options.warmup."""
    from translation_data import encode, read_texts
    from translation_model import make_batch

    config = settings.config
    pairs = encode(settings, read_texts(settings, data, "train"), config["data"]["max_length"])
    batches = batches_of(pairs, config["data"]["batch_tokens"], options.seed)
    optimizer = make_optimizer(torch, model, config["optimizer"])
    average = [p.detach().clone() for p in model.parameters()] if config["optimizer"]["ema"] else []
    loss_of = torch.compile(model.loss, dynamic=True) if options.compile else model.loss
    losses, tokens, padded, start, cpu_start = [], 0, 0, 0.0, 0.0

    def step(number: int) -> None:
        nonlocal tokens, padded
        batch = [x.to(options.device) for x in make_batch(next(batches), settings.end)]
        tokens += batch[3].numel()
        padded += batch[2].numel() - len(batch[2])
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(number, config)
        optimizer.zero_grad()
        with measure.mixed_precision(options):
            loss = loss_of(*batch)
        loss.backward()
        if config["optimizer"]["clip_norm"]:
            torch.nn.utils.clip_grad_norm_(model.parameters(), config["optimizer"]["clip_norm"])
        optimizer.step()
        if average:
            torch._foreach_lerp_(average, [p.detach() for p in model.parameters()], 1 - config["optimizer"]["ema"])
        losses.append(loss.detach())

    steps = options.steps or config["train"]["steps"]
    for number in range(1, steps + 1):
        if number == options.warmup + 1:
            tokens, padded, start, cpu_start = 0, 0, time.perf_counter(), time.process_time()
        step(number)
    if options.device == "cuda":
        torch.cuda.synchronize()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    for parameter, mean in zip(model.parameters(), average):
        parameter.data.copy_(mean)
    return {
        "steps": steps - options.warmup,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "tokens_per_cpu_second": tokens / cpu_seconds,
        "real_share": tokens / padded,
        "train_loss": torch.stack(losses[-50:]).mean().item(),
    }


def evaluate(torch, model, settings, data: Path, sentences: int) -> dict:
    """Returns the nats per token of the validation split, and BLEU of its first `sentences` pairs."""
    from translation_data import encode, plan_batches, read_texts
    from translation_model import make_batch

    texts = read_texts(settings, data, "valid")
    pairs = encode(settings, texts)
    nats, tokens = 0.0, 0
    with torch.inference_mode():
        for indices in plan_batches(pairs, 4096):
            batch = make_batch([pairs[i] for i in indices], settings.end)
            nats += model.loss(*batch).item() * batch[3].numel()
            tokens += batch[3].numel()
    results = {"nats_per_token": nats / tokens, "validation_tokens": tokens}
    if sentences:
        import sacrebleu

        pairs, references = pairs[:sentences], [target for _, target in texts[:sentences]]
        found = [""] * len(pairs)
        for indices in plan_batches(pairs, 2048):
            translations = model.translate(*make_batch([pairs[i] for i in indices], settings.end)[:2])
            for i, text in zip(indices, settings.tokenizer.decode(translations)):
                found[i] = text.strip()
        results["bleu"] = sacrebleu.corpus_bleu(found, [references]).score
    return results


def main() -> None:
    options = parse()
    torch = measure.prepare(options)
    from safetensors.torch import load_file

    from translation_data import Settings
    from translation_model import TranslationModel

    settings = Settings.read(options.checkpoint)
    model = TranslationModel(settings)
    if options.load:
        model.load(load_file(options.checkpoint / "model.safetensors"))
    results = {} if options.steps == 0 else train(torch, model, settings, options.data, options)
    if options.evaluate or options.bleu:
        results |= evaluate(torch, model.eval().to("cpu"), settings, options.data, options.bleu)
    measure.report(
        benchmark="train_translation",
        torch=torch.__version__,
        threads=options.threads,
        precision=options.precision,
        compiled=options.compile,
        parameters=sum(p.numel() for p in model.parameters()),
        **results,
    )


if __name__ == "__main__":
    main()
