"""Prints the name of the NVIDIA wheel that `import torch` needs, with the version that torch requires.

The wheel of PyTorch requires some NVIDIA wheels directly and the others through extras of the package cuda-toolkit, which
contains only metadata. The script setup.sh runs `wheels.py toolkit` and `wheels.py wheel ERROR`.
"""

import re
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires

# Patterns in the message of an ImportError: a missing library or, if the installed library is too old, the prefix of a
# missing symbol.
WHEELS = {
    "libcublas|symbol: cublas": "nvidia-cublas",
    "libcudart|symbol: cuda": "nvidia-cuda-runtime",
    "libcudnn|symbol: cudnn": "nvidia-cudnn-cu13",
    "libcufft|symbol: cufft": "nvidia-cufft",
    "libcufile|symbol: cuFile": "nvidia-cufile",
    "libcupti|symbol: cupti": "nvidia-cuda-cupti",
    "libcusolver|symbol: cusolver": "nvidia-cusolver",
    "libcusparseLt|symbol: cusparseLt": "nvidia-cusparselt-cu13",
    "libcusparse|symbol: cusparse": "nvidia-cusparse",
    "libnccl|symbol: nccl": "nvidia-nccl-cu13",
    "libnvJitLink|symbol: nvJitLink": "nvidia-nvjitlink",
    "libnvrtc|symbol: nvrtc": "nvidia-cuda-nvrtc",
    "libnvshmem|symbol: nvshmem": "nvidia-nvshmem-cu13",
    "libnvToolsExt|symbol: nvtx": "nvidia-nvtx",
}


def wheel_of(error: str) -> str:
    """Returns the wheel for the message of an ImportError, or an empty string if the message names no NVIDIA library."""
    return next((wheel for pattern, wheel in WHEELS.items() if re.search(pattern, error)), "")


def requirement(name: str, requirements: Iterable[str]) -> str:
    """Returns the first of the requirements that names the package, as "name==version" without extras and markers.

    Returns an empty string if no requirement names the package.
    """
    for line in requirements:
        match = re.match(r"([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*([^;]*)", line)
        if match and match[1].lower() == name:
            return match[1] + match[2].strip()
    return ""


def requirements_of(package: str) -> list[str]:
    """Returns the requirements of an installed package, or an empty list if it is not installed."""
    try:
        return requires(package) or []
    except PackageNotFoundError:
        return []


def main() -> None:
    if sys.argv[1] == "toolkit":
        print(requirement("cuda-toolkit", requirements_of("torch")))
        return
    wheel = wheel_of(sys.argv[2])
    known = requirements_of("torch") + requirements_of("cuda-toolkit")
    print(wheel and (requirement(wheel, known) or wheel))


if __name__ == "__main__":
    main()
