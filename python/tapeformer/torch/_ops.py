"""Registers attention as differentiable operators.

An operator has a plain function for each pass. Four things call it: torch.autograd.Function in eager code,
because it has the least overhead; another torch.autograd.Function in transforms of torch.func; a custom operator
of torch.library for meta tensors and in code that torch.compile, torch.export, torch.jit.trace or a dispatch
mode traces; and the function itself if no gradient is needed.
"""

from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch._C import _is_tracing, _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from .. import _core
from ._transforms import make_functions, map_batch, resolve_negative

_core.register_torch(
    {name: getattr(torch, name) for name in ("float32", "float64", "bfloat16", "int64", "int32")},
    lambda index: torch.cuda.current_stream(index).cuda_stream,
)

# Keeps the operators out of the CUDA graphs of torch.compile, in versions of PyTorch that have the tag.
_TAGS = {"tags": [torch.Tag.cudagraph_unsafe]} if hasattr(torch.Tag, "cudagraph_unsafe") else {}

UNLIMITED = 1 << 40  # a window without a limit


class Operator:
    """An attention operator.

    forward(*tensors, *constants) returns `result_count` results, and then tensors that only the backward pass
    needs. backward(gradients, tensors, outputs, constants) returns one gradient, or None, for each of the
    first `input_count` tensors. The rest of the `tensor_count` tensors are not differentiable: lengths (batch,),
    masks, and the seed, a tensor without dimensions. The first dimension of the other tensors is the batch.
    infer() has the arguments of forward(), and need not return the tensors for the backward pass.
    """

    def __init__(self, name, forward, fake, backward, tensor_count, input_count, result_count=1, infer=None):
        self.forward = forward
        self.infer = infer or forward
        self.backward = backward
        self.tensor_count = tensor_count
        self.input_count = input_count
        self.result_count = result_count
        self.function, self.transformable = make_functions(self, name)
        self.custom = self._register(name, fake)

    def __call__(self, *arguments):
        """Returns the result, or a tuple of several results."""
        is_plain, is_recorded = not is_traced(), False
        if is_plain:
            for x in arguments[: self.input_count]:  # one loop, because it is a part of the overhead of a call
                if x is None:
                    continue
                if x.is_neg():
                    return self(*resolve_negative(arguments))
                is_plain = is_plain and type(x) in _PLAIN
                is_recorded = is_recorded or x.requires_grad
            is_plain = is_plain and not arguments[0].is_meta
        else:
            arguments = resolve_negative(arguments)
        if not is_plain and not is_compiling() and peek_interpreter_stack() is not None:
            results = self.transformable.apply(*arguments)[: self.result_count]
        elif forward_ad._current_level >= 0:  # forward-mode derivatives raise there
            return self.function.apply(*arguments)
        elif not is_plain:
            results = self.custom(*arguments)[: self.result_count]
        elif is_recorded and torch.is_grad_enabled():
            return self.function.apply(*arguments)
        else:
            results = self.infer(*arguments)[: self.result_count]
        return results[0] if self.result_count == 1 else tuple(results)

    def compute(self, *arguments):
        """Returns all results of the forward pass, and does not record them."""
        return self.custom(*arguments) if is_traced() else self.forward(*arguments)

    def compute_gradients(self, gradients, tensors, outputs, constants):
        """Returns the gradients of the inputs, None for those that are None, and does not record them."""
        if is_traced():
            return self._trace_gradients(gradients, tensors, outputs, constants)
        return self.backward(resolve_negative(gradients), tensors, outputs, constants)

    def _trace_gradients(self, gradients, tensors, outputs, constants):
        found = self.custom_backward(list(gradients), list(tensors), list(outputs), _encode(constants))
        return [None if x is None else g for g, x in zip(found, tensors)]

    def _register(self, name, fake):
        operator, count = self, self.tensor_count
        # Without device_types, the functions are called for tensors of all devices.
        custom = torch.library.custom_op(f"tapeformer::{name}", self.forward, mutates_args=(), **_TAGS)
        custom.register_fake(fake)

        # An operator of torch.library cannot return None, so it returns an empty tensor instead.
        def run_backward(
            gradients: List[Tensor], tensors: List[Optional[Tensor]], outputs: List[Tensor], constants: str
        ) -> List[Tensor]:
            results = operator.backward(gradients, tensors, outputs, _decode(constants))
            return [tensors[0].new_empty(0) if x is None else x for x in results]

        backward = self.custom_backward = torch.library.custom_op(f"tapeformer::{name}_backward", run_backward, mutates_args=(), **_TAGS)

        @backward.register_fake
        def _(gradients, tensors, outputs, constants):
            return [
                tensors[0].new_empty(0) if x is None else x.new_empty(x.shape)
                for x in tensors[: operator.input_count]
            ]

        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[:count], *output)
            ctx.constants = inputs[count:]

        def call_backward(ctx, *gradients):
            saved = ctx.saved_tensors
            results = operator._trace_gradients(
                gradients[: operator.result_count], saved[:count], saved[count:], ctx.constants
            )
            return (*results, *[None] * (count - len(results) + len(ctx.constants)))

        def run_batch(info, in_dims, *arguments):
            apply = lambda *tensors: custom(*tensors, *arguments[count:])  # noqa: E731
            return map_batch(apply, info.batch_size, in_dims[:count], arguments[:count])

        custom.register_autograd(call_backward, setup_context=setup_context)
        if hasattr(custom, "register_vmap"):  # in PyTorch 2.4, compiled code with vmap warns that it is slow
            custom.register_vmap(run_batch)
        return custom


