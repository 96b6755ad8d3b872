#!/usr/bin/env bash
# scripts/gpu-check.sh [BIN_DIR]: on a machine with a CUDA device, runs the device's tests, the sanitizer and the benchmarks,
# and writes docs/results/gpu.md (or the file that OUT names). Needs neither network nor compiler: BIN_DIR holds the programs
# tapeformer, test_core and test_ops (default: build/release and its tests).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=${1:-build/release}
out=${OUT:-docs/results/gpu.md}
program() {
  for path in "$bin/$1" "$bin/bin/$1" "$bin/tests/${1#test_}/$1"; do
    [ -x "$path" ] && { echo "$path"; return; }
  done
  echo "gpu-check: no program $1 under $bin" >&2
  exit 2
}
tapeformer=$(program tapeformer) test_core=$(program test_core) test_ops=$(program test_ops)

"$tapeformer" info --device cuda >/dev/null || exit $?  # 4: no device, or none that this build has code for
mkdir -p "$(dirname "$out")"
report=$(mktemp)
trap 'rm -f "$report"' EXIT
failed=0
# section TITLE COMMAND…: a command's output under its title; a failure is counted and shown.
# shellcheck disable=SC2016  # the backquotes are Markdown
section() {
  local title=$1 status=0
  shift
  printf '\n## %s\n\n`%s`\n\n```\n' "$title" "$*" >>"$report"
  "$@" >>"$report" 2>&1 || status=$?
  printf '```\n' >>"$report"
  if [ "$status" -ne 0 ]; then
    printf '\n**Failed with exit status %s.**\n' "$status" >>"$report"
    echo "gpu-check: $title failed ($status)" >&2
    failed=1
  fi
}

# shellcheck disable=SC2016
printf '# CUDA backend on a device\n\nWritten by `scripts/gpu-check.sh` on %s.\n' "$(date -u +%F)" >"$report"
section "Machine" "$tapeformer" info
section "Tests of the core on the device" "$test_core" -tc='cuda:*'
section "Tests of ops on the device" "$test_ops" -tc='cuda:*'
section "The same, waiting after each kernel" env TAPEFORMER_CUDA_SYNC=1 "$test_ops" -tc='cuda:*'
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck synccheck; do
    section "compute-sanitizer $tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$test_ops" -tc='cuda:*'
  done
else
  printf '\ncompute-sanitizer is not on this machine, so it was not run.\n' >>"$report"
fi
train=("$tapeformer" train configs/copy/linear.toml --set train.steps=20 --set train.log_every=1 --set train.eval_every=0
  --set train.checkpoint_every=0)
runs=$(mktemp -d)
section "20 steps on the CPU" "${train[@]}" --device cpu --run-dir "$runs/cpu"
section "20 steps on the device" "${train[@]}" --device cuda --run-dir "$runs/cuda"
# Step, loss on the CPU, loss on the device; fails beyond a relative difference of 1e-3 and on missing steps.
# shellcheck disable=SC2317  # called by section
agree() {
  local device
  for device in cpu cuda; do
    sed -n 's/.*"step":\([0-9]*\).*"split":"train".*"loss_nats":\([^,}]*\).*/\1 \2/p' "$runs/$device/metrics.jsonl" |
      sort >"$runs/$device.losses"
  done
  join "$runs/cpu.losses" "$runs/cuda.losses" | sort -n |
    awk '{ print; d = $2 - $3; if (d < 0) d = -d; if (d > 1e-3 * $2) bad = 1 } END { exit bad || NR != 20 }'
}
section "Step, loss on the CPU, loss on the device" agree
rm -rf "$runs"
for graphs in true false; do # launches of a step and of a position of decoding, repeated and one by one
  for config in mnist cifar10; do
    measure=(--device cuda --config "configs/$config/linear.toml" --set "run.cuda_graphs=$graphs")
    section "Training step, $config, cuda_graphs = $graphs" "$tapeformer" bench train-step "${measure[@]}"
    section "Generation, $config, cuda_graphs = $graphs" "$tapeformer" bench generate "${measure[@]}"
  done
  for precision in run.tf32=true run.precision=bfloat16; do
    section "Training step, cifar10, $precision, cuda_graphs = $graphs" "$tapeformer" bench train-step --device cuda \
      --config configs/cifar10/linear.toml --set "run.cuda_graphs=$graphs" --set "$precision"
  done
done
section "Attention at doubling lengths" "$tapeformer" bench attention --device cuda
if [ -e "$out" ]; then # registers and shared memory stay below the figures
  printf '\n' >>"$report"
  sed -n '/^## What the compiler says$/,$p' "$out" >>"$report"
fi
mv "$report" "$out"
trap - EXIT
echo "gpu-check: wrote $out"
exit "$failed"
