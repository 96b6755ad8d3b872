"""Writes the small valid inputs that the cases mutate: data sets, recordings and trained runs."""

import base64
import gzip
import importlib.util
import json
import pathlib
import random
import struct
import subprocess
import sys

import media
import pretrained
from media import au, flac, sphere, tones, wav

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

TEXT = """dataset = "text"
path = "text.txt"
sequence_length = 16
"""

PAIRS = """dataset = "translation"
source = "pairs/train.src"
target = "pairs/train.tgt"
valid_pairs = 4
test_source = "pairs/test.src"
test_target = "pairs/test.tgt"
tokenizer = "characters"
max_length = 64
batch_tokens = 0"""

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
    "pictures": ("image", "linear", "mixtures = 2", 'dataset = "images"\npath = "pictures"\nimage_size = 4'),
    "text": ("sequence", "linear", "", TEXT + 'tokenizer = "characters"'),
    "pieces": ("sequence", "linear", "", TEXT + 'tokenizer = "sentencepiece"\nvocabulary = 300'),
    "bpe": ("sequence", "linear", "", TEXT + 'tokenizer = "bpe"\ntokenizer_file = "bpe/tokenizer.json"'),
    "gated": ("sequence", "gated-delta", 'positions = "rotary"',
              TEXT + 'tokenizer = "bytes"\n[attention]\ndecay = "channel"\nconv = 3'),
    "pairs": ("translation", "softmax", 'norm = "pre"', PAIRS),
    "lightning": ("translation", "gated-linear", "", PAIRS + '\n[attention]\npreset = "lightning"'),
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
                       ("a.sph", sphere(samples)), ("a.mfc", mfc("ABC", rng)), ("a.au", au(samples))):
        _write(folder / "audio" / name, data)
    rows = "".join(f"{path.name}\tA B C\n" for path in sorted((folder / "kaldi/train").glob("*.wav")))
    _write(folder / "transcripts.tsv", "file\ttext\n" + rows)


def write_pictures(folder, rng):
    """Writes eight PNG and JPEG files of different sizes."""
    for i in range(8):
        width, height = rng.choice([8, 9, 24, 40]), rng.choice([8, 16, 33])
        data = media.jpeg(rng, width, height) if i % 2 else media.png(rng, width, height, rng.choice([1, 3, 4]))
        _write(folder / f"{i}.{'jpg' if i % 2 else 'png'}", data)


def write_text(path, rng):
    """Writes lines of words with letters of several scripts."""
    words = ["the", "cat", "sat", "on", "a", "mat", "größer", "déjà", "слово", "名前", "naïve", "...", "42"]
    _write(path, "".join(" ".join(rng.choices(words, k=rng.randint(0, 9))) + "\n" for _ in range(400)))


def write_pairs(folder, rng):
    """Writes short sentences and their translations, 30 pairs for training and 4 for tests."""
    words = {"the": "das", "house": "Haus", "is": "ist", "old": "alt", "new": "neu", "größer": "larger", "слово": "名前", "...": "…"}
    for split, count in (("train", 30), ("test", 4)):
        sentences = [rng.choices(list(words), k=rng.randint(1, 6)) for _ in range(count)]
        _write(folder / f"{split}.src", "".join(" ".join(sentence) + "\n" for sentence in sentences))
        _write(folder / f"{split}.tgt", "".join(" ".join(words[word] for word in sentence) + "\n" for sentence in sentences))


GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


def write_pretrained(folder, rng):
    """Writes a GGUF file with a tokenizer, and a folder of Hugging Face with two files of weights."""
    tokenizer = json.loads((GOLDEN / "bpe_tokenizer.json").read_text())
    _write(folder / "bpe/tokenizer.json", json.dumps(tokenizer, ensure_ascii=False))
    pieces = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    merges = [" ".join(pair) for pair in tokenizer["model"]["merges"]]
    _write(folder / "gguf/types.gguf", (GOLDEN / "gguf_types.gguf").read_bytes())
    _write(folder / "gguf/tokenizer.gguf", pretrained.gguf_file(pieces, merges))
    pretrained.write_llama(folder / "import", rng, tokenizer)
    pretrained.write_hybrids(folder / "hybrids", GOLDEN / "hybrids.safetensors", tokenizer)
    model = folder / "huggingface"
    _write(model / "config.json", json.dumps({"model_type": "llama", "hidden_size": 4, "eos_token_id": [420]}))
    _write(model / "tokenizer.json", json.dumps(tokenizer, ensure_ascii=False))
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for i, dtype in enumerate(("F16", "BF16")):
        _write(model / names[i], pretrained.safetensors({f"{i}.w": (dtype, [4, 2], rng.randbytes(16)), f"{i}.b": ("F32", [2], rng.randbytes(8))}))
    weight_map = {f"{i}.{name}": names[i] for i in (0, 1) for name in "wb"}
    _write(model / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": weight_map}))


CONVERT = [sys.executable, "-B", str(pathlib.Path(__file__).resolve().parents[2] / "scripts/convert.py")]
CONVERTED = ["image", "copy", "text", "pieces"]


def convert_runs(folder):
    """Converts the weights of runs by scripts/convert.py. Runs that the script refuses are missing in the result."""
    for name in CONVERTED:
        weights = folder / f"runs/{name}/checkpoints/latest/model.safetensors"
        if weights.exists():
            subprocess.run([*CONVERT, weights, "--config", f"configs/{name}.toml", "--out", f"converted/{name}"], cwd=folder,
                           capture_output=True)


def make_base(folder, run):
    """Writes all inputs. run(arguments) must call the program in `folder` and return whether it succeeds.

    Returns the kinds of cases without inputs, and why they have none.
    """
    rng, missing = random.Random(1), {}
    write_images(folder / "data", rng)
    write_speech(folder, rng)
    write_pictures(folder / "pictures", rng)
    write_text(folder / "text.txt", rng)
    write_pairs(folder / "pairs", rng)
    write_pretrained(folder, rng)
    if not (folder / "read_files").exists():
        missing["gguf"] = missing["huggingface"] = "the test program read_files was not built"
    for name, form in (("a.ogg", media.OGG_VORBIS), ("o.ogg", media.OGG_OPUS)):
        if not media.write_ogg(folder / "audio" / name, tones("ABCABCABC", rng), form=form):
            missing["ogg"] = "libsndfile is absent or cannot write Ogg"
    for name in CONFIGS:
        _write(folder / f"configs/{name}.toml", config_text(name))
        if run(["train", f"configs/{name}.toml", "--run-dir", f"runs/{name}", "--data-dir", "data", "--quiet"]):
            continue
        if name != "pieces":
            raise RuntimeError(f"the training of configs/{name}.toml failed")
        missing["pieces"] = "the program was built without SentencePiece"
    if not run(["import", "import/hf", "imported/hf", "--quiet"]) or not run(["import", "import/model.gguf", "imported/gguf", "--quiet"]):
        raise RuntimeError("the import of import/hf or import/model.gguf failed")
    if "pieces" not in missing:
        state = json.loads((folder / "runs/pieces/checkpoints/latest/state.json").read_text())
        _write(folder / "pieces.model", base64.b64decode(state["task"]["model"]))
    if all(importlib.util.find_spec(name) for name in ("torch", "safetensors", "numpy")):
        convert_runs(folder)
    if not (folder / "converted").exists():
        missing["converted"] = f"{sys.executable} has no PyTorch and safetensors for scripts/convert.py"
    return missing
