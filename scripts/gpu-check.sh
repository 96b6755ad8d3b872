#!/usr/bin/env bash
# scripts/gpu-check.sh [BIN_DIR]: runs tests, compute-sanitizer and benchmarks on a CUDA device and writes the results to
# docs/results/gpu.json, from which it makes gpu.md. Needs no network and no compiler. BIN_DIR contains the programs
# tapeformer, test_core, test_ops, test_models, test_train and test_distributed (default: build/release and its tests).
# Environment variables:
#   OUT     the JSON file to write; the page is beside it
#   PYTHON  an interpreter (default: python3); if it has PyTorch, PyTorch's benchmarks run beside Tapeformer's
#   PARTS   the parts to run (default: "tests sanitizer training benchmarks")
#   LIMIT   the time limit of one command in seconds (default: 600)
#   DEVICE  the device (default: cuda); cuda-emulated runs everything at small sizes on the CPU, to test this script
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=${1:-build/release}
out=${OUT:-docs/results/gpu.json}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
limit=${LIMIT:-600}
parts=${PARTS:-tests sanitizer training benchmarks}
for part in $parts; do
  [[ " tests sanitizer training benchmarks " == *" $part "* ]] ||
    { echo "gpu-check: PARTS has \"$part\", expected tests, sanitizer, training or benchmarks" >&2; exit 2; }
done
program() {
  for path in "$bin/$1" "$bin/bin/$1" "$bin/tests/${1#test_}/$1" "$bin/tests/train/${1#test_}/$1"; do
    [ -x "$path" ] && { echo "$path"; return; }
  done
  echo "gpu-check: no program $1 under $bin" >&2
  exit 2
}
tapeformer=$(program tapeformer) test_core=$(program test_core) test_ops=$(program test_ops)
test_models=$(program test_models) test_train=$(program test_train) test_distributed=$(program test_distributed)

"$tapeformer" info --device "$device" >/dev/null || exit $?  # status 4 means that the device cannot be used
mkdir -p "$(dirname "$out")"
record=$(mktemp -d)
trap 'rm -rf "$record"' EXIT
failed=0 sections=0
# section TITLE COMMAND…: records the output of a command under a title. Records a failure of the command.
section() {
  local title=$1 status=0 stem
  shift
  sections=$((sections + 1))
  stem=$record/$sections
  printf '%s' "$title" >"$stem.title"
  printf '%s' "$*" >"$stem.command"
  if [ "$(type -t "$1")" = function ]; then
    "$@" >"$stem.output" 2>&1 || status=$?
  else
    timeout "$limit" "$@" >"$stem.output" 2>&1 || status=$?  # 124: took too long
  fi
  printf '%s' "$status" >"$stem.status"
  if [ "$status" -ne 0 ]; then
    echo "gpu-check: $title failed ($status)" >&2
    failed=1
  fi
}
# Prints that a section was not run, with the reason. Called by section.
# shellcheck disable=SC2317
not_run() { echo "Not run: $*."; }

section "Machine" "$tapeformer" info
small=()
batches="10 256" cifar_batches="4 64" drawn_batches="1 4096" longest=65536
if [ "$device" = cuda-emulated ]; then
  small=(--set model.layers=1 --set model.heads=1 --set model.feedforward=16 --set data.batch_size=1)
  batches=1 cifar_batches="" drawn_batches=2 longest=512
fi

part_tests() {
  section "Tests of core on the device" "$test_core" -tc='cuda:*'
  section "Tests of ops on the device" "$test_ops" -tc='cuda:*'
  section "Tests of ops, with a synchronization after each kernel" env TAPEFORMER_CUDA_SYNC=1 "$test_ops" -tc='cuda:*'
  section "Sampling on the device and on the CPU" "$test_models" -tc='cuda:*'
  section "Training on the device and on the CPU, and memory leaks" "$test_train" -tc='cuda:*'
  section "Training steps with NCCL in one process" "$test_distributed" -tc='cuda:*'
}

part_sanitizer() {
  local tool
  if ! command -v compute-sanitizer >/dev/null; then
    section "compute-sanitizer" not_run "compute-sanitizer is not installed"
    return
  fi
  for tool in memcheck initcheck racecheck synccheck; do
    section "compute-sanitizer $tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$test_ops" -tc='cuda:*'
  done
}

