"""Kinds of cases for the formats of pictures, recordings, texts and tokenizers."""

import base64
import codecs
import gzip
import json
import lzma
import zlib

import media
from cases import break_file, copy, files_under, mutate_file, translate_options, use_run
from mutate import mutate_bytes, mutate_text
from runner import Case


def pictures(rng, base, folder):
    """Changes pictures: EXIF, faults of which libjpeg warns, and other bytes."""
    copy(base, folder, "pictures", "configs/pictures.toml", "runs/pictures")
    changed = rng.sample(files_under(folder / "pictures"), rng.choice([1, 1, 1, 3]))
    for path in changed:
        data = path.read_bytes()
        if rng.random() < 0.7:
            data = media.add_exif(rng, data)
        if path.suffix == ".jpg" and rng.random() < 0.5:
            data = media.warn_jpeg(rng, data)
        path.write_bytes(mutate_bytes(rng, data) if rng.random() < 0.3 else data)
    arguments = rng.choice([["train", "configs/pictures.toml", "--dry-run"], ["train", "configs/pictures.toml", "--run-dir", "run"],
                            ["train", "configs/pictures.toml", "--dry-run", "--set", "data.bad_images=refuse"],
                            use_run(rng, "pictures")])
    return Case(arguments, {0, 2, 3}, files=changed)


def ogg(rng, base, folder):
    """Changes the pages of an Ogg file, mostly with correct checksums."""
    copy(base, folder, "audio", "kaldi", "configs/speech.toml", "runs/speech")
    path = folder / "audio" / rng.choice(["a.ogg", "a.ogg", "o.ogg"])
    data = path.read_bytes() + (rng.choice([folder / "audio/a.ogg", folder / "audio/o.ogg"]).read_bytes() if rng.random() < 0.1 else b"")
    path.write_bytes(mutate_bytes(rng, data) if rng.random() < 0.1 else media.mutate_ogg(rng, data))
    words = [["transcribe", "runs/speech", f"audio/{path.name}", *rng.choice([[], ["--stream"], ["--set", "data.resample=true"]])]]
    if rng.random() < 0.5:
        path = path.rename(folder / "kaldi/train/s0-u2.wav")
        words = [["train", "configs/speech.toml", "--dry-run"], ["data", "verify", "./kaldi/train"]]
    return Case(rng.choice(words), {0, 2, 3}, files=[path])


def pipes(rng, base, folder):
    """Writes a WAV with unknown or wrong lengths, which a command of wav.scp prints or which comes from standard input."""
    copy(base, folder, "kaldi", "lexicon.txt", "configs/speech.toml", "runs/speech")
    data, changed = media.wav_from_pipe(rng, media.tones("ABC", rng)), []
    for split in ("train", "test"):
        path = folder / f"kaldi/{split}/s0-u0.wav"
        path.write_bytes(data)
        scp = folder / f"kaldi/{split}/wav.scp"
        scp.write_text(scp.read_text().replace("s0-u0 s0-u0.wav", f"s0-u0 cat kaldi/{split}/s0-u0.wav |"))
        if rng.random() < 0.5:
            (folder / f"kaldi/{split}/segments").unlink()
        changed.append(path)
    arguments = rng.choice([["train", "configs/speech.toml", "--dry-run", "--allow-commands"],
                            ["eval", "runs/speech", "--allow-commands"], ["data", "verify", "./kaldi/train", "--allow-commands"],
                            ["transcribe", "runs/speech", "--stream", "-"], ["transcribe", "runs/speech", "kaldi/test/s0-u0.wav"]])
    return Case(arguments, {0, 3}, stdin=data, files=changed)


def _encode(rng, data):
    """Returns a text in another encoding, often without a byte order mark or with damaged bytes."""
    text = data.decode()
    if rng.random() < 0.3:
        text = text.replace("\n", "\r\n")
    encoded = rng.choice([text.encode("utf-16"), codecs.BOM_UTF16_BE + text.encode("utf-16-be"), text.encode("utf-16-le"),
                          text.encode("utf-16-be"), text.encode("utf-8-sig"), text.encode("utf-32"), text.encode("latin-1", "replace")])
    if rng.random() < 0.3:
        return mutate_bytes(rng, encoded, data)
    return encoded[:rng.choice([len(encoded)] * 3 + [len(encoded) - 1, rng.randrange(len(encoded))])]


