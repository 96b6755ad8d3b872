#!/usr/bin/env bash
# setup.sh DIR: creates a virtual environment in DIR for benchmarks on the CPU, with the current PyTorch release,
# reformer-pytorch, and the packages that survey.py compares, all from PyPI. Repeated calls are allowed. The Linux
# wheel of PyTorch is built for CUDA, and importing it needs CUDA libraries even without a GPU. The script uses the
# libraries of an installed CUDA toolkit. For every other library that the import needs, it installs only the NVIDIA
# wheel that contains it, to save disk space.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: setup.sh DIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

[ -x "$1/bin/python" ] || "$python" -m venv "$1"
pip=("$1/bin/python" -m pip --disable-pip-version-check install --quiet)
"${pip[@]}" --no-deps "torch>=2.15"
"${pip[@]}" filelock "typing-extensions>=4.13" "setuptools>=77" "sympy>=1.13.3" networkx jinja2 fsspec numpy safetensors \
  2> >(grep -v -e "^torch .* requires" -e "dependency resolver" >&2)

installed=""
until error=$("$1/bin/python" -c "import torch" 2>&1); do
  error=$(tail -n 1 <<<"$error")
  if [ -z "$installed" ]; then
    # The metadata of this package contain the versions of most NVIDIA wheels. Without it, pip chooses the
    # versions.
    toolkit=$("$1/bin/python" "$here/wheels.py" toolkit)
    [ -z "$toolkit" ] || "${pip[@]}" --no-deps "$toolkit" || echo "setup.sh: no package $toolkit" >&2
  fi
  wheel=$("$1/bin/python" "$here/wheels.py" wheel "$error")
  if [ -z "$wheel" ] || [[ " $installed " == *" $wheel "* ]]; then
    echo "setup.sh: $error; installing torch with all its dependencies" >&2
    "${pip[@]}" torch
    "$1/bin/python" -c "import torch"
    break
  fi
  echo "setup.sh: torch needs $wheel" >&2
  "${pip[@]}" --no-deps "$wheel"
  installed="$installed $wheel"
done
# Without --no-deps, pip would install the dependencies of torch too.
"${pip[@]}" --no-deps reformer-pytorch axial-positional-embedding colt5-attention einops hyper-connections local-attention \
  packaging product-key-memory axial-attention linformer memory-compressed-attention mixture-of-experts \
  performer-pytorch routing-transformer sinkhorn-transformer
"${pip[@]}" transformers
"$1/bin/python" -c "import torch, safetensors; print('torch', torch.__version__, 'safetensors', safetensors.__version__)"
"$1/bin/python" -c "from reformer_pytorch import LSHAttention"
