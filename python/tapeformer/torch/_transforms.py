"""The functions of torch.autograd for an operator: in eager code, and in transforms of torch.func."""

from typing import Sequence

import torch
from torch import Tensor


def resolve_negative(arguments: Sequence) -> list:
    """Returns the arguments without lazy negations, which the extension does not see."""
    return [x.resolve_neg() if isinstance(x, Tensor) else x for x in arguments]


def make_functions(operator, name):
    """Returns the function of eager code, and the function of transforms, which returns all results of the pass.

    The second function has the form with setup_context(), which transforms need. It costs more.
    """

    class Base(torch.autograd.Function):
        @staticmethod
        def jvp(ctx, *_):
            raise RuntimeError(f"{name}: forward-mode derivatives are not supported")

    apply_gradients = _make_gradients(operator, name, Base)
    functions = _make_eager(operator, Base, apply_gradients), _make_transformable(operator, Base, apply_gradients)
    for function in functions:
        function.__name__ = function.__qualname__ = name
    return functions


def _with_rest(operator, results, constants):
    """Returns the gradients of all arguments of the forward pass."""
    return (*results, *[None] * (operator.tensor_count - operator.input_count + len(constants)))


def _make_gradients(operator, name, base):
    """Returns a function that computes the gradients as a graph, whose derivatives raise."""
    count, result_count = operator.tensor_count, operator.result_count

    class Gradients(base):  # torch's once_differentiable is silent in torch.autograd.grad
        @staticmethod
        def forward(constants, *arguments):
            gradients, saved = arguments[:result_count], arguments[result_count:]
            results = operator.compute_gradients(gradients, saved[:count], saved[count:], constants)
            return tuple(x for x in results if x is not None)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, *_):
            raise RuntimeError(f"{name}: cannot differentiate twice")

        @staticmethod
        def vmap(info, in_dims, constants, *arguments):
            def apply(*tensors):
                return Gradients.apply(constants, *tensors)

            return map_batch(apply, info.batch_size, in_dims[1:], arguments)

    def apply_gradients(constants, gradients, saved):
        found = iter(Gradients.apply(constants, *gradients, *saved))
        inputs = [None if x is None else next(found) for x in saved[: operator.input_count]]
        return _with_rest(operator, inputs, constants)

    return apply_gradients


def _make_eager(operator, base, apply_gradients):
    count, result_count = operator.tensor_count, operator.result_count

    class Eager(base):
        @staticmethod
        def forward(ctx, *arguments):
            outputs = operator.forward(*arguments)
            ctx.save_for_backward(*arguments[:count], *outputs)
            ctx.constants = arguments[count:]
            return outputs[0] if result_count == 1 else outputs[:result_count]

        @staticmethod
        def backward(ctx, *gradients):
            if torch.is_grad_enabled():  # with create_graph=True
                return apply_gradients(ctx.constants, gradients, ctx.saved_tensors)
            saved = ctx.saved_tensors
            results = operator.backward(resolve_negative(gradients), saved[:count], saved[count:], ctx.constants)
            return _with_rest(operator, results, ctx.constants)

    return Eager


def _make_transformable(operator, base, apply_gradients):
    count, result_count = operator.tensor_count, operator.result_count

    class Transformable(base):
        @staticmethod
        def forward(*arguments):
            return tuple(operator.compute(*arguments))

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs[:count], *output)
            ctx.mark_non_differentiable(*output[result_count:])
            ctx.constants = inputs[count:]

        @staticmethod
        def backward(ctx, *gradients):
            return apply_gradients(ctx.constants, gradients[:result_count], ctx.saved_tensors)

        @staticmethod
        def vmap(info, in_dims, *arguments):
            def apply(*tensors):
                return Transformable.apply(*tensors, *arguments[count:])

            return map_batch(apply, info.batch_size, in_dims[:count], arguments[:count])

    return Transformable


def map_batch(function, size, in_dims, tensors):
    """Returns the results of a function for `size` slices of tensors, and their dimensions of the slices.

    The slices become a part of the batch, unless there is a seed, which selects different numbers for each batch.
    """
    tensors = [x if d is None else x.movedim(d, 0) for x, d in zip(tensors, in_dims)]
    if any(x is not None and x.dim() == (d is not None) for x, d in zip(tensors, in_dims)):
        slices = ([x if d is None else x[i] for x, d in zip(tensors, in_dims)] for i in range(size))
        results = tuple(torch.stack(x) for x in zip(*(function(*one) for one in slices)))
    else:
        joined = [
            x if x is None else (x.expand(size, *x.shape) if d is None else x).flatten(0, 1)
            for x, d in zip(tensors, in_dims)
        ]
        results = tuple(x.unflatten(0, (size, x.shape[0] // size)) for x in function(*joined))
    return results, (0,) * len(results)
