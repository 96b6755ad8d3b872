"""Models of the package transformers for the comparisons with imported runs, and functions that run the programs."""

import json
import os
import pathlib
import subprocess

import numpy as np
import safetensors.numpy
import tokenizers
import torch
import transformers

FAMILIES = ("llama", "qwen2", "qwen3", "gpt2", "gpt_neox", "gemma", "qwen3_next", "qwen3_5_text", "mamba2")
HYBRIDS = ("qwen3_next", "qwen3_5_text")
VOCABULARY, TOKENS = 320, 300  # rows of the embedding, tokens of the tokenizer
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
os.environ["OMP_WAIT_POLICY"] = "passive"

Model = transformers.PreTrainedModel


def make(family: str, seed: int = 1, **changes) -> Model:
    """Returns a small model with random weights, in which all parameters matter."""
    common = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, intermediate_size=56, max_position_embeddings=96)
    hybrid = dict(
        num_hidden_layers=4,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=12,
        linear_value_head_dim=8,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25},
    )
    sizes = dict(num_attention_heads=4, num_key_value_heads=2, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    config = {
        "llama": lambda: transformers.LlamaConfig(**common | sizes | dict(rms_norm_eps=1e-5) | changes),
        "qwen2": lambda: transformers.Qwen2Config(**common | sizes | dict(tie_word_embeddings=True) | changes),
        "qwen3": lambda: transformers.Qwen3Config(**common | sizes | dict(head_dim=12) | changes),
        "gemma": lambda: transformers.GemmaConfig(**common | sizes | dict(head_dim=12) | changes),
        "qwen3_next": lambda: transformers.Qwen3NextConfig(**common | sizes | hybrid | dict(num_experts=0) | changes),
        "qwen3_5_text": lambda: transformers.Qwen3_5TextConfig(**common | sizes | hybrid | changes),
        "mamba2": lambda: transformers.Mamba2Config(
            **dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_heads=4, head_dim=16, state_size=12, n_groups=2)
            | changes
        ),
        "gpt2": lambda: transformers.GPT2Config(
            **dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_inner=56, n_positions=96) | changes
        ),
        "gpt_neox": lambda: transformers.GPTNeoXConfig(**common | dict(num_attention_heads=2, hidden_act="gelu") | changes),
    }[family]()
    config.bos_token_id = config.eos_token_id = None
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    for name, parameter in model.named_parameters():
        is_norm = "norm" in name or "ln_" in name
        has_offset = family == "gemma" or (family in HYBRIDS and "linear_attn" not in name)
        values = (0.3 if is_norm else 0.15) * torch.randn(parameter.shape)
        if (is_norm and name.endswith("weight") and not has_offset) or name.endswith("mixer.D"):
            values += 1
        parameter.data = values - 2 if name.endswith("dt_bias") else values
    return model


def make_tokenizer() -> tokenizers.Tokenizer:
    """Returns a byte-level BPE tokenizer with TOKENS tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=TOKENS, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["the cat and the dog and the bird sat there, and then the rain came " * 3], trainer)
    return tokenizer


def save(model: Model, folder: pathlib.Path, **options) -> pathlib.Path:
    model.save_pretrained(folder, **options)
    make_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def call(program, *words, status: int = 0, **variables) -> str:
    """Runs a program. Returns its standard output, or standard error if the expected status is not 0."""
    result = subprocess.run([str(word) for word in (program, *words)], capture_output=True, text=True, env=os.environ | variables)
    if result.returncode != status:
        raise AssertionError(f"{words}: exit status {result.returncode}, expected {status}\n{result.stderr}")
    return result.stderr if status else result.stdout


def call_json(program, *words) -> dict:
    return json.loads(call(program, *words, "--json"))


def logits_of_run(read_files, run: pathlib.Path, tokens: np.ndarray, folder: pathlib.Path, command: str = "logits") -> np.ndarray:
    """Returns the logits of the parallel form or, if the command is "steps", of the form that reads token by token."""
    safetensors.numpy.save_file({"tokens": tokens.astype(np.int64)}, folder / "tokens.safetensors")
    call(read_files, command, run, folder / "tokens.safetensors", folder / "logits.safetensors")
    return safetensors.numpy.load_file(folder / "logits.safetensors")["logits"]


def logits_of_model(model: Model, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(tokens.astype(np.int64))).logits.float().numpy()


def weights_of_run(run: pathlib.Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(run / "checkpoints/latest/model.safetensors")


def difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max())


def greedy_tokens(model: Model, prompt: list[int], count: int) -> list[int]:
    """Returns the most probable tokens after a prompt, among those that the tokenizer has."""
    tokens, known = list(prompt), make_tokenizer().get_vocab_size()
    for _ in range(count):
        logits = logits_of_model(model, np.array([tokens]))[0, -1, :known]
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]
