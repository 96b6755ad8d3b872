"""Benchmark of generating images byte by byte, with untrained weights.

Linear attention has a recurrent form, whose state has a fixed size. Softmax attention caches keys and values, or recomputes
all earlier bytes for each byte with torch.nn.TransformerEncoder. LSH attention recomputes them with the Reformer of the
package transformers. Recomputed forms are not compiled, because compiling them took minutes and did not make them faster.

Before it measures, the program compares its form with a forward pass of the model, except for LSH attention, whose rotations
are random.
"""

import argparse
import datetime
import functools
import importlib.metadata
from collections.abc import Callable
from pathlib import Path

import measure
import run

CHECKED_BYTES, TOLERANCE = 8, 1e-4


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    measure.add_model_options(parser)
    parser.add_argument("--kind", choices=("linear", "softmax", "lsh"), default="linear", help="kind of attention")
    parser.add_argument("--form", choices=("cached", "recomputed"), default="cached", help="form of softmax attention")
    parser.add_argument("--rounds", type=int, default=1, help="hash rounds of LSH attention")
    parser.add_argument("--chunk", type=int, default=29, help="length of a chunk of LSH attention")
    parser.add_argument("--buckets", type=int, default=64, help="buckets of LSH attention")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=784, help="bytes of an image, including the given first byte")
    parser.add_argument("--positions", type=int, default=0, help="measured bytes of an image, evenly spaced; 0: all")
    parser.add_argument("--compile", choices=("none", "step"), default="step")
    parser.add_argument("--compile-mode", default="default", help="mode of torch.compile; reduce-overhead uses CUDA graphs")
    parser.add_argument("--repeats", type=int, default=3)
    measure.add_common_options(parser)
    options = parser.parse_args()
    if options.kind != "softmax":
        options.form = "recurrent" if options.kind == "linear" else "recomputed"
    if options.form == "recomputed":
        options.compile = "none"
    return options


def positions_of(options: argparse.Namespace) -> list[int]:
    """Returns the positions of the bytes before the measured bytes."""
    drawn = options.length - 1
    count = options.positions or drawn
    return [(2 * i + 1) * drawn // (2 * count) for i in range(count)]


def predictor_of(options: argparse.Namespace, model, images) -> tuple[Callable, Callable]:
    """Returns a function that computes mixture parameters, and a function that returns its arguments for a position."""
    import torch
    from recompute import encoder_of, next_parameters
    from step_models import CachedModel, RecurrentModel

    if options.form == "recomputed":
        return functools.partial(next_parameters, model, encoder_of(model, options)), lambda at: (images[:, : at + 1],)
    if options.form == "cached":
        dtype = torch.bfloat16 if options.precision == "bfloat16" else torch.float32
        return CachedModel(model, options.batch, dtype).step, lambda at: (images[:, at], at)
    positions = torch.arange(options.length).split(1)
    return RecurrentModel(model, options.batch).step, lambda at: (images[:, at], positions[at])


def main() -> None:
    options = parse()
    torch = measure.prepare(options)
    from model import ImageModel, ModelConfig, sample_mixture_of_logistics

    model = ImageModel(ModelConfig.of_options(options, attention="linear" if options.kind == "linear" else "softmax")).eval()
    images = torch.randint(256, (options.batch, options.length))
    positions = positions_of(options)
    with torch.inference_mode():
        if options.kind != "lsh" and options.precision == "float32":
            predict, arguments = predictor_of(options, model, images)
            found = torch.stack([predict(*arguments(at)) for at in range(CHECKED_BYTES)], 1)
            torch.testing.assert_close(found, model(images[:, :CHECKED_BYTES]), atol=TOLERANCE, rtol=TOLERANCE)
    predict, arguments = predictor_of(options, model, images)

    def next_bytes(*values):
        return sample_mixture_of_logistics(predict(*values))

    if options.compile == "step":
        next_bytes = torch.compile(next_bytes, mode=options.compile_mode)

    @torch.inference_mode()
    def draw():
        with measure.mixed_precision(options):
            for at in positions:
                images[:, at + 1] = next_bytes(*arguments(at))

    seconds = measure.median(measure.times(draw, options.repeats, warmup=1)) / len(positions)
    image_seconds = seconds * (options.length - 1)
    package = "transformers" if options.kind == "lsh" else "torch"
    measure.report(
        benchmark="generate",
        torch=torch.__version__,
        package=f"{package} {importlib.metadata.version(package)}",
        **vars(options),
        seconds=image_seconds,
        images_per_second=options.batch / image_seconds,
        milliseconds_per_token=1000 * seconds,
        peak_rss_bytes=measure.peak_rss(),
        processor=run.processor(Path("/proc/cpuinfo").read_text())["processor"],
        date=datetime.date.today().isoformat(),
    )


if __name__ == "__main__":
    main()
