"""Writes hybrids.safetensors: small language models with scaled rotary positions, or with states of constant size.

The models are those of the packages transformers and flash-linear-attention, with random weights, in float32. README.md lists
the keys. The script was run with transformers 5.24.0, flash-linear-attention 0.6.0 and triton 3.9.0, whose interpreter runs the
kernels of flash-linear-attention on a CPU.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch
import transformers
from safetensors.torch import load_file, save_file
from triton.runtime import autotuner

autotuner.Autotuner._bench = lambda self, *words, config, **options: [1.0, 1.0, 1.0]  # the first configuration is taken

sys.modules["fla"] = None  # transformers computes with its own functions
from transformers.models.qwen3_5 import modeling_qwen3_5  # noqa: F401
from transformers.models.qwen3_next import modeling_qwen3_next  # noqa: F401

del sys.modules["fla"]
from fla.models import DeltaNetConfig, GatedDeltaNetConfig, GLAConfig

VOCABULARY, LENGTH = 13, 24
COMMON = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "max_position_embeddings": LENGTH}
LLAMA = COMMON | {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5}
QWEN = COMMON | {
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 5,
    "linear_conv_kernel_dim": 3,
    "rms_norm_eps": 1e-4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
}
FLA = COMMON | {"num_hidden_layers": 2, "norm_eps": 1e-4, "num_heads": 2}
FLA |= {"fuse_norm": False, "fuse_swiglu": False, "attn_mode": "fused_recurrent"}
MAMBA = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 8, "state_size": 6}
MAMBA |= {"chunk_size": 8, "layer_norm_epsilon": 1e-4}


def llama(**rotary) -> transformers.PreTrainedConfig:
    return transformers.LlamaConfig(**LLAMA, rope_parameters={"rope_theta": 100.0} | rotary)


def list_configs() -> dict[str, transformers.PreTrainedConfig]:
    turns = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 0.5}
    return {
        "linear": llama(rope_type="linear", factor=2.5),
        "llama3": llama(rope_type="llama3", factor=8.0, **turns),
        "yarn": llama(**yarn),
        "yarn-amplitude": llama(**yarn, attention_factor=1.5),
        "qwen3_next": transformers.Qwen3NextConfig(**QWEN, num_experts=0),
        "qwen3_5_text": transformers.Qwen3_5TextConfig(**QWEN),
        "gla": GLAConfig(**FLA | {"fuse_norm": True}),
        "gla-conv": GLAConfig(**FLA | {"fuse_norm": True}, use_short_conv=True, expand_k=0.25, expand_v=0.75),
        "delta_net": DeltaNetConfig(**FLA, expand_v=1.5, use_gate=True, allow_neg_eigval=True),
        "delta_net-plain": DeltaNetConfig(**FLA, use_short_conv=False),
        "gated_deltanet": GatedDeltaNetConfig(**FLA | {"num_v_heads": 4, "head_dim": 6, "conv_size": 3}, expand_v=0.5),
        "mamba2": transformers.Mamba2Config(**MAMBA, n_groups=1, tie_word_embeddings=True),
        "mamba2-groups": transformers.Mamba2Config(**MAMBA, n_groups=2, use_conv_bias=False),
        "gated_deltanet-plain": GatedDeltaNetConfig(**FLA, head_dim=4, use_gate=False),
    }


def draw(model: transformers.PreTrainedModel, has_offset: bool) -> None:
    """Replaces all parameters by random numbers. The initial weight of norms is 1, or 0 if they have an offset."""
    for name, parameter in model.named_parameters():
        values = (0.05 if "embed" in name else 0.2) * torch.randn(parameter.shape)
        if ("norm" in name and (not has_offset or "linear_attn" in name)) or name.endswith("mixer.D"):
            values += 1
        if name.endswith("dt_bias"):
            values -= 1
        parameter.data = values


def run(config: transformers.PreTrainedConfig) -> dict[str, torch.Tensor]:
    config.bos_token_id = config.eos_token_id = None
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    draw(model, has_offset=config.model_type.startswith("qwen"))
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    with torch.no_grad():
        result = {"tokens": tokens.int(), "logits": model(tokens).logits.double()}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return result | {f"original.{name}": p for name, p in load_file(f"{folder}/model.safetensors").items()}


def main() -> None:
    torch.manual_seed(1)
    configs = list_configs()
    tensors = {f"{case}.{key}": value for case, config in configs.items() for key, value in run(config).items()}
    texts = {case: json.dumps(json.loads(config.to_json_string(use_diff=False)), sort_keys=True) for case, config in configs.items()}
    save_file(tensors, Path(__file__).parent / "hybrids.safetensors", texts)


if __name__ == "__main__":
    main()
