"""Writes filterbank_*.f32 to this folder: log-mel filterbanks of kaldi-native-fbank for tests/data/audio/filterbank_test.cpp.

    python make_filterbank.py [FSDD]

filterbank_8k.wav is a synthetic voice: harmonics with a gliding pitch, rising and falling loudness, and noise.
filterbank_16k.wav is speech of espeak-ng with faint noise. It is resampled from 22,050 Hz by cutting its spectrum at 8 kHz,
and its sibilants have energy up to 8 kHz. The script writes this file only if it does not exist, because the speech depends
on the version of espeak-ng. If FSDD, the folder of the Free Spoken Digits, is given, the script also writes the features of
its recording 7_jackson_0.wav. The .f32 files contain little-endian float32 values, frame by frame. The files 16k and digit_8k
contain every second frame.
"""

import subprocess
import sys
import tempfile
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


def read_wav(path: Path) -> np.ndarray:
    with wave.open(str(path)) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32)


def write_wav(path: Path, samples: np.ndarray, rate: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


def machine_speech(rate: int) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spoken.wav"
        subprocess.run(["espeak-ng", "-v", "en-us", "-s", "200", "-w", str(path), "six fish splash"], check=True)
        spoken = read_wav(path)
    spoken = spoken[len(spoken) % 441 :]  # 441 samples become 320
    count = len(spoken) * rate // 22050
    spectrum = np.fft.rfft(spoken)[: count // 2 + 1]
    narrow = np.fft.irfft(spectrum, count) * count / len(spoken)
    # Without noise, the features of silent pauses would depend only on the rounding of float32.
    noise = np.random.default_rng(2).normal(scale=4, size=count)
    return np.round(narrow + noise).clip(-32768, 32767).astype("<i2")


def main() -> None:
    write_wav(FOLDER / "filterbank_8k.wav", voice(2384, 8000), 8000)
    if not (FOLDER / "filterbank_16k.wav").exists():
        write_wav(FOLDER / "filterbank_16k.wav", machine_speech(16000), 16000)
    low, wide = read_wav(FOLDER / "filterbank_8k.wav"), read_wav(FOLDER / "filterbank_16k.wav")
    cases = [
        ("8k", 8000, low, True, 40, False),
        ("16k", 16000, wide, True, 40, False),
        ("16k_edges", 16000, wide[:4000], False, 23, True),
    ]
    if len(sys.argv) > 1:
        digit = read_wav(Path(sys.argv[1]) / "recordings" / "7_jackson_0.wav")
        cases.append(("digit_8k", 8000, digit, True, 40, False))
    for name, rate, signal, snip, bins, energy in cases:
        values = features(signal, rate, snip, bins, energy)
        values = (values[::2] if name in ("digit_8k", "16k") else values).astype("<f4")
        values.tofile(FOLDER / f"filterbank_{name}.f32")
        print(name, values.shape)


if __name__ == "__main__":
    main()