_PLAIN = (Tensor, torch.nn.Parameter)


def is_traced() -> bool:
    """Returns whether something records the operators, which does not see calls of the extension."""
    return (
        is_compiling()
        or _is_tracing()
        or _len_torch_dispatch_stack() > 0
        or peek_interpreter_stack() is not None
    )


def _encode(constants: Sequence) -> str:
    constants = [int(x) if isinstance(x, torch.SymInt) else float(x) if isinstance(x, torch.SymFloat) else x for x in constants]
    return ",".join(f"{type(x).__name__}:{x!r}" if not isinstance(x, str) else f"str:{x}" for x in constants)


def _decode(text: str) -> list:
    read: dict = {"bool": lambda x: x == "True", "int": int, "float": float, "str": str}
    return [read[kind](value) for kind, _, value in (x.partition(":") for x in text.split(","))]


def compute_dtype(x: Tensor) -> torch.dtype:
    """Returns the dtype of statistics, gates and states."""
    return torch.float32 if x.dtype == torch.bfloat16 else x.dtype


def _seed(seed: Optional[Tensor]) -> int:
    return 0 if seed is None else int(seed) % (1 << 64)  # the bits of an int64


# Softmax attention, also with a window.


def _check_meta(q: Tensor, k: Tensor, v: Tensor, grouped: bool = False) -> None:
    """Raises the errors of the extension for meta tensors, which it does not see."""
    if not q.is_meta:
        return
    for x in (k, v):
        if not x.is_meta:
            raise ValueError(f"q is on meta, and another tensor is on {x.device}")
        if x.dtype != q.dtype:
            raise TypeError(f"expected {q.dtype} like q, not {x.dtype}")
    heads = k.shape[2] if grouped and k.shape[2] and q.shape[2] % k.shape[2] == 0 else q.shape[2]
    if k.shape != (q.shape[0], v.shape[1], heads, q.shape[3]) or v.shape[:3] != k.shape[:3]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(f"expected q, k and v with the same batch and heads, and k and v of one length, not {shapes}")


