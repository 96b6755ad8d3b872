"""Benchmark of log-mel filterbanks of noise with the PyPI package kaldi-native-fbank on one thread.

Requires `DIR/bin/pip install kaldi-native-fbank numpy`. The time includes passing the samples as a list.
"""

import argparse

import kaldi_native_fbank as knf
import measure
import numpy as np


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=16000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--bins", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    options = parse()
    samples = np.random.default_rng(1).uniform(-16384, 16384, options.rate * options.seconds).tolist()
    fbank = knf.FbankOptions()
    fbank.frame_opts.samp_freq = options.rate
    fbank.frame_opts.dither = 0
    fbank.mel_opts.num_bins = options.bins

    def compute():
        bank = knf.OnlineFbank(fbank)
        bank.accept_waveform(options.rate, samples)
        bank.input_finished()

    seconds = measure.median(measure.times(compute, options.repeats, warmup=1))
    measure.report(
        benchmark="filterbank",
        **vars(options),
        milliseconds=1e3 * seconds,
        times_real_time=options.seconds / seconds,
    )


if __name__ == "__main__":
    main()
