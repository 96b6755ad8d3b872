#!/usr/bin/env python3
"""Calls the functions and modules of tapeformer.torch with random arguments.

    PYTHONPATH=build/release/python tests/fuzz/python_arguments.py --seed 1 --runs 3000

Valid calls have random shapes, dtypes, strides, lengths, masks and states. They must return finite results that equal
a formula in plain PyTorch, and must change no tensor except the state of a step. In other calls, some arguments are
replaced by values of wrong types, shapes, dtypes, devices or ranges. These calls must return, or raise TypeError or
ValueError with a message of one line. A call that ends the interpreter is a finding, too. --seed and --case repeat a
case. The exit status is 0 without findings, 1 with findings, 2 for wrong usage and 77 without PyTorch.
"""

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

import tapeformer.torch as tt  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-9, torch.bfloat16: 6e-2}
CASES_PER_PROCESS = 250
SECONDS_PER_PROCESS = 300


class Draw:
    """Random sizes and tensors of one case."""

    def __init__(self, rng):
        self.rng = rng
        self.dtype = rng.choice(DTYPES)
        self.gate = torch.float32 if self.dtype == torch.bfloat16 else self.dtype
        self.batch, self.heads = rng.choice([0, 1, 2, 3]), rng.choice([0, 1, 2, 3])
        self.length = rng.choice([0, 1, 2, 5, 17, 33, 70])
        self.dim, self.value_dim = rng.choice([1, 2, 8, 17, 65]), rng.choice([1, 3, 8, 16, 33])

    def layout(self, x):
        """Returns an equal tensor with other strides, or with a lazy negation."""
        choice = self.rng.randrange(7)
        if choice == 0 and x.dim() > 1:
            a, b = self.rng.sample(range(x.dim()), 2)
            return x.transpose(a, b).contiguous().transpose(a, b)
        if choice == 1:
            wide = x.new_full((*x.shape, 3), math.nan)
            wide[..., 1] = x
            return wide[..., 1]
        if choice == 2:
            return torch._neg_view(-x)
        if choice == 3:
            wide = x.new_full((*x.shape[:-1], x.shape[-1] + 3), math.nan)
            wide[..., 1 : x.shape[-1] + 1] = x
            return wide[..., 1 : x.shape[-1] + 1]
        return x

    def tensor(self, *shape, dtype=None, positive=False):
        x = torch.randn(shape, dtype=torch.float64)
        if self.rng.random() < 0.1 and len(shape) > 1 and 0 not in shape:  # expanded along some dimensions
            kept = [n if self.rng.random() < 0.6 else 1 for n in shape]
            x = torch.randn(kept, dtype=torch.float64)
            return (x.sigmoid() if positive else x).to(dtype or self.dtype).expand(shape)
        return self.layout((x.sigmoid() if positive else x).to(dtype or self.dtype))

    def lengths(self, end):
        if self.rng.random() < 0.5:
            return None
        dtype = self.rng.choice([torch.int64, torch.int64, torch.int32, torch.uint8])
        return torch.randint(0, end + 1, (self.batch,)).to(dtype)


# Formulas in float64, with inputs (batch, heads, length, dim).


def heads_first(*tensors):
    return [x.double().transpose(1, 2) for x in tensors]


