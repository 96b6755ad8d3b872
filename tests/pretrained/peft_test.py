"""Loads adapters that the program has trained in the package PEFT, and compares the losses of both programs.

    peft_test.py TAPEFORMER

TAPEFORMER is the program. The test trains a small model with the layers of Llama and adapters for all its linear layers, and puts
the weights into a model of the package transformers. It needs numpy, peft, safetensors, torch and transformers; without them, the
exit status is 77.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import peft
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

LENGTH, LAYERS, HEADS, KEY_HEADS, DIM, HIDDEN = 24, 2, 4, 2, 8, 40
LAYER_NAMES = {"attention.query_projection": "self_attn.q_proj", "attention.key_projection": "self_attn.k_proj",
               "attention.value_projection": "self_attn.v_proj", "attention.out_projection": "self_attn.o_proj",
               "linear1": "mlp.gate_proj", "linear3": "mlp.up_proj", "linear2": "mlp.down_proj",
               "norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
NAMES = {"value_embedding.weight": "model.embed_tokens.weight", "predictor.weight": "lm_head.weight", "norm.weight": "model.norm.weight"}
NAMES.update({f"layers.{i}.{ours}.weight": f"model.layers.{i}.{theirs}.weight"
              for i in range(LAYERS) for ours, theirs in LAYER_NAMES.items()})


def write_config(folder: pathlib.Path) -> pathlib.Path:
    text = b"".join(b"line %d of a text, %d.\n" % (i, i * i % 97) for i in range(200))
    (folder / "train.txt").write_bytes(text)
    (folder / "test.txt").write_bytes(text[777:777 + 4 * LENGTH + 1])
    path = folder / "model.toml"
    path.write_text(f"""
[run]
device = "cpu"
threads = 1
[data]
dataset = "text"
path = "{folder}/train.txt"
test_path = "{folder}/test.txt"
valid_share = 0.1
sequence_length = {LENGTH}
batch_size = 4
[model]
type = "sequence"
attention = "softmax"
layers = {LAYERS}
heads = {HEADS}
kv_heads = {KEY_HEADS}
head_dim = {DIM}
feedforward = {HIDDEN}
norm = "pre"
norm_kind = "rms"
activation = "silu"
gated_feedforward = true
projection_biases = false
feedforward_biases = false
predictor_bias = false
positions = "rotary"
dropout = 0.0
[optimizer]
kind = "adamw"
lr = 1e-2
[train]
steps = 20
""")
    return path


def make_reference(base: pathlib.Path) -> transformers.LlamaForCausalLM:
    config = transformers.LlamaConfig(
        vocab_size=256, hidden_size=HEADS * DIM, intermediate_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS, head_dim=DIM, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False, attention_bias=False, mlp_bias=False, attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).eval()
    weights = safetensors.torch.load_file(base / "checkpoints/latest/model.safetensors")
    model.load_state_dict({NAMES[name]: value for name, value in weights.items()})
    return model


def loss_of(model: torch.nn.Module, text: bytes) -> float:
    windows = torch.tensor([list(text[i * LENGTH:(i + 1) * LENGTH + 1]) for i in range((len(text) - 1) // LENGTH)])
    with torch.no_grad():
        logits = model(windows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), windows[:, 1:].flatten()).item()


def main() -> int:
    program = sys.argv[1]

    def run(*words: object) -> str:
        return subprocess.run([program, *map(str, words)], check=True, capture_output=True, text=True).stdout

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config = write_config(folder)
        run("train", config, "--run-dir", folder / "base", "--quiet")
        run("train", config, "--run-dir", folder / "run", "--quiet", "--set", f"model.init={folder}/base", "--set", "run.seed=7", "--set",
            "lora.rank=3", "--set", "lora.alpha=5", "--set", 'lora.targets=["layers.*"]', "--set", "lora.dropout=0.1")
        run("merge", folder / "run", folder / "peft", "--peft")
        run("merge", folder / "run", folder / "merged")
        losses = {run_name: json.loads(run("eval", folder / run_name, "--split", "test", "--json"))["nats_per_dim"]
                  for run_name in ("base", "run", "merged")}
        text = (folder / "test.txt").read_bytes()
        reference = make_reference(folder / "base")
        base = loss_of(reference, text)
        adapted = loss_of(peft.PeftModel.from_pretrained(reference, folder / "peft").eval(), text)
    print(f"base: {losses['base']:.6f}, transformers {base:.6f}; with adapters: {losses['run']:.6f}, merged {losses['merged']:.6f}, "
          f"peft {adapted:.6f}")
    assert abs(losses["base"] - base) < 1e-5
    assert abs(losses["run"] - adapted) < 1e-5
    assert abs(losses["merged"] - losses["run"]) < 1e-6
    assert abs(adapted - base) > 1e-2, "the adapters change nothing"
    return 0


if __name__ == "__main__":
    sys.exit(main())
