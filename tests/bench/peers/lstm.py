"""Benchmark of torch.nn.LSTM: a stack of layers, both forward and backward and forward alone.

Measures the same frames in both forms of input. A padded tensor contains sequences of equal lengths, which oneDNN supports.
Packed sequences may have different lengths.
"""

import argparse

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--frames", type=int, default=800)
    parser.add_argument("--in", dest="inputs", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=320)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--one-direction", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    measure.add_common_options(parser)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch = measure.prepare(options)
    from torch.nn.utils.rnn import pack_padded_sequence

    both_ways = not options.one_direction
    model = torch.nn.LSTM(options.inputs, options.hidden, options.layers, batch_first=True, bidirectional=both_ways)
    frames = torch.randn(options.batch, options.frames, options.inputs)
    packed = pack_padded_sequence(frames, torch.full((options.batch,), options.frames), batch_first=True)
    figures = {}
    for form, x in (("padded", frames), ("packed", packed)):

        def run():
            with measure.mixed_precision(options):
                y = model(x)[0]
            return y if form == "padded" else y.data

        cotangent = torch.randn_like(run())

        def both():
            model.zero_grad()
            run().backward(cotangent)

        def forward():
            with torch.no_grad():
                run()

        both()
        measure.reset_peak()
        figures[f"milliseconds_{form}"] = 1e3 * measure.median(measure.times(both, options.repeats, 0))
        figures[f"peak_bytes_{form}"] = measure.recent_peak()
        figures[f"milliseconds_forward_{form}"] = 1e3 * measure.median(measure.times(forward, options.repeats, 1))
    measure.report(benchmark="lstm", torch=torch.__version__, **vars(options), **figures)


if __name__ == "__main__":
    main()
