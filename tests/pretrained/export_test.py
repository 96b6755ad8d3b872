"""Exports runs as folders of Hugging Face and as GGUF files, and compares what the packages transformers and gguf read.

    export_test.py PROGRAM READ_FILES

PROGRAM is tapeformer, and READ_FILES is the test program of this folder. The exit status is 77 if a package is missing.
"""

import pathlib
import sys
import tempfile

try:
    import accelerate  # noqa: F401  transformers needs it for GGUF files
    import gguf
    import models
    import numpy as np
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM, READ_FILES = sys.argv[1:3]
PROMPTS = np.random.default_rng(1).integers(0, models.TOKENS, (3, 64))
TEXT = "the cat and the dog, l'été 2024\n\n  and then\tthe rain"
# transformers reads GGUF files of these families.
GGUF_READERS = ("llama", "qwen2", "qwen3", "gpt2")
# transformers ignores these sizes in GGUF files and has default sizes.
GGUF_SIZES = {"qwen3": {"head_dim": 128}, "gpt2": {"n_positions": 1024, "n_inner": 128}}
OWN_CONFIG = """
[data]
dataset = "text"
path = "{text}"
sequence_length = 64
batch_size = 4
[model]
type = "sequence"
attention = "softmax"
layers = 2
heads = 4
head_dim = 8
dropout = 0.0
norm = "pre"
{model}
[train]
steps = 3
"""
OWN_MODELS = {
    "llama": 'kv_heads = 2\nfeedforward = 64\nnorm_kind = "rms"\ngated_feedforward = true\nactivation = "silu"\npositions = "rotary"\n'
    "projection_biases = false\nfeedforward_biases = false\npredictor_bias = false",
    "gpt2": 'feedforward = 64\nactivation = "gelu"\npositions = "learned"\npredictor_bias = false\ntied_embeddings = true',
    "gpt_neox": 'feedforward = 64\nactivation = "gelu"\npositions = "rotary"\nparallel_residual = true\npredictor_bias = false',
}


def load(folder: pathlib.Path, **options) -> models.Model:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()


def same_weights(a: pathlib.Path, b: pathlib.Path) -> None:
    one, two = models.weights_of_run(a), models.weights_of_run(b)
    assert one.keys() == two.keys()
    for name in one:
        assert np.array_equal(one[name].view(np.uint32), two[name].view(np.uint32)), name


def round_trip(name: str, run: pathlib.Path, expected: np.ndarray, folder: pathlib.Path, prompts=PROMPTS) -> pathlib.Path:
    """Exports a run, reads the result with transformers, and imports it again. Returns the exported folder."""
    out = folder / f"out-{name}"
    models.call(PROGRAM, "export", run, out)
    worst = models.difference(models.logits_of_model(load(out), prompts), expected)
    print(f"{name}: folder: largest difference of logits {worst:.2g}")
    assert worst < 1e-4
    models.call(PROGRAM, "import", out, folder / f"again-{name}")
    same_weights(run, folder / f"again-{name}")
    return out


def gguf_round_trip(name: str, family: str, run: pathlib.Path, expected: np.ndarray, folder: pathlib.Path, prompts=PROMPTS) -> None:
    out = folder / f"{name}.gguf"
    models.call(PROGRAM, "export", run, out)
    if family in GGUF_READERS and name != "own-gpt2":
        worst = models.difference(models.logits_of_model(load(folder, gguf_file=out.name), prompts), expected)
        print(f"{name}: GGUF: largest difference of logits {worst:.2g}")
        assert worst < 1e-4
    models.call(PROGRAM, "import", out, folder / f"gguf-again-{name}")
    same_weights(run, folder / f"gguf-again-{name}")
    print(f"{name}: GGUF: the same weights after a second import")


def test_families(folder: pathlib.Path) -> None:
    for family in models.FAMILIES:
        model, run = models.make(family, **GGUF_SIZES.get(family, {})), folder / f"run-{family}"
        models.call(PROGRAM, "import", models.save(model, folder / family), run)
        expected = models.logits_of_model(model, PROMPTS)
        out = round_trip(family, run, expected, folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(out)
        assert tokenizer(TEXT).input_ids == models.make_tokenizer().encode(TEXT).ids
        assert tokenizer.decode(tokenizer(TEXT).input_ids) == TEXT
        if family in (*GGUF_READERS, "gpt_neox"):
            gguf_round_trip(family, family, run, expected, folder)


def test_scaled_rotary_positions(folder: pathlib.Path) -> None:
    """GGUF files have the scalings in their metadata, or as divisors of the angles."""
    ramp = {"rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 24}
    scalings = {
        "linear": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.5},
        "llama3": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0} | ramp,
        "yarn": {"rope_type": "yarn"} | ramp,
    }
    for name, rotary in scalings.items():
        model, run = models.make("llama", rope_parameters=rotary), folder / f"run-{name}"
        models.call(PROGRAM, "import", models.save(model, folder / name), run)
        expected = models.logits_of_model(model, PROMPTS)
        round_trip(name, run, expected, folder)
        out, again = folder / f"{name}.gguf", folder / f"gguf-again-{name}"
        models.call(PROGRAM, "export", run, out)
        models.call(PROGRAM, "import", out, again)
        worst = models.difference(models.logits_of_run(READ_FILES, again, PROMPTS, folder), expected)
        print(f"{name}: largest difference of logits after GGUF {worst:.2g}")
        assert worst < 1e-4
        tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(out).tensors}
        if name == "llama3":
            default = models.make("llama").model.rotary_emb.inv_freq
            divisors = np.array(tensors["rope_freqs.weight"].data)
            assert np.allclose(divisors, (default / model.model.rotary_emb.inv_freq).numpy(), rtol=1e-5), divisors
            test_bad_rotary_bases(out, folder)


