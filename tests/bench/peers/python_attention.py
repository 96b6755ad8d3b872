"""Benchmark of the Python package: attention of tapeformer.torch against PyTorch and reformer-pytorch, in one process.

Measures causal attention, forward and backward, of float32 or bfloat16 tensors (batch, length, heads, dim). The peers are
scaled_dot_product_attention, compiled linear attention in chunks, and reformer-pytorch, whose algorithm the options of LSH
attention select. Calls of both sides alternate. With --overhead, measures calls on 4 tokens instead, where a call is mostly
overhead, also with scaled_dot_product_attention; "direct" calls the kernel without PyTorch's recording. With --threads-check, measures a module that alternates
attention and products of PyTorch with 1 and 2 threads, to show whether the thread pools compete. Prints one JSON object. Needs
the package: pip install . in the root folder.
"""

import argparse

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="softmax,linear,lsh")
    parser.add_argument("--lengths", default="512,2048,8192")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=32)
    parser.add_argument("--chunk", type=int, default=64, help="tokens of a chunk of the peers")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--threads-check", action="store_true")
    measure.add_common_options(parser)
    return parser.parse_args()


def make_pair(kind: str, options: argparse.Namespace):
    """Returns two functions of q, k, v (batch, length, heads, dim): of Tapeformer and of the peer."""
    import torch
    import torch.nn.functional as F
    from model import linear_attention_chunked

    import tapeformer.torch as tt

    if kind == "softmax":

        def attend(q, k, v):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

        return lambda q, k, v: tt.softmax_attention(q, k, v, causal=True), torch.compile(attend)
    if kind == "linear":

        def attend(q, k, v):
            return linear_attention_chunked(*(x.transpose(1, 2) for x in (q, k, v)), options.chunk).transpose(1, 2)

        return lambda q, k, v: tt.linear_attention(q, k, v, causal=True), torch.compile(attend)
    from reformer_pytorch import LSHAttention

    peer = LSHAttention(bucket_size=options.chunk, n_hashes=options.rounds, causal=True, attend_across_buckets=True)

    def attend(q, k, v):
        rows = [x.transpose(1, 2).flatten(0, 1) for x in (q, v)]
        return peer(*rows)[0].unflatten(0, (q.shape[0], -1)).transpose(1, 2)

    def own(q, k, v):
        return tt.lsh_attention(
            q, v, causal=True, preset="trax", rounds=options.rounds, chunk_length=options.chunk,
            buckets=q.shape[1] // options.chunk,
        )  # fmt: skip

    return own, attend


def measure_kind(kind: str, length: int, options: argparse.Namespace) -> dict:
    import torch

    dtype = torch.bfloat16 if options.precision == "bfloat16" else torch.float32
    shape = options.batch, length, options.heads, options.head_dim
    inputs = [torch.randn(shape, dtype=dtype, requires_grad=True) for _ in range(3)]
    cotangent = torch.randn(shape, dtype=dtype)

    def make_run(attend):
        def run():
            for x in inputs:
                x.grad = None
            y = attend(*inputs)
            y.backward(cotangent.to(y.dtype))

        return run

    seconds = [[], []]
    runs = [make_run(attend) for attend in make_pair(kind, options)]
    for repeat in range(options.repeats + 2):
        for side, run in enumerate(runs):
            taken = measure.times(run, 1, 0)
            if repeat >= 2:
                seconds[side] += taken
    ours, theirs = map(measure.median, seconds)
    return {"kind": kind, "length": length, "tapeformer_ms": 1e3 * ours, "peer_ms": 1e3 * theirs, "ratio": theirs / ours}


def measure_overhead() -> dict:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    import tapeformer.torch as tt
    from tapeformer import _core

    torch.set_default_device(None)  # a default device slows each call of PyTorch
    q = torch.randn(1, 4, 1, 8)
    inputs = [torch.randn(1, 4, 1, 8, requires_grad=True) for _ in range(3)]
    cotangent = torch.ones(1, 4, 1, 8)
    peer_inputs = [torch.randn(1, 1, 4, 8, requires_grad=True) for _ in range(3)]
    peer_q, peer_cotangent = torch.randn(1, 1, 4, 8), torch.ones(1, 1, 4, 8)
    out, sums = torch.empty(1, 4, 1, 8), torch.empty(1, 1, 4)
    limit = 1 << 40
    actions = {
        "direct": lambda: _core.softmax_forward(1, q, q, q, None, True, 0.0, 0.0, 0, 1, limit, limit, None, out, sums),
        "forward": lambda: tt.softmax_attention(q, q, q, causal=True),
        "forward_recorded": lambda: tt.softmax_attention(*inputs, causal=True),
        "forward_backward": lambda: tt.softmax_attention(*inputs, causal=True).backward(cotangent),
        "sdpa_forward": lambda: scaled_dot_product_attention(peer_q, peer_q, peer_q, is_causal=True),
        "sdpa_forward_recorded": lambda: scaled_dot_product_attention(*peer_inputs, is_causal=True),
        "sdpa_forward_backward": lambda: scaled_dot_product_attention(*peer_inputs, is_causal=True).backward(peer_cotangent),
        "linear_forward": lambda: tt.linear_attention(q, q, q, causal=True),
    }
    count = 2000

    def repeat(action):
        for _ in range(count):
            action()

    return {
        name + "_us": 1e6 / count * min(measure.times(lambda action=action: repeat(action), 7, 1))
        for name, action in actions.items()
    }


def measure_threads() -> dict:
    import torch

    import tapeformer.torch as tt

    results = {}
    for name, attend in (
        ("tapeformer", lambda x: tt.softmax_attention(x, x, x, causal=True)),
        ("torch", lambda x: torch.nn.functional.scaled_dot_product_attention(*3 * [x.transpose(1, 2)], is_causal=True)),
    ):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            weight = torch.randn(256, 256)

            def run():
                x = torch.randn(4, 512, 8, 32)
                for _ in range(8):
                    x = torch.tanh(attend(x).reshape(4, 512, 256) @ weight).unflatten(2, (8, 32))

            results[f"{name}_{threads}_threads_ms"] = 1e3 * measure.median(measure.times(run, 9, 2))
    return results


def main() -> None:
    options = parse()
    measure.prepare(options)
    if options.overhead:
        measure.report(benchmark="python-attention-overhead", **measure_overhead())
        return
    if options.threads_check:
        measure.report(benchmark="python-attention-threads", **measure_threads())
        return
    rows = [
        measure_kind(kind, int(length), options)
        for kind in options.kinds.split(",")
        for length in options.lengths.split(",")
    ]
    measure.report(benchmark="python-attention", threads=options.threads, precision=options.precision, results=rows)


if __name__ == "__main__":
    main()
