"""Masks with the constructors and properties of fast_transformers.masking. No matrix is made unless it is read."""

from functools import cached_property
from typing import Optional, Union

import torch
from torch import Tensor

from .._arguments import read_integer


class Mask:
    """A matrix that is True where a query, the row, may attend to a key, the column."""

    @property
    def bool_matrix(self) -> Tensor:
        raise NotImplementedError

    @property
    def float_matrix(self) -> Tensor:
        """1 where bool_matrix is True, and 0 elsewhere."""
        return self.bool_matrix.float()

    @property
    def additive_matrix(self) -> Tensor:
        """0 where bool_matrix is True, and -infinity elsewhere."""
        return torch.zeros_like(self.bool_matrix, dtype=torch.float32).masked_fill_(~self.bool_matrix, -torch.inf)

    @property
    def additive_matrix_finite(self) -> Tensor:
        """0 where bool_matrix is True, and -1e24 elsewhere."""
        return self.additive_matrix.clamp_(min=-1e24)

    @cached_property
    def all_ones(self) -> bool:
        return bool(self.bool_matrix.all())

    @cached_property
    def lower_triangular(self) -> bool:
        """Whether the matrix is square and True on and below its diagonal only."""
        matrix = self.bool_matrix
        return matrix.shape[0] == matrix.shape[1] and torch.equal(matrix, torch.ones_like(matrix).tril())

    @cached_property
    def lengths(self) -> Tensor:
        """The numbers of True elements of the rows. Raises ValueError if a row has True after False."""
        matrix = self.bool_matrix
        lengths = matrix.long().sum(1)
        if not torch.equal(matrix, torch.arange(matrix.shape[1], device=matrix.device) < lengths[:, None]):
            raise ValueError("the mask is no length mask: a row has True after False")
        return lengths


class FullMask(Mask):
    """Allows all pairs of a query and a key, or the pairs where a matrix is True.

    FullMask(N), FullMask(N, M) and FullMask(N=N, M=M) have N queries and M keys, by default N. FullMask() allows
    all pairs of any numbers of queries and keys, and has no matrix. FullMask(mask) has a bool matrix (N, M).
    """

    def __init__(
        self,
        mask: Union[Tensor, int, None] = None,
        N: Optional[int] = None,
        M: Optional[int] = None,
        device: Union[str, torch.device] = "cpu",
    ):
        self._matrix = self._shape = None
        if isinstance(mask, Tensor):
            if mask.dtype != torch.bool:
                raise TypeError(f"FullMask: the matrix must be torch.bool, not {mask.dtype}")
            if mask.dim() != 2:
                raise ValueError(f"FullMask: expected a matrix (N, M), not {tuple(mask.shape)}")
            self._matrix = mask.clone()
            return
        if mask is not None:
            if N is not None and M is not None:
                raise TypeError("FullMask: expected FullMask(N, M), not three sizes")
            N, M = mask, M if N is None else N
        if N is not None:
            N = read_integer("FullMask: N", N)
            self._shape = N, N if M is None else read_integer("FullMask: M", M)
        elif M is not None:
            raise TypeError("FullMask: M needs N")
        self._device = device

    @property
    def bool_matrix(self) -> Tensor:
        if self._matrix is not None:
            return self._matrix
        if self._shape is None:
            raise ValueError("FullMask() has no matrix; FullMask(N, M) has one")
        return torch.ones(self._shape, dtype=torch.bool, device=self._device)

    @cached_property
    def all_ones(self) -> bool:
        return self._matrix is None or bool(self._matrix.all())

    @cached_property
    def lower_triangular(self) -> bool:
        if self._matrix is None:
            return self._shape in ((0, 0), (1, 1))
        return Mask.lower_triangular.func(self)


class LengthMask(Mask):
    """Allows the first `lengths` (batch,) positions of each sequence. The matrix is (batch, max_len).

    By default, max_len is the largest length.
    """

    def __init__(
        self, lengths: Tensor, max_len: Optional[int] = None, device: Union[str, torch.device, None] = None
    ):
        if not isinstance(lengths, Tensor):
            raise TypeError(f"LengthMask: lengths must be a torch.Tensor, not {type(lengths).__name__}")
        self.lengths = lengths if device is None else lengths.to(device)
        self._max_len = max_len

    @property
    def bool_matrix(self) -> Tensor:
        max_len = int(self.lengths.max()) if self._max_len is None else self._max_len
        return torch.arange(max_len, device=self.lengths.device) < self.lengths[:, None]


class TriangularCausalMask(Mask):
    """Allows the pairs of N queries and N keys whose key is not after the query. Modules do not need N."""

    def __init__(self, N: Optional[int] = None, device: Union[str, torch.device] = "cpu"):
        self._length = None if N is None else read_integer("TriangularCausalMask: N", N)
        self._device = device

    @property
    def bool_matrix(self) -> Tensor:
        if self._length is None:
            raise ValueError("TriangularCausalMask() has no matrix; TriangularCausalMask(N) has one")
        return torch.ones(self._length, self._length, dtype=torch.bool, device=self._device).tril_()

    @property
    def all_ones(self) -> bool:
        return self._length in (0, 1)

    lower_triangular = True


def is_causal(mask, name: str, allow_full: bool = True, allow_causal: bool = True) -> bool:
    """Returns whether an attention mask is causal. Raises ValueError for a mask that the module does not support.

    No mask stands for all pairs or, in a module that supports only causal masks, for a causal mask. A mask of one
    token is both.
    """
    all_ones, lower = (getattr(mask, part, False) for part in ("all_ones", "lower_triangular"))
    if allow_full and (mask is None or all_ones):
        return False
    if allow_causal and (mask is None or lower):
        return True
    supported = ["a FullMask of ones"] * allow_full + ["a TriangularCausalMask"] * allow_causal
    found = "other masked pairs" if isinstance(mask, Mask) and not all_ones and not lower else type(mask).__name__
    raise ValueError(f"{name}: attn_mask must be None or {' or '.join(supported)}, not {found}")


def get_lengths(mask) -> Optional[Tensor]:
    """Returns the lengths of a length mask, which can be a tensor (batch,) or None."""
    if mask is None or isinstance(mask, Tensor):
        return mask
    if not hasattr(mask, "lengths"):
        raise TypeError(f"a length mask must be a LengthMask or a torch.Tensor (batch,), not {type(mask).__name__}")
    return mask.lengths
