"""Runs the code cells of the notebooks in python/examples, and checks that their results are stored."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 60_000  # bytes, so that a notebook is read as text


def read_cells(path):
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_there_are_two_notebooks():
    assert [x.name for x in NOTEBOOKS] == ["finetune_and_linearize.ipynb", "linear_attention.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda x: x.stem)
def test_results_are_stored(path):
    assert path.stat().st_size < LARGEST
    for number, cell in enumerate(read_cells(path), 1):
        assert cell["execution_count"] == number
        assert bool(cell["outputs"]) == ("print(" in "".join(cell["source"]))
        assert all(x["output_type"] == "stream" and x["name"] == "stdout" for x in cell["outputs"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda x: x.stem)
def test_code_of_a_notebook_runs(path, tmp_path, program):
    code = "\n".join("".join(cell["source"]) for cell in read_cells(path))
    if "import torch" in code:
        pytest.importorskip("torch", reason="skipped: PyTorch is not installed")
    (tmp_path / "tapeformer").symlink_to(program)
    (tmp_path / "temporary").mkdir()
    environment = {
        **os.environ, "STEPS": "12", "TMPDIR": str(tmp_path / "temporary"), "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)
