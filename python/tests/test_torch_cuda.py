"""Attention of CUDA tensors, compared with attention of CPU tensors.

On a machine with a CUDA device and PyTorch for it, the tests use the device. In a build that emulates CUDA, they
use subclasses of torch.Tensor, which are on the CPU for PyTorch, and on the emulated device for the extension.
"""

import math

import pytest

torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")

import tapeformer.torch as tt  # noqa: E402
from tapeformer import _core  # noqa: E402

IS_EMULATED = hasattr(_core, "allocate_emulated")
HAS_DEVICE = _core.has_cuda and not IS_EMULATED and torch.cuda.is_available()
needs_device = pytest.mark.skipif(not HAS_DEVICE, reason="skipped: needs a CUDA device and a build with CUDA")
needs_emulation = pytest.mark.skipif(not IS_EMULATED, reason="skipped: needs a build that emulates CUDA")
needs_either = pytest.mark.skipif(
    not HAS_DEVICE and not IS_EMULATED, reason="skipped: needs a CUDA device or a build that emulates CUDA"
)
DTYPES = [torch.float32, torch.float64, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11, torch.bfloat16: 3e-2}
STREAM = 0x70  # the current stream of PyTorch for the emulation


class EmulatedTensor(torch.Tensor):
    """A tensor that has the attributes of a CUDA tensor. copy() and new_…() put it into emulated device memory."""

    is_cpu = property(lambda self: False)
    is_cuda = property(lambda self: True)
    index = 0
    addresses: set = set()

    def get_device(self):
        return self.index

    @staticmethod
    def allocate(shape, dtype):
        count = math.prod(shape)
        if count == 0 or not IS_EMULATED:
            return torch.empty(shape, dtype=dtype).as_subclass(EmulatedTensor)
        flat = torch.from_numpy(_core.allocate_emulated(count * dtype.itemsize)).view(dtype)
        EmulatedTensor.addresses.add(flat.data_ptr())
        return flat.view(tuple(shape)).as_subclass(EmulatedTensor)

    @staticmethod
    def restore(x):
        """Returns x with the class that tensors lose when PyTorch saves them for the backward pass."""
        return x.as_subclass(EmulatedTensor) if x is not None and x.data_ptr() in EmulatedTensor.addresses else x

    @staticmethod
    def copy(x):
        result = EmulatedTensor.allocate(x.shape, x.dtype)
        result.copy_(x)
        return result

    def new_empty(self, shape, dtype=None):
        return self.allocate((shape,) if isinstance(shape, int) else shape, dtype or self.dtype)

    def new_zeros(self, shape):
        return self.new_empty(shape).zero_()


def restore_classes(backward):
    def restored(gradients, tensors, outputs, constants):
        tensors, outputs = ([EmulatedTensor.restore(x) for x in list_] for list_ in (tensors, outputs))
        if tensors[0].is_cuda:
            gradients = [x if x is None else EmulatedTensor.copy(x) for x in gradients]
        return backward(gradients, tensors, outputs, constants)

    return restored


@pytest.fixture
def to_device(monkeypatch):
    """Copies a tensor to the device. The copy is a leaf."""
    if IS_EMULATED:
        stream = type("Stream", (), {"cuda_stream": STREAM})
        monkeypatch.setattr(torch.cuda, "current_stream", lambda index: stream)
        _core.take_stream_waits()
        for operator in (tt._ops.softmax, tt._ops.linear, tt._ops.lsh, tt._ops.gated):
            monkeypatch.setattr(operator, "backward", restore_classes(operator.backward))
    move = EmulatedTensor.copy if IS_EMULATED else lambda x: x.cuda()
    return lambda x: x if x is None else move(x.detach()).requires_grad_(x.requires_grad)


