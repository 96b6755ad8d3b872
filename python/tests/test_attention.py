"""Attention as functions of torch tensors, compared with plain PyTorch."""

import threading

import pytest

torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")

import tapeformer.torch as tt  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11, torch.bfloat16: 3e-2}


def make_inputs(batch=2, length=37, heads=3, dim=8, value_dim=5, dtype=torch.float64, key_length=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    key_length = key_length or length

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    return draw(batch, length, heads, dim), draw(batch, key_length, heads, dim), draw(batch, key_length, heads, value_dim)


def make_mask(query_length, key_length, causal, lengths=None, window=None):
    i, j = torch.arange(query_length)[:, None], torch.arange(key_length)[None]
    mask = torch.ones(query_length, key_length, dtype=torch.bool)
    if causal:
        mask &= j <= i + key_length - query_length
    if window is not None:
        mask &= (i - j).abs() < window
    mask = mask[None, None]
    if lengths is not None:
        mask = mask & (j[None, None] < lengths[:, None, None, None])
    return mask


def plain_softmax(q, k, v, mask, scale=None):
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    weights = torch.softmax(scores.masked_fill(~mask, -float("inf")), -1).nan_to_num(0)
    return (weights @ v).transpose(1, 2)


def plain_linear(q, k, v, mask, eps=1e-6):
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    weights = (q @ k.transpose(2, 3)).masked_fill(~mask, 0)
    return (weights @ v / (weights.sum(-1, keepdim=True) + eps)).transpose(1, 2)


def plain_gated(q, k, v, log_decay, erase, beta, state):
    results = []
    for t in range(q.shape[1]):
        state = state * log_decay[:, t].exp().unsqueeze(-1)
        written = v[:, t]
        if erase is not None:
            written = written - torch.einsum("bhd,bhdv->bhv", erase[:, t], state)
        written = written * beta[:, t].unsqueeze(-1)
        state = state + k[:, t].unsqueeze(-1) * written.unsqueeze(-2)
        results.append(torch.einsum("bhd,bhdv->bhv", q[:, t], state))
    return torch.stack(results, 1), state


def check_equal(compute, expected, inputs, dtype):
    gradient = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    out = compute()
    assert out.dtype == dtype and out.shape == expected.shape
    with torch.no_grad():
        assert torch.equal(compute(), out)
    wanted = [expected, *torch.autograd.grad(expected, inputs, gradient.to(dtype).double(), retain_graph=True)]
    found = [out, *torch.autograd.grad(out, inputs, gradient.to(dtype))]
    for a, b in zip(found, wanted):
        scale = max(1, b.abs().max().item())
        assert (a.double() - b.double()).abs().max().item() <= TOLERANCE[dtype] * scale


@pytest.mark.parametrize("name", ["softmax", "linear"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [None, [37, 5]])
def test_softmax_and_linear_attention_equal_plain_pytorch(name, dtype, causal, lengths):
    function, plain = getattr(tt, f"{name}_attention"), globals()[f"plain_{name}"]
    inputs = make_inputs(dtype=dtype)
    lengths = lengths and torch.tensor(lengths)
    expected = plain(*inputs, make_mask(37, 37, causal, lengths))
    check_equal(lambda: function(*inputs, causal=causal, lengths=lengths), expected, inputs, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("causal", [False, True])
def test_local_attention_equals_masked_softmax(dtype, causal):
    inputs = make_inputs(dtype=dtype)
    check_equal(
        lambda: tt.local_attention(*inputs, window=6, causal=causal),
        plain_softmax(*inputs, make_mask(37, 37, causal, window=6)), inputs, dtype,
    )  # fmt: skip


def test_queries_and_keys_may_have_different_lengths():
    inputs = make_inputs(length=4, key_length=11)
    check_equal(
        lambda: tt.softmax_attention(*inputs, causal=True, scale=0.3),
        plain_softmax(*inputs, make_mask(4, 11, True), 0.3), inputs, torch.float64,
    )  # fmt: skip


def test_views_need_no_copy():
    joined = torch.randn(2, 9, 3, 4, 8, dtype=torch.float64, requires_grad=True)  # q, k and v in dimension 2
    q, k, v = joined.unbind(2)
    out = tt.linear_attention(q, k, v, causal=True)
    check_equal(
        lambda: tt.linear_attention(*joined.unbind(2), causal=True), plain_linear(q, k, v, make_mask(9, 9, True)),
        [joined], torch.float64,
    )  # fmt: skip
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert torch.equal(out, tt.linear_attention(*heads_first, causal=True))
    last_strided = [x.transpose(1, 3).contiguous().transpose(1, 3) for x in (q, k, v)]
    assert torch.equal(out, tt.linear_attention(*last_strided, causal=True))


def test_views_with_a_negative_bit_are_not_read_without_the_sign():
    q, k, v = make_inputs()
    beta = torch.rand(2, 37, 3, dtype=torch.float64, requires_grad=True)
    negative = [torch._neg_view(-x) for x in (q, k, v, beta)]  # equal to q, k, v and beta

    def compute(q, k, v, beta):
        return tt.linear_attention(q, k, v) + tt.gated_linear_attention(q, k, v, erase=k, beta=beta)[0]

    expected, out = compute(q, k, v, beta), compute(*negative)
    assert negative[0].is_neg() and torch.equal(out, expected)
    gradient = torch.randn_like(out)
    wanted = torch.autograd.grad(expected, (q, k, v, beta), gradient)
    found = torch.autograd.grad(out, (q, k, v, beta), torch._neg_view(-gradient))
    assert all(torch.allclose(a, b) for a, b in zip(found, wanted))
    token, negative = (q[:, 0], k[:, 0], v[:, 0]), [x[:, 0] for x in negative[:3]]
    assert torch.equal(tt.linear_attention_step(*negative)[0], tt.linear_attention_step(*token)[0])


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("decay", ["none", "fixed", "head", "channel"])
def test_gated_linear_attention_equals_a_loop(delta, decay):
    q, k, v = make_inputs(length=19)
    batch, length, heads, dim = q.shape
    k = torch.nn.functional.normalize(k.detach(), dim=-1).requires_grad_()
    beta = torch.rand(batch, length, heads, dtype=torch.float64, requires_grad=True)
    state = torch.randn(batch, heads, dim, v.shape[3], dtype=torch.float64, requires_grad=True)
    shapes = {"none": None, "fixed": (heads,), "head": (batch, length, heads), "channel": (batch, length, heads, dim)}
    inputs = [q, k, v, beta, state]
    g = None
    full = torch.zeros(batch, length, heads, dim, dtype=torch.float64)
    if shapes[decay]:
        g = -torch.rand(shapes[decay], dtype=torch.float64)
        g.requires_grad_()
        inputs.append(g)
        full = (g if g.dim() == 4 else g.unsqueeze(-1)).expand(batch, length, heads, dim)
    expected, expected_state = plain_gated(q, k, v, full, k if delta else None, beta, state)
    arguments = dict(log_decay=g, erase=k if delta else None, beta=beta, initial_state=state)
    check_equal(lambda: tt.gated_linear_attention(q, k, v, **arguments)[0], expected, inputs, torch.float64)
    inputs.remove(q)
    check_equal(lambda: tt.gated_linear_attention(q, k, v, **arguments)[1], expected_state, inputs, torch.float64)


def test_gradcheck_of_all_functions():
    q, k, v = make_inputs(batch=2, length=7, heads=2, dim=4, value_dim=3)
    lengths = torch.tensor([7, 4])
    beta = torch.rand(2, 7, 2, dtype=torch.float64, requires_grad=True)
    decay = (-torch.rand(2, 7, 2, dtype=torch.float64)).requires_grad_()
    for causal in (False, True):
        assert torch.autograd.gradcheck(
            lambda *x: tt.softmax_attention(*x, causal=causal, lengths=lengths), (q, k, v)
        )
        assert torch.autograd.gradcheck(lambda *x: tt.linear_attention(*x, causal=causal, lengths=lengths), (q, k, v))
        assert torch.autograd.gradcheck(lambda *x: tt.local_attention(*x, window=3, causal=causal), (q, k, v))
        for preset in ("reformer", "trax", "fast_transformers"):
            assert torch.autograd.gradcheck(
                lambda q, v: tt.lsh_attention(
                    q, v, causal=causal, preset=preset, chunk_length=3, buckets=2, seed=3, lengths=lengths
                ),
                (q, v),
            )
    assert torch.autograd.gradcheck(
        lambda q, k, v, g, b: tt.gated_linear_attention(q, k, v, log_decay=g, erase=k, beta=b, lengths=lengths),
        (q, k, v, decay, beta),
    )
    assert torch.autograd.gradcheck(lambda *x: tt.gated_linear_attention(*x, reverse=True), (q, k, v))


def test_lsh_attention_of_short_sequences_is_exact():
    q, _, v = make_inputs(length=20, dim=8)
    key = q.double() / torch.sqrt(q.double().pow(2).sum(-1, keepdim=True) + 1e-6 * 8)
    mask = ~torch.eye(20, dtype=torch.bool)[None, None]
    expected = plain_softmax(q, key, v, mask, scale=1.0)
    out = tt.lsh_attention(q, v)  # one chunk
    assert torch.allclose(out, expected, atol=1e-10)


def test_lsh_attention_depends_on_the_seed_of_torch():
    q, _, v = make_inputs(length=200)
    torch.manual_seed(5)
    first = tt.lsh_attention(q, v, chunk_length=8, rounds=1)
    second = tt.lsh_attention(q, v, chunk_length=8, rounds=1)
    torch.manual_seed(5)
    assert torch.equal(first, tt.lsh_attention(q, v, chunk_length=8, rounds=1))
    assert not torch.equal(first, second)


def test_dropout_has_the_mean_of_attention_and_repeats_in_backward():
    q, k, v = make_inputs(batch=64, length=6)
    q, k, v = (x[:1].expand(64, -1, -1, -1) for x in (q, k, v))
    exact = tt.softmax_attention(q, k, v)
    mean = torch.stack([tt.softmax_attention(q, k, v, dropout_p=0.3) for _ in range(40)]).mean((0, 1))
    assert (mean - exact[0]).abs().max() < 0.1
    one = tt.softmax_attention(q, k, v, dropout_p=0.3)
    assert not torch.allclose(one, exact)
    # The output is linear in v, so its product with a gradient equals the product of v and the gradient of v.
    v = v.contiguous().detach().requires_grad_()
    out = tt.softmax_attention(q, k, v, dropout_p=0.3)
    weight = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, v, weight)
    assert torch.allclose((out * weight).sum(), (gradient * v).sum())


def test_no_grad_and_autocast():
    q, k, v = make_inputs(dtype=torch.float32)
    with torch.no_grad():
        assert not tt.softmax_attention(q, k, v).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        out = tt.linear_attention(q, k, v)
        gated, state = tt.gated_linear_attention(q, k, v, beta=torch.rand(2, 37, 3))
    assert out.dtype == gated.dtype == torch.bfloat16 and state.dtype == torch.float32
    (gradient,) = torch.autograd.grad(out.float().sum(), q)
    assert gradient.dtype == torch.float32


def resize_storage(x, size):
    x.untyped_storage().resize_(size)
    return x


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        (lambda q: (q.half(), q.half(), q.half()), TypeError, "torch.float16"),
        (lambda q: (q, q.double(), q), TypeError, "k is torch.float64, expected torch.float32 like q"),
        (lambda q: (q, q.bfloat16(), q), TypeError, "k is torch.bfloat16"),
        (lambda q: (q.long(), q.long(), q.long()), TypeError, "q is torch.int64; supported are torch.float32"),
        (lambda q: (q.numpy(), q, q), TypeError, "not ndarray"),
        (lambda q: (q, 0.5, q), TypeError, "not float"),
        (lambda q: (q, q[:, :3], q), ValueError, "(2, 3, 3, 8)"),
        (lambda q: (q[0], q, q), ValueError, "(9, 3, 8)"),
        (lambda q: (q, q.to("meta"), q), ValueError, "meta"),
        (lambda q: (q.to("meta"), q, q.to("meta")), ValueError, "meta"),
        (lambda q: (q.to("meta"), q.to("meta"), q[:1].to("meta")), ValueError, "(1, 9, 3, 8)"),
        (lambda q: (q.to_sparse(), q, q), TypeError, "expected a dense tensor"),
        (lambda q: (q, q.to_sparse(), q), TypeError, "expected a dense tensor"),
        (lambda q: (None, q, q), TypeError, "not NoneType"),
        (lambda q: (q, q, None), TypeError, "not NoneType"),
        (lambda q: (q, q, q, torch.tensor([9, 9]).to_sparse()), TypeError, "expected a dense tensor"),
        (lambda q: (resize_storage(q.clone(), 0), q, q), ValueError, "no memory"),
        (lambda q: (resize_storage(q.clone(), 4), q, q), ValueError, "has 4 bytes, and the tensor needs 1728"),
        (lambda q: (q, q, resize_storage(q.clone(), 1727)), ValueError, "has 1727 bytes"),
        (lambda q: (q, q, q, torch.tensor([9])), ValueError, "int64 (2)"),
        (lambda q: (q, q, q, torch.tensor([9, 10])), ValueError, "10"),
        (lambda q: (q, q, q, torch.tensor([9.0, 9.0])), TypeError, "float32"),
        (lambda q: (q, q, q, torch.tensor([True, True])), TypeError, "mask.sum(1)"),
        (lambda q: (q, q, q, [9, 9]), TypeError, "not list"),
        (lambda q: (q, q, q, torch.tensor([9, 9]).numpy()), TypeError, "not ndarray"),
    ],
)
def test_wrong_arguments_raise(arguments, error, text):
    *inputs, lengths = (*arguments(torch.randn(2, 9, 3, 8)), None)[:4]
    for function in (tt.softmax_attention, tt.linear_attention):
        with pytest.raises(error, match=None) as raised:
            function(*inputs, lengths=lengths)
        assert text in str(raised.value).replace(",)", ")")