# The files that may have another encoding, and the commands that read them.
ENCODED = {
    "kaldi/train/text": [["data", "verify", "./kaldi/train"], ["train", "configs/speech.toml", "--dry-run"]],
    "kaldi/train/wav.scp": [["data", "verify", "./kaldi/train"], ["train", "configs/speech.toml", "--dry-run"]],
    "kaldi/train/segments": [["data", "verify", "./kaldi/train"]],
    "kaldi/train/utt2spk": [["data", "verify", "./kaldi/train"]],
    "ark/train/feats.scp": [["data", "verify", "./ark/train"]],
    "lexicon.txt": [["data", "verify", "./lexicon.txt", "--layout", "lexicon"], ["train", "configs/lstm.toml", "--dry-run"]],
    "transcripts.tsv": [["data", "prepare", "kaldi", "--audio", "kaldi/train", "--transcripts", "transcripts.tsv", "--lexicon",
                         "lexicon.txt", "--out", "corpus"]],
    "text.txt": [["train", "configs/text.toml", "--dry-run"], ["train", "configs/text.toml", "--dry-run", "--set", "data.tokenizer=bytes"],
                 ["eval", "runs/text"], ["score", "runs/text", "text.txt"], ["bleu", "text.txt", "text.txt"],
                 ["generate", "runs/text", "--prompt-file", "text.txt", "--length", "3", "--json"]],
    "pairs/train.tgt": [["train", "configs/pairs.toml", "--dry-run"],
                        ["train", "configs/pairs.toml", "--dry-run", "--set", "data.tokenizer=bytes"]],
    "pairs/test.src": [["eval", "runs/pairs"], ["translate", "runs/pairs", "pairs/test.src"],
                       ["score", "runs/pairs", "pairs/test.src", "pairs/test.tgt"], ["bleu", "pairs/test.src", "pairs/test.tgt"]],
    "configs/copy.toml": [["train", "configs/copy.toml", "--dry-run"]],
}


def encodings(rng, base, folder):
    """Writes a list, a lexicon, a table of transcripts, a text or a config in UTF-16 or another encoding."""
    copy(base, folder, "kaldi", "ark", "lexicon.txt", "transcripts.tsv", "text.txt", "configs", "runs/text", "pairs", "runs/pairs")
    name = rng.choice(list(ENCODED))
    path = folder / name
    path.write_bytes(_encode(rng, path.read_bytes()))
    return Case(rng.choice(ENCODED[name]), {0, 2, 3}, files=[path])


def _compress(rng, path):
    """Compresses a file, often with damaged bytes or without its end. Returns the path of the new file."""
    suffix, pack = rng.choice([(".gz", gzip.compress), (".xz", lzma.compress)])
    data = pack(path.read_bytes())
    path.unlink()
    path = path.with_name(path.name + suffix)
    choice = rng.randrange(4)
    if choice == 0:
        data = mutate_bytes(rng, data)
    elif choice == 1:
        data = data[:rng.randrange(len(data))]
    path.write_bytes(data)
    return path


def _use_pairs(rng, split, source, target):
    """Returns arguments that read the sentences `source` and their translations `target`."""
    options = ["--set", f"data.{split}source={source}", "--set", f"data.{split}target={target}"]
    tokenizer = rng.choice([[], [], ["--set", "data.tokenizer=bytes"], ["--set", "data.max_ratio=1.5"], ["--set", "data.max_length=8"]])
    train = ["train", "configs/pairs.toml", *options, *tokenizer]
    if not split:
        return rng.choice([[*train, "--dry-run"], [*train, "--run-dir", "run"], ["eval", "runs/pairs", "--split", "train", *options]])
    return rng.choice([["eval", "runs/pairs", *options], ["translate", "runs/pairs", source, *translate_options(rng)],
                       ["translate", "runs/pairs", *translate_options(rng)], ["score", "runs/pairs", source, target],
                       ["score", "runs/pairs", "-", target, "--json"], ["bleu", source, target], ["bleu", "-", target, "--json"]])


