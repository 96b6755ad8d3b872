"""Replaces functions of other libraries, and puts them back."""

import functools
from typing import Any, List, NamedTuple, Tuple


class Site(NamedTuple):
    """A replaced function: the attribute `name` of a module or class."""

    owner: Any
    name: str
    original: Any
    replacement: Any

    def __str__(self):
        module = getattr(self.owner, "__module__", "")  # modules have none
        return ".".join(filter(None, (module, self.owner.__name__, self.name)))


class Patch:
    """The functions that a call replaced, which undo() puts back, as does the end of a `with` block.

    Attributes:
        patched: Names of all replaced functions, also of those that an earlier call replaced.
        missing: Names of functions that are not replaced, each with the reason.
    """

    def __init__(self, title: str, sites: List[Site], patched: List[str], missing: List[str]):
        self._title = title
        self._sites = sites
        self.patched: Tuple[str, ...] = tuple(patched)
        self.missing: Tuple[str, ...] = tuple(missing)

    def undo(self) -> None:
        """Puts the originals back, unless something else has replaced them since."""
        for site in self._sites:
            if vars(site.owner).get(site.name) is site.replacement:
                setattr(site.owner, site.name, site.original)
        self._sites = []

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *_) -> None:
        self.undo()

    def __repr__(self) -> str:
        lines = [f"{self._title}: {len(self.patched)} functions are replaced for CPU tensors"]
        lines += [f"  {name}" for name in self.patched]
        lines += ["not replaced:"] * bool(self.missing) + [f"  {name}" for name in self.missing]
        return "\n".join(lines)


def replace(owner, name: str, replacement) -> Site:
    """Replaces a function by one that calls `replacement` and, if the result is NotImplemented, the original."""
    original = vars(owner)[name]

    @functools.wraps(original)
    def patched(*args, **kwargs):
        result = replacement(*args, **kwargs)
        return original(*args, **kwargs) if result is NotImplemented else result

    patched.tapeformer_original = original
    setattr(owner, name, patched)
    return Site(owner, name, original, patched)


def is_replaced(owner, name: str) -> bool:
    return hasattr(vars(owner)[name], "tapeformer_original")
