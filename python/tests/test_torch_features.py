"""Attention in code of torch.compile, in workers of DataLoader, and as modules."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")

import tapeformer.torch as tt  # noqa: E402

FUNCTIONS = {
    "softmax": lambda q, k, v: tt.softmax_attention(q, k, v, causal=True),
    "linear": lambda q, k, v: tt.linear_attention(q, k, v, causal=True),
    "local": lambda q, k, v: tt.local_attention(q, k, v, window=4),
    "lsh": lambda q, k, v: tt.lsh_attention(q, v, chunk_length=4, seed=3),
    "gated": lambda q, k, v: tt.gated_linear_attention(q, k, v, erase=0.1 * k)[0],
}


def make_inputs(length=24, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(2, length, 3, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_code_has_no_graph_breaks_and_the_same_gradients(name):
    def model(q, k, v):
        return (FUNCTIONS[name](q * 2, k, torch.sin(v)) ** 2).sum()

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    inputs = make_inputs()
    expected = torch.autograd.grad(model(*inputs), inputs, allow_unused=True)
    found = torch.autograd.grad(compiled(*inputs), inputs, allow_unused=True)
    for a, b in zip(found, expected):
        assert (a is None) == (b is None) or a.abs().max() == 0
        assert b is None or torch.allclose(a, b, atol=1e-4)


def test_compiled_code_takes_changing_windows():
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v, w: tt.local_attention(q, k, v, window=w).sum(), dynamic=True, backend="aot_eager")
    for window in (4, 5, 6):
        q, k, v = make_inputs()
        compiled(q, k, v, window).backward()
        expected = torch.autograd.grad(tt.local_attention(q, k, v, window=window).sum(), v)[0]
        assert torch.allclose(v.grad, expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace", "ignore:torch.tensor results")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tracers_record_the_operators(name):
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = [x.detach() for x in make_inputs()]
    others = [2 * x for x in inputs]
    expected = FUNCTIONS[name](*others)
    for trace in (lambda f: torch.jit.trace(f, tuple(inputs), check_trace=False), lambda f: make_fx(f)(*inputs)):
        assert torch.equal(trace(FUNCTIONS[name])(*others), expected)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace", "ignore:torch.tensor results")
def test_tracers_record_steps():
    from torch.fx.experimental.proxy_tensor import make_fx

    def step(x):
        return tt.linear_attention_step(x, x, x)[0]

    token, other = (torch.randn(2, 3, 8) for _ in range(2))
    for trace in (lambda f: torch.jit.trace(f, token, check_trace=False), lambda f: make_fx(f)(token)):
        assert torch.allclose(trace(step)(other), step(other), atol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name):
    inputs = [torch.stack([x.detach(), -x.detach()]).requires_grad_() for x in make_inputs()]
    expected = torch.stack([FUNCTIONS[name](*x) for x in zip(*inputs)])
    out = torch.vmap(FUNCTIONS[name])(*inputs)
    assert torch.equal(out, expected)
    found, wanted = (torch.autograd.grad((x**2).sum(), inputs, allow_unused=True) for x in (out, expected))
    assert all(b is None or torch.allclose(a, b, atol=1e-4) for a, b in zip(found, wanted))


@pytest.mark.filterwarnings("error")
def test_vmap_over_other_dimensions_and_some_arguments():
    q, k, v = (x.detach().double() for x in make_inputs())
    lengths = torch.tensor([[24, 3], [7, 24], [0, 1]])
    stacked = torch.stack([q, 2 * q, -q], 3)
    found = torch.vmap(lambda q, n: tt.linear_attention(q, k, v, lengths=n), in_dims=(3, 0))(stacked, lengths)
    expected = [tt.linear_attention(stacked[..., i, :], k, v, lengths=lengths[i]) for i in range(3)]
    assert torch.allclose(found, torch.stack(expected))
    beta, state = torch.rand(3, 2, 24, 3, dtype=torch.float64), torch.randn(3, 2, 3, 8, 8, dtype=torch.float64)

    def gated(q, beta, state):
        return tt.gated_linear_attention(q, k, v, beta=beta, initial_state=state, log_decay=-beta, erase=k)

    found = torch.vmap(torch.vmap(gated, (None, 0, 0)), (0, None, None))(torch.stack([q, -q]), beta, state)
    for i, sign in enumerate((1, -1)):
        for j in range(3):
            for a, b in zip(found, gated(sign * q, beta[j], state[j])):
                assert torch.allclose(a[i, j], b)


@pytest.mark.filterwarnings("error:There is a performance drop")
def test_vmap_in_compiled_code():
    torch._dynamo.reset()
    q, k, v = (x.detach() for x in make_inputs())
    stacked = torch.stack([q, -q])

    def attend(q):
        return torch.vmap(lambda q: tt.linear_attention(q, k, v))(q)

    assert torch.allclose(torch.compile(attend, backend="aot_eager")(stacked), attend(stacked))


@pytest.mark.filterwarnings("error")
def test_vmap_draws_dropout_as_its_randomness_says():
    q = torch.randn(1, 2, 24, 3, 8).expand(3, -1, -1, -1, -1)

    def attend(q):
        return tt.softmax_attention(q, q, q, dropout_p=0.5)

    same = torch.vmap(attend, randomness="same")(q)
    different = torch.vmap(attend, randomness="different")(q)
    assert torch.equal(same[0], same[1]) and not torch.equal(different[0], different[1])
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(attend)(q)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_in_transforms_of_torch_func(name):
    def loss(q, k, v):
        return (FUNCTIONS[name](q, k, v) ** 2).sum()

    inputs = [x.detach() for x in make_inputs(dtype=torch.float64)]
    leaves = [x.clone().requires_grad_() for x in inputs]
    expected = [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, torch.autograd.grad(loss(*leaves), leaves, allow_unused=True))]
    for found in (torch.func.grad(loss, (0, 1, 2))(*inputs), torch.func.jacrev(loss, (0, 1, 2))(*inputs)):
        assert all(torch.allclose(a, b) for a, b in zip(found, expected))
    stacked = [torch.stack([x, 0.5 * x]) for x in inputs]
    found = torch.vmap(torch.func.grad(loss, (0, 1, 2)))(*stacked)  # gradients of each sample
    assert all(torch.allclose(a[0], b) for a, b in zip(found, expected))
    found = torch.func.grad(lambda q: torch.vmap(loss, (0, None, None))(q, *inputs[1:]).sum())(stacked[0])
    assert torch.allclose(found[0], expected[0])
    with pytest.raises(RuntimeError, match="differentiate twice"):
        torch.func.grad(lambda x: torch.func.grad(loss)(x, *inputs[1:]).sum())(inputs[0])


@pytest.mark.parametrize("name", ["softmax_attention", "linear_attention"])
def test_operators_pass_the_checks_of_torch_library(name):
    q, k, v = make_inputs(8)
    operator = {"softmax_attention": tt._ops.softmax, "linear_attention": tt._ops.linear}[name]
    rest = (None, None, True, 0.0, 0.0, 1, 1 << 40, 1 << 40) if name == "softmax_attention" else (True, 0, 1e-6)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(operator.custom, (q, k, v, None, *rest), test_utils=tests)


class Attended(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        q = torch.randn(1, 300, 4, 16, generator=torch.Generator().manual_seed(index))
        return tt.softmax_attention(q, q, q, causal=True)[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="skipped: the system has no fork()")
def test_attention_works_in_forked_workers_after_use_in_the_parent():
    torch.set_num_threads(2)
    expected = [Attended()[i] for i in range(8)]  # starts the threads of the parent
    loader = torch.utils.data.DataLoader(
        Attended(), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    for i, batch in enumerate(loader):
        assert torch.allclose(batch[0], expected[2 * i], atol=1e-5)
        assert torch.allclose(batch[1], expected[2 * i + 1], atol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="skipped: the system has no fork()")
def test_a_forked_process_computes_gradients():
    inputs = make_inputs(200, torch.float64)
    expected = torch.autograd.grad(FUNCTIONS["softmax"](*inputs).sum(), inputs)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(60)  # ends a child that hangs
        try:
            torch.set_num_threads(1)
            found = torch.autograd.grad(FUNCTIONS["softmax"](*inputs).sum(), inputs)
            os._exit(0 if all(torch.allclose(a, b) for a, b in zip(found, expected)) else 1)
        finally:
            os._exit(1)  # a child that raises must not run the other tests
    assert os.waitpid(child, 0)[1] == 0


PRINT_GROWTH = """
import torch
import tapeformer.torch as tt

def read_peak_mebibytes():
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))

q = torch.ones(1, 1 << 16, 8, 64)
tt.linear_attention(q[:, :64], q[:, :64], q[:, :64])
with open("/proc/self/clear_refs", "w", encoding="utf-8") as peak:
    peak.write("5")  # resets the peak
before = read_peak_mebibytes()
tt.linear_attention(q, q, q)
print((read_peak_mebibytes() - before) / (q.numel() * 4 / 2**20))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="skipped: the peak of the memory is that of Linux")
def test_memory_is_not_copied():
    """In a process of its own, because a training lets glibc keep freed memory."""
    growth = subprocess.run([sys.executable, "-c", PRINT_GROWTH], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert 0.9 < float(growth) < 1.7  # the result and the statistics; a copy of an input is 1 more


def test_random_seeds_do_not_depend_on_the_default_device():
    q, k, v = (torch.randn(1, 8, 2, 8) for _ in range(3))
    with torch.device("meta"):
        assert tt.softmax_attention(q, k, v, dropout_p=0.1).device.type == "cpu"
        assert tt.lsh_attention(q, v, seed=1).device.type == "cpu"
