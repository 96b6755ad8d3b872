"""One token of the recurrent forms, compared with the causal forms."""

import pytest

torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import tapeformer.torch as tt  # noqa: E402

LENGTH = 40
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 3e-2}
DTYPES = list(TOLERANCE)


@pytest.fixture(autouse=True)
def forget_compiled_code():
    torch._dynamo.reset()  # the number of compilations of a function is limited


def make_inputs(dtype=torch.float64, batch=2, heads=3, dim=8, value_dim=5):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape, dtype=dtype):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    gate = torch.float32 if dtype == torch.bfloat16 else dtype
    q, k, v = (draw(batch, LENGTH, heads, size) for size in (dim, dim, value_dim))
    return q, k, v, draw(batch, LENGTH, heads, dtype=gate).sigmoid(), -draw(batch, LENGTH, heads, dim, dtype=gate).abs()


def run_steps(step, q, k, v, **by_token):
    """Returns the results of all tokens, and the last state."""
    results, state = [], None
    for t in range(q.shape[1]):
        out, state = step(q[:, t], k[:, t], v[:, t], state, **{name: x[:, t] for name, x in by_token.items()})
        results.append(out)
    return torch.stack(results, 1), state


def check_close(found, expected):
    assert found.dtype == expected.dtype
    assert torch.allclose(found.double(), expected.double(), atol=TOLERANCE[found.dtype], rtol=TOLERANCE[found.dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_equal_the_causal_forms(dtype):
    q, k, v, beta, decay = make_inputs(dtype)
    erase = k * 0.3
    check_close(run_steps(tt.linear_attention_step, q, k, v)[0], tt.linear_attention(q, k, v, causal=True))
    found, state = run_steps(tt.softmax_attention_step, q, k, v)
    check_close(found, tt.softmax_attention(q, k, v, causal=True))
    assert state.keys.dtype == state.values.dtype == dtype and state.length == LENGTH
    found, state = run_steps(lambda *x: tt.softmax_attention_step(*x, window=7), q, k, v)
    check_close(found, tt.local_attention(q, k, v, causal=True, window=7))
    assert state.keys.shape[1] == 7
    for g in (decay[..., 0], decay):
        expected, last = tt.gated_linear_attention(q, k, v, log_decay=g, erase=erase, beta=beta)
        found, state = run_steps(tt.gated_linear_attention_step, q, k, v, log_decay=g, erase=erase, beta=beta)
        check_close(found, expected)
        assert state.dtype == last.dtype and torch.allclose(state, last, atol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_step_continues_after_a_prefill(dtype):
    q, k, v, beta, decay = make_inputs(dtype)
    expected, _ = tt.gated_linear_attention(q, k, v, log_decay=decay, beta=beta)
    _, state = tt.gated_linear_attention(q[:, :-1], k[:, :-1], v[:, :-1], log_decay=decay[:, :-1], beta=beta[:, :-1])
    out, _ = tt.gated_linear_attention_step(
        q[:, -1], k[:, -1], v[:, -1], state, log_decay=decay[:, -1], beta=beta[:, -1]
    )
    check_close(out, expected[:, -1])
    state = tt.KeyValueState(k[:, :-1], v[:, :-1], LENGTH - 1)  # views that are not contiguous
    out, _ = tt.softmax_attention_step(q[:, -1], k[:, -1], v[:, -1], state)
    check_close(out, tt.softmax_attention(q, k, v, causal=True)[:, -1])


@pytest.mark.parametrize("module", [tt.RecurrentLinearAttention, tt.RecurrentFullAttention])
def test_recurrent_modules_with_autocast(module):
    q, k, v, *_ = make_inputs(torch.float32)
    whole = tt.CausalLinearAttention() if module is tt.RecurrentLinearAttention else tt.FullAttention().eval()
    with torch.autocast("cpu", torch.bfloat16):
        expected = whole(q, k, v, tt.TriangularCausalMask(LENGTH))
        found, state = run_steps(module(), q, k, v)
        gated, state = run_steps(tt.gated_linear_attention_step, q, k, v)
    check_close(found, expected)
    assert gated.dtype == torch.bfloat16 and state.dtype == torch.float32


def test_recurrent_softmax_attention_with_a_bfloat16_state():
    q, k, v, *_ = make_inputs(torch.float32)
    expected = tt.softmax_attention(q, k.bfloat16().float(), v.bfloat16().float(), causal=True)
    for capacity in (0, 1, 16):
        state = tt.KeyValueState(*(x.new_empty((2, capacity, *x.shape[2:]), dtype=torch.bfloat16) for x in (k, v)), 0)
        for t in range(LENGTH):
            out, state = tt.softmax_attention_step(q[:, t], k[:, t], v[:, t], state)
            assert torch.allclose(out, expected[:, t], atol=1e-5)
        assert state.keys.dtype == state.values.dtype == torch.bfloat16


def make_strided(x):
    """Returns copies of a tensor with other strides, and an equal tensor."""
    wide = torch.empty((*x.shape, 3), dtype=x.dtype)
    wide[..., 1] = x
    return wide[..., 1], x.transpose(0, -1).contiguous().transpose(0, -1), torch._neg_view(-x)


def test_strided_and_expanded_gates_of_a_step():
    q, k, v, beta, decay = (x[:, 0] for x in make_inputs())
    state = torch.randn(2, 3, 8, 5, dtype=torch.float64)

    def step(g, b, e=k):
        return tt.gated_linear_attention_step(q, k, v, state.clone(), log_decay=g, beta=b, erase=e)

    heads, one = decay[0, :, 0], decay[:1, :1, :1]
    for plain in (decay, decay[..., 0], heads):
        for g in make_strided(plain):
            assert torch.equal(step(g, beta)[0], step(plain.contiguous(), beta)[0])
    expanded = decay[..., :1].expand(2, 3, 8), one.expand(2, 3, 8), heads[:, None].expand(3, 8).expand(2, 3, 8)
    for g in (*expanded, one[..., 0].expand(2, 3), one[0, 0].expand(3)):
        assert torch.equal(step(g, beta)[0], step(g.contiguous(), beta)[0])
    for b in (*make_strided(beta), beta[:1, :1].expand(2, 3)):
        assert torch.equal(step(decay, b)[0], step(decay, b.contiguous())[0])
    for e in (*make_strided(k), k[..., :1].expand(2, 3, 8)):
        assert torch.equal(step(decay, beta, e)[0], step(decay, beta, e.contiguous())[0])
    half = step(decay.bfloat16(), beta.bfloat16())  # gates are cast as by gated_linear_attention()
    assert torch.equal(half[0], step(decay.bfloat16().double(), beta.bfloat16().double())[0])


def test_strides_of_dimensions_with_one_element_have_no_effect():
    x = torch.randn(2, 3, 1, dtype=torch.float64)
    odd = x.as_strided(x.shape, (3, 1, 0))
    expected = tt.gated_linear_attention_step(x, x, x, log_decay=-x.abs(), erase=x)
    for one in (odd, x.as_strided(x.shape, (3, 1, 7))):
        found = tt.gated_linear_attention_step(one, one, one, log_decay=-one.abs(), erase=one)
        assert torch.equal(found[0], expected[0])


def test_empty_tokens_may_have_any_strides():
    for shape in ((0, 3, 8), (2, 0, 8)):
        x = torch.zeros(*shape, 3)[..., 1]
        for step in (tt.linear_attention_step, tt.softmax_attention_step, tt.gated_linear_attention_step):
            assert step(x, x, x)[0].shape == shape
        assert tt.gated_linear_attention_step(x, x, x, log_decay=x, erase=x, beta=x[..., 0])[0].shape == shape


def write_states():
    """Returns, for each function that changes a tensor of its caller, the function, its arguments and the changed tensors."""
    generator = torch.Generator().manual_seed(1)
    token = [torch.randn(2, 3, 8, generator=generator) for _ in range(3)]
    kv, key_sum, state = torch.randn(2, 3, 8, 8), torch.rand(2, 3, 8), torch.randn(2, 3, 8, 8)
    keys, values = torch.randn(2, 5, 3, 8), torch.randn(2, 5, 3, 8)
    return {
        "linear": (tt.linear_attention_step, (*token, tt.LinearState(kv, key_sum)), [kv, key_sum]),
        "softmax": (tt.softmax_attention_step, (*token, tt.KeyValueState(keys, values, 2)), [keys, values]),
        "gated": (tt.gated_linear_attention_step, (*token, state), [state]),
        "linear module": (tt.RecurrentLinearAttention(), (*token, tt.LinearState(kv, key_sum)), [kv, key_sum]),
        "softmax module": (tt.RecurrentFullAttention(), (*token, tt.KeyValueState(keys, values, 2)), [keys, values]),
    }


@pytest.mark.parametrize("name", write_states())
def test_a_step_makes_backward_passes_raise_that_need_the_old_state(name):
    function, arguments, changed = write_states()[name]
    for i, x in enumerate(changed):
        weight = torch.randn_like(x, requires_grad=True)
        loss = (weight * x[:]).sum()  # x[:] is a view of the state
        versions = [y._version for y in changed]
        function(*arguments)
        assert all(y._version > version for y, version in zip(changed, versions))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_other_functions_change_no_tensor_of_the_caller():
    q, k, v, beta, decay = make_inputs(torch.float32)
    state, lengths = torch.randn(2, 3, 8, 5), torch.tensor([LENGTH, 7])
    inputs = [q, k, v, beta, decay, state, lengths]
    for x in inputs[:6]:
        x.requires_grad_()
    before = [(x.detach().clone(), x._version) for x in inputs]
    results = [
        tt.softmax_attention(q, k, v, lengths=lengths, dropout_p=0.5), tt.local_attention(q, k, v, window=4),
        tt.linear_attention(q, k, v, lengths=lengths), tt.lsh_attention(q, v, lengths=lengths, chunk_length=4),
        *tt.gated_linear_attention(q, k, v, log_decay=decay, beta=beta, erase=k, initial_state=state, lengths=lengths),
        *tt.gated_linear_attention(q, k, v, reverse=True),
    ]  # fmt: skip
    sum(x.sum() for x in results).backward()
    tt.linear_attention_step(q[:, 0], k[:, 0], v[:, 0])
    tt.gated_linear_attention_step(q[:, 0], k[:, 0], v[:, 0], log_decay=decay[:, 0], erase=k[:, 0], beta=beta[:, 0])
    assert all(torch.equal(x, old) and x._version == version for x, (old, version) in zip(inputs, before))


STEPS = {
    "linear": (tt.linear_attention_step, lambda q, k, v, *_: tt.linear_attention(q, k, v, causal=True)),
    "features": (
        lambda *x: tt.linear_attention_step(*x, feature_map=torch.sigmoid),
        lambda q, k, v, *_: tt.linear_attention(q, k, v, causal=True, feature_map=torch.sigmoid),
    ),
    "softmax": (tt.softmax_attention_step, lambda q, k, v, *_: tt.softmax_attention(q, k, v, causal=True)),
    "window": (
        lambda *x: tt.softmax_attention_step(*x, window=3),
        lambda q, k, v, *_: tt.local_attention(q, k, v, causal=True, window=3),
    ),
    "gated": (
        tt.gated_linear_attention_step,
        lambda q, k, v, beta, decay: tt.gated_linear_attention(q, k, v, log_decay=decay, erase=k * 0.3, beta=beta)[0],
    ),
}


def run_form(name, q, k, v, beta, decay, step=None):
    gates = {"log_decay": decay, "erase": k * 0.3, "beta": beta} if name == "gated" else {}
    return run_steps(step or STEPS[name][0], q, k, v, **gates)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_gradients_flow_through_steps_and_states(name, dtype):
    inputs = [x.requires_grad_() for x in make_inputs(dtype)]
    expected = STEPS[name][1](*inputs)
    cotangent = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, inputs, cotangent, allow_unused=True)
    found, state = run_form(name, *inputs)
    check_close(found, expected)
    for x, g in zip(torch.autograd.grad(found, inputs, cotangent, allow_unused=True), gradients):
        assert (x is None) == (g is None)
        assert x is None or torch.allclose(x.double(), g.double(), atol=1e-9 if dtype == torch.float64 else 0.1, rtol=TOLERANCE[dtype])
    first = state if name == "gated" else state[0]
    assert first.requires_grad


def test_a_recorded_step_does_not_change_its_state():
    q, k, v, *_ = (x[:, 0] for x in make_inputs())
    for step in (tt.linear_attention_step, tt.softmax_attention_step, tt.gated_linear_attention_step):
        state = step(q, k, v)[1]
        tensors = [state] if isinstance(state, torch.Tensor) else list(state[:2])
        before = [x.clone() for x in tensors]
        out, new = step(q.clone().requires_grad_(), k, v, state)
        # The room of a state for later tokens is not initialised, and can contain NaN.
        same = [torch.allclose(x, y, 0, 0, equal_nan=True) for x, y in zip(tensors, before)]
        assert out.requires_grad and all(same)
        plain, _ = step(q, k, v, state)  # changes the state
        assert torch.allclose(out, plain) and not any(map(torch.equal, tensors, before))


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_steps_have_no_graph_breaks(name, dtype):
    inputs = [x[:, :20] for x in make_inputs(dtype)]
    step = torch.compile(STEPS[name][0], fullgraph=True, backend="aot_eager")
    expected, last = run_form(name, *inputs)
    found, state = run_form(name, *inputs, step=step)
    check_close(found, expected)
    states = ([last], [state]) if name == "gated" else (last[:2], state[:2])
    used = 20 if name == "softmax" else None  # the rest of the cache has no values
    for x, y in zip(*states):
        assert torch.allclose(x[:, :used].float(), y[:, :used].float(), atol=TOLERANCE[dtype])
    recorded = [x.clone().requires_grad_() for x in inputs]
    run_form(name, *recorded, step=step)[0].float().square().sum().backward()
    assert recorded[2].grad.isfinite().all() and recorded[2].grad.any()


@pytest.mark.parametrize("name", STEPS)
def test_a_compiled_step_changes_its_state_in_place(name):
    q, k, v, beta, decay = (x[:, 0] for x in make_inputs())
    gates = {"log_decay": decay, "erase": k * 0.3, "beta": beta} if name == "gated" else {}
    state, compiled_state = (STEPS[name][0](q, k, v, **gates)[1] for _ in range(2))
    STEPS[name][0](q, k, v, state, **gates)
    torch.compile(STEPS[name][0], fullgraph=True, backend="aot_eager")(q, k, v, compiled_state, **gates)
    pairs = [(state, compiled_state)] if name == "gated" else list(zip(state[:2], compiled_state[:2]))
    for x, y in pairs:
        assert torch.allclose(x[:, :2] if name in ("softmax", "window") else x, y[:, :2] if name in ("softmax", "window") else y)


@pytest.mark.parametrize("step", [tt.linear_attention_step, tt.softmax_attention_step, tt.gated_linear_attention_step])
def test_steps_in_transforms_and_modes(step):
    q = torch.randn(4, 2, 3, 8)
    state = step(q[0], q[0], q[0])[1]
    expected = torch.stack([step(x, x, x)[0] for x in q])
    assert torch.allclose(torch.vmap(lambda x: step(x, x, x)[0])(q), expected, atol=1e-6)
    gradient = torch.func.grad(lambda x: step(x, x, x, state)[0].sum())(q[1])
    x = q[1].clone().requires_grad_()
    step(x, x, x, state)[0].sum().backward()
    assert torch.allclose(gradient, x.grad, atol=1e-6)
    with FakeTensorMode():
        assert step(*[torch.empty(2, 3, 8)] * 3)[0].shape == (2, 3, 8)
    with FlopCounterMode(display=False):
        assert torch.allclose(step(q[0], q[0], q[0])[0], expected[0], atol=1e-6)


def test_states_of_inference_mode_have_no_versions():
    q, k, v, *_ = make_inputs(torch.float32)
    with torch.inference_mode():
        found, _ = run_steps(tt.linear_attention_step, q, k, v)
    assert torch.allclose(found, tt.linear_attention(q, k, v, causal=True), atol=1e-5)


def test_wrong_arguments_of_steps_raise():
    q = torch.randn(2, 3, 8)
    keys = torch.zeros(2, 4, 3, 8)
    steps = tt.linear_attention_step, tt.softmax_attention_step, tt.gated_linear_attention_step
    for step in steps:
        for wrong, error in (
            ((q.numpy(), q, q), TypeError), ((q, q.double(), q), TypeError), ((q.long(),) * 3, TypeError), ((q.half(),) * 3, TypeError),
            ((q[0], q, q), ValueError), ((q, q[:1], q), ValueError), ((q.to("meta"),) * 3, ValueError), ((q, q, q, [1]), TypeError),
        ):  # fmt: skip
            with pytest.raises(error):
                step(*wrong)
    with pytest.raises(ValueError, match="window must be at least 1"):
        tt.softmax_attention_step(q, q, q, window=0)
    with pytest.raises(ValueError, match="scale"):
        tt.softmax_attention_step(q, q, q, scale=0.0)
    with pytest.raises(TypeError, match="must be an integer"):
        tt.softmax_attention_step(q, q, q, tt.KeyValueState(keys, keys, 1.0))
    for state in (tt.KeyValueState(keys, keys, -1), tt.KeyValueState(keys, keys, 5), tt.KeyValueState(keys[0], keys, 1), tt.KeyValueState(keys, keys[:, 0, 0], 4)):
        with pytest.raises(ValueError):
            tt.softmax_attention_step(q, q, q, state)
    for state in (tt.KeyValueState(None, keys, 4), tt.KeyValueState(keys, [1], 4), tt.KeyValueState(keys, keys.to_sparse(), 4)):
        with pytest.raises(TypeError, match="state.(keys|values)"):
            tt.softmax_attention_step(q, q, q, state)
    for state in (tt.KeyValueState(keys.double(), keys.double(), 1), tt.KeyValueState(keys, keys.bfloat16(), 1)):
        with pytest.raises(TypeError, match="state"):
            tt.softmax_attention_step(q, q, q, state)
    with pytest.raises(TypeError, match="state is torch.float64"):
        tt.gated_linear_attention_step(q, q, q, torch.zeros(2, 3, 8, 8, dtype=torch.float64))
    with pytest.raises(ValueError, match="contiguous"):
        tt.gated_linear_attention_step(q, q, q, torch.zeros(1, 1, 8, 8).expand(2, 3, 8, 8))
    for name, wrong in (("log_decay", 0.5), ("beta", 0.5), ("beta", q[..., 0].long())):
        with pytest.raises(TypeError, match=name):
            tt.gated_linear_attention_step(q, q, q, **{name: wrong})
    for name, wrong in (("log_decay", q[0, 0]), ("log_decay", q[0]), ("beta", q), ("erase", q[:1])):
        with pytest.raises(ValueError):
            tt.gated_linear_attention_step(q, q, q, **{name: wrong})
