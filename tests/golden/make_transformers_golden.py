"""Writes transformers.safetensors: small language models of the package transformers, with random weights.

Each model computes logits and gradients in float64. README.md lists the keys. Run this script with the Python of
tests/bench/peers/setup.sh. It was run with transformers 5.24.0.
"""

import json
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

VOCABULARY, WIDTH, LAYERS, HIDDEN, LENGTH = 13, 16, 2, 24, 12
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": LENGTH,
    "attn_implementation": "eager",
}
Weights = dict[str, Tensor]


def rotary(base: float, share: float = 1.0) -> dict:
    return {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share}


def llama() -> transformers.PreTrainedModel:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **COMMON, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, rope_parameters=rotary(100.0)
        )
    )


def qwen2() -> transformers.PreTrainedModel:
    return transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=1,
            rms_norm_eps=1e-6,
            rope_parameters=rotary(1e6),
            tie_word_embeddings=True,
        )
    )


def qwen3() -> transformers.PreTrainedModel:
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=6,
            rms_norm_eps=1e-6,
            rope_parameters=rotary(1e4),
            tie_word_embeddings=False,
        )
    )


def gpt2() -> transformers.PreTrainedModel:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=WIDTH,
            n_layer=LAYERS,
            n_head=4,
            n_inner=HIDDEN,
            n_positions=LENGTH,
            attn_implementation="eager",
        )
    )


def gpt_neox() -> transformers.PreTrainedModel:
    return transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            **COMMON, num_attention_heads=2, hidden_act="gelu", rope_parameters=rotary(1e4, 0.5), use_parallel_residual=True
        )
    )


def gemma() -> transformers.PreTrainedModel:
    return transformers.GemmaForCausalLM(
        transformers.GemmaConfig(
            **COMMON,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=8,
            rms_norm_eps=1e-6,
            rope_parameters=rotary(1e4),
            hidden_activation="gelu_pytorch_tanh",
        )
    )


def map_llama(w: Weights) -> Weights:
    """Maps tensors of Llama, Qwen2, Qwen3 and Gemma to the names of a checkpoint."""
    names = {
        "self_attn.q_proj": "attention.query_projection",
        "self_attn.k_proj": "attention.key_projection",
        "self_attn.v_proj": "attention.value_projection",
        "self_attn.o_proj": "attention.out_projection",
        "self_attn.q_norm": "attention.query_norm",
        "self_attn.k_norm": "attention.key_norm",
        "mlp.gate_proj": "linear1",
        "mlp.down_proj": "linear2",
        "mlp.up_proj": "linear3",
        "input_layernorm": "norm1",
        "post_attention_layernorm": "norm2",
    }
    mapped = {"value_embedding.weight": w["model.embed_tokens.weight"], "norm.weight": w["model.norm.weight"]}
    if "lm_head.weight" in w:
        mapped["predictor.weight"] = w["lm_head.weight"]
    for name, tensor in w.items():
        if name.startswith("model.layers."):
            layer, part, kind = name.split(".", 3)[2], *name.split(".", 3)[3].rsplit(".", 1)
            mapped[f"layers.{layer}.{names[part]}.{kind}"] = tensor
    return mapped


def map_gemma(w: Weights) -> Weights:
    """The predictor and the embedding are one weight, and the embedding is multiplied by the root of the width."""
    mapped = map_llama(w)
    mapped["predictor.weight"] = mapped["value_embedding.weight"]
    return mapped | {"value_embedding.weight": mapped["value_embedding.weight"] * WIDTH**0.5}


