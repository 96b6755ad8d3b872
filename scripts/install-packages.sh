#!/usr/bin/env bash
# scripts/install-packages.sh [test]: installs the Debian packages that Tapeformer needs, and with "test" also the packages
# that only tests need. Names the optional packages that the release does not have, and installs the others. Installed
# packages are not changed. If no package is missing, the script does not call apt-get and does not use the network.
# With the environment variable OPTIONAL=none, it does not install optional packages.
set -euo pipefail

required=(
  g++ cmake ninja-build
  libopenblas-openmp-dev   # BLAS that uses OpenMP threads
  libspdlog-dev            # log of the command line
  libfmt-dev               # text of charts
  libcxxopts-dev           # command line
  libtomlplusplus-dev      # config files
  nlohmann-json3-dev       # metrics, safetensors headers
  zlib1g-dev libpng-dev    # data sets, pictures
  libarchive-dev           # archives of data sets
  libutf8proc-dev          # Unicode categories, for scores of translations
  libssl-dev               # SHA-256
  libsndfile1-dev          # audio files
  libsamplerate0-dev       # resampling
  libkissfft-dev           # Fourier transforms
)
optional=(
  libdnnl-dev              # oneDNN: matrix products with AVX-512 and AMX
  libjpeg-dev              # pictures
  espeak-ng                # synthetic speech, as a separate program
  librsvg2-bin             # charts as PDF, as a separate program
  libcurl4-openssl-dev     # downloading data sets
  libopenmpi-dev openmpi-bin  # training with several processes
  libsentencepiece-dev     # tokenizer of texts
  bible-kjv bible-kjv-text # the text of configs/quickstart-text.toml
  diatheke sword-text-web sword-text-sparv  # the texts of configs/quickstart-translation.toml
  dataset-fashion-mnist    # the data of configs/quickstart.toml
)
required_by_tests=(doctest-dev)
optional_in_tests=(
  libboost-context-dev     # fibers of the emulated CUDA device
  clang-format shellcheck
  valgrind                 # counts instructions
  sctk                     # scores of phonemes; not in Debian 13
  protobuf-compiler        # decodes TensorBoard event files
  python3                  # fuzzing
  nanobind-dev python3-dev python3-numpy python3-pytest  # the Python package; nanobind-dev is not in Debian 12
)

case "${1:-}" in
  "") ;;
  test) required+=("${required_by_tests[@]}") optional+=("${optional_in_tests[@]}") ;;
  *) echo "usage: scripts/install-packages.sh [test]" >&2; exit 2 ;;
esac

case "${OPTIONAL:-}" in
  "") ;;
  none) optional=() ;;
  *) echo "install-packages: OPTIONAL is neither empty nor none" >&2; exit 2 ;;
esac

say() { printf '%s\n' "install-packages: $*" >&2; }

if ! command -v apt-get >/dev/null; then
  say "apt-get not found; install the equivalents of these Debian packages: ${required[*]} ${optional[*]}"
  exit 0
fi

# Sets `missing` to those of the given packages that are not installed.
find_missing() {
  local package
  missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) == installed ]] || missing+=("$package")
  done
}
find_missing "${required[@]}" "${optional[@]}"
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi

as_root=()
if [[ $EUID -ne 0 ]]; then
  if ! command -v sudo >/dev/null; then
    say "packages are missing, and sudo is not installed. Run as root:"
    say "  apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    exit 1
  fi
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null; }

apt update
find_missing "${optional[@]}"
available=()
for package in "${missing[@]}"; do
  if [[ $(apt-cache policy "$package") == *"Candidate: "[0-9]* ]]; then
    available+=("$package")
  else
    say "$package is not available: what needs it is left out, and its tests are skipped"
  fi
done
find_missing "${required[@]}"
missing+=("${available[@]}")
if [[ ${#missing[@]} -eq 0 ]]; then
  exit 0
fi
say "installing ${missing[*]}"
apt install -y --no-install-recommends "${missing[@]}"
