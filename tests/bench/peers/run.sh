#!/usr/bin/env bash
# run.sh [DIR] [--pairs A,B] [--rounds N] [--threads N] [--out OUT] [--program FILE]: compares Tapeformer with PyTorch.
# If a package is missing in DIR (default: .cache/peers), calls setup.sh. Then runs run.py.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$here/../../../.cache/peers
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
  dir=$1
  shift
fi
for word in "$@"; do
  case "$word" in -h|--help) exec python3 "$here/run.py" --help ;; esac
done
if ! "$dir/bin/python" -c "import torch, reformer_pytorch, linformer; from importlib import metadata; metadata.version('transformers')" 2>/dev/null; then
  "$here/setup.sh" "$dir" >&2
fi
exec "$dir/bin/python" "$here/run.py" "$@"
