"""Benchmark of generating images byte by byte with the recurrent form of the linear model, whose state has a fixed size."""

import argparse

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    measure.add_model_options(parser)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=784, help="bytes of an image, including the given first byte")
    parser.add_argument("--compile", choices=("none", "step"), default="step")
    parser.add_argument("--compile-mode", default="default", help="mode of torch.compile; reduce-overhead uses CUDA graphs")
    parser.add_argument("--repeats", type=int, default=3)
    measure.add_common_options(parser)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch = measure.prepare(options)
    from model import ImageModel, ModelConfig, RecurrentModel, sample_mixture_of_logistics

    config = ModelConfig.of_options(options)
    model = ImageModel(config).eval()
    recurrent = RecurrentModel(model, options.batch)

    def next_bytes(values, position):
        return sample_mixture_of_logistics(recurrent.step(values, position))

    if options.compile == "step":
        next_bytes = torch.compile(next_bytes, mode=options.compile_mode)
    positions = torch.arange(options.length).split(1)
    images = torch.zeros(options.batch, options.length, dtype=torch.int64)

    @torch.inference_mode()
    def draw():
        recurrent.reset()
        with measure.mixed_precision(options):
            for i in range(options.length - 1):
                images[:, i + 1] = next_bytes(images[:, i], positions[i])

    seconds = measure.median(measure.times(draw, options.repeats, warmup=1))
    measure.report(
        benchmark="generate",
        torch=torch.__version__,
        **vars(options),
        seconds=seconds,
        images_per_second=options.batch / seconds,
        milliseconds_per_token=1000 * seconds / (options.length - 1),
        peak_rss_bytes=measure.peak_rss(),
    )


if __name__ == "__main__":
    main()
