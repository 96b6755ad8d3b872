"""Modules and masks with the names of fast-transformers."""

import pytest

torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")

import tapeformer.torch as tt  # noqa: E402


def make_inputs(length=24):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, length, 3, 8, generator=generator) for _ in range(3)]


def test_modules_take_the_masks_of_fast_transformers():
    q, k, v = make_inputs()
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
        with pytest.raises(ValueError, match="attn_mask must be None or a"):
            module(q, k, v, mask, lengths, lengths)
    with pytest.raises(ValueError, match="not Tensor"):
        tt.FullAttention()(q, k, v, torch.ones(24, 24))


def test_constructors_of_masks():
    ones, triangle = torch.ones(4, 4, dtype=torch.bool), torch.ones(4, 4, dtype=torch.bool).tril()
    for mask, shape in (
        (tt.FullMask(4), (4, 4)), (tt.FullMask(N=4), (4, 4)), (tt.FullMask(4, 6), (4, 6)), (tt.FullMask(4, M=6), (4, 6)),
        (tt.FullMask(N=4, M=6, device="cpu"), (4, 6)), (tt.FullMask(4, device="cpu"), (4, 4)), (tt.FullMask(ones), (4, 4)),
    ):  # fmt: skip
        assert mask.all_ones and not mask.lower_triangular and mask.bool_matrix.all() and mask.bool_matrix.shape == shape
    assert tt.FullMask().all_ones and not tt.FullMask().lower_triangular
    for mask in (tt.TriangularCausalMask(4), tt.TriangularCausalMask(N=4, device="cpu"), tt.FullMask(triangle)):
        assert mask.lower_triangular and not mask.all_ones and torch.equal(mask.bool_matrix, triangle)
        assert mask.lengths.tolist() == [1, 2, 3, 4]
    mask = tt.LengthMask(torch.tensor([3, 1]), max_len=4)
    assert mask.bool_matrix.tolist() == [[True, True, True, False], [True, False, False, False]]
    assert not mask.all_ones and not mask.lower_triangular and mask.lengths.tolist() == [3, 1]
    assert tt.LengthMask(torch.tensor([3, 3])).all_ones
    assert tt.FullMask(mask.bool_matrix).lengths.tolist() == [3, 1]
    assert torch.equal(mask.float_matrix, mask.bool_matrix.float())
    assert mask.additive_matrix[1].tolist() == [0, -torch.inf, -torch.inf, -torch.inf]
    assert torch.equal(mask.additive_matrix_finite, torch.where(mask.bool_matrix, 0.0, -1e24))


def test_wrong_arguments_of_masks_raise():
    for wrong in ((torch.ones(4, 4),), (4.0,), (None, None, 4), (4, 4, 4), ("4",)):
        with pytest.raises(TypeError):
            tt.FullMask(*wrong)
    for wrong in ((-1,), (4, -1), (torch.ones(4, dtype=torch.bool),)):
        with pytest.raises(ValueError):
            tt.FullMask(*wrong)
    with pytest.raises(TypeError):
        tt.TriangularCausalMask(2.5)
    with pytest.raises(TypeError, match="must be a torch.Tensor, not list"):
        tt.LengthMask([3, 1])
    for mask in (tt.FullMask(), tt.TriangularCausalMask()):
        with pytest.raises(ValueError, match="has no matrix"):
            mask.bool_matrix
    with pytest.raises(ValueError, match="no length mask"):
        tt.FullMask(torch.tensor([[False, True]])).lengths


def test_a_mask_of_one_token_is_full_and_causal():
    q, k, v = make_inputs(1)
    for mask in (tt.FullMask(1), tt.TriangularCausalMask(1), tt.FullMask(torch.ones(1, 1, dtype=torch.bool))):
        assert mask.all_ones and mask.lower_triangular
        for module in (tt.FullAttention().eval(), tt.LinearAttention(), tt.CausalLinearAttention(), tt.LocalAttention(3).eval()):
            assert torch.allclose(module(q, k, v, mask), v, atol=1e-4)


