"""Shared code of the benchmarks: device, threads, precision, time, memory and the JSON output."""

import argparse
import ctypes
import gc
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable

# glibc returns large freed blocks to the kernel. PyTorch has no cache for CPU memory, so every large tensor
# causes page faults again. These settings keep freed memory and use huge pages.
KEEP_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592:glibc.malloc.hugetlb=1"

cuda = None  # torch.cuda if prepare() was called for a device


def add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--precision", choices=("float32", "tf32", "bfloat16"), default="float32", help="bfloat16 means torch.autocast"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--malloc", choices=("keep", "system"), default="keep", help="keep: glibc keeps freed memory; system: its defaults"
    )


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds options for the sizes of the model, which ModelConfig.of_options() reads."""
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=32)
    parser.add_argument("--feedforward", type=int, default=1024)


def prepare(options: argparse.Namespace):
    """Sets the allocator, threads, seed, default device and precision of float32 products. Imports and returns torch.

    glibc reads its settings at the start of a process, so --malloc keep restarts the program. This function must be called
    before the first import of torch.
    """
    if options.malloc == "keep" and "glibc.malloc" not in os.environ.get("GLIBC_TUNABLES", ""):
        os.environ["GLIBC_TUNABLES"] = KEEP_MEMORY
        os.execv(sys.executable, [sys.executable, *sys.argv])
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("highest" if options.precision == "float32" else "high")
    torch.set_default_device(options.device)
    if options.device == "cuda":
        global cuda
        cuda = torch.cuda
    return torch


def mixed_precision(options: argparse.Namespace):
    """Returns the context in which losses are computed: torch.autocast, enabled for --precision bfloat16."""
    import torch

    return torch.autocast(options.device, torch.bfloat16, enabled=options.precision == "bfloat16")


def peak_rss() -> int:
    """Returns the peak resident bytes of the process since its start."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def reset_peak() -> None:
    """Resets the peak that recent_peak() returns, for example after compilation."""
    if cuda:
        cuda.reset_peak_memory_stats()
        return
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def recent_peak() -> int:
    """Returns the peak in bytes since reset_peak(): the memory of tensors on a device, else the resident memory."""
    if cuda:
        return cuda.max_memory_allocated()
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def current() -> int:
    """Returns the bytes in use, in the measure of recent_peak(). On the CPU, first frees memory that is not in use."""
    gc.collect()
    if cuda:
        return cuda.memory_allocated()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def times(action: Callable[[], object], repeats: int, warmup: int) -> list[float]:
    """Returns the seconds of each of `repeats` calls, after `warmup` calls. A call ends when the device has finished."""
    wait = cuda.synchronize if cuda else lambda: None
    for _ in range(warmup):
        action()
    wait()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        wait()
        seconds.append(time.perf_counter() - start)
    return seconds


def median(values: list[float]) -> float:
    return statistics.median(values)


def report(**fields) -> None:
    print(json.dumps(fields))
