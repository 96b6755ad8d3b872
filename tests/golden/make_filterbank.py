"""Writes filterbank_*.f32 beside it: log-mel filterbanks by kaldi-native-fbank for tests/data/filterbank_test.cpp.

    python make_filterbank.py RECORDING_8K.wav

The 8 kHz signal is the given recording (0_george_0.wav of the Free Spoken Digits), stored as filterbank_8k.wav; the
16 kHz one is that recording with every sample written twice, which fills the upper band too. Files hold float32 in
little-endian order, frame by frame.
"""

import shutil
import sys
import wave
from pathlib import Path

import kaldi_native_fbank as knf
import numpy as np

FOLDER = Path(__file__).resolve().parent


def features(samples: np.ndarray, rate: int, snip_edges: bool, bins: int, energy: bool) -> np.ndarray:
    options = knf.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = snip_edges
    options.mel_opts.num_bins = bins
    options.use_energy = energy
    options.energy_floor = 0
    bank = knf.OnlineFbank(options)
    bank.accept_waveform(rate, (samples * 1.0).tolist())
    bank.input_finished()
    return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])


def main() -> None:
    shutil.copyfile(sys.argv[1], FOLDER / "filterbank_8k.wav")
    with wave.open(sys.argv[1]) as file:
        assert file.getframerate() == 8000 and file.getsampwidth() == 2
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32)
    for name, rate, signal, snip, bins, energy in [
        ("8k", 8000, samples, True, 40, False),
        ("16k", 16000, np.repeat(samples, 2), True, 40, False),
        ("16k_edges", 16000, np.repeat(samples, 2)[:4000], False, 23, True),
    ]:
        values = features(signal, rate, snip, bins, energy).astype("<f4")
        values.tofile(FOLDER / f"filterbank_{name}.f32")
        print(name, values.shape)


if __name__ == "__main__":
    main()
