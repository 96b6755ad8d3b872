#!/usr/bin/env bash
# scripts/quickstart.sh: from a fresh clone to pictures that a model drew. Installs what is missing (Debian
# packages, through sudo if need be), builds the program, trains configs/quickstart.toml on Fashion-MNIST, evaluates
# it on the test images and draws a grid of samples. On two cores this takes less than ten minutes.
#
# A second call continues an interrupted training. If the training has reached its last step or its time limit, the
# call only evaluates and draws. Delete runs/quickstart to start anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=runs/quickstart
step() { printf '\n== %s\n' "$*" >&2; }

step "Packages"
scripts/install-packages.sh

step "Build"
# The CPU is enough here, and the kernels for devices would take longer to compile than the training takes.
cmake -S . -B build/quickstart -G Ninja -DCMAKE_BUILD_TYPE=Release -DTAPEFORMER_TESTS=OFF -DTAPEFORMER_CUDA=OFF \
  -DCMAKE_UNITY_BUILD=ON
cmake --build build/quickstart --parallel "$(nproc)"
tapeformer=build/quickstart/tapeformer

step "Training"
"$tapeformer" train configs/quickstart.toml --run-dir "$run" --resume

step "Evaluation on the test images"
"$tapeformer" eval "$run" --split test

step "Drawing"
"$tapeformer" generate "$run" --count 64 --out "$run/samples/quickstart.png"

step "Done. Samples of the model: $PWD/$run/samples/quickstart.png"