def pairs(query_length, key_length, causal, lengths, window=None, block=None):
    i, j = torch.arange(query_length)[:, None] + key_length - query_length, torch.arange(key_length)[None]
    mask = (j <= i) if causal else torch.ones(query_length, key_length, dtype=torch.bool)
    if window is not None:
        mask = mask & ((i - j).abs() < window)
    if block is not None:
        size, back = block
        mask = mask & (j // size <= i // size) & (j // size >= i // size - back)
    return mask[None, None] if lengths is None else mask & (j < lengths.long()[:, None, None, None])


def softmax_formula(q, k, v, mask, scale):
    q, k, v = heads_first(q, k, v)
    scores = (q @ k.mT * (q.shape[3] ** -0.5 if scale is None else scale)).masked_fill(~mask, -math.inf)
    return (torch.softmax(scores, -1).nan_to_num(0) @ v).transpose(1, 2)


FEATURES = {
    "elu_plus_one": lambda x: torch.nn.functional.elu(x) + 1, "relu": torch.relu,
    "squared_relu": lambda x: torch.relu(x) ** 2, "exponential": torch.exp,
}  # fmt: skip


def linear_formula(q, k, v, mask, feature_map, eps):
    q, k, v = heads_first(q, k, v)
    weights = (FEATURES[feature_map](q) @ FEATURES[feature_map](k).mT).masked_fill(~mask, 0)
    return (weights @ v / (weights.sum(-1, keepdim=True) + eps)).transpose(1, 2)


def gated_formula(q, k, v, log_decay=None, erase=None, beta=None, initial_state=None, lengths=None, reverse=False, boundaries=None):
    batch, length, heads, dim = q.shape
    state = torch.zeros(batch, heads, dim, v.shape[3], dtype=torch.float64)
    state = state if initial_state is None else initial_state.double()
    out = torch.zeros(batch, length, heads, v.shape[3], dtype=torch.float64)
    valid = torch.full((batch,), length) if lengths is None else lengths.long()
    q, k, v = (x.double() for x in (q, k, v))
    for t in reversed(range(length)) if reverse else range(length):
        new = state
        if boundaries is not None and t + reverse < length:
            new = new * (boundaries[:, t + reverse] == 0)[:, None, None, None]
        if log_decay is not None:
            g = (log_decay if log_decay.dim() == 1 else log_decay[:, t]).double().exp()
            new = new * (g[..., None, None] if log_decay.dim() < 4 else g[..., None])
        written = v[:, t] if erase is None else v[:, t] - torch.einsum("bhd,bhdv->bhv", erase[:, t].double(), new)
        if beta is not None:
            written = written * beta[:, t].double()[..., None]
        new = new + k[:, t][..., None] * written[..., None, :]
        live = (t < valid)[:, None, None, None]
        state = torch.where(live, new, state)
        out[:, t] = torch.where(live[..., 0], torch.einsum("bhd,bhdv->bhv", q[:, t], state), 0)
    return out, state


# Calls: functions of Draw that return a function, its positional and named arguments, and the formula.


def draw_attention(d):
    key_length = d.length if d.rng.random() < 0.6 else d.rng.choice([1, 3, 40])
    q, k, v = (d.tensor(d.batch, n, d.heads, m) for n, m in ((d.length, d.dim), (key_length, d.dim), (key_length, d.value_dim)))
    return q, k, v, {"causal": d.rng.random() < 0.5, "lengths": d.lengths(key_length)}


def softmax(d):
    q, k, v, named = draw_attention(d)
    group, named["scale"] = d.rng.choice([n for n in (1, 2, 3) if d.heads % n == 0]), d.rng.choice([None, 0.3, 1, -0.5])
    k, v = k[:, :, ::group], v[:, :, ::group]
    mask = pairs(q.shape[1], k.shape[1], named["causal"], named["lengths"])
    if d.rng.random() < 0.4:
        named["mask"] = torch.rand(*d.rng.choice([(d.batch, 1, 1), (d.heads, q.shape[1]), (1,)]), k.shape[1]) < 0.7
        mask = mask & named["mask"]
    keys = [x.repeat_interleave(group, 2) for x in (k, v)]
    return tt.softmax_attention, [q, k, v], named, lambda: softmax_formula(q, *keys, mask, named["scale"])


def local(d):
    q, k, v = (d.tensor(d.batch, d.length, d.heads, n) for n in (d.dim, d.dim, d.value_dim))
    named = {"causal": d.rng.random() < 0.5, "lengths": d.lengths(d.length), "window": d.rng.choice([1, 2, 7, 64, 1 << 35])}
    where = {"window": named["window"]}
    if d.rng.random() < 0.3:
        named |= {"form": "blocks", "blocks_back": d.rng.choice([0, 1, 3, 1 << 50])}
        where = {"block": (named["window"], named["blocks_back"])}
        named["causal"] = True
    mask = pairs(d.length, d.length, named["causal"], named["lengths"], **where)
    return tt.local_attention, [q, k, v], named, lambda: softmax_formula(q, k, v, mask, None)


def linear(d):
    q, k, v, named = draw_attention(d)
    named["causal"] = named["causal"] and q.shape[1] == k.shape[1]
    named |= {"feature_map": d.rng.choice(list(FEATURES)), "eps": d.rng.choice([1e-6, 1e-2, 1])}
    mask = pairs(q.shape[1], k.shape[1], named["causal"], named["lengths"])
    return tt.linear_attention, [q, k, v], named, lambda: linear_formula(q, k, v, mask, named["feature_map"], named["eps"])


def lsh(d):
    named = {"causal": d.rng.random() < 0.5, "lengths": d.lengths(d.length), "rounds": d.rng.choice([None, 1, 3])}
    named |= {"preset": d.rng.choice(["reformer", "trax", "fast_transformers"]), "chunk_length": d.rng.choice([None, 4, 7])}
    named |= {"buckets": d.rng.choice([None, 0, 2, 8]), "seed": d.rng.choice([None, 0, (1 << 64) - 1])}
    return tt.lsh_attention, [d.tensor(d.batch, d.length, d.heads, n) for n in (d.dim, d.value_dim)], named, None


def gates(d, *lead):
    named = {}
    shape = d.rng.choice([None, (d.heads,), (*lead, d.heads), (*lead, d.heads, d.dim)])
    if shape is not None:
        named["log_decay"] = d.layout((-torch.rand(shape, dtype=torch.float64)).to(d.gate))
        if len(shape) > 1 and d.rng.random() < 0.3 and 0 not in shape:
            named["log_decay"] = named["log_decay"][..., :1].expand(shape)
    if d.rng.random() < 0.5:
        named["erase"] = 0.1 * torch.nn.functional.normalize(d.tensor(*lead, d.heads, d.dim), dim=-1)
    if d.rng.random() < 0.5:
        named["beta"] = d.tensor(*lead, d.heads, dtype=d.gate, positive=True)
    return named


def gated(d):
    d.length = min(d.length, 33)
    q, v = (d.tensor(d.batch, d.length, d.heads, n) for n in (d.dim, d.value_dim))
    k = d.layout(torch.nn.functional.normalize(torch.randn(d.batch, d.length, d.heads, d.dim), dim=-1).to(d.dtype))
    named = gates(d, d.batch, d.length) | {"lengths": d.lengths(d.length), "reverse": d.rng.random() < 0.3}
    if d.rng.random() < 0.3:
        named["boundaries"] = torch.randint(0, 2, (d.batch, d.length))
    if d.rng.random() < 0.4:
        named["initial_state"] = d.tensor(d.batch, d.heads, d.dim, d.value_dim, dtype=d.gate)
    return tt.gated_linear_attention, [q, k, v], named, lambda: gated_formula(q, k, v, **named)


def step_tokens(d):
    return [d.tensor(d.batch, d.heads, n) for n in (d.dim, d.dim, d.value_dim)]


def one_token(*tensors):
    return [x.unsqueeze(1) for x in tensors]


def linear_step(d):
    q, k, v = step_tokens(d)
    state, named = None, {"feature_map": d.rng.choice(list(FEATURES)), "eps": 1e-2}
    kv, key_sum = torch.zeros(d.batch, d.heads, d.dim, d.value_dim).to(d.gate), torch.rand(d.batch, d.heads, d.dim).to(d.gate)
    if d.rng.random() < 0.7:
        state = tt.LinearState(kv.normal_(), key_sum)
    else:
        key_sum.zero_()

    def formula(kv=kv.double().clone(), key_sum=key_sum.double().clone()):
        phi = FEATURES[named["feature_map"]]
        a, b = phi(q.double()), phi(k.double())
        kv, key_sum = kv + b[..., None] * v.double()[..., None, :], key_sum + b
        return torch.einsum("bhd,bhdv->bhv", a, kv) / ((a * key_sum).sum(-1, keepdim=True) + 1e-2), (kv, key_sum)

    return tt.linear_attention_step, [q, k, v, state], named, formula


def softmax_step(d):
    q, k, v = step_tokens(d)
    length, named = d.rng.choice([0, 1, 3, 16]), {"scale": d.rng.choice([None, 0.3])}
    before = [torch.randn(d.batch, length, *x.shape[1:]).to(d.dtype) for x in (k, v)]
    room = d.rng.choice([0, 0, 1, 5])
    state = tt.KeyValueState(*(torch.cat([x, x.new_full((d.batch, room, *x.shape[2:]), math.nan)], 1) for x in before), length)
    if length == 0 and d.rng.random() < 0.5:
        state = None
    keys, values = (torch.cat([a, b.unsqueeze(1)], 1) for a, b in zip(before, (k, v)))
    mask = pairs(1, length + 1, True, None)
    return (tt.softmax_attention_step, [q, k, v, state], named,
            lambda: softmax_formula(q.unsqueeze(1), keys, values, mask, named["scale"])[:, 0])  # fmt: skip


def gated_step(d):
    tokens, state = step_tokens(d), None
    if d.rng.random() < 0.7:
        state = torch.randn(d.batch, d.heads, d.dim, d.value_dim).to(d.gate)
    named, old = gates(d, d.batch), None if state is None else state.clone()

    def formula():
        whole = {name: x if x.dim() == 1 else x.unsqueeze(1) for name, x in named.items()}
        out, last = gated_formula(*one_token(*tokens), **whole, initial_state=old)
        return out[:, 0], last

    return tt.gated_linear_attention_step, [*tokens, state], named, formula


def masks(d):
    """A module with masks of fast-transformers."""
    q, k, v = (d.tensor(d.batch, d.length, d.heads, n) for n in (d.dim, d.dim, d.value_dim))
    lengths = d.lengths(d.length)
    n, triangle = d.length, torch.ones(d.length, d.length, dtype=torch.bool).tril()
    causal, mask = d.rng.choice([(False, None), (False, tt.FullMask(n)), (False, tt.FullMask(n, n)), (False, tt.FullMask(~triangle | triangle)),
                                 (True, tt.TriangularCausalMask(n)), (True, tt.FullMask(triangle))])  # fmt: skip
    pair = pairs(n, n, causal, lengths)
    name = d.rng.choice(["softmax", "linear"])
    module = tt.FullAttention() if name == "softmax" else tt.CausalLinearAttention() if causal else tt.LinearAttention()
    key_lengths = lengths if lengths is None or d.rng.random() < 0.5 else tt.LengthMask(lengths, n)

    def formula():
        return softmax_formula(q, k, v, pair, None) if name == "softmax" else linear_formula(q, k, v, pair, "elu_plus_one", 1e-6)

    return module.eval(), [q, k, v, mask, None, key_lengths], {}, formula


ACTIVATIONS = {None: lambda x: x, "silu": torch.nn.functional.silu, "sigmoid": torch.sigmoid}


def conv_formula(x, weight, activation=None, history=None, lengths=None, boundaries=None):
    batch, length, kernel = *x.shape[:2], weight.shape[1]
    tokens = torch.cat([x.new_zeros(batch, kernel - 1, x.shape[2]) if history is None else history, x], 1).double()
    sequences = torch.nn.functional.pad(torch.zeros(batch, length) if boundaries is None else boundaries.cumsum(1), (kernel - 1, 0))
    same = [(sequences[:, j : j + length] == sequences[:, kernel - 1 :])[..., None] for j in range(kernel)]
    out = sum(same[j] * tokens[:, j : j + length] * weight[:, j].double() for j in range(kernel))
    valid = torch.arange(length) < (length if lengths is None else lengths.long()[:, None])
    return ACTIVATIONS[activation](out) * valid[..., None]


def conv(d):
    d.length, kernel = min(d.length, 33), d.rng.choice([1, 2, 4])
    x = d.tensor(d.batch, d.length, d.dim)
    options = {"history": d.tensor(d.batch, kernel - 1, d.dim), "boundaries": torch.randint(0, 2, (d.batch, d.length))}
    named = {name: option for name, option in options.items() if d.rng.random() < 0.5} | {"lengths": d.lengths(d.length)}
    named["activation"] = d.rng.choice(list(ACTIVATIONS))
    weight = d.tensor(d.dim, kernel, dtype=d.gate)
    return tt.short_conv, [x, weight], named, lambda: conv_formula(x, weight, **named)


def norm(d):
    shape = [d.batch, d.length, d.heads][: d.rng.randrange(4)] + [d.dim]
    options = d.tensor(d.dim, dtype=d.gate), d.tensor(*shape)
    x, (weight, gate) = d.tensor(*shape), (y if d.rng.random() < 0.7 else None for y in options)
    named = {"activation": d.rng.choice(list(ACTIVATIONS)), "eps": d.rng.choice([1e-6, 1e-2, 1])}

    def formula():
        y = x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + named["eps"])
        return y * (1 if weight is None else weight) * (1 if gate is None else ACTIVATIONS[named["activation"]](gate.double()))

    return tt.gated_rms_norm, [x, weight, gate], named, formula


