"""Compares imported models with the package transformers, which has made them with random weights.

    import_test.py PROGRAM READ_FILES

PROGRAM is tapeformer, and READ_FILES is the test program of this folder. The exit status is 77 if a package is missing.
"""

import json
import pathlib
import shutil
import sys
import tempfile

try:
    import models
    import numpy as np
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM, READ_FILES = sys.argv[1:3]
RNG = np.random.default_rng(1)
PROMPTS = RNG.integers(0, models.TOKENS, (3, 64))


def check(name: str, model: models.Model, source: pathlib.Path, folder: pathlib.Path, tolerance: float = 1e-4) -> pathlib.Path:
    """Imports a model and compares its logits. Returns the run."""
    run = folder / f"run-{name}"
    models.call(PROGRAM, "import", source, run)
    expected = models.logits_of_model(model, PROMPTS)
    worst = [
        models.difference(models.logits_of_run(READ_FILES, run, PROMPTS, folder, form), expected) for form in ("logits", "steps")
    ]
    print(f"{name}: largest difference of logits {worst[0]:.2g}, token by token {worst[1]:.2g}")
    assert max(worst) < tolerance, worst
    return run


def test_families(folder: pathlib.Path) -> None:
    for family in models.FAMILIES:
        model = models.make(family)
        check(family, model, models.save(model, folder / family), folder)


def test_greedy_texts(folder: pathlib.Path) -> None:
    """The text that "generate" continues greedily is that of the model."""
    tokenizer, prompt = models.make_tokenizer(), "the cat and the dog"
    for family in models.FAMILIES:
        tokens = models.greedy_tokens(models.make(family), tokenizer.encode(prompt).ids, 50)
        drawn = models.call_json(PROGRAM, "generate", folder / f"run-{family}", "--prompt", prompt, "--length", "50", "--greedy")
        assert drawn["texts"][0].endswith(tokenizer.decode(tokens)), (family, drawn["texts"][0], tokenizer.decode(tokens))
    print("greedy texts of 50 tokens are equal")


def test_options(folder: pathlib.Path) -> None:
    ramp = {"rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 24}
    turns = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    variants = {
        "llama-linear": ("llama", dict(rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 2.5})),
        "llama-3.1": ("llama", dict(rope_parameters={"rope_type": "llama3"} | ramp | turns)),
        "qwen2-yarn": ("qwen2", dict(rope_parameters={"rope_type": "yarn"} | ramp)),
        "neox-linear": (
            "gpt_neox",
            dict(rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0, "partial_rotary_factor": 0.5}),
        ),
        "qwen3.5-heads": ("qwen3_5_text", dict(linear_num_key_heads=4, layer_types=["full_attention", "linear_attention"] * 2)),
        "qwen3.5-tied": ("qwen3_5_text", dict(tie_word_embeddings=True, linear_conv_kernel_dim=2)),
        "llama-biases": ("llama", dict(attention_bias=True, mlp_bias=True)),
        "llama-tied": ("llama", dict(tie_word_embeddings=True)),
        "llama-heads": ("llama", dict(num_key_value_heads=4)),
        "qwen2-untied": ("qwen2", dict(tie_word_embeddings=False)),
        "qwen3-biases": ("qwen3", dict(attention_bias=True)),
        "gpt2-relu": ("gpt2", dict(activation_function="relu", layer_norm_epsilon=1e-3)),
        "neox-sequential": ("gpt_neox", dict(use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True)),
        "neox-tanh": ("gpt_neox", dict(hidden_act="gelu_new")),
    }
    for name, (family, changes) in variants.items():
        model = models.make(family, seed=2, **changes)
        check(name, model, models.save(model, folder / name), folder)


def test_shards_and_types(folder: pathlib.Path) -> None:
    model = models.make("llama")
    run = check("shards", model, models.save(model, folder / "shards", max_shard_size="40KB"), folder)
    assert (folder / "shards/model.safetensors.index.json").exists()
    whole = models.weights_of_run(folder / "run-llama")
    for name, values in models.weights_of_run(run).items():
        assert np.array_equal(values, whole[name]), name
    for dtype in (torch.bfloat16, torch.float16):
        rounded, name = models.make("llama"), str(dtype).split(".")[1]
        for parameter in rounded.parameters():
            parameter.data = parameter.data.to(dtype).float()
        check(name, rounded, models.save(models.make("llama").to(dtype), folder / name), folder)


def test_padding_is_never_drawn(folder: pathlib.Path) -> None:
    """The predictor of the padded tokens is made the largest one."""
    model = models.make("llama")
    with torch.no_grad():
        model.lm_head.weight[models.TOKENS :] *= 50
    run = check("padded", model, models.save(model, folder / "padded"), folder, tolerance=1e-2)
    for options in (["--greedy"], ["--temperature", "1"], ["--top-k", "5"]):
        drawn = models.call_json(PROGRAM, "generate", run, "--prompt", "the cat", "--length", "50", *options)
        assert drawn["drawn_tokens"] == 50 and len(drawn["texts"][0]) >= 40, drawn["texts"]


