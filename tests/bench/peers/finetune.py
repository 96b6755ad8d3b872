"""Compares training steps of an imported language model by `tapeformer train` and by transformers with PyTorch, in turn.

RUN is an imported run, and FOLDER the Hugging Face folder that `tapeformer export RUN FOLDER` writes. Without --lora, all parameters
learn (AdamW, clipping); with it, adapters of that rank of all linear layers do (by the package PEFT). Prints one JSON object: medians
over the rounds of the seconds of a step after the first one, tokens per second and the peak resident memory of the process.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def peer(options):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.float32)
    model.config.use_cache = False
    model.train()
    if options.lora:
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=options.lora, lora_alpha=16, target_modules="all-linear"))
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    run = torch.compile(model) if options.compiled else model
    seconds = []
    for _ in range(options.steps):
        ids = torch.randint(0, model.config.vocab_size, (options.batch, options.length + 1))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):
            logits = run(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def own(options, folder):
    settings = {"model.init": options.run, "data.path": options.text, "data.sequence_length": options.length,
                "data.batch_size": options.batch, "train.steps": options.steps, "train.eval_every": 0, "train.log_every": 1,
                "data.eval_limit": 1, "train.checkpoint_every": 0, "run.precision": options.precision, "optimizer.kind": "adamw",
                "optimizer.lr": 1e-5, "optimizer.clip_norm": 1.0, "model.loss_chunks": options.chunks,
                "model.recompute": str(options.recompute).lower()}
    if options.lora:
        settings |= {"lora.rank": options.lora, "lora.targets": '["layers.*"]'}
    words = [options.program, "train", str(pathlib.Path(options.run) / "config.toml"), "--run-dir", folder, "--quiet", "--threads",
             str(options.threads)]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    memory = run(words)[1]
    lines = [json.loads(line) for line in (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()]
    times = [line["seconds"] for line in lines if line["split"] == "train"]
    return [b - a for a, b in zip(times, times[1:])], memory


def run(words, **environment):
    """Returns the standard output of a command and its peak resident memory in bytes."""
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_PROC_BIND": "true", **environment})
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{words[0]} ended with {status}")
    return output, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("folder")
    parser.add_argument("text", help="a text for tapeformer")
    parser.add_argument("--program", default="build/release/tapeformer")
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--lora", type=int, default=0, help="rank of adapters; 0: all parameters learn")
    parser.add_argument("--compiled", action="store_true", help="torch.compile of the model")
    parser.add_argument("--recompute", action="store_true", help="model.recompute of tapeformer")
    parser.add_argument("--chunks", type=int, default=16, help="model.loss_chunks of tapeformer")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        print(json.dumps(peer(options)))
        return
    seconds, memory = {"tapeformer": [], "transformers": []}, {"tapeformer": 0, "transformers": 0}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            times, peak = own(options, folder)
        seconds["tapeformer"] += times
        memory["tapeformer"] = max(memory["tapeformer"], peak)
        output, peak = run([sys.executable, *sys.argv, "--peer"])
        seconds["transformers"] += json.loads(output)
        memory["transformers"] = max(memory["transformers"], peak)
    tokens = options.batch * options.length
    result = {name: {"seconds": round(statistics.median(times), 2), "tokens_per_second": round(tokens / statistics.median(times), 1),
                     "peak_rss_bytes": memory[name]} for name, times in seconds.items()}
    print(json.dumps({"precision": options.precision, "lora": options.lora, "threads": options.threads, **result}))


if __name__ == "__main__":
    main()