def map_gpt2(w: Weights) -> Weights:
    """The weights of GPT-2 are (in, out)."""
    mapped = {
        "value_embedding.weight": w["transformer.wte.weight"],
        "position_embedding.weight": w["transformer.wpe.weight"],
    }
    for kind in ("weight", "bias"):
        mapped[f"norm.{kind}"] = w[f"transformer.ln_f.{kind}"]
        for i in range(LAYERS):
            ours, theirs = f"layers.{i}", f"transformer.h.{i}"
            for name, part in zip(("query", "key", "value"), w[f"{theirs}.attn.c_attn.{kind}"].t().chunk(3)):
                mapped[f"{ours}.attention.{name}_projection.{kind}"] = part
            for name, part in (
                ("attention.out_projection", "attn.c_proj"),
                ("linear1", "mlp.c_fc"),
                ("linear2", "mlp.c_proj"),
            ):
                mapped[f"{ours}.{name}.{kind}"] = w[f"{theirs}.{part}.{kind}"].t()
            for name, part in (("norm1", "ln_1"), ("norm2", "ln_2")):
                mapped[f"{ours}.{name}.{kind}"] = w[f"{theirs}.{part}.{kind}"]
    return mapped


def map_gpt_neox(w: Weights) -> Weights:
    """The rows of query_key_value are the queries, keys and values of each head in turn."""
    mapped = {"value_embedding.weight": w["gpt_neox.embed_in.weight"], "predictor.weight": w["lm_head.weight"]}
    for kind in ("weight", "bias"):
        mapped[f"norm.{kind}"] = w[f"gpt_neox.final_layer_norm.{kind}"]
        for i in range(LAYERS):
            ours, theirs = f"layers.{i}", f"gpt_neox.layers.{i}"
            joined = w[f"{theirs}.attention.query_key_value.{kind}"].unflatten(0, (2, 3, WIDTH // 2))
            for index, name in enumerate(("query", "key", "value")):
                mapped[f"{ours}.attention.{name}_projection.{kind}"] = joined[:, index].flatten(0, 1)
            for name, part in (
                ("attention.out_projection", "attention.dense"),
                ("linear1", "mlp.dense_h_to_4h"),
                ("linear2", "mlp.dense_4h_to_h"),
                ("norm1", "input_layernorm"),
                ("norm2", "post_attention_layernorm"),
            ):
                mapped[f"{ours}.{name}.{kind}"] = w[f"{theirs}.{part}.{kind}"]
    return mapped


def draw(model: transformers.PreTrainedModel) -> None:
    """Replaces all parameters by random numbers that float32 represents."""
    for name, parameter in model.named_parameters():
        is_factor = "norm" in name or "ln_" in name
        scale = 0.05 if "embed" in name or "wte" in name or "wpe" in name else 0.3
        values = scale * torch.randn(parameter.shape)
        if is_factor and name.endswith("weight") and not isinstance(model, transformers.GemmaForCausalLM):
            values += 1
        parameter.data = values.float().double()


def run(make, map_weights) -> dict[str, Tensor]:
    model = make().double().eval()
    draw(model)
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    logits = model(tokens).logits
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    weights = map_weights({name: p.detach() for name, p in model.named_parameters()})
    gradients = map_weights({name: p.grad for name, p in model.named_parameters()})
    result = {"tokens": tokens.int(), "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        result |= {f"original.{name}": p.float() for name, p in load_file(f"{folder}/model.safetensors").items()}
    result |= {f"weight.{name}": w.float() for name, w in weights.items()}
    if map_weights is map_gemma:
        gradients = {name: g for name, g in gradients.items() if name.startswith("layers.")}
    return result | {f"gradient.{name}": g.float() for name, g in gradients.items()}


def main() -> None:
    torch.manual_seed(1)
    cases = {
        "llama": (llama, map_llama),
        "qwen2": (qwen2, map_llama),
        "qwen3": (qwen3, map_llama),
        "gpt2": (gpt2, map_gpt2),
        "gpt_neox": (gpt_neox, map_gpt_neox),
        "gemma": (gemma, map_gemma),
    }
    tensors = {
        f"{case}.{key}": value.contiguous()
        for case, (make, mapped) in cases.items()
        for key, value in run(make, mapped).items()
    }
    configs = {}
    for case, (make, _) in cases.items():
        config = make().config
        config.bos_token_id = config.eos_token_id = None
        configs[case] = json.dumps(config.to_dict(), sort_keys=True)
    save_file(tensors, Path(__file__).parent / "transformers.safetensors", configs)


if __name__ == "__main__":
    main()
