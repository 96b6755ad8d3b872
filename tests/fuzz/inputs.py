"""Writes the small valid inputs that the cases mutate: data sets, recordings and trained runs."""

import gzip
import math
import random
import struct

COMMON = """
[run]
seed = 3
device = "cpu"
threads = 1

[model]
type = "{type}"
layers = 1
dropout = 0.1
{model}

[optimizer]
kind = "adam"
lr = 0.001

[train]
steps = 2
checkpoint_every = 1
log_every = 1

[data]
batch_size = 2
eval_limit = 2
{data}
"""

SPEECH = """dataset = "kaldi"
path = "kaldi"
sample_rate = 8000
num_mel_bins = 8
max_frames = 400"""

TRANSFORMER = """attention = "{attention}"
heads = 2
head_dim = 4
feedforward = 8
"""

# For each config: model.type, the attention kind (None for an LSTM), and further lines of [model] and of
# [data].
CONFIGS = {
    "image": ("image", "linear", "mixtures = 2", 'dataset = "mnist"\ndownscale = 4'),
    "grid": ("image", "softmax", 'mixtures = 1\npositions = "grid"', 'dataset = "mnist"\ndownscale = 7'),
    "copy": ("sequence", "softmax", "norm = \"pre\"", 'dataset = "copy"\nmax_length = 16'),
    "lsh": ("sequence", "lsh", "", 'dataset = "duplication"\nmax_length = 16\n[attention]\nchunk_length = 8'),
    "speech": ("speech", "linear", "causal = true\nmax_frames = 150", SPEECH + '\ncmvn = "global"'),
    "lstm": ("speech", None, 'encoder = "lstm"\nhidden = 8', SPEECH + '\nlexicon = "lexicon.txt"'),
    "cached": ("speech", None, 'encoder = "lstm"\nhidden = 8', SPEECH + '\nfeature_cache = "cache"'),
    "ark": ("speech", None, 'encoder = "lstm"\nhidden = 8', SPEECH.replace('"kaldi"\npath = "kaldi"', '"kaldi"\npath = "ark"')),
    "an4": ("speech", None, 'encoder = "lstm"\nhidden = 8', 'dataset = "an4"\npath = "an4"\nmax_frames = 200'),
}


def config_text(name):
    kind, attention, model, data = CONFIGS[name]
    transformer = TRANSFORMER.format(attention=attention) if attention else ""
    return COMMON.format(type=kind, model=transformer + model, data=data)


def _write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def _idx(magic, sizes, payload):
    return struct.pack(">I", magic) + b"".join(struct.pack(">I", size) for size in sizes) + payload


def write_images(folder, rng):
    """Writes a small MNIST with compressed images and plain labels, and a CIFAR-10 that is too small to be accepted."""
    for prefix, count in (("train", 8), ("t10k", 4)):
        images = _idx(0x803, [count, 28, 28], rng.randbytes(count * 28 * 28))
        labels = _idx(0x801, [count], bytes(i % 10 for i in range(count)))
        _write(folder / f"mnist/{prefix}-images-idx3-ubyte.gz", gzip.compress(images, mtime=0))
        _write(folder / f"mnist/{prefix}-labels-idx1-ubyte", labels)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        _write(folder / "cifar10" / name, b"".join(bytes([i % 10]) + rng.randbytes(3072) for i in range(3)))


