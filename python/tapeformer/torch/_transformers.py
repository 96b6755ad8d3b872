"""Puts functions of Tapeformer in place in the models of Hugging Face's transformers."""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import torch

from . import _gated_rules as rules
from ._patching import Patch, is_replaced, replace

_TITLE = "tapeformer.torch.patch_transformers"

# The functions of the modules transformers.models.*.modeling_*.
_FUNCTIONS = {
    "torch_chunk_gated_delta_rule": rules.chunk_delta_rule,
    "torch_recurrent_gated_delta_rule": rules.recurrent_delta_rule,
    "chunk_kimi_delta_attention": rules.chunk_delta_rule,
    "recurrent_kimi_delta_attention": rules.recurrent_delta_rule,
    "mamba2_chunk_scan": rules.scan_mamba2,
    "mamba2_selective_state_update": rules.step_mamba2,
    "causal_conv1d_fn": rules.convolve,
    "causal_conv1d_update": rules.convolve_token,
}
_GROUPS = (  # the functions of a layer; the convolutions are in all of them
    ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"),
    ("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention"),
    ("mamba2_chunk_scan", "mamba2_selective_state_update"),
    ("causal_conv1d_fn", "causal_conv1d_update"),
)
_NORM = "RMSNormGated"  # the end of the names of classes


def patch_transformers(*models: str) -> Patch:
    """Replaces the gated layers' functions in all models of the installed transformers by ours, for CPU tensors.

    The layers are the gated delta rule (Qwen3-Next, Qwen3.5 and others), Kimi delta attention and Mamba-2, each in
    chunks and as a step with its cache, the causal convolutions, and the norms with a gate after them. A function is
    replaced if it is found by its name and computes the same as ours for a small input; transformers 5.24 is tested.
    CUDA tensors and arguments that ours do not support go to the original. A second call changes nothing.

    Args:
        models: Folders of transformers.models, such as "qwen3_next". By default, all models with such a function are
            imported, which takes some seconds.

    Returns:
        A Patch, which lists the replaced functions and those that were not found. Its undo(), or the end of a `with`
        block, puts the originals back that this call has replaced.
    """
    sites, patched, missing = [], [], []
    found = set()
    for module in _find_modules(models):
        missing += [f"{module.__name__}: {name} (not found)" for name in _list_absent(module)]
        for owner, name, function, sample in _list_candidates(module):
            found.add(name if name in _FUNCTIONS else _NORM)
            problem = None if is_replaced(owner, name) else _compare(vars(owner)[name], function, sample)
            label = f"{module.__name__}: {name if owner is module else owner.__name__}"
            if problem:
                missing.append(f"{label} ({problem})")
                continue
            patched.append(label)
            if not is_replaced(owner, name):
                sites.append(replace(owner, name, function))
    if not models:
        missing += [f"{name} (no model has it)" for name in (*_FUNCTIONS, _NORM) if name not in found]
    return Patch(_TITLE, sites, patched, missing)