CALLS = [softmax, local, linear, lsh, gated, linear_step, softmax_step, gated_step, masks, conv, norm]


def odd_values(rng, x):
    """Returns a value that replaces the argument x. It can be valid."""
    values = [None, 0, -1, 0.5, 1 << 64, math.nan, "x", [1], (), {}, True, torch.tensor(1.0), object(), 1j]
    if isinstance(x, torch.Tensor):
        plain = x.detach().clone()
        values = [None, 0.5, [1.0], plain.numpy() if plain.dtype != torch.bfloat16 else [2], plain.to("meta"), plain.to(torch.complex64), plain.half()]
        values += [plain.double(), plain.float(), plain.bfloat16(), plain.long(), plain.bool(), plain.to_sparse(), plain[:0], plain[:1]]
        values += [plain.unsqueeze(0), plain.flatten(), plain.sum(), torch.cat([plain, plain]), plain.narrow(-1, 0, 0) if x.dim() else plain]
        values += [plain[None].expand(2, *x.shape), ~plain if plain.dtype == torch.bool else -plain, torch.full_like(plain, 1 << 40 if plain.dtype == torch.int64 else 7)]
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        i = rng.randrange(len(x))
        values = [tuple(x), x._replace(**{x._fields[i]: odd_values(rng, x[i])}), x[0], None]
    return rng.choice(values)


