"""Runs the Python code of docs/python.md."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")

import tapeformer.torch  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def make_qwen(folder):
    transformers = pytest.importorskip("transformers", minversion="5", reason="skipped: transformers 5 is not installed")
    config = transformers.CONFIG_MAPPING["qwen3_next"](
        vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        intermediate_size=16, num_experts=0, linear_num_value_heads=2, linear_num_key_heads=1, linear_key_head_dim=8,
        linear_value_head_dim=8, mlp_only_layers=[0, 1], layer_types=["linear_attention", "full_attention"],
    )  # fmt: skip
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def test_the_page_has_code():
    assert len(BLOCKS) >= 6


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_code_of_the_page_runs(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = BLOCKS[number].replace('"train.steps": 100', '"train.steps": 2')
    if "my-qwen" in code:
        make_qwen("my-qwen")
    if "runs/copy" in code and 'run_dir="runs/copy"' not in code:
        tapeformer.train("copy/linear", set={"train.steps": 2}, run_dir="runs/copy")
    patches, patch = [], tapeformer.torch.patch_transformers
    monkeypatch.setattr(tapeformer.torch, "patch_transformers", lambda *names: patches.append(patch(*names)) or patches[-1])
    variables = {}
    exec(compile(code, f"{PAGE.name}, block {number + 1}", "exec"), variables)
    if "patch_transformers" in code:
        model, tokens = variables["model"], torch.zeros(1, 5, dtype=torch.int64)
        assert model(tokens).logits.isfinite().all()
        assert len(patches) == 1
        patches[0].undo()
