#!/usr/bin/env bash
# scripts/quickstart-build.sh: the common part of the other quickstart scripts, which source it in the root of the tree.
# Installs missing Debian packages, builds the program, and sets `tapeformer` to its path.
step() { printf '\n== %s\n' "$*" >&2; }

step "Packages"
scripts/install-packages.sh

step "Build"
# Builds without CUDA, because compiling the kernels takes longer than the training.
cmake -S . -B build/quickstart -G Ninja -DCMAKE_BUILD_TYPE=Release -DTAPEFORMER_TESTS=OFF -DTAPEFORMER_CUDA=OFF \
  -DCMAKE_UNITY_BUILD=ON
cmake --build build/quickstart --parallel "$(nproc)"
# shellcheck disable=SC2034  # the calling scripts use it
tapeformer=build/quickstart/tapeformer