def describe(x):
    if isinstance(x, torch.Tensor):
        return f"{str(x.dtype)[6:]}{tuple(x.shape)} strides {x.stride() if x.layout == torch.strided else x.layout} {x.device}"
    if isinstance(x, tuple):
        return "(" + ", ".join(map(describe, x)) + ")"
    return repr(x)[:60]


def flatten(x):
    return [y for part in x for y in flatten(part)] if isinstance(x, (tuple, list)) else [x]


def compare(found, expected, dtype):
    tolerance = TOLERANCE[dtype]
    for a, b in zip(flatten(found), flatten(expected)):
        scale = max(1.0, b.abs().max().item() if b.numel() else 0)
        if a.shape != b.shape or not torch.isfinite(a).all():
            return f"result {tuple(a.shape)} is not finite or has another shape than {tuple(b.shape)}"
        if a.numel() and (a.double() - b).abs().max().item() > tolerance * scale:
            return f"result differs by {(a.double() - b).abs().max().item():.3g}, scale {scale:.3g}"
    return None


def problem_of_error(error, valid):
    if valid:
        return f"a valid call raised {type(error).__name__}: {error}"
    if not isinstance(error, (TypeError, ValueError)):
        return f"{type(error).__name__}: {str(error)[:300]}"
    if "\n" in str(error).strip() or "incompatible function arguments" in str(error) or not str(error):
        return f"a message of several lines or of a library: {str(error)[:300]!r}"
    return None


