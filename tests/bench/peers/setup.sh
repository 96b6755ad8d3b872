#!/usr/bin/env bash
# setup.sh DIR: creates a virtual environment in DIR with the current PyTorch release from PyPI, for the CPU. It can be
# run repeatedly. The Linux wheel of PyPI is the CUDA build, and `import torch` needs CUDA libraries even without a GPU.
# The script uses libraries of an installed CUDA toolkit. For every other library that the import needs, it installs only
# the NVIDIA wheel that contains it, without Triton, cuSOLVER and drivers.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: setup.sh DIR" >&2; exit 2; }
python=${PYTHON:-python3}

[ -x "$1/bin/python" ] || "$python" -m venv "$1"
pip=("$1/bin/python" -m pip --disable-pip-version-check install --quiet)
"${pip[@]}" --no-deps "torch>=2.15"
"${pip[@]}" filelock "typing-extensions>=4.13" "setuptools>=77" "sympy>=1.13.3" networkx jinja2 fsspec numpy safetensors \
  2> >(grep -v -e "^torch .* requires" -e "dependency resolver" >&2)

# Prints the wheel for an ImportError, which names a missing file ("libnccl.so.2: cannot open") or, if the library of the
# system is too old, a missing symbol ("undefined symbol: ncclCommResume").
wheel_of() {
  case "$1" in
    *libcublas*|*"symbol: cublas"*) echo nvidia-cublas ;;
    *libcudart*|*"symbol: cuda"*) echo nvidia-cuda-runtime ;;
    *libcudnn*|*"symbol: cudnn"*) echo nvidia-cudnn-cu13 ;;
    *libcufft*|*"symbol: cufft"*) echo nvidia-cufft ;;
    *libcufile*|*"symbol: cuFile"*) echo nvidia-cufile ;;
    *libcupti*|*"symbol: cupti"*) echo nvidia-cuda-cupti ;;
    *libcusparseLt*|*"symbol: cusparseLt"*) echo nvidia-cusparselt-cu13 ;;
    *libcusparse*|*"symbol: cusparse"*) echo nvidia-cusparse ;;
    *libnccl*|*"symbol: nccl"*) echo nvidia-nccl-cu13 ;;
    *libnvJitLink*|*"symbol: nvJitLink"*) echo nvidia-nvjitlink ;;
    *libnvrtc*|*"symbol: nvrtc"*) echo nvidia-cuda-nvrtc ;;
    *libnvshmem*|*"symbol: nvshmem"*) echo nvidia-nvshmem-cu13 ;;
  esac
}

# The version in the metadata of torch, if there is one.
pinned() {
  "$1/bin/python" - "$2" <<'PY'
import sys
from importlib.metadata import requires

pins = [r.split(";")[0].strip() for r in requires("torch") if r.startswith(sys.argv[1])]
print(pins[0] if pins else sys.argv[1] + "==13.*" if not sys.argv[1].endswith("cu13") else sys.argv[1])
PY
}

installed=""
until error=$("$1/bin/python" -c "import torch" 2>&1); do
  error=$(tail -n 1 <<<"$error")
  wheel=$(wheel_of "$error")
  if [ -z "$wheel" ] || [[ " $installed " == *" $wheel "* ]]; then
    echo "setup.sh: $error; installing torch with all its dependencies" >&2
    "${pip[@]}" torch
    "$1/bin/python" -c "import torch"
    break
  fi
  echo "setup.sh: torch needs $wheel" >&2
  "${pip[@]}" --no-deps "$(pinned "$1" "$wheel")"
  installed="$installed $wheel"
done
"$1/bin/python" -c "import torch, safetensors; print('torch', torch.__version__, 'safetensors', safetensors.__version__)"
