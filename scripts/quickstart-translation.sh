#!/usr/bin/env bash
# scripts/quickstart-translation.sh: trains a translation model from a fresh clone and translates sentences. Installs missing
# Debian packages (with sudo if necessary), builds the program and writes the English and the Spanish Bible from the packages
# sword-text-web and sword-text-sparv to files. Then trains configs/quickstart-translation.toml, computes BLEU on chapters that
# the model has not seen, and translates five sentences. On two cores this takes about 15 minutes.
#
# A second call continues an interrupted training. If the training has reached its last step or its time limit, the call only
# evaluates the model and translates the sentences. Delete runs/quickstart-translation to start anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=runs/quickstart-translation
# shellcheck source=scripts/quickstart-build.sh
. scripts/quickstart-build.sh

step "Pairs of verses"
scripts/bible-pairs.sh build/quickstart
wc -l build/quickstart/bible.*.en >&2

step "Training"
"$tapeformer" train configs/quickstart-translation.toml --run-dir "$run" --resume

step "Evaluation on chapters that are not in the training text"
"$tapeformer" eval "$run" --split test

step "Translations"
sentences='The king went out of the city with his people.
The woman gave them bread and water.
Why are you afraid, my children?
Then the old man said to his sons, “Bring me your brother.”
I have seen the light of the morning in the wilderness.'
paste -d '\n' - <("$tapeformer" translate "$run" <<<"$sentences") <<<"$sentences"
