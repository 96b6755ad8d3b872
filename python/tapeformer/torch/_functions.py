"""Attention as differentiable functions of torch tensors."""

from typing import Callable, Optional, Tuple, Union

import torch
from torch import Tensor

from .._arguments import read_integer
from . import _ops
from ._arguments import cast_for_autocast, check_dense, check_inputs, read_gate, read_lengths


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    lengths: Optional[Tensor] = None,
    scale: Optional[float] = None,
    dropout_p: float = 0.0,
    mask: Optional[Tensor] = None,
) -> Tensor:
    """Computes softmax attention with memory that is linear in the lengths.

    Args:
        q: Queries (batch, query_length, heads, dim).
        k: Keys (batch, key_length, key_heads, dim). `key_heads` divides `heads`: query head h reads key head
            h // (heads // key_heads).
        v: Values (batch, key_length, key_heads, value_dim).
        causal: Query i attends to the keys 0 to i + key_length - query_length.
        lengths: Numbers of valid keys (batch,). Later keys are masked.
        scale: Multiplier of q . k; by default 1 / sqrt(dim).
        dropout_p: Probability of setting an attention probability to zero.
        mask: Shape that broadcasts to (batch, heads, query_length, key_length). A bool tensor is True for pairs that
            are not masked; other tensors are added to the scaled scores. It has no gradient.

    Returns:
        A contiguous tensor (batch, query_length, heads, value_dim). If all keys of a query are masked, the
        result for the query is 0.
    """
    return _attend(q, k, v, causal, lengths, scale, dropout_p, 1, _ops.UNLIMITED, _ops.UNLIMITED, mask)


def local_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int = 256,
    causal: bool = False,
    lengths: Optional[Tensor] = None,
    scale: Optional[float] = None,
    dropout_p: float = 0.0,
    form: str = "sliding",
    blocks_back: int = 1,
) -> Tensor:
    """Computes softmax attention to the keys in a window; the time is linear in the length.

    Args:
        q, k, v, causal, lengths, scale, dropout_p: See softmax_attention(). Queries and keys have equal
            lengths.
        window: Number of tokens in a sliding window, or in a block.
        form: "sliding": a token attends to itself, to the `window` - 1 tokens before it and, without `causal`,
            to the `window` - 1 tokens after it. "blocks": a token attends to its block of `window` tokens and
            to `blocks_back` earlier blocks.
        blocks_back: Number of earlier blocks, for form="blocks".
    """
    window = read_integer("local_attention: window", window, 1, _ops.UNLIMITED)
    if form == "sliding":
        block, before, after = 1, window - 1, window - 1
    elif form == "blocks":
        blocks_back = read_integer("local_attention: blocks_back", blocks_back)
        block, before, after = window, min(blocks_back * window, _ops.UNLIMITED), 0
    else:
        raise ValueError(f'local_attention: form must be "sliding" or "blocks", not {form!r}')
    return _attend(q, k, v, causal, lengths, scale, dropout_p, block, before, after)


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    lengths: Optional[Tensor] = None,
    feature_map: Union[str, Callable[[Tensor], Tensor]] = "elu_plus_one",
    eps: float = 1e-6,
) -> Tensor:
    """Computes linear attention (Katharopoulos et al. 2020).

    out_i = sum_j (phi(q_i) . phi(k_j)) v_j / (sum_j phi(q_i) . phi(k_j) + eps), where j runs over all keys, or
    over j <= i if `causal` is true.

    Args:
        q: Queries (batch, query_length, heads, dim).
        k: Keys (batch, key_length, key_heads, dim). If `key_heads` is a divisor of `heads`, keys and values are
            repeated for groups of queries, as in softmax_attention().
        v: Values (batch, key_length, key_heads, value_dim).
        causal: Requires equal lengths of queries and keys.
        lengths: Numbers of valid keys (batch,). Later keys are masked.
        feature_map: phi: "elu_plus_one", "relu", "squared_relu" or "exponential", or a function that maps tensors
            (..., dim) to features (..., features).
        eps: Added to the denominators.

    Returns:
        A contiguous tensor (batch, query_length, heads, value_dim).
    """
    q, k, v = _prepare("linear_attention", q, k, v)
    k, v = _repeat_heads(q, k, v)
    if not callable(feature_map):
        return _ops.linear(q, k, v, read_lengths(lengths), bool(causal), find_feature_map(feature_map), float(eps))
    q, k, ones = apply_feature_map(feature_map, q), apply_feature_map(feature_map, k), v.new_ones((*v.shape[:3], 1))
    values = torch.cat([v, ones], 3).to(q.dtype)  # sums of the ones are the denominators
    sums = _ops.linear(q, k, values, read_lengths(lengths), bool(causal), _ops.IDENTITY, 1.0)
    return (sums[..., :-1] / (sums[..., -1:] + eps)).to(v.dtype)


