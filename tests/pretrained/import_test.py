"""Compares imported models with the package transformers, which has made them with random weights.

    import_test.py PROGRAM READ_FILES

PROGRAM is tapeformer, and READ_FILES is the test program of this folder. The exit status is 77 if a package is missing.
"""

import pathlib
import sys
import tempfile

try:
    import models
    import numpy as np
    import torch
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
    worst = models.difference(models.logits_of_run(READ_FILES, run, PROMPTS, folder), models.logits_of_model(model, PROMPTS))
    print(f"{name}: largest difference of logits {worst:.2g}")
    assert worst < tolerance, worst
    return run


def test_families(folder: pathlib.Path) -> None:
    for family in models.FAMILIES:
        model = models.make(family)
        check(family, model, models.save(model, folder / family), folder)


def test_options(folder: pathlib.Path) -> None:
    variants = {
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


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_families(folder)
        test_options(folder)
        test_shards_and_types(folder)
        test_padding_is_never_drawn(folder)


if __name__ == "__main__":
    main()