def test_other_wrong_arguments_raise():
    q = torch.randn(2, 9, 3, 8)
    with pytest.raises(ValueError, match="feature_map"):
        tt.linear_attention(q, q, q, feature_map="tanh")
    with pytest.raises(ValueError, match="dropout"):
        tt.softmax_attention(q, q, q, dropout_p=1.5)
    with pytest.raises(ValueError, match="preset"):
        tt.lsh_attention(q, q, preset="none")
    with pytest.raises(TypeError, match="preset must be a str"):
        tt.lsh_attention(q, q, preset=1)
    with pytest.raises(ValueError, match="even"):
        tt.lsh_attention(q, q, buckets=3)
    for wrong in ({"rounds": 0}, {"chunk_length": -1}, {"buckets": -2}, {"seed": -1}):
        with pytest.raises(ValueError, match="at least"):
            tt.lsh_attention(q, q, **wrong)
    for wrong in ({"seed": 1 << 64}, {"rounds": 1 << 64}):
        with pytest.raises(ValueError, match="less than"):
            tt.lsh_attention(q, q, **wrong)
    for wrong in ({"seed": 0.5}, {"rounds": 2.0}, {"buckets": "4"}):
        with pytest.raises(TypeError, match="must be an integer, not"):
            tt.lsh_attention(q, q, **wrong)
    for wrong in ({"window": 2.0}, {"window": None}, {"form": "blocks", "blocks_back": 0.5}):
        with pytest.raises(TypeError, match="must be an integer, not"):
            tt.local_attention(q, q, q, **wrong)
    with pytest.raises(ValueError, match="less than"):
        tt.local_attention(q, q, q, window=1 << 70)
    with pytest.raises(TypeError, match="complex"):
        tt.softmax_attention(q, q, q, lengths=torch.tensor([9j, 9]))
    with pytest.raises(ValueError, match="log decay"):
        tt.gated_linear_attention(q, q, q, log_decay=torch.zeros(2, 9, 2))
    for wrong in ((9,), (1,), (0,), (), (2, 9), (2, 9, 3, 8, 1)):
        with pytest.raises(ValueError, match="log.decay is .*expected"):
            tt.gated_linear_attention(q, q, q, log_decay=torch.zeros(wrong))
    for name in ("log_decay", "beta", "initial_state"):
        for wrong in (0.5, torch.zeros(2, 9, 3).numpy(), torch.zeros(2, 9, 3, dtype=torch.int64)):
            with pytest.raises(TypeError, match=name):
                tt.gated_linear_attention(q, q, q, **{name: wrong})
    with pytest.raises(TypeError, match="erase is torch.float64"):
        tt.gated_linear_attention(q, q, q, erase=q.double())


