"""Benchmark of tapeformer.torch.patch_transformers(): a small random model of Hugging Face's transformers, before and after.

Measures the pass over a prompt without gradients (prefill), decoding with its cache in milliseconds for each token, and a
training step (forward and backward). The model is Qwen3-Next with three gated delta layers and one attention layer, or
Mamba-2. --compiled also measures prefill and the training step with torch.compile of the model before the patch. --attention
selects the implementation of the attention layers, such as sdpa or tapeformer. Prints one JSON object, and the table as
Markdown on standard error. Needs the packages transformers and tapeformer.
"""

import argparse
import sys

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen3_next", choices=["qwen3_next", "mamba2"])
    parser.add_argument("--length", type=int, default=2048, help="tokens of the prompt and of the training step")
    parser.add_argument("--decode", type=int, default=32, help="tokens to decode")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16, help="heads of 128 of the values; keys have half as many")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--compiled", action="store_true")
    measure.add_common_options(parser)
    return parser.parse_args()


def make_model(options: argparse.Namespace):
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    common = {"vocab_size": 1024, "hidden_size": options.hidden, "num_hidden_layers": 4, "eos_token_id": None}
    if options.model == "qwen3_next":
        settings = {
            "intermediate_size": 2 * options.hidden, "num_attention_heads": options.hidden // 128, "head_dim": 128,
            "num_key_value_heads": 2, "linear_num_value_heads": options.heads,
            "linear_num_key_heads": options.heads // 2, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "layer_types": 3 * ["linear_attention"] + ["full_attention"], "mlp_only_layers": [0, 1, 2, 3],
        }  # fmt: skip
    else:
        settings = {"num_heads": 2 * options.hidden // 64, "head_dim": 64, "n_groups": 1, "state_size": 128}
    config = CONFIG_MAPPING[options.model](**common, **settings)
    if options.model == "qwen3_next":
        config._attn_implementation = options.attention
    torch.manual_seed(1)
    dtype = torch.bfloat16 if options.precision == "bfloat16" else torch.float32
    return AutoModelForCausalLM.from_config(config).to(dtype)


def measure_model(model, options: argparse.Namespace, decodes: bool) -> dict:
    """Returns milliseconds."""
    import torch

    tokens = torch.randint(1024, (1, options.length))

    @torch.no_grad()
    def prefill():
        model(tokens, use_cache=False)

    def train():
        model.zero_grad()
        model(tokens, use_cache=False).logits.float().square().mean().backward()

    @torch.no_grad()
    def decode():
        first = model(tokens[:, :64], use_cache=True)
        name = "past_key_values" if "past_key_values" in first else "cache_params"
        cache = {name: first[name], "use_cache": True}
        seconds = measure.times(lambda: model(tokens[:, :1], **cache), options.decode, 2)
        return measure.median(seconds)

    model.eval()
    results = {"prefill_ms": 1e3 * measure.median(measure.times(prefill, options.repeats, 1))}
    if decodes:
        results["decode_ms"] = 1e3 * decode()
    model.train()
    results["training_step_ms"] = 1e3 * measure.median(measure.times(train, options.repeats, 1))
    return results


def main() -> None:
    options = parse()
    measure.prepare(options)
    import torch

    import tapeformer.torch as tt

    tt.register_attention()
    model = make_model(options)
    rows = {}

    def add_row(name, model, decodes=True):
        row = rows[name] = measure_model(model, options, decodes)
        cells = [f"{row[key]:.1f} ms" if key in row else "–" for key in ("prefill_ms", "decode_ms", "training_step_ms")]
        print(f"| {name} | {' | '.join(cells)} |", file=sys.stderr, flush=True)

    print("| | prefill | a token | training step |\n|---|---|---|---|", file=sys.stderr)
    add_row("before", model)
    with tt.patch_transformers(options.model):
        add_row("after", model)
    if options.compiled:
        add_row("compiled, before", torch.compile(model), decodes=False)
    measure.report(
        benchmark="python-transformers", model=options.model, length=options.length, threads=options.threads,
        precision=options.precision, attention=options.attention, results=rows,
    )  # fmt: skip


if __name__ == "__main__":
    main()