def test_bad_rotary_bases(path: pathlib.Path, folder: pathlib.Path) -> None:
    """A base that fits no divisors is an error of the file."""
    data, bad = bytearray(path.read_bytes()), folder / "bad-base.gguf"
    key = b"llama.rope.freq_base" + gguf.GGUFValueType.FLOAT32.to_bytes(4, "little")
    place = data.index(key) + len(key)
    for base in (0.5, 0.0, -500.0, 1e-30, float("nan"), float("inf")):
        data[place : place + 4] = np.float32(base).tobytes()
        bad.write_bytes(data)
        error = models.call(PROGRAM, "import", bad, folder / "run-bad-base", status=3)
        assert "bad-base.gguf" in error, error


def test_gguf_types(folder: pathlib.Path) -> None:
    """The package gguf is the reference for the rounding."""
    plain = {t.name: t for t in gguf.GGUFReader(folder / "llama.gguf").tensors}
    for name in ("float16", "bfloat16", "q8_0"):
        out = folder / f"{name}.gguf"
        models.call(PROGRAM, "export", folder / "run-llama", out, "--type", name)
        kind = {"float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0"}[name]
        kind = gguf.GGMLQuantizationType[kind]
        tensors = gguf.GGUFReader(out).tensors
        assert len(tensors) == len(plain)
        for tensor in tensors:
            values = np.array(plain[tensor.name].data)
            fits = values.ndim == 2 and (name != "q8_0" or values.shape[-1] % 32 == 0)
            assert tensor.tensor_type == (kind if fits else gguf.GGMLQuantizationType.F32), tensor.name
            expected = gguf.quantize(values, kind) if fits else values
            assert np.array_equal(np.array(tensor.data).view(np.uint8), expected.view(np.uint8)), tensor.name
        models.call(PROGRAM, "import", out, folder / f"run-{name}")
        again = folder / f"{name}-again.gguf"
        models.call(PROGRAM, "export", folder / f"run-{name}", again, "--type", name)
        models.call(PROGRAM, "import", again, folder / f"run-{name}-again")
        if name != "q8_0":
            same_weights(folder / f"run-{name}", folder / f"run-{name}-again")
        print(f"{name}: the bytes are those of the package gguf")
    models.call(PROGRAM, "export", folder / "run-llama", folder / "narrow", "--type", "bfloat16")
    models.call(PROGRAM, "import", folder / "narrow", folder / "run-narrow")
    narrow = models.weights_of_run(folder / "run-narrow")
    for name, values in models.weights_of_run(folder / "run-llama").items():
        assert np.array_equal(narrow[name], torch.from_numpy(values).bfloat16().float().numpy()), name


def test_own_models(folder: pathlib.Path) -> None:
    (folder / "text.txt").write_text("the cat sat on the mat and the dog ran. " * 200)
    prompts = np.random.default_rng(2).integers(0, 256, (2, 48))
    for family, settings in OWN_MODELS.items():
        config, run = folder / f"own-{family}.toml", folder / f"own-{family}"
        config.write_text(OWN_CONFIG.format(text=folder / "text.txt", model=settings))
        models.call(PROGRAM, "train", config, "--run-dir", run)
        expected = models.logits_of_run(READ_FILES, run, prompts, folder)
        out = round_trip(f"own-{family}", run, expected, folder, prompts)
        tokenizer = transformers.AutoTokenizer.from_pretrained(out)
        assert tokenizer(TEXT).input_ids == list(TEXT.encode())
        assert tokenizer.decode(list(TEXT.encode())) == TEXT
        gguf_round_trip(f"own-{family}", family, run, expected, folder, prompts)


def test_errors(folder: pathlib.Path) -> None:
    config = folder / "other.toml"
    config.write_text(OWN_CONFIG.format(text=folder / "text.txt", model='feedforward = 64\npositions = "sinusoidal"'))
    models.call(PROGRAM, "train", config, "--run-dir", folder / "other")
    error = models.call(PROGRAM, "export", folder / "other", folder / "none", status=2)
    assert "no family of other programs has such a model" in error and "model.positions" in error, error
    error = models.call(PROGRAM, "export", folder / "run-llama", folder / "none", "--family", "gpt2", status=2)
    assert "model.gated_feedforward = true, expected false" in error, error
    error = models.call(PROGRAM, "export", folder / "run-gemma", folder / "none.gguf", status=2)
    assert "the family gemma has no GGUF files" in error, error
    error = models.call(PROGRAM, "export", folder / "run-llama", folder / "none", "--type", "q8_0", status=2)
    assert "folders of Hugging Face have float32 or bfloat16" in error, error
    error = models.call(PROGRAM, "export", folder / "run-llama", folder / "narrow", status=2)
    assert "exists" in error, error
    assert not (folder / "none").exists() and not list(folder.glob(".*"))


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_families(folder)
        test_scaled_rotary_positions(folder)
        test_gguf_types(folder)
        test_own_models(folder)
        test_errors(folder)


if __name__ == "__main__":
    main()