def lsh_attention(
    q: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    lengths: Optional[Tensor] = None,
    preset: str = "reformer",
    rounds: Optional[int] = None,
    chunk_length: Optional[int] = None,
    buckets: Optional[int] = None,
    dropout_p: float = 0.0,
    seed: Optional[int] = None,
) -> Tensor:
    """Computes LSH attention (Kitaev et al. 2020), in which queries also serve as keys.

    Args:
        q: Queries (batch, length, heads, dim).
        v: Values (batch, length, heads, value_dim).
        causal: Queries do not attend to later positions.
        lengths: Numbers of valid positions (batch,). Results beyond them are 0.
        preset: "reformer" (the equations of the paper), "trax" or "fast_transformers".
        rounds: Number of rounds of hashing; by default 4.
        chunk_length: Number of positions in a chunk; by default 64, or 32 for "fast_transformers". Sequences
            up to this length use exact attention.
        buckets: Number of buckets, which is even. 0, the default except for "fast_transformers", stands for
            2 length / chunk_length, as does a number that exceeds the valid length.
        dropout_p: Probability of setting an attention weight to zero.
        seed: Selects the random hash and the dropout mask, 0 to 2**64 - 1; by default drawn from torch's generator.

    Returns:
        A contiguous tensor (batch, length, heads, value_dim). The gradient treats the buckets as constants.
    """
    q, v = _prepare("lsh_attention", q, v)
    if not isinstance(preset, str):
        raise TypeError(f"lsh_attention: preset must be a str, not {type(preset).__name__}")
    settings = (("rounds", rounds, 1, 0), ("chunk_length", chunk_length, 1, 0), ("buckets", buckets, 0, -1))
    sizes = [default if x is None else read_integer(f"lsh_attention: {n}", x, least) for n, x, least, default in settings]
    if seed is None:
        drawn = _draw_seed()
    else:
        seed = read_integer("lsh_attention: seed", seed, 0, 1 << 64)
        drawn = torch.tensor(seed - (seed >> 63 << 64), dtype=torch.int64, device="cpu")  # the same 64 bits
    return _ops.lsh(q, v, read_lengths(lengths), drawn, bool(causal), float(dropout_p), preset, *sizes)


def gated_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    log_decay: Optional[Tensor] = None,
    erase: Optional[Tensor] = None,
    beta: Optional[Tensor] = None,
    initial_state: Optional[Tensor] = None,
    lengths: Optional[Tensor] = None,
    boundaries: Optional[Tensor] = None,
    reverse: bool = False,
) -> Tuple[Tensor, Tensor]:
    """Computes linear attention that forgets: RetNet, Mamba-2, GLA, DeltaNet, Gated DeltaNet and KDA.

    For each head, token t updates a state S (dim, value_dim) and reads it:
    S_t = (I - beta_t k_t e_t^T) Diag(exp(g_t)) S_{t-1} + beta_t k_t v_t^T and out_t = S_t^T q_t.
    `q` contains the scale, such as 1 / sqrt(dim).

    Args:
        q: Queries (batch, length, heads, dim).
        k: Keys (batch, length, heads, dim).
        v: Values (batch, length, heads, value_dim).
        log_decay: g, at most 0: (batch, length, heads), (batch, length, heads, dim), or (heads,). By default 0.
        erase: e, (batch, length, heads, dim); pass `k` for the delta rule. By default 0.
        beta: (batch, length, heads), by default 1.
        initial_state: S before the first token, (batch, heads, dim, value_dim); by default 0.
        lengths: Numbers of valid tokens (batch,). Later tokens do not change the state; their results are 0.
        boundaries: Starts of packed sequences, (batch, length) of bools or integers 0 and 1. The state is 0 before the
            first token of a sequence.
        reverse: Processes the tokens from the last valid token to the first.

    Returns:
        The results (batch, length, heads, value_dim), and the final state (batch, heads, dim, value_dim).
        For bfloat16 inputs, g, beta and states are float32. Gradients flow to all inputs from both results.
    """
    q, k, v, erase = _prepare("gated_linear_attention", q, k, v, erase)
    dtype = _ops.compute_dtype(q)
    log_decay = read_gate("log_decay", log_decay, dtype)
    if log_decay is not None and log_decay.dim() not in (3, 4):
        if log_decay.shape != q.shape[2:3]:
            raise ValueError(
                f"gated_linear_attention: log_decay is {tuple(log_decay.shape)}, expected {tuple(q.shape[:3])}, "
                f"{tuple(q.shape)} or {tuple(q.shape[2:3])}"
            )
        log_decay = log_decay.expand(q.shape[:3])
    if log_decay is not None and log_decay.dim() == 3:
        log_decay = log_decay.unsqueeze(3)
    if boundaries is not None:
        log_decay = _clear_states(q, log_decay, boundaries, reverse)
    beta, initial_state = read_gate("beta", beta, dtype), read_gate("initial_state", initial_state, dtype)
    return _ops.gated(q, k, v, log_decay, erase, beta, initial_state, read_lengths(lengths), bool(reverse))


