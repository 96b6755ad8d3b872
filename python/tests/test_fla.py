"""Tests of patch_fla() with layers of flash-linear-attention, which have no kernels for the CPU."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that there is no device
    pytest.importorskip("fla.layers", reason="skipped: flash-linear-attention is not installed")

import fla.layers  # noqa: E402
from fla.models.utils import Cache  # noqa: E402

import tapeformer.torch as tt  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def patch():
    with tt.patch_fla() as patch:
        yield patch


def make_layer(name, **options):
    torch.manual_seed(1)
    return getattr(fla.layers, name)(hidden_size=32, num_heads=2, layer_idx=0, **options)


LAYERS = {
    "GatedDeltaNet": {"head_dim": 8, "num_v_heads": 4, "conv_bias": True},
    "DeltaNet": {},
    "KimiDeltaAttention": {"head_dim": 8},
}


@pytest.mark.parametrize(
    "options", [{}, {"num_v_heads": 4}, {"allow_neg_eigval": True}, {"use_gate": False}, {"conv_bias": True}]
)
def test_our_layer_loads_the_state_dict_and_has_the_same_results(options):
    theirs = make_layer("GatedDeltaNet", head_dim=8, **options)
    ours = tt.GatedDeltaNet(hidden_size=32, head_dim=8, num_heads=2, **options)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 70, 32)
    found, expected = ours(x)[0], theirs(x)[0]
    torch.testing.assert_close(found, expected)
    for layer, out in ((ours, found), (theirs, expected)):
        out.square().sum().backward()
    gradients = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name].grad)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_continue_from_their_cache(name):
    layer, x = make_layer(name, **LAYERS[name]).eval(), torch.randn(2, 70, 32)
    expected = layer(x)[0]
    assert expected.requires_grad
    with torch.no_grad():
        cache, parts = Cache(), []
        for part in x.split([65, 1, 1, 3], 1):
            out, _, cache = layer(part, past_key_values=cache, use_cache=True)
            parts.append(out)
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_ignore_padding_and_other_sequences(name):
    layer, x = make_layer(name, **LAYERS[name]), torch.randn(2, 30, 32)
    mask = torch.ones(2, 30)
    mask[0, :9] = 0
    padded = layer(x, attention_mask=mask)[0]
    torch.testing.assert_close(padded[:1, 9:], layer(x[:1, 9:])[0], rtol=1e-4, atol=1e-5)
    packed = layer(x[:1], cu_seqlens=torch.tensor([0, 9, 30]))[0]
    torch.testing.assert_close(packed[:, 9:], layer(x[:1, 9:])[0], rtol=1e-4, atol=1e-5)


def test_the_gated_rule_equals_the_formula_of_fla():
    from fla.layers import gated_deltanet
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule

    q, k, v = (torch.randn(1, 20, 2, 8) for _ in range(3))
    beta, g = torch.rand(1, 20, 2), -torch.rand(1, 20, 2)
    expected = naive_recurrent_gated_delta_rule(q, k / 4, v, beta, g, output_final_state=True)
    found = gated_deltanet.chunk_gated_delta_rule(q, k / 4, v, g, beta, output_final_state=True)
    for x, y in zip(found, expected):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_other_layers_are_named(patch):
    assert any("GatedLinearAttention" in line for line in patch.missing)
    assert not any(": GatedDeltaNet (" in line for line in patch.missing)
    with tt.patch_fla() as second:
        assert second.patched == patch.patched


def test_layers_of_transformers_run_on_the_cpu_beside_fla():
    """Without the patch, transformers calls the functions of fla, which need a GPU."""
    modeling = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    config = modeling.Qwen3NextConfig(
        hidden_size=32, linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8,
        linear_value_head_dim=12, num_hidden_layers=1, layer_types=["linear_attention"],
    )  # fmt: skip
    layer, x = modeling.Qwen3NextGatedDeltaNet(config, 0), torch.randn(1, 9, 32)
    with tt.patch_transformers("qwen3_next"):
        torch.testing.assert_close(layer(x), tt.GatedDeltaNet.from_layer(layer)(x)[0], rtol=1e-4, atol=1e-5)