def pairs(rng, base, folder):
    """Changes, exchanges, breaks or compresses the files of parallel text."""
    copy(base, folder, "pairs", "configs/pairs.toml", "runs/pairs")
    split = rng.choice(["", "test_"])
    names = [folder / "pairs" / f"{'test' if split else 'train'}.{side}" for side in ("src", "tgt")]
    stdin = names[0].read_bytes()
    changed = rng.randrange(2)
    if rng.random() < 0.9:
        mutate_file(rng, names[changed], [names[1 - changed], base / "text.txt"])
        if changed == 0:
            stdin = names[0].read_bytes()
    if rng.random() < 0.3:
        names[changed] = _compress(rng, names[changed])
    elif rng.random() < 0.05:
        break_file(rng, names[changed])
    paths = [str(path.relative_to(folder)) for path in names]
    if rng.random() < 0.05:
        paths[changed] = rng.choice(["pairs/*.nothing", "pairs/t*.src", "pairs", "nothing", ""])
    return Case(_use_pairs(rng, split, *paths), {0, 2, 3}, stdin=stdin, files=[names[changed]])


def _varint(data, at):
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            break
    return value, at


def _to_varint(value):
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def _fields(data):
    """Splits a message of Protocol Buffers whose fields are all length-delimited, as in a SentencePiece model."""
    fields, at = [], 0
    while at < len(data):
        tag, at = _varint(data, at)
        size, at = _varint(data, at)
        fields.append((tag, data[at:at + size]))
        at += size
    return fields


def _mutate_model(rng, model):
    """Returns a SentencePiece model whose pieces or options are changed, removed, repeated or exchanged."""
    if rng.random() < 0.3:
        return mutate_bytes(rng, model)
    fields = _fields(model)
    for _ in range(rng.choice([1, 1, 2, 5])):
        # The first pieces are the unknown piece, the control pieces and the bytes. The options follow the pieces.
        i = rng.choice([rng.randrange(4), rng.randrange(len(fields)), len(fields) - 1 - rng.randrange(3)])
        tag, body = fields[i]
        choice = rng.randrange(6)
        if choice == 0 and len(fields) > 4:
            fields.pop(i)
        elif choice == 1:
            fields.insert(i, rng.choice(fields))
        elif choice == 2:
            k = rng.randrange(len(fields))
            fields[i], fields[k] = fields[k], fields[i]
        elif choice == 3:  # the type of a piece: normal, unknown, control, user-defined, unused or byte
            fields[i] = tag, body + b"\x18" + bytes([rng.randrange(9)])
        elif choice == 4:
            text = rng.choice([b"", b"\xff", b"<0x41>", b"<0xZZ>", b"<0x>", "▁".encode(), "▁▁a".encode(), b"\x1b[31m", b"a" * 2000])
            fields[i] = tag, b"\x0a" + _to_varint(len(text)) + text + body
        else:
            fields[i] = tag, mutate_bytes(rng, body)
    return b"".join(_to_varint(tag) + _to_varint(len(body)) + body for tag, body in fields)


def _replace_model(path, model):
    """Replaces the SentencePiece model in the state of a checkpoint, and the checksum of the state."""
    text = path.read_text()
    text = text.replace(json.loads(text)["task"]["model"], base64.b64encode(model).decode())
    text = text[:text.rindex(',\n  "crc32"')]
    path.write_text(f'{text},\n  "crc32": "{zlib.crc32(text.encode()):08x}"\n}}\n')


def pieces(rng, base, folder):
    """Changes a SentencePiece model, in a file or in a checkpoint, and sometimes the text."""
    copy(base, folder, "pieces.model", "configs/pieces.toml", "runs/pieces", "text.txt")
    path, model = folder / "pieces.model", (base / "pieces.model").read_bytes()
    if rng.random() < 0.8:
        model = _mutate_model(rng, model)
    path.write_bytes(model)
    if rng.random() < 0.4:
        text = folder / "text.txt"
        text.write_bytes(mutate_text(rng, text.read_bytes(), "▁ ▁▁x\n\U0001f600 é́ \0\u2028".encode()))
    if rng.random() < 0.5:
        _replace_model(folder / "runs/pieces/checkpoints/latest/state.json", model)
        return Case(use_run(rng, "pieces"), {0, 2, 3}, files=[path])
    arguments = ["train", "configs/pieces.toml", "--set", "data.sentencepiece_model=pieces.model"]
    return Case(arguments + rng.choice([["--dry-run"], ["--run-dir", "run"]]), {0, 2, 3}, files=[path])