def _clear_states(q, log_decay, boundaries, reverse) -> Tensor:
    """Returns the log decays, -infinity for tokens before which the state is cleared."""
    if not isinstance(boundaries, Tensor) or boundaries.shape != q.shape[:2]:
        found = tuple(boundaries.shape) if isinstance(boundaries, Tensor) else type(boundaries).__name__
        raise ValueError(f"gated_linear_attention: boundaries is {found}, expected {tuple(q.shape[:2])}")
    check_dense("gated_linear_attention: boundaries", boundaries)
    _check_floats("gated_linear_attention", q)
    starts = boundaries != 0
    if reverse:  # the last token of a sequence is then its first
        starts = torch.cat([starts[:, 1:], starts.new_zeros(starts.shape[0], min(starts.shape[1], 1))], 1)
    if log_decay is None:
        log_decay = q.new_zeros((*q.shape[:3], 1), dtype=_ops.compute_dtype(q))
    if starts.device != log_decay.device:
        raise ValueError(f"gated_linear_attention: boundaries is on {starts.device}, and log_decay on {log_decay.device}")
    return log_decay.masked_fill(starts[:, :, None, None], -torch.inf)


def apply_feature_map(feature_map, x: Tensor) -> Tensor:
    """Returns the features of a function of the caller in the compute dtype."""
    features = feature_map(x)
    if not isinstance(features, Tensor) or features.shape[:-1] != x.shape[:-1]:
        found = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(f"feature_map must map {tuple(x.shape)} to ({', '.join(map(str, x.shape[:-1]))}, features), not {found}")
    return features.to(_ops.compute_dtype(x))


def _repeat_heads(q, *tensors):
    """Returns keys and values, or keys only, with the heads of q."""
    heads, key_heads = q.shape[2], tensors[0].shape[2]
    if heads == key_heads or key_heads == 0 or heads % key_heads:
        return tensors  # the operators raise the error
    return [x if x is None else x.repeat_interleave(heads // key_heads, 2) for x in tensors]


def find_feature_map(name: str) -> int:
    if name not in _ops.FEATURE_MAPS:
        raise ValueError(f"feature_map must be one of {', '.join(_ops.FEATURE_MAPS)}, not {name!r}")
    return _ops.FEATURE_MAPS[name]


def read_scale(scale: Optional[float]) -> float:
    """Returns the scale for the extension, where 0 is the default 1 / sqrt(dim)."""
    if scale is not None and scale == 0:
        raise ValueError("scale must not be 0; None: 1 / sqrt(dim)")
    return 0.0 if scale is None else float(scale)


def _attend(q, k, v, causal, lengths, scale, dropout_p, block, before, after, mask=None):
    q, k, v = _prepare("softmax_attention", q, k, v)
    seed = _draw_seed() if dropout_p > 0 else None
    if mask is not None:
        mask = _read_mask(mask, q, k)
    return _ops.softmax(
        q, k, v, read_lengths(lengths), seed, mask, bool(causal), read_scale(scale), float(dropout_p), block, before,
        after,
    )  # fmt: skip


def _read_mask(mask, q, k) -> Tensor:
    """Returns a mask as numbers (batch, heads, query_length, key_length) that are added to scores."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"softmax_attention: mask must be a torch.Tensor, not {type(mask).__name__}")
    check_dense("softmax_attention: mask", mask)
    _check_floats("softmax_attention", q)
    if mask.requires_grad:
        raise ValueError("softmax_attention: the mask has no gradient, and this one requires it; pass mask.detach()")
    dtype = _ops.compute_dtype(q)
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)
    elif not mask.dtype.is_floating_point:
        raise TypeError(f"softmax_attention: mask must be torch.bool or floats, not {mask.dtype}")
    shape = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    try:
        return mask.to(dtype).expand(shape)
    except RuntimeError:
        raise ValueError(f"softmax_attention: the mask {tuple(mask.shape)} does not broadcast to {tuple(shape)}") from None


def _check_floats(op, q) -> None:
    if not q.dtype.is_floating_point:
        raise TypeError(f"{op}: q is {q.dtype}, expected floats")


def _draw_seed() -> Tensor:
    return torch.randint(1 << 62, (), dtype=torch.int64, device="cpu")


def _prepare(op, *tensors):
    """Checks what the allocation of results needs, and casts float32 tensors for autocast."""
    for x in tensors:
        if not isinstance(x, Tensor) or x.dim() != 4:
            check_inputs(op, "(batch, length, heads, dim)", tensors)
    return cast_for_autocast(tensors)
