"""What the benchmarks share: threads, time, memory and one JSON object on standard output."""

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


def add_common_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--malloc", choices=("keep", "system"), default="keep", help="keep freed memory, or glibc as it comes"
    )


def prepare(options: argparse.Namespace):
    """Sets allocator, threads and seed, and returns torch. The allocator is chosen at the start of a process, so with
    --malloc keep the program starts itself once more. Must be called before torch is imported by anyone else.
    """
    if options.malloc == "keep" and "glibc.malloc" not in os.environ.get("GLIBC_TUNABLES", ""):
        os.environ["GLIBC_TUNABLES"] = KEEP_MEMORY
        os.execv(sys.executable, [sys.executable, *sys.argv])
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    return torch


def peak_rss() -> int:
    """Peak resident bytes of the process since it began."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak() -> None:
    """Lets recent_peak_rss count from here on, so that compilation and set-up are not in it."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def recent_peak_rss() -> int:
    """Peak resident bytes since forget_peak."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def current_rss() -> int:
    """Resident bytes now, after freed memory went back to the system."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def times(action: Callable[[], object], repeats: int, warmup: int) -> list[float]:
    """Seconds of each of `repeats` calls after `warmup` unmeasured ones."""
    for _ in range(warmup):
        action()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return seconds


def median(values: list[float]) -> float:
    return statistics.median(values)


def report(**fields) -> None:
    print(json.dumps(fields))