class Call:
    """One call: a function, its arguments, and a formula for the results if the call is valid."""

    def __init__(self, seed, number):
        rng = random.Random(f"{seed}/{number}")
        torch.manual_seed(rng.randrange(1 << 60))
        self.draw = Draw(rng)
        self.function, self.positional, self.named, self.formula = CALLS[number % len(CALLS)](self.draw)
        self.name = getattr(self.function, "__name__", type(self.function).__name__)
        self.valid = rng.random() < 0.6
        self.differentiates = self.valid and "step" not in self.name and rng.random() < 0.5
        for i in rng.sample([*range(len(self.positional)), *self.named], 0 if self.valid else rng.choice([1, 1, 2])):
            target = self.named if isinstance(i, str) else self.positional
            target[i] = odd_values(rng, target[i])

    def __str__(self):
        named = "".join(f", {name}={describe(x)}" for name, x in self.named.items())
        return f"{self.name}({', '.join(map(describe, self.positional))}{named})"

    def unchanged_inputs(self):
        """Returns the tensors that the call must not change."""
        state = [self.positional[3]] if "step" in self.name else []
        arguments = [x for x in (*self.positional, *self.named.values()) if isinstance(x, torch.Tensor)]
        return [x for x in arguments if x.layout == torch.strided and not x.is_meta and all(x is not y for y in state)]

    def run(self):
        """Returns the tensors of the result, after a backward pass if the call differentiates."""
        found = [x for x in flatten(self.function(*self.positional, **self.named)) if isinstance(x, torch.Tensor)]
        if self.differentiates and any(x.requires_grad for x in found):
            sum(x.float().sum() for x in found).backward()
        return [x.detach() for x in found]

    def find_wrong_result(self, found, inputs):
        if any(x.grad is not None and not torch.isfinite(x.grad).all() for x in inputs if x.is_leaf):
            return "a gradient is not finite"
        if self.formula is None:
            return None if torch.isfinite(found[0]).all() else "the result is not finite"
        expected = [x.detach() for x in flatten(self.formula())]
        return compare(found[: len(expected)], expected, self.draw.dtype)


