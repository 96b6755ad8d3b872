"""Tests of patch_transformers() and of the attention implementations, with tiny random models of transformers."""

import importlib

import pytest

torch = pytest.importorskip("torch", reason="skipped: PyTorch is not installed")
transformers = pytest.importorskip("transformers", minversion="5", reason="skipped: transformers 5 is not installed")

import tapeformer.torch as tt  # noqa: E402

VOCABULARY = 61
COMMON = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": None,
}  # fmt: skip
ATTENTION = {**COMMON, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32}
DELTA = {
    **ATTENTION, "head_dim": 8, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "num_experts": 4,
    "num_experts_per_tok": 2, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_chunk_size": 16}
# The type of the config, its settings, and the folder of transformers.models.
GATED_MODELS = {
    "qwen3_next": (DELTA, "qwen3_next"),
    "qwen3_5_text": (DELTA, "qwen3_5"),
    "qwen3_5_moe_text": (DELTA, "qwen3_5_moe"),
    "olmo_hybrid": (DELTA, "olmo_hybrid"),
    "kimi_linear": (
        {**COMMON, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 32, "kv_lora_rank": 8,
         "q_lora_rank": None, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "linear_head_dim": 8,
         "linear_num_heads": 4, "layer_types": ["linear_attention", "full_attention"],
         "mlp_layer_types": ["dense", "dense"]}, "kimi_linear",
    ),
    "mamba2": ({**COMMON, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 16}, "mamba2"),
    "bamba": ({**ATTENTION, **MAMBA, "attn_layer_indices": [1]}, "bamba"),
    "falcon_h1": ({**ATTENTION, **MAMBA, "mamba_d_ssm": 64}, "falcon_h1"),
    "lfm2": ({**ATTENTION, "layer_types": ["conv", "full_attention"]}, "lfm2"),
}  # fmt: skip


def make_model(kind, settings, dtype=torch.float32):
    if kind not in transformers.CONFIG_MAPPING:
        pytest.skip(f"skipped: this version of transformers has no {kind}")
    config = transformers.CONFIG_MAPPING[kind](**settings)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(0.2 * noise if parameter.dim() > 1 else parameter + 0.1 * noise)
    return model.to(dtype)


def make_tokens(length=90):
    torch.manual_seed(2)
    tokens, mask = torch.randint(2, VOCABULARY, (2, length)), torch.ones(2, length, dtype=torch.int64)
    tokens[0, :7] = mask[0, :7] = 0
    return tokens, mask


def run(model, tokens, mask, new_tokens=12):
    """Returns the logits, the gradients, and the tokens and logits of generate()."""
    model.zero_grad()
    logits = model(tokens, attention_mask=mask, use_cache=False).logits[mask.bool()]
    (logits.float() * torch.linspace(-1, 1, VOCABULARY)).mean().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    options = {"max_new_tokens": new_tokens, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    generated = model.generate(tokens, attention_mask=mask, **options)
    return logits.detach(), gradients, generated.sequences, torch.stack(generated.logits)


def assert_same_runs(found, expected, tolerance=1e-4):
    scale = max(g.abs().max() for g in expected[1].values()).item()
    torch.testing.assert_close(found[0], expected[0], rtol=tolerance, atol=tolerance)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=tolerance, atol=tolerance * scale, msg=lambda m: f"{name}: {m}")
    assert torch.equal(found[2], expected[2])
    torch.testing.assert_close(found[3], expected[3], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", GATED_MODELS)
def test_patched_models_equal_the_originals(kind):
    settings, folder = GATED_MODELS[kind]
    model, inputs = make_model(kind, settings), make_tokens()
    expected = run(model, *inputs)
    with tt.patch_transformers(folder) as patch:
        assert patch.patched
        found = run(model, *inputs)
    assert_same_runs(found, expected)
    assert torch.equal(run(model, *inputs)[0], expected[0])  # the originals are back


@pytest.mark.parametrize("kind", ["qwen3_next", "mamba2"])
def test_patched_models_in_bfloat16_are_as_near_to_float32_as_the_originals(kind):
    settings, folder = GATED_MODELS[kind]
    inputs = make_tokens()
    exact = run(make_model(kind, settings), *inputs)[0]
    model = make_model(kind, settings, torch.bfloat16)
    expected = run(model, *inputs)
    with tt.patch_transformers(folder):
        found = run(model, *inputs)
    errors = [(x[0].float() - exact).square().mean().sqrt() for x in (found, expected)]
    assert errors[0] <= 1.2 * errors[1] + 1e-3
    assert found[0].dtype == expected[0].dtype
    assert all(g.isfinite().all() for g in found[1].values())


@pytest.mark.parametrize("kind", ["qwen3_next", "mamba2"])
def test_patched_models_continue_a_cache_with_several_tokens(kind):
    settings, folder = GATED_MODELS[kind]
    model, (tokens, _) = make_model(kind, settings), make_tokens()

    @torch.no_grad()
    def run_parts():
        cache, parts = None, []
        for part in tokens.split([40, 1, 30, 19], 1):
            options = {} if cache is None else {"cache": cache}
            out = model(part, use_cache=True, **options)
            cache = out.past_key_values if hasattr(out, "past_key_values") else out.cache_params
            parts.append(out.logits)
        return torch.cat(parts, 1)

    try:
        expected = run_parts()
    except TypeError:
        pytest.skip("skipped: this version of transformers has another argument for the cache")
    with tt.patch_transformers(folder):
        torch.testing.assert_close(run_parts(), expected, rtol=1e-4, atol=1e-4)


def test_patched_models_compile():
    model, (tokens, _) = make_model("qwen3_next", {**DELTA, "mlp_only_layers": [0, 1]}), make_tokens(20)
    with tt.patch_transformers("qwen3_next"):
        expected = model(tokens, use_cache=False).logits
        compiled = torch.compile(model, backend="aot_eager")(tokens, use_cache=False).logits
    torch.testing.assert_close(compiled, expected, rtol=1e-4, atol=1e-4)


def test_packed_sequences_equal_separate_sequences():
    """The original raises an error for them."""
    model = make_model("qwen3_next", {**DELTA, "layer_types": 2 * ["linear_attention"]})
    tokens, lengths = torch.randint(2, VOCABULARY, (1, 50)), [20, 1, 29]
    ends = torch.tensor([0, 20, 21, 50], dtype=torch.int32)
    numbers = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))[None].int()
    with tt.patch_transformers("qwen3_next"):
        packed = model(tokens, use_cache=False, cu_seq_lens_q=ends, seq_idx=numbers).logits
        expected = torch.cat([model(part, use_cache=False).logits for part in tokens.split(lengths, 1)], 1)
    torch.testing.assert_close(packed, expected, rtol=1e-4, atol=1e-4)


