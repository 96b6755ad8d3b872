#!/usr/bin/env bash
# scripts/install-packages.sh [test]: installs with apt-get what building and running Tapeformer needs, and with
# "test" also what only the tests use. What is there already stays as it is; with nothing missing, apt-get is not
# called and the network not touched.
set -euo pipefail

packages=(
  g++ cmake ninja-build
  libopenblas-openmp-dev   # BLAS whose threads are OpenMP's, like ours
  libspdlog-dev            # log
  libfmt-dev               # text of charts
  libcxxopts-dev           # command line
  libtomlplusplus-dev      # config files
  nlohmann-json3-dev       # metrics, safetensors headers
  zlib1g-dev libpng-dev    # data sets, pictures
  libssl-dev               # SHA-256
  libsndfile1-dev          # audio files
  libsamplerate0-dev       # resampling
  libkissfft-dev           # Fourier transforms
  espeak-ng                # synthetic speech, as a separate program
  librsvg2-bin             # charts as PDF, as a separate program
  libcurl4-openssl-dev     # downloading data sets
  dataset-fashion-mnist    # the data of configs/quickstart.toml
)
test_packages=(
  doctest-dev libboost-context-dev  # tests, and the threads of the emulated CUDA device
  clang-format shellcheck sctk
  python3                  # tests/fuzz
)

case "${1:-}" in
  "") ;;
  test) packages+=("${test_packages[@]}") ;;
  *) echo "usage: scripts/install-packages.sh [test]" >&2; exit 2 ;;
esac

say() { printf '%s\n' "install-packages: $*" >&2; }

if ! command -v apt-get >/dev/null; then
  say "no apt-get here; on another system install the equivalents of: ${packages[*]}"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    say "packages are missing, and neither root nor sudo is at hand to install them. As root, run:"
    say "  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    exit 1
  fi
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

say "installing ${missing[*]}"
apt update
apt install -y --no-install-recommends "${missing[@]}"