def tones(phones, rng, rate=8000):
    """Returns 16-bit samples: for each phone ("A", "B", …) a noisy tone of 0.1 s, with 0.1 s of noise around each tone."""
    samples = []
    for phone in "".join("." + p for p in phones) + ".":
        hertz = 0 if phone == "." else 400 * 2 ** (ord(phone) - ord("A"))
        samples += [int(9000 * math.sin(2 * math.pi * hertz * i / rate)) + rng.randrange(-300, 300)
                    for i in range(rate // 10)]
    return samples


def wav(samples, rate=8000, form=1):
    """Returns a WAV file of 16-bit integers (form 1) or 32-bit floats (form 3)."""
    body = struct.pack(f"<{len(samples)}h", *samples) if form == 1 else struct.pack(
        f"<{len(samples)}f", *[s / 32768 for s in samples])
    bits = 16 if form == 1 else 32
    head = struct.pack("<HHIIHH", form, 1, rate, rate * bits // 8, bits // 8, bits)
    chunks = b"fmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def piped_wav(samples, size, magic=b"RIFF"):
    """Returns a WAV whose header does not contain the length, as programs write it to a pipe."""
    data = wav(samples)
    return magic + struct.pack("<I", min(size + 36, 0xFFFFFFFF)) + data[8:40] + struct.pack("<I", size) + data[44:]


def au(samples, rate=8000):
    """Returns an AU file of big-endian 16-bit samples, whose header does not contain the length."""
    return b".snd" + struct.pack(">5I", 24, 0xFFFFFFFF, 3, rate, 1) + struct.pack(f">{len(samples)}h", *samples)


def sphere(samples, rate=8000):
    """Returns a NIST SPHERE file of little-endian 16-bit samples."""
    head = ("NIST_1A\n   1024\n" + f"sample_count -i {len(samples)}\nsample_rate -i {rate}\nchannel_count -i 1\n"
            "sample_n_bytes -i 2\nsample_byte_format -s2 01\nsample_coding -s3 pcm\nend_head\n")
    return head.encode().ljust(1024) + struct.pack(f"<{len(samples)}h", *samples)


def _crc(data, bits, polynomial):
    value, top = 0, 1 << (bits - 1)
    for byte in data:
        value ^= byte << (bits - 8)
        for _ in range(8):
            value = ((value << 1) ^ polynomial if value & top else value << 1) & ((1 << bits) - 1)
    return value


def flac(samples, rate=8000, block=4096):
    """Returns a FLAC file of 16-bit samples, whose frames are not compressed."""
    info = struct.pack(">HH", block, block) + bytes(6)
    info += struct.pack(">Q", rate << 44 | 15 << 36 | len(samples)) + bytes(16)
    out = b"fLaC\x80" + struct.pack(">I", len(info))[1:] + info
    for number, first in enumerate(range(0, len(samples), block)):
        part = samples[first:first + block]
        head = b"\xff\xf8\x70\x08" + bytes([number]) + struct.pack(">H", len(part) - 1)
        frame = head + bytes([_crc(head, 8, 0x07), 0x02]) + struct.pack(f">{len(part)}h", *part)
        out += frame + struct.pack(">H", _crc(frame, 16, 0x8005))
    return out


def opus(rng, frames=40, per_page=10, rate=8000):
    """Returns an Ogg Opus file of frames of 20 ms with random contents, which the decoder accepts."""
    head = b"OpusHead\1\1" + struct.pack("<HIHB", 0, rate, 0, 0)
    pages = [[head], [b"OpusTags" + bytes(8)]]
    pages += [[b"\x98" + rng.randbytes(30) for _ in range(per_page)] for _ in range(frames // per_page)]
    out = b""
    for number, packets in enumerate(pages):
        flags = 2 if number == 0 else 4 if number == len(pages) - 1 else 0
        end = max(0, number - 1) * per_page * 960  # in samples at 48 kHz
        start = b"OggS\0" + bytes([flags]) + struct.pack("<QII", end, 1, number)
        rest = bytes([len(packets)]) + bytes(len(packet) for packet in packets) + b"".join(packets)
        out += start + struct.pack("<I", _crc(start + bytes(4) + rest, 32, 0x04C11DB7)) + rest
    return out


def mfc(phones, rng):
    values = [rng.random() + (3 if d == 2 * (ord(phone) - ord("A")) else 0)
              for phone in phones for _ in range(6) for d in range(13)]
    return struct.pack(">I", len(values)) + struct.pack(f">{len(values)}f", *values)


def _matrix(rng, kind, rows, columns=8):
    """Returns a random binary matrix of a Kaldi archive. The kind is FM (floats) or CM (one byte per value)."""
    if kind == "FM":
        shape = b"\4" + struct.pack("<i", rows) + b"\4" + struct.pack("<i", columns)
        return b"\0BFM " + shape + struct.pack(f"<{rows * columns}f", *[rng.random() for _ in range(rows * columns)])
    head = struct.pack("<ffii", -1.0, 2.0, rows, columns)
    return b"\0BCM " + head + struct.pack("<4H", 0, 9000, 30000, 65535) * columns + rng.randbytes(rows * columns)


LABELS = ["A", "AB", "CA", "BCA", "B", "AC"]


def write_speech(folder, rng):
    """Writes Kaldi directories of recordings and of features, a small AN4, a lexicon, and recordings in all formats."""
    for split, count in (("train", 6), ("valid", 2), ("test", 2)):
        labels = [LABELS[i % len(LABELS)] for i in range(count)]
        ids = [f"s{i % 2}-u{i}" for i in range(count)]
        order = sorted(range(count), key=lambda i: ids[i])
        ark, scp = b"", ""
        for i in order:
            _write(folder / f"kaldi/{split}/{ids[i]}.wav", wav(tones(labels[i], rng)))
            ark += ids[i].encode() + b" "
            scp += f"{ids[i]} feats.ark:{len(ark)}\n"
            ark += _matrix(rng, "FM" if i % 2 else "CM", 12 + 4 * len(labels[i]))
        text = "".join(f"{ids[i]} {' '.join(labels[i])}\n" for i in order)
        speakers = "".join(f"{ids[i]} {ids[i][:2]}\n" for i in order)
        for kind in ("kaldi", "ark"):
            _write(folder / f"{kind}/{split}/text", text)
            _write(folder / f"{kind}/{split}/utt2spk", speakers)
        _write(folder / f"kaldi/{split}/wav.scp", "".join(f"{ids[i]} {ids[i]}.wav\n" for i in order))
        _write(folder / f"kaldi/{split}/segments", "".join(f"{ids[i]} {ids[i]} 0.0 0.3\n" for i in order))
        _write(folder / f"ark/{split}/feats.ark", ark)
        _write(folder / f"ark/{split}/feats.scp", scp)
    _write(folder / "lexicon.txt", ";;; comment\nA AH0 B\nB B\nB(2) C B\nC CH # note\n")
    for split, count in (("train", 6), ("test", 2)):
        names = [f"clstk/{split}{i // 2}/{split}-{i}" for i in range(count)]
        for i, name in enumerate(names):
            _write(folder / f"an4/feat/{name}.mfc", mfc(LABELS[i % len(LABELS)], rng))
        _write(folder / f"an4/etc/an4_{split}.fileids", "".join(name + "\n" for name in names))
        _write(folder / f"an4/etc/an4_{split}.transcription", "".join(
            f"<s> {' '.join(LABELS[i % len(LABELS)])} </s> ({name.split('/')[-1]})\n" for i, name in enumerate(names)))
    _write(folder / "an4/etc/an4.dic", "A A\nB B\nC C\n")
    samples = tones("ABC", rng)
    for name, data in (("a.wav", wav(samples)), ("f.wav", wav(samples, form=3)), ("a.flac", flac(samples)),
                       ("a.sph", sphere(samples)), ("a.mfc", mfc("ABC", rng)), ("a.au", au(samples)),
                       ("a.ogg", opus(rng)), ("sox.wav", piped_wav(samples, 0x7FFFF000)),
                       ("zero.wav", piped_wav(samples, 0)), ("long.wav", piped_wav(samples, 0xFFFFFFFF, b"RF64"))):
        _write(folder / "audio" / name, data)


def make_base(folder, run):
    """Writes all inputs. run(arguments) must call the program in `folder` and raise an exception if the program fails."""
    rng = random.Random(1)
    write_images(folder / "data", rng)
    write_speech(folder, rng)
    for name in CONFIGS:
        _write(folder / f"configs/{name}.toml", config_text(name))
        run(["train", f"configs/{name}.toml", "--run-dir", f"runs/{name}", "--data-dir", "data", "--quiet"])
