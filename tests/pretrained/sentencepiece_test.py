"""Compares the tokens of a folder with a SentencePiece model, tokenizer.model, with those of the package sentencepiece.

    sentencepiece_test.py PROGRAM READ_FILES

PROGRAM is tapeformer, and READ_FILES is the test program of this folder. The exit status is 77 if a package is missing.
"""

import json
import pathlib
import random
import sys
import tempfile

try:
    import models
    import numpy as np
    import sentencepiece
    import torch  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM, READ_FILES = sys.argv[1:3]
PIECES = 310
PARTS = ["the cat", " ", "  ", "\n", "\n\n\n", "dog", "\t", "été", "\u2581", "漢字", "\U0001f600", "rain came", ".", " and", "<s>", "x"]


def train(folder: pathlib.Path, **options) -> bytes:
    """Returns a model with tokens for all bytes, as those of Llama 2."""
    text = folder / "words.txt"
    text.write_text("the cat and the dog and the bird sat there, and then the rain came\n" * 20)
    settings = dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, hard_vocab_limit=False)
    settings |= dict(model_type="bpe", minloglevel=2, input=str(text), model_prefix=str(folder / "trained"), vocab_size=PIECES)
    sentencepiece.SentencePieceTrainer.train(**settings | options)
    return (folder / "trained.model").read_bytes()


def make_folder(folder: pathlib.Path, name: str, model: bytes, **config) -> pathlib.Path:
    path = folder / name
    models.make("llama").save_pretrained(path)
    (path / "tokenizer.model").write_bytes(model)
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def compare(folder: pathlib.Path, name: str, model: bytes) -> pathlib.Path:
    """Imports a model and compares the tokens of random texts. Returns the run."""
    run = folder / f"run-{name}"
    models.call(PROGRAM, "import", make_folder(folder, name, model), run)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rng = random.Random(1)
    texts = ["".join(rng.choices(PARTS, k=rng.randint(1, 12))) for _ in range(2000)]
    (folder / "texts").write_bytes(b"".join(text.encode() + b"\0" for text in texts))
    lines = models.call(READ_FILES, "tokens", run / "tokenizer.model", folder / "texts").splitlines()
    for text, line in zip(texts, lines, strict=True):
        assert [int(token) for token in line[1:].split()] == processor.encode(text), (text, line)
    print(f"{name}: the tokens of {len(texts)} texts are those of the package sentencepiece")
    return run


def test_start_tokens(folder: pathlib.Path, model: bytes) -> None:
    """A prompt begins with the start token, and the padding of the embedding is never drawn."""
    run, processor = folder / "run-bpe", sentencepiece.SentencePieceProcessor(model_proto=model)
    prompt = "the cat and"
    tokens = [processor.bos_id(), *processor.encode(prompt)]
    drawn = models.call_json(PROGRAM, "generate", run, "--prompt", prompt, "--length", "5", "--greedy")
    assert drawn["prompt_tokens"] == len(tokens), drawn
    source = make_folder(folder, "no-start", model, add_bos_token=False)
    models.call(PROGRAM, "import", source, folder / "run-no-start")
    drawn = models.call_json(PROGRAM, "generate", folder / "run-no-start", "--prompt", prompt, "--length", "5", "--greedy")
    assert drawn["prompt_tokens"] == len(tokens) - 1, drawn


def test_export(folder: pathlib.Path, model: bytes) -> None:
    out, run = folder / "out", folder / "run-bpe"
    models.call(PROGRAM, "export", run, out)
    assert (out / "tokenizer.model").read_bytes() == model
    models.call(PROGRAM, "import", out, folder / "again")
    assert (folder / "again/tokenizer.model").read_bytes() == (run / "tokenizer.model").read_bytes()
    a, b = models.weights_of_run(run), models.weights_of_run(folder / "again")
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    error = models.call(PROGRAM, "export", run, folder / "out.gguf", status=2)
    assert "a GGUF file needs a tokenizer" in error, error


def field(number: int, content: bytes) -> bytes:
    """Returns a field of a protocol buffer."""
    size = b""
    count = len(content)
    while count >= 128:
        size, count = size + bytes([count % 128 + 128]), count // 128
    return bytes([number << 3 | 2]) + size + bytes([count]) + content


def test_errors(folder: pathlib.Path, model: bytes) -> None:
    sample = field(1, field(1, b"the") + field(2, b"another token"))
    byte_piece = field(1, field(1, b"x" * 200_000) + b"\x18\x06")
    table = np.arange(600, dtype=np.uint32) << 10  # nodes whose children are outside of the table
    characters = field(3, field(2, np.uint32(table.nbytes).tobytes() + table.tobytes() + b"a\0"))
    for name, damaged, text in (
        ("cut", model[:-7], "is not a SentencePiece model or is damaged"),
        ("self-test", model + field(4, sample), "Self-test failures"),
        ("byte", byte_piece + model, "is not a SentencePiece model or is damaged"),
        ("characters", model + characters, "the table of normalised characters is damaged"),
        ("spaces", train(folder, remove_extra_whitespaces=True), "removes spaces at the start of texts"),
    ):
        error = models.call(PROGRAM, "import", make_folder(folder, name, damaged), folder / "none", status=3)
        assert text in error and len(error.strip().splitlines()) == 1, error
        assert not (folder / "none").exists()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = train(folder)
        compare(folder, "bpe", model)
        compare(folder, "unigram", train(folder, model_type="unigram", add_dummy_prefix=False))
        compare(folder, "characters", train(folder, normalization_rule_name="nfkc_cf", add_dummy_prefix=False))
        compare(folder, "line-ends", train(folder, user_defined_symbols=["\n\n", "\n\n\n"], add_dummy_prefix=False))
        test_start_tokens(folder, model)
        test_export(folder, model)
        test_errors(folder, model)


if __name__ == "__main__":
    main()