# Prints the number of each step with its loss on the CPU and on the device. Fails if the relative difference of two
# losses exceeds 1e-3 or if a step is missing.
# shellcheck disable=SC2317  # called by section
agree() {
  local run
  for run in cpu device; do
    sed -n 's/.*"step":\([0-9]*\).*"split":"train".*"loss_nats":\([^,}]*\).*/\1 \2/p' "$runs/$run/metrics.jsonl" |
      sort >"$runs/$run.losses"
  done
  join "$runs/cpu.losses" "$runs/device.losses" | sort -n |
    awk '{ print; d = $2 - $3; if (d < 0) d = -d; if (!($2 + 0 > 0 && $3 + 0 > 0 && d <= 1e-3 * $2)) bad = 1 } END { exit bad || NR != 20 }'
}
part_training() {
  local train=("$tapeformer" train configs/copy/linear.toml "${small[@]}" --set train.steps=20 --set train.log_every=1
    --set train.eval_every=0 --set train.checkpoint_every=0)
  runs=$(mktemp -d)
  section "20 steps on the CPU" "${train[@]}" --device cpu --run-dir "$runs/cpu"
  section "20 steps on the device" "${train[@]}" --device "$device" --run-dir "$runs/device"
  section "Step, loss on the CPU, loss on the device" agree
  rm -rf "$runs"
}

# Functions that run a benchmark of Tapeformer, and the benchmark of the same computation in PyTorch if it was found.
bench_tapeformer() { section "$1" "$tapeformer" bench "${@:2}" --device "$device"; }
bench_torch() {
  if [ -n "$has_torch" ]; then section "$1, PyTorch" "$python" "tests/bench/peers/$2" --device cuda "${@:3}"; fi
}
part_benchmarks() {
  local batch dtype graphs settings each fast=(--compile-mode reduce-overhead --precision bfloat16 --chunk 64)
  has_torch=$("$python" -c "import torch; print('yes' if torch.cuda.is_available() else '')" 2>/dev/null) || has_torch=""
  [ -n "$has_torch" ] || section "PyTorch" not_run "PyTorch was not found"
  for batch in $batches; do
    for settings in run.precision=float32 run.tf32=true run.precision=bfloat16 "run.precision=bfloat16 run.cuda_graphs=false"; do
      read -ra each <<<"${settings//run/--set run}"
      bench_tapeformer "Training step, MNIST, linear attention, batch $batch, $settings" train-step --config configs/mnist/linear.toml \
        --set data.batch_size="$batch" "${each[@]}" "${small[@]}"
    done
    bench_tapeformer "Estimated cost of the training step, MNIST, linear attention, batch $batch, bfloat16" device-cost \
      --config configs/mnist/linear.toml --batch "$batch" --precision bfloat16 "${small[@]}"
    bench_torch "Training step, MNIST, linear attention, batch $batch" train_step.py --batch "$batch" --dropout 0.1 "${fast[@]}"
  done
  for batch in $cifar_batches; do
    bench_tapeformer "Training step, CIFAR-10, linear attention, batch $batch" train-step --config configs/cifar10/linear.toml \
      --set data.batch_size="$batch" --set run.precision=bfloat16
    bench_torch "Training step, CIFAR-10, linear attention, batch $batch" train_step.py --layers 16 --length 3071 --batch "$batch" \
      --dropout 0.1 "${fast[@]}"
  done
  for batch in $drawn_batches; do
    for graphs in true false; do
      bench_tapeformer "Sampling, MNIST, linear attention, batch $batch, run.cuda_graphs=$graphs" generate \
        --config configs/mnist/linear.toml --batch "$batch" --set run.cuda_graphs="$graphs" "${small[@]}"
    done
    bench_torch "Sampling, MNIST, linear attention, batch $batch" generate.py --batch "$batch" --compile-mode reduce-overhead \
      --precision bfloat16
  done
  if [ "$device" != cuda-emulated ]; then
    for batch in 1 512; do
      bench_tapeformer "Sampling, CIFAR-10, linear attention, batch $batch" generate --config configs/cifar10/linear.toml --batch "$batch"
    done
  fi
  for dtype in float32 bfloat16; do
    bench_tapeformer "Attention in $dtype, forward and backward, by length" attention --longest "$longest" --dtype "$dtype"
  done
  bench_torch "Attention, forward and backward, by length" attention.py --kinds linear,softmax --head-dim 64 --precision bfloat16
  bench_torch "Attention, forward and backward, flash-linear-attention" attention.py --kinds fla --head-dim 64 \
    --precision bfloat16
  [ "$device" = cuda-emulated ] || bench_tapeformer "Bi-LSTM, forward and backward" lstm --frames 800
}

for part in $parts; do
  case $part in
    tests) part_tests ;;
    sanitizer) part_sanitizer ;;
    training) part_training ;;
    benchmarks) part_benchmarks ;;
  esac
done
"$python" scripts/results.py --device "$record" "$out"
echo "gpu-check: wrote $out and ${out%.json}.md"
exit "$failed"