def _find_modules(models) -> Iterator[Any]:
    """Yields the modules of transformers that define one of the functions."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.origin:
        raise ModuleNotFoundError("patch_transformers needs the package transformers")
    folder = Path(spec.origin).parent / "models"
    for name in models:
        if not (folder / name).is_dir():
            raise ValueError(f"patch_transformers: transformers has no models/{name}")
    pattern = re.compile(rf"^def ({'|'.join(_FUNCTIONS)})\(".encode(), re.MULTILINE)
    for path in sorted(folder.glob("*/modeling_*.py")):
        name = path.parent.name
        if (not models or name in models) and pattern.search(path.read_bytes()):
            yield importlib.import_module(f"transformers.models.{name}.{path.stem}")


def _list_absent(module) -> List[str]:
    """Returns the functions that a layer of the module needs beside those that the module has."""
    names = set(vars(module))
    absent: List[str] = []
    for group in _GROUPS:
        if names & set(group):
            absent += [name for name in group if name not in names]
    return absent


def _list_candidates(module) -> Iterator[Tuple[Any, str, Any, Dict]]:
    """Yields the owner, the name and the replacement of functions, and arguments for which both are compared."""
    for name, function in _FUNCTIONS.items():
        if inspect.isfunction(vars(module).get(name)):
            yield module, name, function, _make_sample(name)
    for name, kind in list(vars(module).items()):
        if name.endswith(_NORM) and inspect.isclass(kind) and kind.__module__ == module.__name__:
            yield kind, "forward", rules.normalize, {"norm": kind}


def _make_sample(name: str) -> Dict:
    """Returns small random arguments of a function."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    if name.startswith("causal_conv1d"):
        length = 1 if name.endswith("update") else 5
        sample = {"hidden_states": draw(1, 3, length), "weight": draw(3, 4), "bias": draw(3), "activation": "silu"}
        return {**sample, "conv_state": draw(1, 3, 4)} if name.endswith("update") else sample
    if name == "mamba2_selective_state_update":
        return {
            "state": draw(1, 4, 3, 5), "hidden_states": draw(1, 4, 3), "dt": draw(1, 4, 1).expand(1, 4, 3),
            "A": (-draw(4, 1, 1).abs()).expand(4, 3, 5), "B": draw(1, 2, 5), "C": draw(1, 2, 5),
            "D": draw(4, 1).expand(4, 3), "dt_bias": draw(4, 1).expand(4, 3), "dt_softplus": True,
        }  # fmt: skip
    if name == "mamba2_chunk_scan":
        return {
            "hidden_states": draw(1, 6, 4, 3), "dt": draw(1, 6, 4), "A": -draw(4).abs(), "B": draw(1, 6, 2, 5),
            "C": draw(1, 6, 2, 5), "chunk_size": 4, "D": draw(4), "dt_bias": draw(4), "dt_softplus": True,
            "initial_states": draw(1, 4, 3, 5), "return_final_states": True,
        }  # fmt: skip
    shape = (1, 6, 2, 5) if "kimi" in name else (1, 6, 2)
    return {
        "query": draw(1, 6, 2, 5), "key": draw(1, 6, 2, 5), "value": draw(1, 6, 2, 3), "g": -draw(*shape).abs(),
        "beta": draw(1, 6, 2).sigmoid(), "initial_state": draw(1, 2, 5, 3), "output_final_state": True,
        "use_qk_l2norm_in_kernel": True,
    }  # fmt: skip


@torch.no_grad()
def _compare(original, replacement, sample: Dict) -> str:
    """Returns why a function cannot be replaced, or an empty string."""
    original = inspect.unwrap(original)  # of the choice between kernels, which warns on a CPU
    results: List[List[torch.Tensor]] = []
    try:
        for function in (original, replacement):
            if "norm" in sample:
                if "group_size" in inspect.signature(sample["norm"]).parameters:
                    return "norm of groups"
                module = sample["norm"](6)
                if not hasattr(module, "activation"):
                    return "the gate is before the norm"
                generator = torch.Generator().manual_seed(1)
                module.weight.copy_(torch.randn(6, generator=generator))
                arguments = {"hidden_states": torch.linspace(-1, 2, 6)[None], "gate": torch.linspace(-2, 2, 6)[None]}
                result = function(module, **arguments)
            else:
                arguments = {name: x.clone() if name in ("state", "conv_state") else x for name, x in sample.items()}
                result = function(**arguments)
            tensors = [*(result if isinstance(result, tuple) else (result,)), *arguments.values()]
            results.append([x for x in tensors if isinstance(x, torch.Tensor)])
    except Exception as error:  # of a version with other arguments
        return f"other arguments: {error}".splitlines()[0]
    expected, found = results
    if len(expected) != len(found):
        return "other numbers of results"
    for x, y in zip(expected, found):
        if x.shape != y.shape or not torch.allclose(x, y, rtol=1e-4, atol=1e-5):
            return "other results"
    return ""
