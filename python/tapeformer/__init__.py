"""Tapeformer: attention for PyTorch, and models that the program tapeformer trains.

load() returns a trained model, and train() trains one; their arrays are NumPy arrays. tapeformer.torch has
attention as functions and modules of PyTorch. It needs PyTorch and is imported separately.
"""

from . import _openmp  # noqa: F401, I001  # before the extension
from . import _core
from ._core import (
    CheckpointError,
    ConfigError,
    DataError,
    DeviceError,
    DivergenceError,
    OutOfMemoryError,
    ShapeError,
)
from ._model import Model, load
from ._training import Config, read_metrics, train

__version__: str = _core.version

for _error in [x for x in globals().values() if isinstance(x, type) and issubclass(x, Exception)]:
    _error.__module__ = "tapeformer"


def set_log_level(level: str) -> None:
    """Sets the lowest level of messages on standard error: "debug", "info", "warning" (default) or "error"."""
    levels = ["debug", "info", "warning", "error"]
    if level not in levels:
        raise ValueError(f"level must be one of {', '.join(levels)}, not {level!r}")
    _core.set_log_level(levels.index(level))


__all__ = [
    "CheckpointError",
    "Config",
    "ConfigError",
    "DataError",
    "DeviceError",
    "DivergenceError",
    "Model",
    "OutOfMemoryError",
    "ShapeError",
    "load",
    "read_metrics",
    "set_log_level",
    "train",
]