def run_case(seed, number):
    """Returns the call of a case, and its problem or None."""
    call = Call(seed, number)
    text, inputs = str(call), call.unchanged_inputs()
    before = [(x.clone(), x._version) for x in inputs]
    for x in inputs if call.differentiates else ():
        if x.dtype.is_floating_point and x.is_leaf:
            x.requires_grad_()
    try:
        found = call.run()
    except Exception as error:
        return text, problem_of_error(error, call.valid)
    for x, (old, version) in zip(inputs, before):
        if x._version != version or not torch.equal(x.detach().nan_to_num(), old.nan_to_num()):
            return text, "the call changed an argument"
    return text, call.find_wrong_result(found, inputs) if call.valid else None


def run_cases(seed, numbers, progress):
    """Runs cases in this process. `progress` receives the number of each case before it runs."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    findings = 0
    for number in numbers:
        progress.seek(0)
        progress.write(f"{number:<20}")
        progress.flush()
        try:
            text, problem = run_case(seed, number)
        except Exception:
            text, problem = "the script failed", traceback.format_exc()
        if problem:
            findings += 1
            print(f"case {number}: {text}\n  PROBLEM: {problem}", flush=True)
    return findings


def run_in_processes(seed, first, runs):
    """Runs cases in child processes, because a case may end the interpreter. Returns the number of findings."""
    findings, end = 0, first + runs
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "case"
        while first < end:
            count = min(CASES_PER_PROCESS, end - first)
            command = [sys.executable, "-B", __file__, "--seed", str(seed), "--first", str(first), "--runs", str(count), "--child", str(progress)]
            try:
                child = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS_PER_PROCESS)
                status, printed = child.returncode, child.stdout
            except subprocess.TimeoutExpired as late:
                status, printed = "timeout", late.stdout.decode() if late.stdout else ""
            print(printed, end="", flush=True)
            found = printed.count("PROBLEM:")
            findings += found
            first += count
            if status != bool(found):  # run_cases() ended early
                last = int(progress.read_text())
                print(f"case {last}\n  PROBLEM: the interpreter ended with {status}", flush=True)
                findings, first = findings + 1, last + 1
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="seed of the random numbers (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=300, help="number of cases (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case (default: %(default)s)")
    parser.add_argument("--case", type=int, help="run only this case, in this process, and print it")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        text, problem = run_case(options.seed, options.case)
        print(f"{text}\n{problem or 'no problem'}")
        return bool(problem)
    if options.child:
        with open(options.child, "w", encoding="utf-8") as progress:
            return bool(run_cases(options.seed, range(options.first, options.first + options.runs), progress))
    findings = run_in_processes(options.seed, options.first, options.runs)
    print(f"seed {options.seed}, Python arguments: {options.runs} cases, {findings} findings")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
