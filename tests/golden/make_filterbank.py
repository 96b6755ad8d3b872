"""Writes filterbank_*.f32 beside it: log-mel filterbanks by kaldi-native-fbank for tests/data/filterbank_test.cpp.

    python make_filterbank.py [FSDD]

The 8 kHz signal is made here: a voice-like buzz of harmonics with a gliding pitch, swelling and fading, and some noise; it
is stored as filterbank_8k.wav. The 16 kHz one is that signal with every sample written twice, which fills the upper band
too. With the folder of the Free Spoken Digits also those of a recording of it, 7_jackson_0.wav, which the test looks for among
its data. Files hold float32 in little-endian order, frame by frame.
"""

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


def voice(count: int, rate: int) -> np.ndarray:
    time = np.arange(count) / rate
    phase = 2 * np.pi * np.cumsum(110 + 60 * time / time[-1]) / rate
    harmonics = sum(np.sin(k * phase) / k for k in range(1, 20))
    swell = np.sin(np.pi * time / time[-1]) ** 2
    noise = np.random.default_rng(1).normal(size=count)
    return np.round(3000 * swell * harmonics + 40 * noise).astype("<i2")


def main() -> None:
    recording = voice(2384, 8000)
    with wave.open(str(FOLDER / "filterbank_8k.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(recording.tobytes())
    samples = recording.astype(np.float32)
    for name, rate, signal, snip, bins, energy in [
        ("8k", 8000, samples, True, 40, False),
        ("16k", 16000, np.repeat(samples, 2), True, 40, False),
        ("16k_edges", 16000, np.repeat(samples, 2)[:4000], False, 23, True),
    ]:
        values = features(signal, rate, snip, bins, energy).astype("<f4")
        values.tofile(FOLDER / f"filterbank_{name}.f32")
        print(name, values.shape)
    if len(sys.argv) > 1:
        with wave.open(str(Path(sys.argv[1]) / "recordings" / "7_jackson_0.wav")) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32)
        for name, rate, signal in [("digit_8k", 8000, samples), ("digit_16k", 16000, np.repeat(samples, 2))]:
            values = features(signal, rate, True, 40, False)[::2].astype("<f4")
            values.tofile(FOLDER / f"filterbank_{name}.f32")
            print(name, values.shape)


if __name__ == "__main__":
    main()
