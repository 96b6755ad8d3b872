"""Benchmark of data-parallel training of the image model with DistributedDataParallel and gloo.

Start it with mpirun: mpirun -n 2 DIR/bin/python distributed.py --threads 1. Each process computes its part of the batch. The
benchmark compares a step of all processes with a step without communication, as `tapeformer bench distributed` does.
"""

import argparse
import contextlib
import os
import time

import measure


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    measure.add_model_options(parser)
    parser.add_argument("--batch", type=int, default=10, help="sequences per step, summed over all processes")
    parser.add_argument("--length", type=int, default=783)
    parser.add_argument("--chunk", type=int, default=56)
    parser.add_argument("--compile", choices=("none", "model"), default="none")
    parser.add_argument("--repeats", type=int, default=7)
    measure.add_common_options(parser)
    return parser.parse_args()


def main() -> None:
    options = parse()
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        raise SystemExit("distributed.py: start it with mpirun -n 2 DIR/bin/python distributed.py --threads 1")
    torch = measure.prepare(options)
    from model import ImageModel, ModelConfig
    from radam import RAdam, clip_per_tensor

    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=size)

    config = ModelConfig.of_options(options, chunk=options.chunk)

    class Loss(torch.nn.Module):
        """A module whose forward() returns the loss, because DistributedDataParallel synchronizes calls of forward()."""

        def __init__(self) -> None:
            super().__init__()
            self.model = ImageModel(config)

        def forward(self, images):
            return self.model.loss(images)

    module = Loss()
    parallel = torch.nn.parallel.DistributedDataParallel(module)
    loss_of = torch.compile(parallel) if options.compile == "model" else parallel
    optimizer = RAdam(module.parameters(), lr=1e-4, weight_decay=0.01)
    images = torch.randint(0, 256, (options.batch // size, options.length + 1), dtype=torch.uint8)

    def step(together: bool) -> None:
        with contextlib.nullcontext() if together else parallel.no_sync():
            loss = loss_of(images)
            loss.backward()
        clip_per_tensor(optimizer.parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def slowest(action) -> float:
        torch.distributed.barrier()
        start = time.perf_counter()
        action()
        seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
        torch.distributed.all_reduce(seconds, torch.distributed.ReduceOp.MAX)
        return seconds.item()

    together, alone = [], []
    for repeat in range(-1, options.repeats):
        both = slowest(lambda: step(True)), slowest(lambda: step(False))
        if repeat >= 0:
            together.append(both[0])
            alone.append(both[1])
    if rank == 0:
        ratios = [limit / seconds for limit, seconds in zip(alone, together)]
        measure.report(
            benchmark="distributed",
            torch=torch.__version__,
            processes=size,
            threads_per_process=options.threads,
            batch=options.batch,
            seconds_together=measure.median(together),
            seconds_alone=measure.median(alone),
            ratio_to_limit=measure.median(ratios),
            lowest_ratio=min(ratios),
            highest_ratio=max(ratios),
        )
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
