#!/usr/bin/env bash
# scripts/quickstart-text.sh: trains a language model from a fresh clone and writes samples. Installs missing Debian packages
# (with sudo if necessary), builds the program and writes the King James Bible from the package bible-kjv-text to a file.
# Then trains configs/quickstart-text.toml, evaluates the model and continues a prompt. On two cores this takes less than ten
# minutes.
#
# A second call continues an interrupted training. If the training has reached its last step or its time limit, the call only
# evaluates the model and continues the prompt. Delete runs/quickstart-text to start anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=runs/quickstart-text text=build/quickstart/kjv.txt
# shellcheck source=scripts/quickstart-build.sh
. scripts/quickstart-build.sh

step "Text"
scripts/kjv-text.sh > "$text"

step "Training"
"$tapeformer" train configs/quickstart-text.toml --run-dir "$run" --resume

step "Evaluation on the last twentieth of the text"
"$tapeformer" eval "$run" --split test

step "Samples"
"$tapeformer" generate "$run" --prompt "And it came to pass" --temperature 0.8 --count 3