def make_inputs(dtype=torch.float32, length=37, value_dim=5):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape, dtype=dtype):
        return (0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()

    gate = torch.float32 if dtype == torch.bfloat16 else dtype
    q, k, v = draw(2, length, 3, 8), draw(2, length, 3, 8), draw(2, length, 3, value_dim)
    decay = (-draw(2, length, 3, dtype=gate).abs()).detach().requires_grad_()
    return [q, k, v, decay, draw(2, length, 3, 8), draw(2, length, 3, dtype=gate), draw(2, 3, 8, value_dim, dtype=gate)]


def compute_gated(q, k, v, decay, erase, beta, state, lengths):
    out, last = tt.gated_linear_attention(
        q, k, v, log_decay=decay, erase=erase, beta=beta, initial_state=state, lengths=lengths
    )
    return out.float() * last.float().mean()


FUNCTIONS = {
    "softmax": lambda q, k, v, *_, lengths: tt.softmax_attention(q, k, v, causal=True, lengths=lengths),
    "dropout": lambda q, k, v, *_, lengths: tt.softmax_attention(q, k, v, lengths=lengths, dropout_p=0.3),
    "local": lambda q, k, v, *_, lengths: tt.local_attention(q, k, v, window=4, lengths=lengths),
    "linear": lambda q, k, v, *_, lengths: tt.linear_attention(q, k, v, lengths=lengths),
    "causal linear": lambda q, k, v, *_, lengths: tt.linear_attention(q, k, v, causal=True, lengths=lengths),
    "lsh": lambda q, k, v, *_, lengths: tt.lsh_attention(q, v, chunk_length=8, buckets=4, seed=3, lengths=lengths),
    "gated": lambda q, k, v, *gates, lengths: compute_gated(q, k, v, *gates, lengths),
    "decay": lambda q, k, v, decay, *_, lengths: tt.gated_linear_attention(q, k, v, log_decay=decay, lengths=lengths)[0],
}


def check_close(found, expected, dtype):
    for a, b in zip(found, expected):
        assert (a is None) == (b is None) and (b is None or a.dtype == b.dtype)
        if b is not None:
            a, b = (x.detach().as_subclass(torch.Tensor).cpu().double() for x in (a, b))
            assert (a - b).abs().max().item() <= TOLERANCE[dtype] * max(1, b.abs().max().item())


@needs_either
@pytest.mark.parametrize("place", ["none", "cpu", "device"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_equal_those_of_the_cpu(name, dtype, place, to_device):
    inputs = make_inputs(dtype)
    lengths = None if place == "none" else torch.tensor([37, 20])
    results = []
    for move in (lambda x: x, to_device):
        moved = [move(x) for x in inputs]
        torch.manual_seed(7)  # for the mask of the dropout
        out = FUNCTIONS[name](*moved, lengths=move(lengths) if place == "device" else lengths)
        gradient = torch.randn(out.shape, generator=torch.Generator().manual_seed(9)).to(out.dtype)
        gradients = torch.autograd.grad(out, moved, move(gradient), allow_unused=True)
        results.append([out, *gradients])
    assert results[1][0].is_cuda
    check_close(*reversed(results), dtype)


@needs_either
def test_views_are_not_copied(to_device):
    joined = torch.randn(2, 33, 3, 4, 8, generator=torch.Generator().manual_seed(0))
    moved = to_device(joined)
    for offset in (0, 1):  # with an offset, rows are not aligned to 16 bytes
        expected = tt.linear_attention(*joined[..., offset:].unbind(2), causal=True)
        check_close([tt.linear_attention(*moved[..., offset:].unbind(2), causal=True)], [expected], torch.float32)


@needs_either
def test_recurrent_forms_equal_those_of_the_cpu(to_device):
    q, k, v, decay, erase, beta, _ = (x.detach() for x in make_inputs(length=20))
    results = []
    for move in (lambda x: x, to_device):
        states, outputs = [None] * 4, []
        for t in range(20):
            token = [move(x[:, t].contiguous()) for x in (q, k, v)]
            gates = {n: move(x[:, t].contiguous()) for n, x in (("log_decay", decay), ("erase", erase), ("beta", beta))}
            steps = [
                tt.linear_attention_step(*token, states[0]),
                tt.softmax_attention_step(*token, states[1], window=32),
                tt.softmax_attention_step(*token, states[2], window=4),
                tt.gated_linear_attention_step(*token, states[3], **gates),
            ]
            states = [state for _, state in steps]
            outputs += [out for out, _ in steps]
        results.append(outputs)
    check_close(*reversed(results), torch.float32)


@needs_emulation
def test_work_is_between_earlier_and_later_work_of_the_stream(to_device):
    q, k, v = (to_device(x) for x in make_inputs()[:3])
    out = tt.softmax_attention(q, k, v)
    waits = _core.take_stream_waits()
    torch.autograd.grad(out, q, EmulatedTensor.copy(torch.ones(out.shape)))
    for (earlier, own), (own_too, later) in (waits, _core.take_stream_waits()):
        assert earlier == later == STREAM and own == own_too != STREAM


@needs_emulation
def test_the_stream_is_that_of_the_device_of_the_tensors(to_device, monkeypatch):
    asked = []
    stream = type("Stream", (), {"cuda_stream": STREAM})
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: asked.append(index) or stream)
    q = to_device(torch.randn(1, 4, 1, 4))
    tt.linear_attention(q, q, q)
    q.index = 1
    with pytest.raises(RuntimeError, match="cuda:1 is not available"):  # the emulation has one device
        tt.linear_attention(q, q, q)
    assert asked == [0, 1]
    q.index = 0
    tt.linear_attention(q, q, q)


@needs_either
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_mixed_devices_raise(wrong, to_device):
    inputs = [torch.randn(2, 4, 1, 4) for _ in range(3)]
    mixed = [x if i == wrong else to_device(x) for i, x in enumerate(inputs)]
    with pytest.raises(ValueError, match="one device"):
        tt.softmax_attention(*mixed)
    with pytest.raises(ValueError, match="one device"):
        tt.linear_attention(*[to_device(x) if i == wrong else x for i, x in enumerate(inputs)])
    with pytest.raises(ValueError, match="lengths are on cuda:0"):
        tt.softmax_attention(*inputs, lengths=to_device(torch.tensor([3, 4])))
    with pytest.raises(ValueError, match="on cpu"):
        tt.gated_linear_attention(*[to_device(x) for x in inputs], beta=torch.rand(2, 4, 1))


@needs_emulation
def test_the_emulation_refuses_memory_of_other_devices(to_device):
    q = torch.randn(1, 4, 1, 4).as_subclass(EmulatedTensor)
    with pytest.raises(ValueError, match="only emulates CUDA"):
        tt.linear_attention(q, q, q)


@pytest.mark.skipif(_core.has_cuda, reason="skipped: the build has CUDA")
def test_a_build_without_cuda_says_so():
    q = torch.randn(1, 4, 1, 4).as_subclass(EmulatedTensor)
    with pytest.raises(ValueError, match="no CUDA backend; build it with -DTAPEFORMER_CUDA=ON"):
        tt.linear_attention(q, q, q)


def test_operators_are_registered_for_cuda():
    for operator in (tt._ops.softmax, tt._ops.linear, tt._ops.lsh, tt._ops.gated):
        for name in (operator.function.__name__, f"{operator.function.__name__}_backward"):
            assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"tapeformer::{name}", "CUDA")
            if hasattr(torch.Tag, "cudagraph_unsafe"):
                assert torch.Tag.cudagraph_unsafe in getattr(torch.ops.tapeformer, name).default.tags


@pytest.mark.parametrize("name", ["softmax", "dropout", "local", "linear", "lsh", "decay"])
def test_tensors_without_memory_have_results_on_their_device(name):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q, k, v, decay = (
            torch.empty(shape, device="cuda:1", requires_grad=True)
            for shape in ((2, 9, 3, 8), (2, 9, 3, 8), (2, 9, 3, 5), (2, 9, 3))
        )
        out = FUNCTIONS[name](q, k, v, decay, lengths=None)
        gradients = torch.ops.tapeformer.linear_attention_backward([out], [q, k, v, None], [out, q], "")
    for x, shape in zip((out, *gradients), (v.shape, q.shape, k.shape, v.shape)):
        assert x.device == torch.device("cuda:1") and x.shape == shape


@needs_device
def test_results_do_not_depend_on_the_load_of_streams():
    """The inputs are written by slow work of a side stream, and the results are read there at once."""
    stream = torch.cuda.Stream()
    base = torch.randn(1, 512, 4, 32)
    expected = tt.softmax_attention(*[3 * base] * 3, causal=True)
    with torch.cuda.stream(stream):
        large, q = torch.randn(4096, 4096, device="cuda"), torch.zeros(1, 512, 4, 32, device="cuda")
        for _ in range(10):
            q.zero_()
            for _ in range(20):
                large = torch.tanh(large @ large)
            q.copy_(3 * base.cuda(non_blocking=True))
            found = tt.softmax_attention(q, q, q, causal=True).clone()
            assert torch.allclose(found.cpu(), expected, atol=1e-4)


@needs_device
def test_the_current_device_of_pytorch_stays():
    last = torch.cuda.device_count() - 1
    if last == 0:
        pytest.skip("skipped: needs two CUDA devices")
    q = torch.randn(1, 8, 2, 8)
    with torch.cuda.device(0):
        found = tt.linear_attention(*[q.to(f"cuda:{last}")] * 3)
        assert torch.cuda.current_device() == 0 and found.device.index == last
    assert torch.allclose(found.cpu(), tt.linear_attention(q, q, q), atol=1e-5)


@needs_device
def test_cuda_graphs_raise():
    q = torch.randn(1, 8, 2, 8, device="cuda")
    tt.linear_attention(q, q, q)
    with pytest.raises(RuntimeError, match="CUDA graph"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        tt.linear_attention(q, q, q)


@needs_device
def test_autocast_and_compiled_code():
    q, k, v = (torch.randn(1, 16, 2, 8, device="cuda") for _ in range(3))
    with torch.autocast("cuda", torch.bfloat16):
        assert tt.linear_attention(q, k, v).dtype == torch.bfloat16
    compiled = torch.compile(lambda q, k, v: tt.linear_attention(q * 2, k, v).sin(), fullgraph=True)
    assert torch.allclose(compiled(q, k, v), tt.linear_attention(q * 2, k, v).sin(), atol=1e-4)
