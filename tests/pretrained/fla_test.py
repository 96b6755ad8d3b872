"""Compares imported and exported models with the package flash-linear-attention, which has made them with random weights.

    fla_test.py PROGRAM READ_FILES

PROGRAM is tapeformer, and READ_FILES is the test program of this folder. The interpreter of triton runs the kernels of the package.
The exit status is 77 if a package is missing.
"""

import os
import pathlib
import sys
import tempfile

os.environ["TRITON_INTERPRET"] = "1"

try:
    import models
    import numpy as np
    import torch
    import torch.nn.functional as F
    import transformers
    from fla.layers import attn as fla_attention
    from fla.models import DeltaNetConfig, GatedDeltaNetConfig, GLAConfig
    from triton.runtime import autotuner
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

PROGRAM, READ_FILES = sys.argv[1:3]
PROMPTS = np.random.default_rng(1).integers(0, models.TOKENS, (1, 48))
COMMON = dict(vocab_size=models.VOCABULARY, hidden_size=32, num_hidden_layers=2, intermediate_size=56, num_heads=2)
COMMON |= dict(fuse_norm=False, fuse_swiglu=False, attn_mode="fused_recurrent")
SOFTMAX = dict(layers=[1], num_heads=4, num_kv_heads=2, qkv_bias=True, rope_theta=500.0)
CONFIGS = {
    "gla": GLAConfig(**COMMON, expand_v=1.5),
    "delta_net": DeltaNetConfig(**COMMON, use_gate=True),
    "gated_deltanet": GatedDeltaNetConfig(**COMMON, head_dim=8, num_v_heads=4),
    "gated_deltanet-hybrid": GatedDeltaNetConfig(**COMMON, head_dim=8, attn=SOFTMAX),
}


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, window_size=(-1, -1)) -> torch.Tensor:
    """Computes flash_attn_func(), which needs a GPU."""
    copies = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(copies, 2), v.repeat_interleave(copies, 2)))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)


def make(config: transformers.PreTrainedConfig) -> models.Model:
    config.bos_token_id = config.eos_token_id = None
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for name, parameter in model.named_parameters():
        values = (0.3 if "norm" in name else 0.15) * torch.randn(parameter.shape)
        parameter.data = values + 1 if "norm" in name else values - 2 if name.endswith("dt_bias") else values
    return model


def main() -> None:
    autotuner.Autotuner._bench = lambda self, *words, config, **options: [1.0, 1.0, 1.0]  # the first configuration is taken
    fla_attention.flash_attn_func = attend
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for case, config in CONFIGS.items():
            model, run, out = make(config), folder / f"run-{case}", folder / f"out-{case}"
            expected = models.logits_of_model(model, PROMPTS)
            models.call(PROGRAM, "import", models.save(model, folder / case), run)
            worst = [
                models.difference(models.logits_of_run(READ_FILES, run, PROMPTS, folder, form), expected)
                for form in ("logits", "steps")
            ]
            models.call(PROGRAM, "export", run, out)
            loaded = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
            worst.append(models.difference(models.logits_of_model(loaded, PROMPTS), expected))
            print(f"{case}: largest difference of logits {worst[0]:.2g}, token by token {worst[1]:.2g}, exported {worst[2]:.2g}")
            assert max(worst) < 1e-4, worst


if __name__ == "__main__":
    main()
