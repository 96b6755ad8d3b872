"""Benchmark of the CTC loss and its gradient: log_softmax and torch.nn.functional.ctc_loss on random data."""

import argparse

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--frames", type=int, default=800)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--labels", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=15)
    measure.add_common_options(parser)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch = measure.prepare(options)
    import torch.nn.functional as F

    # The frames are the first dimension, as ctc_loss() needs, so that the measured time contains no
    # transposition.
    logits = torch.randn(options.frames, options.batch, options.classes, requires_grad=True)
    labels = torch.randint(1, options.classes, (options.batch, options.labels))
    frames = torch.full((options.batch,), options.frames)
    counts = torch.full((options.batch,), options.labels)

    def loss():
        return F.ctc_loss(logits.log_softmax(-1), labels, frames, counts, reduction="sum") / options.batch

    def both():
        logits.grad = None
        loss().backward()

    def forward():
        with torch.no_grad():
            loss()

    measure.report(
        benchmark="ctc",
        torch=torch.__version__,
        **vars(options),
        loss=loss().item(),
        milliseconds=1e3 * measure.median(measure.times(both, options.repeats, 2)),
        milliseconds_forward=1e3 * measure.median(measure.times(forward, options.repeats, 2)),
    )


if __name__ == "__main__":
    main()