def test_all_seeds_of_64_bits_are_different():
    q = torch.randn(1, 200, 2, 8)
    seeds = (0, 5, (1 << 63) - 1, 1 << 63, (1 << 63) + 5, (1 << 64) - 1)
    results = [tt.lsh_attention(q, q, chunk_length=8, rounds=1, seed=seed) for seed in seeds]
    assert not any(torch.equal(a, b) for i, a in enumerate(results) for b in results[:i])


def test_meta_tensors_have_results_without_memory():
    q, k, v = (x.to("meta").detach().requires_grad_() for x in make_inputs())
    for out in (
        tt.softmax_attention(q, k, v, dropout_p=0.1), tt.local_attention(q, k, v), tt.linear_attention(q, k, v),
        tt.lsh_attention(q, v), tt.gated_linear_attention(q, k, v)[0],
    ):  # fmt: skip
        assert out.is_meta and out.shape == v.shape and out.dtype == v.dtype
        (gradient,) = torch.autograd.grad(out.sum(), v)
        assert gradient.is_meta and gradient.shape == v.shape


def test_a_scale_of_zero_raises():
    x = torch.randn(1, 4, 1, 4)
    with pytest.raises(ValueError, match="scale"):
        tt.softmax_attention(x, x, x, scale=0.0)