def test_messages_name_the_masks_that_a_module_supports():
    q, k, v = make_inputs()
    partial = tt.FullMask(torch.eye(24, dtype=torch.bool))
    full, causal, either = "a FullMask of ones", "a TriangularCausalMask", "a FullMask of ones or a TriangularCausalMask"
    for module, mask, text in (
        (tt.LinearAttention(), tt.TriangularCausalMask(24), f"LinearAttention: attn_mask must be None or {full}, not TriangularCausalMask"),
        (tt.CausalLinearAttention(), tt.FullMask(24), f"CausalLinearAttention: attn_mask must be None or {causal}, not FullMask"),
        (tt.FullAttention(), partial, f"FullAttention: attn_mask must be None or {either}, not other masked pairs"),
        (tt.LocalAttention(4), torch.ones(24, 24), f"LocalAttention: attn_mask must be None or {either}, not Tensor"),
    ):  # fmt: skip
        with pytest.raises(ValueError) as raised:
            module(q, k, v, mask)
        assert str(raised.value) == text
    with pytest.raises(TypeError, match="LengthMask or a torch.Tensor"):
        tt.LinearAttention()(q, k, v, None, None, [24, 24])


def test_length_masks_of_key_lengths():
    q, k, v = make_inputs()
    lengths = torch.tensor([24, 10])
    expected = tt.linear_attention(q, k, v, lengths=lengths)
    for mask in (lengths, tt.LengthMask(lengths, 24), tt.FullMask(tt.LengthMask(lengths, 24).bool_matrix)):
        assert torch.equal(tt.LinearAttention()(q, k, v, None, None, mask), expected)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("attention", [tt.CausalLinearAttention, tt.FullAttention])
def test_a_recurrent_layer_decodes_the_weights_of_a_layer(attention, dtype):
    recurrent = tt.RecurrentLinearAttention if attention is tt.CausalLinearAttention else tt.RecurrentFullAttention
    layer = tt.AttentionLayer(attention(), 16, 2, d_values=5).to(dtype).eval()
    step = tt.RecurrentAttentionLayer(recurrent(), 16, 2, d_values=5).to(dtype)
    step.load_state_dict(layer.state_dict())
    x = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected, state = layer(x, x, x, tt.TriangularCausalMask(7)), None
    for t in range(7):
        out, state = step(x[:, t], x[:, t], x[:, t], state)
        assert out.dtype == dtype and out.requires_grad
        assert torch.allclose(out, expected[:, t], atol=1e-5 if dtype == torch.float32 else 3e-2)


def test_layers_refuse_the_attention_of_the_other_form():
    with pytest.raises(TypeError, match="needs a RecurrentAttentionLayer"):
        tt.AttentionLayer(tt.RecurrentLinearAttention(), 16, 2)
    for attention in (tt.CausalLinearAttention(), tt.FullAttention(), tt.LocalAttention(4), tt.ReformerAttention()):
        with pytest.raises(TypeError, match="has no state"):
            tt.RecurrentAttentionLayer(attention, 16, 2)
    x = torch.randn(2, 7, 16)
    with pytest.raises(ValueError, match=r"AttentionLayer: expected tensors \(batch, length, d_model\), not \(2, 16\)"):
        tt.AttentionLayer(tt.LinearAttention(), 16, 2)(x[:, 0], x[:, 0], x[:, 0])
    with pytest.raises(ValueError, match=r"expected tensors \(batch, d_model\), not \(2, 7, 16\)"):
        tt.RecurrentAttentionLayer(tt.RecurrentFullAttention(), 16, 2)(x, x, x)


def test_feature_maps_of_modules_are_checked():
    for module in (tt.LinearAttention, tt.CausalLinearAttention, tt.RecurrentLinearAttention):
        with pytest.raises(ValueError, match="feature_map must be one of"):
            module(feature_map="tanh")
