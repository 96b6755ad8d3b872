"""What the benchmarks share: machine, threads, precision, time, memory and one JSON object on standard output."""

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

# glibc gives large blocks back to the kernel when they are freed, and PyTorch on the CPU has no cache above malloc, so
# that every large tensor is paid for again with page faults. These settings keep the memory, in huge pages.
KEEP_MEMORY = "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592:glibc.malloc.hugetlb=1"

cuda = None  # torch.cuda, where a device is measured; set by prepare


def add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--precision", choices=("float32", "tf32", "bfloat16"), default="float32", help="bfloat16: torch.autocast"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--malloc", choices=("keep", "system"), default="keep", help="keep freed memory, or glibc as it comes"
    )


def prepare(options: argparse.Namespace):
    """Sets allocator, threads, seed, the machine of new tensors and the precision of products in float32, and returns
    torch. The allocator is chosen at the start of a process, so with --malloc keep the program starts itself once more.
    Must be called before torch is imported by anyone else.
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
    """The context in which losses are computed."""
    import torch

    return torch.autocast(options.device, torch.bfloat16, enabled=options.precision == "bfloat16")


def peak_rss() -> int:
    """Peak resident bytes of the process since it began."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak() -> None:
    """Lets recent_peak count from here on, so that compilation and set-up are not in it."""
    if cuda:
        cuda.reset_peak_memory_stats()
        return
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def recent_peak() -> int:
    """Peak bytes since forget_peak: those of tensors on a device, else resident ones."""
    if cuda:
        return cuda.max_memory_allocated()
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def current() -> int:
    """Bytes now, after freed memory went back to the system; of the same kind as recent_peak."""
    gc.collect()
    if cuda:
        return cuda.memory_allocated()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def times(action: Callable[[], object], repeats: int, warmup: int) -> list[float]:
    """Seconds of each of `repeats` calls after `warmup` unmeasured ones, the device's work included."""
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
