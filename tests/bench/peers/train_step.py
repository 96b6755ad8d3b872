"""Benchmark of a training step: forward, backward, clipping and an optimizer step.

The model is the image model with clipping per tensor and RAdam. With --text, it is a byte model with clipping of the global
norm and AdamW. The defaults are the MNIST model of the paper with batch 10 in the form that was fastest on two CPU cores.
"""

import argparse
import time

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    measure.add_model_options(parser)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--length", type=int, default=783)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--attention", choices=("linear", "softmax"), default="linear")
    parser.add_argument("--form", choices=("chunked", "quadratic"), default="chunked")
    parser.add_argument("--chunk", type=int, default=56)
    parser.add_argument("--compile", choices=("none", "layers", "model"), default="model")
    parser.add_argument("--compile-mode", default="default", help="mode of torch.compile; reduce-overhead uses CUDA graphs")
    parser.add_argument("--text", action="store_true", help="measure a byte model of text with pre-norm and gelu")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    measure.add_common_options(parser)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch = measure.prepare(options)
    import_rss = measure.peak_rss()
    from model import ImageModel, ModelConfig
    from radam import RAdam, clip_per_tensor
    from text_model import TextModel

    config = ModelConfig.of_options(
        options,
        attention=options.attention,
        form=options.form,
        chunk=options.chunk,
        dropout=options.dropout,
        norm="pre" if options.text else "post",
        activation="gelu" if options.text else "relu",
    )
    model = TextModel(config, 256) if options.text else ImageModel(config)
    if options.text:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    else:
        optimizer = RAdam(model.parameters(), lr=1e-4, weight_decay=0.01)
    images = torch.randint(0, 256, (options.batch, options.length + 1), dtype=torch.uint8)

    loss_of = model.loss
    if options.compile == "layers":
        for layer in model.layers:
            layer.compile(mode=options.compile_mode)
    elif options.compile != "none":
        loss_of = torch.compile(model.loss, mode=options.compile_mode)

    def step():
        optimizer.zero_grad()
        with measure.mixed_precision(options):
            loss = loss_of(images)
        loss.backward()
        if options.text:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        else:
            clip_per_tensor(optimizer.parameters, 1.0)
        optimizer.step()

    measure.times(step, 0, options.warmup)
    measure.reset_peak()
    cpu = time.process_time()
    seconds = measure.times(step, options.steps, 0)
    cpu = (time.process_time() - cpu) / options.steps
    measure.report(
        benchmark="train_step",
        torch=torch.__version__,
        **{k: v for k, v in vars(options).items() if k != "seed"},
        parameters=sum(p.numel() for p in model.parameters()),
        seconds_per_step=measure.median(seconds),
        seconds_best=min(seconds),
        cpu_seconds_per_step=cpu,
        tokens_per_second=options.batch * options.length / measure.median(seconds),
        peak_rss_bytes=measure.peak_rss(),
        step_peak_bytes=measure.recent_peak(),
        import_rss_bytes=import_rss,
    )


if __name__ == "__main__":
    main()
