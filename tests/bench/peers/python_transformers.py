"""Benchmark of tapeformer.torch.patch_transformers(): a small random model of Hugging Face's transformers, before and after.
With --model llama, benchmark of the attention implementations sdpa and tapeformer.

Measures the pass over a prompt without gradients (prefill), decoding with its cache in milliseconds for each token, and a
training step (forward and backward). The model is Qwen3-Next with three gated delta layers and one attention layer, or
Mamba-2 or Llama with four layers. --rows selects what is measured; "compiled" means torch.compile, and decoding with a cache
of constant size. --attention selects the implementation of the attention layers of Qwen3-Next. Prints one JSON object, and
the table as Markdown on standard error. Needs the packages transformers and tapeformer.
"""

import argparse
import contextlib
import sys
import time

import measure

WARMUP_TOKENS = 4


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen3_next", choices=["qwen3_next", "mamba2", "llama"])
    parser.add_argument("--length", type=int, default=2048, help="tokens of the prompt and of the training step")
    parser.add_argument("--decode", type=int, default=32, help="tokens to decode")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16, help="heads of 128 of the values; keys have half as many")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--rows", help="default: after,before; also after-compiled,before-compiled. Llama: tapeformer,sdpa,…")
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
    elif options.model == "llama":
        settings = {
            "intermediate_size": 2 * options.hidden, "num_attention_heads": options.heads, "head_dim": 64,
            "num_key_value_heads": options.heads // 4,
        }  # fmt: skip
    else:
        settings = {"num_heads": 2 * options.hidden // 64, "head_dim": 64, "n_groups": 1, "state_size": 128}
    config = CONFIG_MAPPING[options.model](**common, **settings)
    if options.model == "qwen3_next":
        config._attn_implementation = options.attention
    torch.manual_seed(1)
    dtype = torch.bfloat16 if options.precision == "bfloat16" else torch.float32
    return AutoModelForCausalLM.from_config(config).to(dtype)


def measure_model(model, options: argparse.Namespace, compiled: bool) -> dict:
    """Returns milliseconds."""
    import torch
    from transformers import StaticCache

    forward = torch.compile(model) if compiled else model
    tokens = torch.randint(1024, (1, options.length))

    @torch.no_grad()
    def prefill():
        forward(tokens, use_cache=False)

    def train():
        model.zero_grad()
        forward(tokens, use_cache=False).logits.float().square().mean().backward()

    @torch.no_grad()
    def decode():
        cache = {"use_cache": True}
        if compiled and options.model != "mamba2":  # a cache of constant size, which needs no new compilations
            cache["past_key_values"] = StaticCache(model.config, 64 + WARMUP_TOKENS + options.decode)
        first = model(tokens[:, :64], **cache)
        name = "past_key_values" if "past_key_values" in first else "cache_params"
        cache[name] = first[name]
        seconds = measure.times(lambda: forward(tokens[:, :1], **cache), options.decode, WARMUP_TOKENS)
        return measure.median(seconds)

    model.eval()
    results = {"prefill_ms": 1e3 * measure.median(measure.times(prefill, options.repeats, 1)), "decode_ms": 1e3 * decode()}
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

    def add_row(name, compiled):
        torch._dynamo.reset()
        start = time.perf_counter()
        rows[name] = measure_model(model, options, compiled)
        cells = [f"{value:.1f} ms" for value in rows[name].values()]
        print(f"| {name} | {' | '.join(cells)} |", file=sys.stderr, flush=True)
        rows[name]["all_seconds"] = time.perf_counter() - start

    print("| | prefill | a token | training step |\n|---|---|---|---|", file=sys.stderr)
    for name in (options.rows or ("tapeformer,sdpa" if options.model == "llama" else "after,before")).split(","):
        form, _, compiled = name.partition("-")
        if options.model == "llama":
            model.set_attn_implementation(form)
        with tt.patch_transformers(options.model) if form == "after" else contextlib.nullcontext():
            add_row(name, bool(compiled))
    measure.report(
        benchmark="python-transformers", model=options.model, length=options.length, threads=options.threads,
        precision=options.precision, attention=options.attention, results=rows,
    )  # fmt: skip


if __name__ == "__main__":
    main()