def test_patches_are_undone_and_a_second_patch_changes_nothing():
    module = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    names = ["torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "causal_conv1d_fn", "causal_conv1d_update"]
    originals = [getattr(module, name) for name in names] + [module.Qwen3NextRMSNormGated.forward]

    def current():
        return [getattr(module, name) for name in names] + [module.Qwen3NextRMSNormGated.forward]

    first = tt.patch_transformers("qwen3_next")
    patched = current()
    assert all(x is not y for x, y in zip(originals, patched))
    with tt.patch_transformers("qwen3_next") as second:
        assert second.patched == first.patched
    assert current() == patched  # the end of the block undoes only its own changes
    first.undo()
    assert current() == originals
    first.undo()
    assert "Qwen3NextRMSNormGated" in repr(first)


def test_functions_that_are_not_there_or_differ_are_named(monkeypatch):
    module = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")

    def with_other_scale(query, key, value, g, beta, initial_state=None, output_final_state=False, **kwargs):
        return 2 * value, initial_state

    monkeypatch.setattr(module, "torch_chunk_gated_delta_rule", with_other_scale)
    monkeypatch.delattr(module, "causal_conv1d_update")
    with tt.patch_transformers("qwen3_next") as patch:
        assert module.torch_chunk_gated_delta_rule is with_other_scale
    assert any("torch_chunk_gated_delta_rule (other results)" in line for line in patch.missing)
    assert any("causal_conv1d_update (not found)" in line for line in patch.missing)
    with pytest.raises(ValueError, match="models/qwen99"):
        tt.patch_transformers("qwen99")


def test_other_devices_and_arguments_use_the_original():
    module = importlib.import_module("transformers.models.qwen3_next.modeling_qwen3_next")
    x, weight = torch.randn(1, 3, 5), torch.randn(3, 4)
    with tt.patch_transformers("qwen3_next"):
        out = module.causal_conv1d_fn(x.to("meta"), weight.to("meta"), activation="silu")
        gelu = module.causal_conv1d_fn(x, weight, activation="gelu")
    assert out.is_meta
    torch.testing.assert_close(gelu, module.causal_conv1d_fn(x, weight, activation="gelu"))


@pytest.mark.parametrize("kind", ["qwen3_next", "qwen3_5_text"])
def test_gated_delta_net_has_the_results_of_a_converted_layer(kind):
    model = make_model(kind, {**DELTA, "linear_value_head_dim": 12})
    layer = model.model.layers[0].linear_attn
    x = torch.randn(2, 20, 32)
    torch.testing.assert_close(tt.GatedDeltaNet.from_layer(layer)(x)[0], layer(x), rtol=1e-5, atol=1e-5)


ATTENTION_MODELS = {
    "llama": ATTENTION,
    "qwen2": ATTENTION,
    "qwen3": {**ATTENTION, "head_dim": 8},
    "mistral": {**ATTENTION, "sliding_window": 9},
    "gpt2": {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": None},
}  # fmt: skip


def with_attention(model, name):
    tt.register_attention()
    model.set_attn_implementation(name)
    return model


@pytest.mark.parametrize("kind", ATTENTION_MODELS)
def test_softmax_attention_in_transformers_equals_sdpa(kind):
    model, inputs = make_model(kind, ATTENTION_MODELS[kind]), make_tokens(30)
    expected, plain = run(with_attention(model, "sdpa"), *inputs), model(inputs[0]).logits
    assert_same_runs(run(with_attention(model, "tapeformer"), *inputs), expected)
    torch.testing.assert_close(model(inputs[0]).logits, plain, rtol=1e-4, atol=1e-4)


def test_softmax_attention_in_transformers_takes_masks_and_static_caches():
    model, (tokens, _) = make_model("llama", ATTENTION), make_tokens(20)
    mask = torch.rand(2, 1, 20, 20) > 0.3
    mask[..., 0] = True
    options = {"max_new_tokens": 5, "do_sample": False, "cache_implementation": "static"}
    with_attention(model, "sdpa")
    expected = model(tokens, attention_mask=mask).logits, model.generate(tokens, disable_compile=True, **options)
    with_attention(model, "tapeformer")
    torch.testing.assert_close(model(tokens, attention_mask=mask).logits, expected[0], rtol=1e-4, atol=1e-4)
    assert torch.equal(model.generate(tokens, disable_compile=True, **options), expected[1])


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
def test_linear_attention_in_transformers_generates_what_its_logits_say(kind):
    model, (tokens, mask) = make_model(kind, ATTENTION_MODELS[kind]), make_tokens(20)
    with_attention(model, "tapeformer-linear")
    found = run(model, tokens, mask, new_tokens=6)
    assert all(g.isfinite().all() for g in found[1].values())
    mask = torch.cat([mask, mask.new_ones(2, 6)], 1)
    positions = (mask.cumsum(1) - 1).clamp_(min=0)
    logits = model(found[2], attention_mask=mask, position_ids=positions).logits
    torch.testing.assert_close(logits[:, 19:-1].transpose(0, 1), found[3], rtol=1e-4, atol=1e-4)
    alone = model(found[2][:1, 7:]).logits  # without the padding
    torch.testing.assert_close(logits[:1, 7:], alone, rtol=1e-4, atol=1e-4)


def test_unsupported_attention_is_an_error():
    tokens, _ = make_tokens(12)
    model = with_attention(make_model("mistral", ATTENTION_MODELS["mistral"]), "tapeformer-linear")
    with pytest.raises(ValueError, match="sliding windows"):
        model(tokens)
    interface = importlib.import_module("tapeformer.torch._attention_interface")
    q = torch.randn(1, 2, 3, 4)
    for option in ("softcap", "s_aux", "position_bias"):
        with pytest.raises(ValueError, match=option):
            interface.attend_softmax(None, q, q, q, None, **{option: 1.0})
    with pytest.raises(ValueError, match="weights"):
        interface.attend_linear(None, q, q, q, None, output_attentions=True)
