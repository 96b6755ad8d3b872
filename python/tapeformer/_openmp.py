"""Loads the OpenMP library of an installed PyTorch before 2.8, before the extension is imported.

The name of this library, libgomp-HASH.so.1, differs from libgomp.so.1, which the extension needs. The loader would use both,
with a thread pool each. It resolves symbols in global libraries first, so all later libraries use the pool of PyTorch.
"""

import ctypes
import importlib.util
from pathlib import Path


def _find_folders() -> list:
    try:
        spec = importlib.util.find_spec("torch")
    except ValueError:  # a module without a specification
        spec = None
    return list(spec.submodule_search_locations or []) if spec else []


for _folder in _find_folders():
    for _path in Path(_folder, "lib").glob("libgomp-*.so*"):
        ctypes.CDLL(str(_path), mode=ctypes.RTLD_GLOBAL)
