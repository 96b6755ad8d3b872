"""Benchmark of long contexts: a training step and decoding of a byte model with one long sequence, for several kinds of attention.

The model has 4 layers of 8 heads of 32 with pre-norm and relu (text_model.py), as the table long-context of Tapeformer, whose
gated-delta also has a convolution of 4 tokens, and whose LSH attention has the options of trax. Softmax
attention is scaled_dot_product_attention, local attention the same function over blocks of queries, linear attention and the
gated delta rule are in chunks (model.py), and LSH attention is that of reformer-pytorch. Each length and kind is measured in a
separate process. Layers are compiled, except for LSH attention and the gated delta rule, whose loop over chunks torch.compile
unrolls; steps of decoding are not. Before it measures, the program compares decoded bytes with a forward pass.
"""

import argparse

import lengths
import measure

CHECKED_BYTES, TOLERANCE = 300, 1e-3


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attention", default="softmax,local,linear,gated-delta,lsh")
    parser.add_argument("--lengths", default="16384,65536")
    parser.add_argument("--tokens", type=int, default=32, help="decoded bytes")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("KIND", "LENGTH"), help="measure only this kind and length")
    measure.add_common_options(parser)
    return parser.parse_args()


def measure_training(options: argparse.Namespace, model, length: int) -> dict:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 256, (1, length + 1))
    if model.config.attention not in ("gated-delta", "lsh"):
        for layer in model.layers:
            layer.compile()

    def step():
        optimizer.zero_grad()
        with measure.mixed_precision(options):
            loss = model.loss(tokens)
        loss.backward()
        optimizer.step()

    measure.times(step, 0, warmup=1)
    baseline = measure.current()
    measure.reset_peak()
    seconds = measure.median(measure.times(step, options.repeats, warmup=0))
    return {"seconds_per_step": seconds, "added_bytes": measure.recent_peak() - baseline}


def measure_decoding(options: argparse.Namespace, model, length: int) -> dict:
    import torch
    from step_models import CachedModel, GatedDeltaModel, RecurrentModel

    if model.config.attention == "lsh":
        return {}
    makers = {"linear": RecurrentModel, "gated-delta": GatedDeltaModel}
    make = makers.get(model.config.attention, lambda *words: CachedModel(*words, torch.float32))
    tokens = torch.randint(0, 256, (1, length + options.tokens))
    with torch.inference_mode():
        decoder = make(model.eval(), 1)
        found = torch.stack([decoder.step(tokens[:, at], at) for at in range(CHECKED_BYTES)], 1)
        torch.testing.assert_close(found, model(tokens[:, :CHECKED_BYTES]), atol=TOLERANCE, rtol=TOLERANCE)

        def decode():
            for at in range(length, length + options.tokens):
                decoder.step(tokens[:, at], at)

        seconds = measure.median(measure.times(decode, options.repeats, warmup=1))
    state = sum(x.numel() * x.element_size() for x in decoder.states)
    if model.config.attention == "local":
        state = state * model.config.window // model.config.max_length
    return {"milliseconds_per_token": 1000 * seconds / options.tokens, "state_bytes": state}


def main() -> None:
    options = parse()
    if not options.one:
        kinds, sizes = options.attention.split(","), options.lengths.split(",")
        return lengths.run_each("long_context", options, [[kind, size] for kind in kinds for size in sizes])
    torch = measure.prepare(options)
    from model import ModelConfig
    from text_model import TextModel

    kind, length = options.one[0], int(options.one[1])
    config = ModelConfig(layers=4, attention=kind, norm="pre", activation="relu", max_length=length + options.tokens)
    decoding = measure_decoding(options, TextModel(config, 256), length)
    training = measure_training(options, TextModel(config, 256), length)
    measure.report(attention=kind, length=length, torch=torch.__version__, **training, **decoding)


if __name__ == "__main__":
    main()
