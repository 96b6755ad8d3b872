#!/usr/bin/env bash
# scripts/quickstart.sh: trains an image model from a fresh clone and draws samples. Installs missing Debian packages
# (with sudo if necessary) and builds the program. Then trains configs/quickstart.toml on Fashion-MNIST, evaluates the
# model on the test images and draws a grid of samples. On two cores this takes less than ten minutes.
#
# A second call continues an interrupted training. If the training has reached its last step or its time limit, the
# call only evaluates the model and draws samples. Delete runs/quickstart to start anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=runs/quickstart
# shellcheck source=scripts/quickstart-build.sh
. scripts/quickstart-build.sh

step "Training"
"$tapeformer" train configs/quickstart.toml --run-dir "$run" --resume

step "Evaluation on the test images"
"$tapeformer" eval "$run" --split test

step "Drawing"
"$tapeformer" generate "$run" --count 64 --out "$run/samples/quickstart.png"

step "Done. Samples: $PWD/$run/samples/quickstart.png"