def empty_like(x: Tensor) -> Tensor:
    """Returns a contiguous tensor for the gradient of x, in half the time of x.new_empty(x.shape)."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _softmax_result(q: Tensor, v: Tensor) -> Tensor:
    batch, length, heads, _ = q.shape
    return q.new_empty((batch, length, heads, v.shape[3]))


def _softmax_results(q: Tensor, v: Tensor) -> Tuple[Tensor, Tensor]:
    batch, length, heads, _ = q.shape
    return _softmax_result(q, v), q.new_empty((batch, heads, length), dtype=compute_dtype(q))


def _softmax_forward(
    q: Tensor, k: Tensor, v: Tensor, lengths: Optional[Tensor], seed: Optional[Tensor], mask: Optional[Tensor],
    causal: bool, scale: float, dropout: float, block: int, before: int, after: int,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    out, statistics = _softmax_results(q, v)
    _core.softmax_forward(
        torch.get_num_threads(), q, k, v, lengths, causal, scale, dropout, _seed(seed), block, before, after, mask,
        out, statistics,
    )  # fmt: skip
    return out, statistics


def _softmax_infer(q, k, v, lengths, seed, mask, causal, scale, dropout, block, before, after):
    out = _softmax_result(q, v)
    _core.softmax_forward(
        torch.get_num_threads(), q, k, v, lengths, causal, scale, dropout, _seed(seed), block, before, after, mask,
        out, None,
    )  # fmt: skip
    return (out,)


def _softmax_fake(q, k, v, lengths, seed, mask, causal, scale, dropout, block, before, after):
    _check_meta(q, k, v, grouped=True)
    return _softmax_results(q, v)


def _softmax_backward(gradients, tensors, outputs, constants):
    q, k, v, lengths, seed, mask = tensors
    causal, scale, dropout, block, before, after = constants
    targets = empty_like(q), empty_like(k), empty_like(v)
    _core.softmax_backward(
        torch.get_num_threads(), q, k, v, lengths, causal, scale, dropout, _seed(seed), block, before, after, mask,
        *outputs, gradients[0], *targets,
    )  # fmt: skip
    return targets


softmax = Operator("softmax_attention", _softmax_forward, _softmax_fake, _softmax_backward, 6, 3, infer=_softmax_infer)


# Linear attention.

FEATURE_MAPS = {"elu_plus_one": 0, "relu": 1, "squared_relu": 2, "exponential": 3}
FEATURE_FUNCTIONS = (
    lambda x: torch.where(x > 0, x + 1, x.clamp(max=0).exp()),
    torch.relu,
    lambda x: torch.relu(x) ** 2,
    torch.exp,
)
IDENTITY = 4  # no feature map; results are numerators


def _linear_forward(
    q: Tensor, k: Tensor, v: Tensor, lengths: Optional[Tensor], causal: bool, feature_map: int, eps: float
) -> Tuple[Tensor, Tensor]:
    out, statistics = _softmax_results(q, v)
    _core.linear_forward(
        torch.get_num_threads(), q, k, v, lengths, causal, feature_map, eps, out, statistics
    )
    return out, statistics


def _linear_infer(q, k, v, lengths, causal, feature_map, eps):
    out = _softmax_result(q, v)
    _core.linear_forward(torch.get_num_threads(), q, k, v, lengths, causal, feature_map, eps, out, None)
    return (out,)


def _linear_fake(q, k, v, lengths, causal, feature_map, eps):
    _check_meta(q, k, v)
    return _softmax_results(q, v)


def _linear_backward(gradients, tensors, outputs, constants):
    q, k, v, lengths = tensors
    targets = empty_like(q), empty_like(k), empty_like(v)
    _core.linear_backward(
        torch.get_num_threads(), q, k, v, lengths, *constants, *outputs, gradients[0], *targets
    )
    return targets


linear = Operator("linear_attention", _linear_forward, _linear_fake, _linear_backward, 4, 3, infer=_linear_infer)


# LSH attention. A custom operator takes no objects, so the settings are four plain arguments.

_lsh_settings: dict = {}


def get_lsh_settings(preset: str, rounds: int, chunk_length: int, buckets: int):
    key = preset, rounds, chunk_length, buckets
    if key not in _lsh_settings:
        _lsh_settings[key] = _core.LshSettings(*key)
    return _lsh_settings[key]


def _lsh_results(q, v, settings) -> Tuple[Tensor, Tensor, Tensor]:
    batch, length, heads, _ = q.shape
    rounds = settings.rounds if settings.has_mean and length > settings.chunk_length else 1
    return (
        q.new_empty((batch, length, heads, v.shape[3])),
        q.new_empty((batch, heads, rounds, length), dtype=compute_dtype(q)),
        q.new_empty((batch, heads, settings.rounds, length), dtype=torch.int32),
    )


def _lsh_forward(
    q: Tensor, v: Tensor, lengths: Optional[Tensor], seed: Tensor, causal: bool, dropout: float, preset: str,
    rounds: int, chunk_length: int, buckets: int,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    settings = get_lsh_settings(preset, rounds, chunk_length, buckets)
    out, statistics, ids = _lsh_results(q, v, settings)
    _core.lsh_forward(
        torch.get_num_threads(), settings, q, v, lengths, causal, dropout, _seed(seed), ids, out, statistics
    )
    return out, statistics, ids


def _lsh_fake(q, v, lengths, seed, causal, dropout, preset, rounds, chunk_length, buckets):
    _check_meta(q, q, v)
    return _lsh_results(q, v, get_lsh_settings(preset, rounds, chunk_length, buckets))


def _lsh_backward(gradients, tensors, outputs, constants):
    q, v, lengths, seed = tensors
    causal, dropout, *settings = constants
    out, statistics, ids = outputs
    targets = empty_like(q), empty_like(v)
    _core.lsh_backward(
        torch.get_num_threads(), get_lsh_settings(*settings), q, v, lengths, causal, dropout, _seed(seed), ids,
        out, statistics, gradients[0], *targets,
    )  # fmt: skip
    return targets


lsh = Operator("lsh_attention", _lsh_forward, _lsh_fake, _lsh_backward, 4, 2)


# Gated linear attention.


def _gated_results(q, k, v, erase) -> Tuple[Tensor, Tensor, Tensor]:
    batch, length, heads, dim = q.shape
    out = q.new_empty((batch, length, heads, v.shape[3]))
    state = q.new_empty((batch, heads, dim, v.shape[3]), dtype=compute_dtype(q))
    return out, state, q.new_empty(0 if erase is None else out.shape)


def _gated_forward(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Optional[Tensor], erase: Optional[Tensor],
    beta: Optional[Tensor], initial_state: Optional[Tensor], lengths: Optional[Tensor], reverse: bool,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    out, state, written = _gated_results(q, k, v, erase)
    _core.gated_forward(
        torch.get_num_threads(), q, k, v, log_decay, erase, beta, initial_state, lengths, reverse, out, state,
        None if erase is None else written,
    )  # fmt: skip
    return out, state, written


def _gated_fake(q, k, v, log_decay, erase, beta, initial_state, lengths, reverse):
    _check_meta(q, k, v)
    return _gated_results(q, k, v, erase)


def _gated_backward(gradients, tensors, outputs, constants):
    erase = tensors[4]
    targets = [None if x is None else empty_like(x) for x in tensors[:7]]
    _core.gated_backward(
        torch.get_num_threads(), *tensors, *constants, None if erase is None else outputs[2], *gradients, targets
    )
    return targets


gated = Operator("gated_linear_attention", _gated_forward, _gated_fake, _gated_backward, 8, 7, result_count=2)
