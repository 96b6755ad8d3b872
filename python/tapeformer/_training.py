"""Configs and training."""

import json
import numbers
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Union

from . import _core


class Config:
    """The config of a run: the values of a TOML file, with replacements.

    Args:
        path: A TOML file, or the name of a config of the package, such as "copy/linear"; "" for the defaults.
        set: Values that replace those of the file, such as {"train.steps": 100}.

    Raises:
        ConfigError: The message lists all problems, as the command line does.
    """

    def __init__(self, path: Union[str, os.PathLike] = "", set: Optional[Mapping[str, Any]] = None):
        self._config = _core.Config(_find_config(os.fspath(path)), format_settings(set))

    @classmethod
    def _wrap(cls, config: _core.Config) -> "Config":
        result = cls.__new__(cls)
        result._config = config
        return result

    def __repr__(self) -> str:
        return f"<tapeformer.Config {self.name!r}>"

    @property
    def name(self) -> str:
        """The name of the run."""
        return self._config.name

    @property
    def model_type(self) -> str:
        return self._config.model_type

    def __getitem__(self, key: str) -> str:
        """Returns the value of a key, such as "train.steps", as TOML text."""
        return self._config.format_value(key)

    def to_toml(self) -> str:
        """Returns all keys that have an effect."""
        return self._config.to_toml()


def train(
    config: Union[Config, str, os.PathLike],
    *,
    set: Optional[Mapping[str, Any]] = None,
    run_dir: Union[str, os.PathLike] = "",
    data_dir: Union[str, os.PathLike] = "",
    resume: bool = False,
    quiet: bool = True,
    on_metrics: Optional[Callable[[Dict[str, Any]], None]] = None,
) -> Dict[str, Any]:
    """Trains a model and writes checkpoints and metrics to a run directory.

    Ctrl-C saves a checkpoint and raises KeyboardInterrupt; resume=True continues. A second Ctrl-C raises it at
    once. An exception of on_metrics ends the training.

    Args:
        config: A Config, or the path or the name of a config; see Config.
        set: Values that replace those of the file; only with a path.
        run_dir: The run directory; by default runs/NAME.
        data_dir: Folder of the data sets.
        resume: Continues from the last checkpoint of the run directory.
        quiet: Prints no progress to standard error.
        on_metrics: Called with each record of metrics.jsonl, a dict.

    Returns:
        A dict with step, steps, seconds, best_loss, time_is_up, evaluation (the last results, or None) and
        metrics, the list of all records of this call.
    """
    if not isinstance(config, Config):
        config = Config(config, set)
    elif set:
        raise TypeError("set is for the path of a config; pass it to Config instead")
    return _core.train(config._config, os.fspath(run_dir), os.fspath(data_dir), resume, quiet, on_metrics)


def read_metrics(run: Union[str, os.PathLike]) -> List[Dict[str, Any]]:
    """Returns the records of metrics.jsonl in a run directory."""
    return _core.read_metrics(os.path.join(os.fspath(run), "metrics.jsonl"))


def _find_config(path: str) -> str:
    """Returns the file of the config that `path` names, as the command line finds it, or `path` if it is a file."""
    folder = Path(__file__).parent / "configs"
    if os.path.isfile(path) or path not in (x.relative_to(folder).with_suffix("").as_posix() for x in folder.rglob("*.toml")):
        return path
    return str(folder / f"{path}.toml")


def format_settings(settings: Optional[Mapping[str, Any]]) -> List[str]:
    """Returns settings in the form "table.key=value", where the value is TOML."""
    return [f"{key}={_format_value(value)}" for key, value in (settings or {}).items()]


def _format_value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, (str, bool)):
        return json.dumps(value, ensure_ascii=False)  # TOML has no surrogates
    if isinstance(value, numbers.Integral):  # also of NumPy
        return repr(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    raise TypeError(f"a config value must be a string, a number, a bool or a list, not {type(value).__name__}")
