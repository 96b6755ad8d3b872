"""Compares a training step of a GPT by Tapeformer, PyTorch, JAX, MLX and llm.c, in turn, with the same sizes and random tokens.

MODEL is gpt-char or gpt-124m; the files of that name beside this script have the sizes. PyTorch runs the GPT-2 of transformers,
compiled, with sdpa and the fused AdamW; JAX a jitted step with jax.nn.dot_product_attention and optax; MLX a compiled step of its
CPU build, in float32, with the OpenBLAS of the system, because its package has the reference BLAS (6 GFLOP/s); llm.c its
train_gpt2.c, which is built from --llmc FOLDER with the flags of its Makefile. Prints one JSON object: medians of the seconds of a step over the rounds.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).parent


def read_sizes(name):
    text = tomllib.loads((HERE / f"{name}.toml").read_text())
    base = read_sizes(text["extends"].removesuffix(".toml")) if "extends" in text else {}
    for table in ("data", "model", "optimizer"):
        base[table] = base.get(table, {}) | text.get(table, {})
    return base


def time_steps(step, count):
    seconds = []
    for _ in range(count + 2):  # two steps warm up
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds[2:]


def torch_steps(sizes, options):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(options.threads)
    data, model = sizes["data"], sizes["model"]
    width = model["heads"] * model["head_dim"]
    gpt = GPT2LMHeadModel(GPT2Config(vocab_size=data["symbols"] + 1, n_positions=model["position_count"], n_embd=width,
                                     n_layer=model["layers"], n_head=model["heads"], n_inner=model["feedforward"], resid_pdrop=0,
                                     embd_pdrop=0, attn_pdrop=0, use_cache=False, attn_implementation="sdpa"))
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, data["symbols"] + 1, (data["batch_size"], data["max_length"] + 1))

    @torch.compile
    def compute_loss():
        with torch.autocast("cpu", torch.bfloat16, enabled=options.precision == "bfloat16"):
            logits = gpt(ids[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    def step():
        compute_loss().backward()
        if clip := sizes["optimizer"].get("clip_norm"):
            torch.nn.utils.clip_grad_norm_(gpt.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()

    return time_steps(step, options.steps)


def jax_steps(sizes, options):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])  # JAX takes all processors
    import jax
    import jax.numpy as jnp
    import optax

    data, model = sizes["data"], sizes["model"]
    heads, dim = model["heads"], model["head_dim"]
    width, hidden = heads * dim, model["feedforward"]
    dtype = jnp.bfloat16 if options.precision == "bfloat16" else jnp.float32
    keys = iter(jax.random.split(jax.random.key(1), 8 * model["layers"] + 2))

    def draw(*shape):
        return 0.02 * jax.random.normal(next(keys), shape)

    layers = [{"qkv": draw(width, 3 * width), "out": draw(width, width), "up": draw(width, hidden), "down": draw(hidden, width),
               "qkv_b": jnp.zeros(3 * width), "out_b": jnp.zeros(width), "up_b": jnp.zeros(hidden), "down_b": jnp.zeros(width),
               "norms": jnp.ones((2, width)), "norms_b": jnp.zeros((2, width))} for _ in range(model["layers"])]
    weights = {"tokens": draw(data["symbols"] + 1, width), "positions": draw(model["position_count"], width), "layers": layers,
               "norm": jnp.ones(width), "norm_b": jnp.zeros(width)}

    def norm(x, scale, bias):
        x = x.astype(jnp.float32)
        x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        return (x * scale + bias).astype(dtype)

    def compute_loss(w, ids):
        x = w["tokens"][ids[:, :-1]] + w["positions"][: ids.shape[1] - 1]
        for layer in w["layers"]:
            y = norm(x, layer["norms"][0], layer["norms_b"][0])
            qkv = (y @ layer["qkv"].astype(dtype) + layer["qkv_b"].astype(dtype)).reshape(*y.shape[:2], 3, heads, dim)
            y = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True).reshape(y.shape)
            x = x + y @ layer["out"].astype(dtype) + layer["out_b"]
            y = norm(x, layer["norms"][1], layer["norms_b"][1])
            y = jax.nn.gelu(y @ layer["up"].astype(dtype) + layer["up_b"].astype(dtype))
            x = x + y @ layer["down"].astype(dtype) + layer["down_b"]
        logits = norm(x, w["norm"], w["norm_b"]) @ w["tokens"].T.astype(dtype)
        return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), ids[:, 1:]).mean()

    clip = sizes["optimizer"].get("clip_norm")
    optimizer = optax.chain(*([optax.clip_by_global_norm(clip)] if clip else []), optax.adamw(1e-4))

    @jax.jit
    def update(w, state, ids):
        gradients = jax.grad(compute_loss)(w, ids)
        changes, state = optimizer.update(gradients, state, w)
        return optax.apply_updates(w, changes), state

    ids = jax.random.randint(next(keys), (data["batch_size"], data["max_length"] + 1), 0, data["symbols"] + 1)
    current = [weights, optimizer.init(weights)]

    def step():
        current[:] = jax.block_until_ready(update(*current, ids))

    return time_steps(step, options.steps)


def mlx_steps(sizes, options):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optim

    data, model = sizes["data"], sizes["model"]
    heads, width = model["heads"], model["heads"] * model["head_dim"]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, model["feedforward"]), nn.Linear(model["feedforward"], width)

        def __call__(self, x):
            q, k, v = (self.qkv(self.norm1(x)).reshape(*x.shape[:2], 3, heads, -1).transpose(2, 0, 3, 1, 4))
            y = mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask="causal")
            x = x + self.out(y.transpose(0, 2, 1, 3).reshape(x.shape))
            return x + self.down(nn.gelu(self.up(self.norm2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(data["symbols"] + 1, width), nn.Embedding(model["position_count"], width)
            self.layers, self.norm = [Layer() for _ in range(model["layers"])], nn.LayerNorm(width)

        def __call__(self, ids):
            x = self.tokens(ids) + self.positions(mx.arange(ids.shape[1]))
            for layer in self.layers:
                x = layer(x)
            return self.tokens.as_linear(self.norm(x))

    gpt, optimizer = Gpt(), optim.AdamW(1e-4)
    ids = mx.random.randint(0, data["symbols"] + 1, (data["batch_size"], data["max_length"] + 1))
    compute = nn.value_and_grad(gpt, lambda ids: nn.losses.cross_entropy(gpt(ids[:, :-1]), ids[:, 1:], reduction="mean"))
    state = [gpt.state, optimizer.state]

    def update(ids):
        loss, gradients = compute(ids)
        if clip := sizes["optimizer"].get("clip_norm"):
            gradients, _ = optim.clip_grad_norm(gradients, clip)
        optimizer.update(gpt, gradients)
        return loss

    update = mx.compile(update, inputs=state, outputs=state)

    def step():
        mx.eval(update(ids), state)

    return time_steps(step, options.steps)


def build_llmc(sizes, source, folder):
    """Compiles train_gpt2.c with the batch and length of the model, and writes random weights and tokens where it reads them."""
    import numpy

    data, model = sizes["data"], sizes["model"]
    code = (source / "train_gpt2.c").read_text()
    for name, value in (("B", data["batch_size"]), ("T", data["max_length"])):
        code, count = re.subn(rf"int {name} = \d+;", f"int {name} = {value};", code)
        if count != 1:
            sys.exit(f"train_gpt2.c: expected one line that sets {name}")
    (folder / "train.c").write_text(code)
    subprocess.run(["gcc", "-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w", f"-I{source}", "train.c", "-lm", "-o", "train"],
                   cwd=folder, check=True)
    vocabulary, layers, width = data["symbols"] + 1, model["layers"], model["heads"] * model["head_dim"]
    padded = -(-vocabulary // 128) * 128
    header = numpy.zeros(256, numpy.int32)
    header[:8] = 20240326, 3, model["position_count"], vocabulary, layers, model["heads"], width, padded
    count = (padded + model["position_count"]) * width + layers * (12 * width * width + 13 * width) + 2 * width
    random = numpy.random.default_rng(1)
    with open(folder / "gpt2_124M.bin", "wb") as file:
        file.write(header.tobytes())
        file.write((0.02 * random.standard_normal(count, numpy.float32)).tobytes())
    tokens = random.integers(0, vocabulary, 200_000, numpy.uint16)
    header = numpy.zeros(256, numpy.int32)
    header[:3] = 20240520, 1, len(tokens)
    place = folder / "dev/data/tinyshakespeare"
    place.mkdir(parents=True)
    for split in ("train", "val"):
        (place / f"tiny_shakespeare_{split}.bin").write_bytes(header.tobytes() + tokens.tobytes())


def llmc_steps(folder, options):
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "OMP_PROC_BIND": "true"}
    child = subprocess.Popen(["stdbuf", "-oL", "./train"], cwd=folder, stdout=subprocess.PIPE, text=True, env=environment)
    seconds = []
    for line in child.stdout:
        if match := re.search(r"took ([\d.]+) ms", line):
            seconds.append(float(match[1]) / 1000)
        if len(seconds) == options.steps + 1:
            break
    child.kill()
    return seconds[1:]


def own_steps(options):
    words = [options.program, "bench", "train-step", "--config", str(HERE / f"{options.model}.toml"), "--precision", options.precision,
             "--threads", str(options.threads), "--repeats", str(options.steps), "--json"]
    output = subprocess.run(words, capture_output=True, check=True, text=True, env={**os.environ, "OMP_PROC_BIND": "true"}).stdout
    return [json.loads(output)["seconds_per_step"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["gpt-char", "gpt-124m"])
    parser.add_argument("--program", default="build/release/tapeformer")
    parser.add_argument("--llmc", type=pathlib.Path, help="a copy of llm.c")
    parser.add_argument("--peers", default="torch,jax,mlx,llmc")
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = read_sizes(options.model)
    if options.run:
        print(json.dumps({"torch": torch_steps, "jax": jax_steps, "mlx": mlx_steps}[options.run](sizes, options)))
        return
    peers = [name for name in options.peers.split(",") if options.precision == "float32" or name not in ("llmc", "mlx")]
    if not options.llmc and "llmc" in peers:
        peers.remove("llmc")
    seconds = {name: [] for name in ["tapeformer", *peers]}
    with tempfile.TemporaryDirectory() as folder:
        if "llmc" in peers:
            build_llmc(sizes, options.llmc.resolve(), pathlib.Path(folder))
        for _ in range(options.rounds):
            seconds["tapeformer"] += own_steps(options)
            for name in peers:
                if name == "llmc":
                    seconds[name] += llmc_steps(folder, options)
                    continue
                environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "OMP_PROC_BIND": "true"}
                if name == "mlx":
                    environment |= {"LD_PRELOAD": "libopenblas.so.0", "OPENBLAS_NUM_THREADS": str(options.threads)}
                output = subprocess.run([sys.executable, *sys.argv, "--run", name], capture_output=True, check=True, text=True,
                                        env=environment).stdout
                seconds[name] += json.loads(output.splitlines()[-1])
    print(json.dumps({"model": options.model, "precision": options.precision, "threads": options.threads,
                      **{name: round(statistics.median(times), 3) for name, times in seconds.items()}}))


if __name__ == "__main__":
    main()