def test_second_derivatives_raise():
    q = torch.randn(1, 5, 2, 4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(tt.linear_attention(q, q, q).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()
    with pytest.raises(RuntimeError, match="differentiate twice"):
        torch.autograd.functional.hessian(lambda x: tt.linear_attention(x, x, x).sum(), q.detach())


def test_empty_tensors():
    q = torch.zeros(0, 9, 3, 8, requires_grad=True)
    tt.softmax_attention(q, q, q).sum().backward()
    q = torch.zeros(2, 0, 3, 8, requires_grad=True)
    assert tt.linear_attention(q, q, q, causal=True).shape == (2, 0, 3, 8)


def test_several_threads_compute_the_same():
    inputs = make_inputs(batch=4, length=150, dtype=torch.float32)
    gradient = torch.ones(4, 150, 3, 5)

    def compute():
        out = tt.softmax_attention(*inputs, causal=True)
        return [out.detach(), *torch.autograd.grad(out, inputs, gradient)]

    expected, failures = compute(), []

    def work():
        for _ in range(10):
            if not all(torch.allclose(a, b, atol=1e-5) for a, b in zip(compute(), expected)):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_with_different_numbers_of_threads():
    q, v = torch.randn(1, 3000, 1, 32), torch.randn(1, 3000, 1, 32)
    expected = tt.lsh_attention(q, v, causal=True, seed=1)
    stop = threading.Event()

    def disturb():
        torch.set_num_threads(16)
        small = torch.randn(1, 4, 1, 4)
        while not stop.is_set():
            tt.softmax_attention(small, small, small)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        for _ in range(10):
            assert torch.allclose(tt.lsh_attention(q, v, causal=True, seed=1), expected, atol=1e-5)
    finally:
        stop.set()
        other.join()


def test_forward_mode_raises():
    x = torch.randn(1, 4, 1, 4)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward-mode"):
        dual = torch.autograd.forward_ad.make_dual(x, x)
        tt.softmax_attention(dual, x, x)
    with pytest.raises(RuntimeError, match="forward-mode"):
        torch.func.jvp(lambda x: tt.softmax_attention(x, x, x), (x,), (x,))


def test_backward_may_run_in_another_thread():
    inputs = make_inputs()
    out = tt.linear_attention(*inputs)
    thread = threading.Thread(target=lambda: out.sum().backward())
    thread.start()
    thread.join()
    assert inputs[0].grad is not None