def test_start_tokens(folder: pathlib.Path) -> None:
    """The windows of "eval" begin with the start token, and every token of the text is scored once."""
    start, length = 5, 32
    model = models.make("llama")
    source = models.save(model, folder / "start")
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    token = next(piece for piece, number in tokenizer["model"]["vocab"].items() if number == start)
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {token: {"id": token, "ids": [start], "tokens": [token]}},
    }
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    models.call(PROGRAM, "import", source, folder / "run-start")
    text = folder / "text.txt"
    text.write_text("the cat and the bird sat there. " * 100)
    settings = [f"data.path={text}", "data.valid_share=0", "data.test_share=0.99", f"data.sequence_length={length}"]
    words = [word for setting in settings for word in ("--set", setting)]
    result = models.call_json(PROGRAM, "eval", folder / "run-start", "--limit", "4", *words)
    content = text.read_bytes()
    ids = models.make_tokenizer().encode(content[len(content) - round(len(content) * 0.99) :].decode()).ids
    nats = 0.0
    for first in range(0, 4 * length, length):
        tokens = torch.tensor([[start, *ids[first : first + length]]])
        with torch.no_grad():
            log_probabilities = model(tokens[:, :-1]).logits.double().log_softmax(-1)
        nats -= float(log_probabilities.gather(-1, tokens[:, 1:, None]).sum())
    print(f"start tokens: {result['nats_per_dim']:.6f} nats, transformers {nats / (4 * length):.6f}")
    assert result["tokens"] == 4 * length and abs(result["nats_per_dim"] - nats / (4 * length)) < 1e-5
    drawn = models.call_json(PROGRAM, "generate", folder / "run-start", "--length", "3", "--greedy")
    assert drawn["prompt_tokens"] == 1


def test_training(folder: pathlib.Path) -> None:
    """A training starts from an imported run, and "score" and "eval" take both."""
    run, tuned = folder / "run-llama", folder / "tuned"
    text = folder / "text.txt"
    words = ["--set", f"data.path={text}", "--set", "data.sequence_length=16"]
    changes = ["--set", f"model.init={run}", "--set", "train.steps=2", "--set", "optimizer.lr=1e-3"]
    models.call(PROGRAM, "train", run / "config.toml", "--run-dir", tuned, *words, *changes)
    before, after = (models.call_json(PROGRAM, "eval", path, *words[: 4 if path == run else 0]) for path in (run, tuned))
    assert after["bits_per_byte"] < before["bits_per_byte"], (before, after)
    scores = [models.call(PROGRAM, "score", path, text) for path in (run, tuned)]
    assert scores[0] != scores[1]
    models.call(PROGRAM, "export", tuned, folder / "tuned-hf")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "tuned-hf", dtype=torch.float32).eval()
    ours = models.logits_of_run(READ_FILES, tuned, PROMPTS[:, :16], folder)
    assert models.difference(ours, models.logits_of_model(model, PROMPTS[:, :16])) < 1e-4
    print("a training starts from an imported run")


def test_errors(folder: pathlib.Path) -> None:
    """Wrong arguments and damaged files leave nothing behind."""
    source, target = folder / "llama", folder / "none"

    def fails(status: int, text: str, *words) -> None:
        error = models.call(PROGRAM, "import", *words, status=status)
        assert text in error and len(error.strip().splitlines()) == 1, error
        assert not target.exists() and not list(folder.glob(".*")), list(folder.iterdir())

    fails(2, "exists; choose a new name", source, folder / "run-llama")
    fails(2, "is no name of a new file", source, "..")
    fails(3, "no such file or folder", folder / "absent", target)
    fails(3, "has no config.json", folder, target)
    fails(3, "no valid GGUF file", folder / "text.txt", target)
    damaged = folder / "damaged"
    for name, change in {
        "config.json": lambda data: data[:50],
        "tokenizer.json": lambda data: data.replace(b"ByteLevel", b"Metaspace"),
        "model.safetensors": lambda data: data[:-8],
    }.items():
        shutil.copytree(source, damaged)
        (damaged / name).write_bytes(change((source / name).read_bytes()))
        fails(3, str(damaged / name), damaged, target)
        shutil.rmtree(damaged)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_families(folder)
        test_greedy_texts(folder)
        test_options(folder)
        test_shards_and_types(folder)
        test_padding_is_never_drawn(folder)
        test_start_tokens(folder)
        test_training(folder)
        test_errors(folder)


if __name__ == "__main__":
    main()
