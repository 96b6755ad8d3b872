"""Attention in code of torch.compile, in workers of DataLoader, and as modules."""

import os
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
    with pytest.raises(RuntimeError, match="cannot be traced"):
        torch.jit.trace(lambda x: tt.linear_attention_step(x, x, x)[0], inputs[0][:, 0])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name):
    inputs = [torch.stack([x.detach(), -x.detach()]).requires_grad_() for x in make_inputs()]
    expected = torch.stack([FUNCTIONS[name](*x) for x in zip(*inputs)])
    out = torch.vmap(FUNCTIONS[name])(*inputs)
    assert torch.equal(out, expected)
    found, wanted = (torch.autograd.grad((x**2).sum(), inputs, allow_unused=True) for x in (out, expected))
    assert all(b is None or torch.allclose(a, b, atol=1e-4) for a, b in zip(found, wanted))


@pytest.mark.parametrize("name", ["softmax_attention", "linear_attention"])
def test_operators_pass_the_checks_of_torch_library(name):
    q, k, v = make_inputs(8)
    operator = {"softmax_attention": tt._ops.softmax, "linear_attention": tt._ops.linear}[name]
    rest = (None, True, 0.0, 0.0, 1, 1 << 40, 1 << 40) if name == "softmax_attention" else (True, 0, 1e-6)
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


def test_modules_take_the_masks_of_fast_transformers():
    q, k, v = (x.detach() for x in make_inputs())
    lengths = tt.LengthMask(torch.tensor([24, 10]))
    causal, full = tt.TriangularCausalMask(24), tt.FullMask()
    out = tt.FullAttention(attention_dropout=0.5).eval()(q, k, v, causal, lengths, lengths)
    assert torch.equal(out, tt.softmax_attention(q, k, v, causal=True, lengths=lengths.lengths))
    out = tt.LinearAttention(8)(q, k, v, full, lengths, lengths)
    assert torch.equal(out, tt.linear_attention(q, k, v, lengths=lengths.lengths))
    out = tt.CausalLinearAttention(8)(q, k, v, causal, lengths, lengths)
    assert torch.equal(out, tt.linear_attention(q, k, v, causal=True, lengths=lengths.lengths))
    assert tt.ReformerAttention(chunk_size=4, bits=3)(q, k, v, causal, lengths, lengths).shape == v.shape
    assert tt.LocalAttention(5)(q, k, v, causal, lengths, lengths).shape == v.shape
    for module, mask in ((tt.LinearAttention(8), causal), (tt.CausalLinearAttention(8), full)):
        with pytest.raises(ValueError, match="causal masks"):
            module(q, k, v, mask, lengths, lengths)
    with pytest.raises(ValueError, match="Tensor"):
        tt.FullAttention()(q, k, v, torch.ones(24, 24))


def test_attention_layer_learns():
    torch.manual_seed(0)
    layer = tt.AttentionLayer(tt.CausalLinearAttention(), 16, 2)
    optimizer = torch.optim.Adam(layer.parameters(), 1e-2)
    x = torch.randn(4, 12, 16)
    target = torch.cumsum(x, 1) / torch.arange(1, 13)[:, None]
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.mse_loss(layer(x, x, x, tt.TriangularCausalMask(12)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_recurrent_modules_return_a_state():
    q, k, v = (x.detach() for x in make_inputs())
    expected = tt.CausalLinearAttention()(q, k, v), tt.FullAttention().eval()(q, k, v, tt.TriangularCausalMask())
    for module, whole in zip((tt.RecurrentLinearAttention(), tt.RecurrentFullAttention()), expected):
        state = None
        for t in range(24):
            out, state = module(q[:, t], k[:, t], v[:, t], state)
            assert torch.allclose(out, whole[:, t], atol=1e-5)


def read_peak_mebibytes():
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))


@pytest.mark.skipif(sys.platform != "linux", reason="skipped: the peak of the memory is that of Linux")
def test_memory_is_not_copied():
    q = torch.ones(1, 1 << 16, 8, 64)
    mebibytes = q.numel() * 4 / 2**20
    tt.linear_attention(q[:, :64], q[:, :64], q[:, :64])
    with open("/proc/self/clear_refs", "w", encoding="utf-8") as peak:
        peak.write("5")  # resets the peak
    before = read_peak_mebibytes()
    tt.linear_attention(q, q, q)
    grown = read_peak_mebibytes() - before
    assert 0.9 * mebibytes < grown < 1.7 * mebibytes  # the result and the statistics; a copy of an input is one more


def test_random_seeds_do_not_depend_on_the_default_device():
    q, k, v = (torch.randn(1, 8, 2, 8) for _ in range(3))
    with torch.device("meta"):
        assert tt.softmax_attention(q, k, v, dropout_p=0.1).device.type == "cpu"
        assert tt.lsh_attention(q, v, seed=1).device.type == "cpu"
