"""Tests of short convolutions, gated norms, masks, grouped keys, packed sequences, feature maps and whole layers."""

import pytest

torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")

import torch.nn.functional as F  # noqa: E402

import tapeformer.torch as tt  # noqa: E402
from tapeformer.torch._layers import _convolve, _normalize  # noqa: E402

DTYPES = {torch.float32: 2e-6, torch.float64: 1e-14, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(1)


def gradients(out, inputs):
    cotangent = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return torch.autograd.grad(out, inputs, cotangent, retain_graph=True)


def assert_same(found, expected, inputs, tolerance):
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    for a, b in zip(gradients(found, inputs), gradients(expected, inputs)):
        torch.testing.assert_close(a, b, rtol=8 * tolerance, atol=8 * tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [None, "silu", "sigmoid"])
@pytest.mark.parametrize("with_history", [False, True])
def test_short_conv_equals_its_formula(dtype, activation, with_history):
    x = torch.randn(2, 9, 5, dtype=dtype, requires_grad=True)
    weight = torch.randn(5, 4, dtype=dtype, requires_grad=True)
    history = torch.randn(2, 3, 5, dtype=dtype, requires_grad=True) if with_history else None
    lengths, boundaries = torch.tensor([9, 4]), torch.zeros(2, 9, dtype=torch.int64)
    boundaries[0, 3] = 1
    number = [None, "silu", "sigmoid"].index(activation)
    inputs = [y for y in (x, weight, history) if y is not None]
    for options in ((None, None), (lengths, None), (None, boundaries), (lengths, boundaries)):
        found = tt.short_conv(
            x, weight, activation=activation, history=history, lengths=options[0], boundaries=options[1]
        )
        assert_same(found, _convolve(x, weight, history, *options, number), inputs, DTYPES[dtype])


def test_short_conv_equals_conv1d():
    x, weight = torch.randn(2, 9, 5), torch.randn(5, 4)
    expected = F.conv1d(x.transpose(1, 2), weight[:, None], padding=3, groups=5)[..., :9].transpose(1, 2)
    torch.testing.assert_close(tt.short_conv(x, weight), expected)
    torch.testing.assert_close(tt.short_conv(x[:, ::2], weight)[:, :1], expected[:, :1])  # strides


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("with_weight", [False, True])
@pytest.mark.parametrize("activation", [None, "silu", "sigmoid", "no gate"])
def test_gated_rms_norm_equals_its_formula(dtype, with_weight, activation):
    x = torch.randn(3, 7, 6, dtype=dtype, requires_grad=True)
    weight = torch.randn(6, dtype=dtype, requires_grad=True) if with_weight else None
    gate = None if activation == "no gate" else torch.randn(3, 7, 6, dtype=dtype, requires_grad=True)
    name = None if gate is None else activation
    number = [None, "silu", "sigmoid"].index(name)
    inputs = [y for y in (x, weight, gate) if y is not None]
    found = tt.gated_rms_norm(x, weight, gate, activation=name, eps=1e-3)
    assert_same(found, _normalize(x, weight, gate, number, 1e-3), inputs, DTYPES[dtype])


def test_layers_reject_wrong_arguments():
    x, weight = torch.randn(1, 4, 3), torch.randn(3, 2)
    with pytest.raises(ValueError, match="expected x"):
        tt.short_conv(x[0], weight)
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        tt.short_conv(x, weight[:2])
    with pytest.raises(TypeError, match="history"):
        tt.short_conv(x, weight, history=x[:, :1].double())
    with pytest.raises(ValueError, match="history"):
        tt.short_conv(x, weight, history=x)
    with pytest.raises(ValueError, match="relu"):
        tt.short_conv(x, weight, activation="relu")
    with pytest.raises(ValueError, match="taps"):
        tt.short_conv(x, torch.randn(3, 40))
    with pytest.raises(TypeError, match="gate"):
        tt.gated_rms_norm(x, None, x.double())
    with pytest.raises(ValueError, match="weight"):
        tt.gated_rms_norm(x, torch.ones(2))


def test_layers_are_operators_of_torch_compile_and_transforms():
    x, weight, gate = torch.randn(2, 6, 3, requires_grad=True), torch.randn(3, 4), torch.randn(2, 6, 3)

    def function(x):
        return tt.gated_rms_norm(tt.short_conv(x, weight, activation="silu"), None, gate)

    expected = function(x)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")(x)
    assert_same(compiled, expected, [x], 1e-6)
    stacked = torch.stack([x, 2 * x]).detach()
    torch.testing.assert_close(torch.func.vmap(function)(stacked), torch.stack([function(y) for y in stacked]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_softmax_attention_equals_torch_with_masks_and_grouped_keys(dtype, kind):
    q = torch.randn(2, 5, 4, 8, dtype=dtype, requires_grad=True)
    k, v = (torch.randn(2, 7, 2, 8, dtype=dtype, requires_grad=True) for _ in range(2))
    mask = torch.rand(2, 1, 5, 7) > 0.4
    mask[..., 0] = True
    if kind == "float":
        mask = torch.randn(4, 5, 7, dtype=dtype)
    q_, k_, v_ = q.transpose(1, 2), *(x.transpose(1, 2).repeat_interleave(2, 1) for x in (k, v))
    expected = F.scaled_dot_product_attention(q_, k_, v_, attn_mask=mask).transpose(1, 2)
    assert_same(tt.softmax_attention(q, k, v, mask=mask), expected, [q, k, v], DTYPES[dtype])


def test_softmax_attention_computes_grouped_keys_on_meta_tensors_and_in_steps():
    q, k = torch.randn(2, 5, 4, 8), torch.randn(2, 5, 2, 8)
    expected = tt.softmax_attention(q, k.repeat_interleave(2, 2), k.repeat_interleave(2, 2), causal=True)
    torch.testing.assert_close(tt.softmax_attention(q, k, k, causal=True), expected)
    assert tt.softmax_attention(q.to("meta"), k.to("meta"), k.to("meta")).shape == q.shape
    state, results = None, []
    for t in range(5):
        out, state = tt.softmax_attention_step(q[:, t], k[:, t], k[:, t], state)
        results.append(out)
    torch.testing.assert_close(torch.stack(results, 1), expected)
    with pytest.raises(ValueError, match="heads"):
        tt.softmax_attention(q, k[:, :, [0, 0, 0]], k[:, :, [0, 0, 0]])


def test_masks_are_checked():
    q = torch.randn(1, 3, 2, 4)
    with pytest.raises(ValueError, match=r"\(1, 2, 3, 3\)"):
        tt.softmax_attention(q, q, q, mask=torch.ones(2, 3, 4, dtype=torch.bool))
    with pytest.raises(TypeError, match="int64"):
        tt.softmax_attention(q, q, q, mask=torch.ones(3, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="gradient"):
        tt.softmax_attention(q, q, q, mask=torch.ones(3, 3, requires_grad=True))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_attention_with_a_function_equals_its_formula(causal, dtype):
    q = torch.randn(2, 6, 4, 8, dtype=dtype, requires_grad=True)
    k, v = (torch.randn(2, 6, 2, 8, dtype=dtype, requires_grad=True) for _ in range(2))

    def feature_map(x):  # has negative features and another dimension
        return torch.cat([x.sin(), x.cos(), x.new_full((*x.shape[:-1], 1), 3.0)], -1)

    def attend(q, k, v):
        k, v = (x.repeat_interleave(2, 2) for x in (k, v))
        scores = torch.einsum("bihd,bjhd->bhij", feature_map(q), feature_map(k))
        scores = scores.tril() if causal else scores
        return torch.einsum("bhij,bjhd->bihd", scores / (scores.sum(-1, keepdim=True) + 1e-6), v)

    if dtype == torch.bfloat16:
        expected = attend(q.float(), k.float(), v.float()).bfloat16()
    else:
        expected = attend(q, k, v)
    found = tt.linear_attention(q, k, v, causal=causal, feature_map=feature_map)
    assert_same(found, expected, [q, k, v], 10 * DTYPES[dtype])
    if causal:
        state, results = None, []
        for t in range(6):
            k_t, v_t = (x[:, t].repeat_interleave(2, 1) for x in (k, v))
            out, state = tt.linear_attention_step(q[:, t], k_t, v_t, state, feature_map=feature_map)
            results.append(out)
        torch.testing.assert_close(torch.stack(results, 1), expected, rtol=1e-4, atol=20 * DTYPES[dtype])


def test_a_feature_map_of_other_shapes_is_an_error():
    q = torch.randn(1, 3, 2, 4)
    with pytest.raises(ValueError, match="feature_map must map"):
        tt.linear_attention(q, q, q, feature_map=lambda x: x.flatten(2))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("with_decay", [False, True])
def test_packed_sequences_equal_separate_sequences(reverse, with_decay):
    lengths = [70, 1, 33]
    q, k, v = (torch.randn(1, sum(lengths), 2, 5, requires_grad=True) for _ in range(3))
    decay = (-torch.rand(1, sum(lengths), 2)).requires_grad_() if with_decay else None
    boundaries = torch.zeros(1, sum(lengths), dtype=torch.int64)
    boundaries[0, [0, 70, 71]] = 1
    keys = F.normalize(k, dim=-1)
    options = {"log_decay": decay, "erase": keys, "reverse": reverse}
    found, _ = tt.gated_linear_attention(q, keys, v, boundaries=boundaries, **options)
    parts = []
    for part in torch.arange(sum(lengths)).split(lengths):
        options = {"log_decay": None if decay is None else decay[:, part], "erase": keys[:, part], "reverse": reverse}
        parts.append(tt.gated_linear_attention(q[:, part], keys[:, part], v[:, part], **options)[0])
    inputs = [q, k, v] + [decay] * with_decay
    assert_same(found, torch.cat(parts, 1), inputs, 1e-5)
    with pytest.raises(ValueError, match="boundaries"):
        tt.gated_linear_attention(q, k, v, boundaries=boundaries[:, 1:])


def make_layer(**options):
    layer = tt.GatedDeltaNet(hidden_size=24, head_dim=8, num_heads=2, num_v_heads=4, expand_v=1.5, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return layer


@pytest.mark.parametrize("options", [{}, {"conv_bias": True, "allow_neg_eigval": True}, {"use_short_conv": False, "use_gate": False}])
def test_gated_delta_net_continues_from_its_state(options):
    layer, x = make_layer(**options), torch.randn(2, 80, 24)
    expected, last = layer(x)
    first, state = layer(x[:, :75])
    results = [first]
    with torch.no_grad():
        for t in range(75, 80):
            out, state = layer(x[:, t : t + 1], state)
            results.append(out)
    torch.testing.assert_close(torch.cat(results, 1), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state.recurrent, last.recurrent, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("conv_bias", [False, True])
def test_gated_delta_net_ignores_padding_and_other_sequences(conv_bias):
    layer, x = make_layer(conv_bias=conv_bias), torch.randn(1, 20, 24)
    expected, _ = layer(x[:, 7:])
    mask = (torch.arange(20) >= 7)[None]
    torch.testing.assert_close(layer(x, attention_mask=mask)[0][:, 7:], expected)
    boundaries = (torch.arange(20) == 7)[None].long()
    packed, _ = layer(x, boundaries=boundaries)
    torch.testing.assert_close(packed, torch.cat([layer(x[:, :7])[0], expected], 1))


def test_gated_delta_net_has_the_parameters_of_fla():
    names = {f"{n}_proj.weight" for n in "qkvabgo"} | {f"{n}_conv1d.weight" for n in "qkv"}
    layer = make_layer()
    assert set(layer.state_dict()) == names | {"A_log", "dt_bias", "o_norm.weight"}
    layer.double()(torch.randn(1, 3, 24, dtype=torch.float64))[0].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
    with pytest.raises(ValueError, match="multiple"):
        tt.GatedDeltaNet(hidden_size=8, head_dim=4, num_heads=2, num_v_heads=3)


SIZES = {"n_layers": 2, "n_heads": 2, "query_dimensions": 8, "value_dimensions": 8, "feed_forward_dimensions": 24}


@pytest.mark.parametrize("pair", [("causal-linear", "linear"), ("full", "full")])
def test_a_recurrent_encoder_with_mirrored_parameters_equals_the_encoder(pair):
    encoder = tt.TransformerEncoderBuilder.from_kwargs(attention_type=pair[0], activation="gelu", **SIZES).get().eval()
    builder = tt.RecurrentEncoderBuilder.from_kwargs(attention_type=pair[1], **SIZES)
    builder.activation = "gelu"
    recurrent = builder.get().eval()
    tt.make_mirror(encoder, recurrent)
    with torch.no_grad():
        encoder.layers[0].linear1.weight.mul_(2)  # of both
    x = torch.randn(3, 6, 16)
    expected = encoder(x, attn_mask=tt.TriangularCausalMask(6))
    state, results = None, []
    for t in range(6):
        out, state = recurrent(x[:, t], state)
        results.append(out)
    torch.testing.assert_close(torch.stack(results, 1), expected, rtol=1e-5, atol=1e-5)


def test_an_encoder_equals_torch_with_the_same_parameters():
    encoder = tt.TransformerEncoderBuilder.from_kwargs(final_normalization=False, **SIZES).get().eval()
    x = torch.randn(2, 5, 16)
    y = x
    for ours in encoder.layers:
        layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True).eval()
        attention = ours.attention
        projections = attention.query_projection, attention.key_projection, attention.value_projection
        weights = {name: p for name, p in ours.state_dict().items() if not name.startswith("attention.")}
        weights["self_attn.in_proj_weight"] = torch.cat([p.weight for p in projections])
        weights["self_attn.in_proj_bias"] = torch.cat([p.bias for p in projections])
        weights["self_attn.out_proj.weight"] = attention.out_projection.weight
        weights["self_attn.out_proj.bias"] = attention.out_projection.bias
        layer.load_state_dict(weights)
        y = layer(y)
    torch.testing.assert_close(encoder(x), y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "local", "reformer"])
def test_builders_make_all_attention_types(kind):
    encoder = tt.TransformerEncoderBuilder.from_dictionary({**SIZES, "attention_type": kind, "x": 1}, strict=False).get()
    lengths = tt.LengthMask(torch.tensor([5, 3]), 5)
    assert encoder(torch.randn(2, 5, 16), length_mask=lengths).shape == (2, 5, 16)


def test_builders_name_wrong_options():
    with pytest.raises(AttributeError, match="n_layers"):
        tt.TransformerEncoderBuilder.from_kwargs(layers=3)
    with pytest.raises(ValueError, match="causal-linear"):
        tt.TransformerEncoderBuilder.from_kwargs(attention_type="clustered").get()
    with pytest.raises(ValueError, match="weight"):
        tt.make_mirror(torch.nn.Linear(2, 3), torch.nn.Linear(3, 2))
