#!/usr/bin/env bash
# scripts/gpu-check.sh [BIN_DIR]: tests and measures a CUDA device within a time budget. Writes a JSON file after each
# section, so an interrupted run keeps the finished sections. Needs no network, no compiler and no Python. BIN_DIR contains
# the program tapeformer and the test programs: a build folder, or an unpacked bundle with the folders bin and lib (default:
# build/release). `scripts/results.py --device` writes the page docs/results/gpu.md from the JSON files of one or several runs.
# Environment variables:
#   OUT     the JSON file to write (default: build/gpu-check.json)
#   TOTAL   the time budget of the run in seconds (default: 400). A section that does not fit is cut off or not run.
#   LIMIT   the time limit of one section in seconds (default: 300)
#   PARTS   the parts to run (default: "smoke tests families peers", a first contact). "families" measures a training step
#           and a generation of each family of models. Further parts: "training" (20 steps against the CPU), "benchmarks",
#           "sanitizer" (TOTAL=1500 for all), and "mnist", a training in bfloat16 with batch 256 that is not in TOTAL.
#   MNIST_MINUTES  minutes of the part "mnist" (default: 10). It evaluates about every minute and needs the data set.
#   PYTHON  an interpreter (default: python3). If it has PyTorch, the part "peers" runs PyTorch's benchmarks.
#   DEVICE  the device (default: cuda). cuda-emulated runs small sizes on the CPU, to test this script.
# Exit status: 0 if no section failed, 1 if a section failed or exceeded LIMIT, 2 for invalid arguments, 4 if the device cannot
# be used, 130 or 143 after a signal.
# shellcheck disable=SC2317  # parts and helpers are called by name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$(realpath -m "${1:-build/release}")
out=${OUT:-build/gpu-check.json}
total=${TOTAL:-400}
limit=${LIMIT:-300}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
mnist_minutes=${MNIST_MINUTES:-10}
all_parts="smoke tests families peers training benchmarks sanitizer mnist"
parts=${PARTS:-smoke tests families peers}

usage_error() { echo "gpu-check: $*" >&2; exit 2; }
for part in $parts; do
  [[ " $all_parts " == *" $part "* ]] || usage_error "PARTS has \"$part\", expected some of: $all_parts"
done
[[ $total =~ ^[1-9][0-9]*$ && $limit =~ ^[1-9][0-9]*$ ]] || usage_error "TOTAL and LIMIT must be seconds above 0"
[[ $mnist_minutes =~ ^[1-9][0-9]*$ ]] || usage_error "MNIST_MINUTES must be minutes above 0"

# Prints the path of a program, or nothing if BIN_DIR does not contain it.
path_of() {
  local path
  for path in "$bin/$1" "$bin/bin/$1" "$bin/tests/${1#test_}/$1" "$bin/tests/train/${1#test_}/$1"; do
    if [ -x "$path" ]; then echo "$path"; return; fi
  done
}
[ -n "$(path_of tapeformer)" ] || usage_error "no program tapeformer under $bin"

# Programs of a bundle find their libraries in lib. cuBLAS belongs to the CUDA toolkit or to the packages of PyTorch.
libraries=$bin/lib:${CUDA_PATH:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if nvcc=$(command -v nvcc); then libraries+=:$(dirname "$(dirname "$(readlink -f "$nvcc")")")/lib64; fi
run_program() { LD_LIBRARY_PATH=$libraries "$(path_of "$1")" "${@:2}"; }
check_device() { status=0; run_program tapeformer info --device "$device" >/dev/null || status=$?; }
check_device 2>/dev/null
if [ "$status" -eq 127 ]; then
  wheels="import glob, sys; print(':'.join(f for p in sys.path for f in glob.glob(p + '/nvidia/*/lib')))"
  libraries+=:$("$python" -c "$wheels" 2>/dev/null) || true
fi
check_device
if [ "$status" -eq 127 ]; then
  echo "gpu-check: a library is missing: add the folder of CUDA's libraries to LD_LIBRARY_PATH" >&2
  status=4
fi
if [ "$status" -ne 0 ]; then exit "$status"; fi

mkdir -p "$(dirname "$out")"
started=$(date -u +%FT%TZ)
device_name=$(run_program tapeformer info --json 2>/dev/null | grep -oE '"cuda[^"]*compute capability[^"]*"' | head -n 1 |
  tr -d '"') || true
commit=$(git rev-parse --short HEAD 2>/dev/null) || commit=""

# --- Results -----------------------------------------------------------------------------------------------------------

objects=() works=() running="" child="" failed=0 finished=false
declare -A count_of=([passed]=0 [failed]=0 ["timed out"]=0 ["cut off"]=0 ["not run"]=0 [interrupted]=0)
declare -A measured=() pytorch=()

# Sets `quoted` to a line of text as a JSON string. Starts no process, so it is fast.
quote() {
  quoted=${1//\\/\\\\}
  quoted=\"${quoted//\"/\\\"}\"
}
# Prints the output of a program as a JSON string. The middle of a long text is left out.
output_string() {
  local text
  text=$(tr -d '\000' | head -c 4000000)
  if [ "${#text}" -gt 24000 ]; then text="${text:0:8000}"$'\n[…]\n'"${text: -16000}"; fi
  printf '"%s"' "$(printf '%s' "$text" | { iconv -c -f UTF-8 -t UTF-8 2>/dev/null || true; } |
    LC_ALL=C sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' -e 's/[\x01-\x1f\x7f]//g' |
    LC_ALL=C awk '{ printf "%s%s", separator, $0; separator = "\\n" }')"
}

# Replaces the JSON file. Renaming is atomic, so a reader or a killed run always finds a complete file.
write_results() {
  local work separator="" quoted
  quote "$running"
  {
    printf '{"started": "%s", "finished": %s, "total_seconds": %s, "seconds": %s,\n' "$started" "$finished" "$total" "$SECONDS"
    printf ' "device": "%s", "commit": "%s",\n' "$device_name" "$commit"
    printf ' "running": %s,\n "comparisons": [' "$quoted"
    for work in "${works[@]}"; do
      quote "$work"
      # Whoever writes an estimate before a measurement puts it in this place.
      printf '%s\n  {"work": %s, "estimate_seconds": null, "measured_seconds": %s, "pytorch_seconds": %s}' "$separator" "$quoted" \
        "${measured[$work]:-null}" "${pytorch[$work]:-null}"
      separator=,
    done
    printf '],\n "sections": ['
    separator=""
    for work in "${objects[@]}"; do
      printf '%s\n  %s' "$separator" "$work"
      separator=,
    done
    printf ']}\n'
  } >"$out.new"
  mv -f "$out.new" "$out"
}

# add_result TITLE RESULT STATUS SECONDS COMMAND: records a section with the output in $out.running.
add_result() {
  local object quoted
  quote "$1"
  object="{\"part\": \"$part\", \"title\": $quoted, \"result\": \"$2\", \"status\": $3, \"seconds\": $4"
  quote "$5"
  objects+=("$object, \"command\": $quoted, \"output\": $(output_string <"$out.running")}")
  count_of[$2]=$((count_of[$2] + 1))
  running=""
  write_results
  printf 'gpu-check: %4d s  %s: %s (%d s)\n' "$SECONDS" "$1" "$2" "$4"
}

# --- Sections ----------------------------------------------------------------------------------------------------------

# Kills the running command, records its section as interrupted and exits.
interrupt() {
  trap '' TERM INT HUP
  if [ -n "$child" ]; then
    kill -TERM "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  if [ -n "$running" ]; then add_result "$running" interrupted "$1" $((SECONDS - section_start)) "$section_command"; fi
  write_results
  rm -f "$out.running"
  exit "$1"
}
trap 'interrupt 143' TERM HUP
trap 'interrupt 130' INT

# Sets `deadline`, the time in seconds at which the part must have ended. Each selected part has a share of the budget. Time
# that a part does not use goes to the next parts.
kill_seconds=3  # from the signal at a time limit to the kill
declare -A share=([smoke]=10 [tests]=35 [families]=25 [peers]=25 [training]=5 [benchmarks]=22 [sanitizer]=15 [mnist]=0)
set_deadline() {
  local name sum=0 before=0 reached=false
  for name in $parts; do
    sum=$((sum + share[$name]))
    if [ "$reached" = false ]; then before=$((before + share[$name])); fi
    if [ "$name" = "$1" ]; then reached=true; fi
  done
  deadline=$(((total - kill_seconds) * before / (sum > 0 ? sum : 1)))
}

# skip TITLE REASON: records that a section was not run.
skip() {
  last_result="not run"
  echo "Not run: $2." >"$out.running"
  add_result "$1" "not run" 0 0 ""
}

# section TITLE COMMAND…: runs a command and records its output. Names of programs in the command are replaced by their paths.
section() {
  local title=$1 status=0 seconds=$((deadline - SECONDS)) word words=() result=passed
  shift
  if [ "$seconds" -lt 1 ]; then skip "$title" "no time is left of the budget"; return; fi
  # A test that hangs leaves time for the others.
  if [ "$part" = tests ]; then seconds=$(((seconds + 1) / 2)); fi
  if [ "$seconds" -gt "$limit" ]; then seconds=$limit; fi
  section_command="$*" section_start=$SECONDS running=$title
  for word in "$@"; do
    case $word in
      tapeformer | test_core | test_ops | test_models | test_train | test_distributed)
        if [ -z "$(path_of "$word")" ]; then skip "$title" "$word is not in BIN_DIR"; return; fi
        words+=(env "LD_LIBRARY_PATH=$libraries" "$(path_of "$word")") ;;
      *) words+=("$word") ;;
    esac
  done
  write_results
  if [ "$(type -t "$1")" = function ]; then
    "$@" >"$out.running" 2>&1 &
  else
    timeout --kill-after="$kill_seconds" "$seconds" "${words[@]}" >"$out.running" 2>&1 </dev/null &
  fi
  child=$!
  wait "$child" || status=$?
  child=""
  if [[ $status == 124 || $status == 137 ]]; then result="timed out"; elif [ "$status" -ne 0 ]; then result=failed; fi
  if [[ $result == "timed out" && $seconds -lt $limit ]]; then result="cut off"; fi
  # Tests skip their checks if they find no device.
  if [ "$result" = passed ] && grep -qE '^\[doctest\] assertions: +0 ' "$out.running"; then result=failed; fi
  if [[ $result == failed || $result == "timed out" ]]; then failed=1; fi
  last_result=$result
  add_result "$title" "$result" "$status" $((SECONDS - section_start)) "$section_command"
}

# number_of KEY FACTOR: prints the last number with this key in the JSON output of the last section, times the factor.
# Prints nothing if there is no such number.
number_of() {
  [ "$last_result" = passed ] || return 0
  grep -oE "\"$1\": *[-+0-9.eE]+" "$out.running" | tail -n 1 | awk -F': *' -v factor="$2" '{ printf "%.9g", $2 * factor }'
}
# set_seconds KIND WORK SECONDS: stores a time of the benchmark WORK. KIND is measured or pytorch.
set_seconds() {
  if [[ -z ${measured[$2]:-}${pytorch[$2]:-} ]]; then works+=("$2"); fi
  case $1 in
    measured) measured[$2]=$3 ;;
    pytorch) pytorch[$2]=$3 ;;
  esac
  write_results
}

# print_comparison WORK: prints the measured time of a benchmark, and the time of PyTorch with its ratio.
print_comparison() {
  awk -v work="$1" -v ours="${measured[$1]:-0}" -v torch="${pytorch[$1]:-0}" '
    function ms(seconds) { return sprintf("%.4g ms", 1000 * seconds) }
    BEGIN {
      line = "           " work ": estimate –, " (ours > 0 ? "measured " ms(ours) : "not measured")
      if (torch > 0) line = line ", PyTorch " ms(torch)
      if (ours > 0 && torch > 0) line = line sprintf(" (PyTorch / measured %.2f)", torch / ours)
      print line
    }'
}

# measure KIND WORK KEY FACTOR COMMAND…: runs a benchmark whose time is KEY × FACTOR seconds. KIND is as in set_seconds.
measure() {
  local suffix="" value
  if [ "$1" = pytorch ]; then suffix=", PyTorch"; fi
  section "$2$suffix" "${@:5}"
  value=$(number_of "$3" "$4")
  if [ -z "$value" ]; then return; fi
  set_seconds "$1" "$2" "$value"
  print_comparison "$2"
}

# --- Parts -------------------------------------------------------------------------------------------------------------

small=() training_works="MNIST,mnist,256 CIFAR-10,cifar10,64 MNIST,mnist,10 CIFAR-10,cifar10,4"
sampling_works="MNIST,mnist,4096 CIFAR-10,cifar10,4096 MNIST,mnist,1 CIFAR-10,cifar10,1"
power=16 softmax_power=14 attention_sizes=() lstm_sizes=(--frames 800) sampled=128 op_parts=16 op_part=1/1
text_sizes=() repeats=() reformer_sizes=() speech_sizes=(--shortest 600 --longest 600) mnist_batch=256 mnist_images=1000 pair_sizes=()
if [ "$device" = cuda-emulated ]; then
  small=(--set model.layers=1 --set model.heads=1 --set model.feedforward=16)
  training_works=MNIST,mnist,1 sampling_works=MNIST,mnist,2
  power=6 softmax_power=6 attention_sizes=(--shortest 64 --heads 1 --head-dim 8 --repeats 1) sampled=4 op_parts=2 op_part=1/16
  lstm_sizes=(--frames 2 --batch 1 --hidden 16 --layers 1 --repeats 1)
  repeats=(--repeats 1) text_sizes=(--set data.sequence_length=32 --set data.batch_size=1) mnist_batch=1 mnist_images=1
  reformer_sizes=(--set data.max_length=64 --set model.axial_shape="[64]" --set attention.chunk_length=16 --set data.batch_size=1
    --set attention.rounds=1 --set model.layers=1 --set model.feedforward=16)
  speech_sizes=(--shortest 32 --longest 32 --frames 32 --repeats 1 "${small[@]}") pair_sizes=(--set data.max_length=16 --set data.batch_tokens=24)
fi
longest=$((1 << power)) longest_softmax=$((1 << softmax_power))

part_smoke() {
  section "Machine" tapeformer info
  if command -v nvidia-smi >/dev/null; then section "nvidia-smi" nvidia-smi; fi
  section "A small training step" tapeformer bench train-step --layers 1 --heads 2 --length 65 --batch 2 --device "$device" --json
  section "Small sampling" tapeformer bench generate --layers 1 --heads 2 --batch 2 --tokens 4 --device "$device" --json
}

# The tests that fail loudest come first: every op, attention, and then whole models.
part_tests() {
  section "Every op" env TAPEFORMER_OP_PART="$op_part" test_ops -tc='cuda: every op*'
  section "Attention" test_ops -tc='cuda:*attention*'
  section "Training on the device and on the CPU, and memory leaks" test_train -tc='cuda:*'
  section "Sampling on the device and on the CPU" test_models -tc='cuda:*'
  section "Tests of core" test_core -tc='cuda:*'
  section "Other tests of ops" test_ops -tc='cuda:*' -tce='cuda: every op*,cuda:*attention*'
  [ "$device" = cuda-emulated ] || section "Training steps with NCCL in one process" test_distributed -tc='cuda:*'
  section "Every op, with a synchronization after each kernel" env TAPEFORMER_CUDA_SYNC=1 TAPEFORMER_OP_PART="$op_part" test_ops \
    -tc='cuda: every op*'
}

# Prints the number of each step with its loss on the CPU and on the device. Fails if the relative difference of two losses
# exceeds 1e-3 or if a step is missing.
agree() {
  local run
  for run in cpu device; do
    sed -n 's/.*"step":\([0-9]*\).*"split":"train".*"loss_nats":\([^,}]*\).*/\1 \2/p' "$runs/$run/metrics.jsonl" |
      sort >"$runs/$run.losses"
  done
  join "$runs/cpu.losses" "$runs/device.losses" | sort -n |
    awk '{ print; d = $2 - $3; if (d < 0) d = -d; if (!($2 + 0 > 0 && $3 + 0 > 0 && d <= 1e-3 * $2)) bad = 1 }
      END { exit bad || NR != 20 }'
}

part_training() {
  local train=(tapeformer train configs/copy/linear.toml "${small[@]}" --set train.steps=20 --set train.log_every=1
    --set train.eval_every=0 --set train.checkpoint_every=0 --set data.eval_limit=8)
  runs=$(mktemp -d)
  section "20 steps on the CPU" "${train[@]}" --device cpu --run-dir "$runs/cpu"
  section "20 steps on the device" "${train[@]}" --device "$device" --run-dir "$runs/device"
  section "Step, loss on the CPU, loss on the device" agree
  rm -rf "$runs"
}

# Sets `precision` to the options of a precision: float32, tf32 or bfloat16.
set_precision() {
  precision=(--precision "$1")
  if [ "$1" = tf32 ]; then precision=(--precision float32 --set run.tf32=true); fi
}
# bench_training and bench_sampling NAME,CONFIG,BATCH PRECISION GRAPHS: measure a benchmark.
bench_training() {
  local name config batch precision work; IFS=, read -r name config batch <<<"$1"
  set_precision "$2"
  work="Training step, $name, linear attention, batch $batch, $2"
  local options=(--config "configs/$config/linear.toml" "${precision[@]}" --set model.dropout=0.1 "${small[@]}"
    --device "$device" --json)
  if [ "$3" = false ]; then work+=", without CUDA graphs"; fi
  measure measured "$work" seconds_per_step 1 tapeformer bench train-step "${options[@]}" --set data.batch_size="$batch" \
    "${repeats[@]}" --set run.cuda_graphs="$3"
}
bench_sampling() {
  local name config batch precision work; IFS=, read -r name config batch <<<"$1"
  set_precision "$2"
  work="Sampled token, $name, linear attention, batch $batch, $2"
  local options=(--config "configs/$config/linear.toml" "${precision[@]}" --batch "$batch" "${small[@]}"
    --device "$device" --json)
  if [ "$3" = false ]; then work+=", without CUDA graphs"; fi
  measure measured "$work" milliseconds_per_token 1e-3 tapeformer bench generate "${options[@]}" --tokens "$sampled" \
    --set run.cuda_graphs="$3"
}
# bench_attention KIND DTYPE LONGEST: measures attention for LONGEST tokens, forward and backward.
bench_attention() {
  measure measured "Attention, $1, $2, $3 tokens, forward and backward" seconds 1 tapeformer bench attention --kind "$1" \
    --dtype "$2" --longest "$3" "${attention_sizes[@]}" --device "$device" --json
}

# family NAME CONFIG: measures a training step and a generation of a family of models of sequences or images.
family() {
  local options=(--config "configs/$2" --precision bfloat16 "${small[@]}" "${text_sizes[@]}" --device "$device" --json)
  measure measured "Training step, $1" seconds_per_step 1 tapeformer bench train-step "${options[@]}" "${repeats[@]}"
  measure measured "Generated token, $1" milliseconds_per_token 1e-3 tapeformer bench generate "${options[@]}" --batch 16 \
    --tokens "$sampled"
}

# Trains a translation model for some steps on generated words, and translates one of them.
family_translation() {
  local folder
  folder=$(mktemp -d)
  seq 1000 7919 300000 | tr 0-9 a-j >"$folder/source"
  tr a-j A-J <"$folder/source" >"$folder/target"
  section "Training, translation" tapeformer train configs/translation/tatoeba.toml "${small[@]}" --device "$device" \
    --run-dir "$folder/run" --set data.dataset=translation --set data.source="$folder/source" \
    --set data.target="$folder/target" --set data.valid_pairs=2 --set data.tokenizer=characters --set train.steps=3 \
    --set train.eval_every=0 --set run.precision=bfloat16 --set data.eval_limit=2 "${pair_sizes[@]}"
  section "Generation, translation" tapeformer translate "$folder/run" "$folder/source" --device "$device" --max-length 4
  rm -rf "$folder"
}

part_families() {
  local work
  for work in $training_works; do bench_training "$work" bfloat16 true; done
  for work in $sampling_works; do bench_sampling "$work" bfloat16 true; done
  family "bytes of text, softmax attention" text/softmax.toml
  family "bytes of text, gated delta rule" text/gated-delta.toml
  measure measured "Training step, Reformer, LSH attention and reversible layers" seconds_per_step 1 tapeformer bench train-step \
    --config configs/reformer/duplication.toml --precision bfloat16 --device "$device" --json "${reformer_sizes[@]}" "${repeats[@]}"
  measure measured "Training step, speech, linear attention" seconds 1 tapeformer bench speech-step \
    --config configs/speech/an4-linear.toml --device "$device" --json "${speech_sizes[@]}"
  family_translation
  runs=$(mktemp -d)
  section "Classification, ListOps" tapeformer train configs/listops/softmax.toml "${small[@]}" --device "$device" --run-dir \
    "$runs/run" --set train.steps=3 --set train.eval_every=0 --set data.eval_limit=2 --set run.precision=bfloat16
  rm -rf "$runs"
  measure measured "Bi-LSTM, bfloat16, forward and backward" milliseconds 1e-3 tapeformer bench lstm "${lstm_sizes[@]}" \
    --precision bfloat16 --device "$device" --json
  bench_attention linear bfloat16 "$longest"
  bench_attention softmax bfloat16 "$longest_softmax"
}

# Further benchmarks: without graphs, and in other precisions.
part_benchmarks() {
  local work
  for work in $training_works; do
    [[ $work == MNIST,* ]] || continue
    bench_training "$work" bfloat16 false
    bench_training "$work" tf32 true
    bench_training "$work" float32 true
  done
  for work in $sampling_works; do
    if [[ $work == MNIST,* ]]; then bench_sampling "$work" bfloat16 false; fi
  done
  bench_attention lsh bfloat16 "$longest"
  bench_attention linear float32 "$longest"
}

# peer_training and peer_sampling NAME,CONFIG,BATCH: measure PyTorch with the settings of bench_training and bench_sampling.
peers=tests/bench/peers
set_peer() {
  IFS=, read -r name config batch <<<"$1"
  sizes=(--layers 8) length=783
  if [ "$config" = cifar10 ]; then sizes=(--layers 16) length=3071; fi
  sizes+=(--batch "$batch" --precision bfloat16 --compile-mode reduce-overhead --device cuda)
}
peer_training() {
  local name config batch length sizes; set_peer "$1"
  measure pytorch "Training step, $name, linear attention, batch $batch, bfloat16" seconds_per_step 1 "$python" \
    "$peers/train_step.py" "${sizes[@]}" --length "$length" --dropout 0.1 --chunk 64
}
peer_sampling() {
  local name config batch length sizes; set_peer "$1"
  measure pytorch "Sampled token, $name, linear attention, batch $batch, bfloat16" milliseconds_per_token 1e-3 "$python" \
    "$peers/generate.py" "${sizes[@]}" --length $((sampled + 1))
}

# peer_attention KIND POWER: measures attention of PyTorch for 2^POWER tokens.
peer_attention() {
  measure pytorch "Attention, $1, bfloat16, $((1 << $2)) tokens, forward and backward" seconds 1 "$python" \
    "$peers/attention.py" --kinds "$1" --from "$2" --to "$2" --softmax-to "$2" --head-dim 64 --precision bfloat16 --device cuda
}

# The compilation of a model by PyTorch takes minutes, so the large batches come first.
part_peers() {
  local training sampling i
  read -ra training <<<"$training_works"
  read -ra sampling <<<"$sampling_works"
  if ! "$python" -c "import torch, sys; sys.exit(not torch.cuda.is_available())" 2>/dev/null; then
    skip "PyTorch" "$python has no PyTorch with a CUDA device"
    return
  fi
  for i in "${!training[@]}"; do
    peer_training "${training[i]}"
    peer_sampling "${sampling[i]}"
  done
  peer_attention softmax "$softmax_power"
  peer_attention linear "$power"
  measure pytorch "Bi-LSTM, bfloat16, forward and backward" milliseconds_padded 1e-3 "$python" "$peers/lstm.py" --device cuda \
    "${lstm_sizes[@]}" --precision bfloat16
  if "$python" -c "import fla" 2>/dev/null; then peer_attention fla "$power"; fi
}

# Runs each test of ops in a separate section, and the test of all ops in several sections.
part_sanitizer() {
  local tool sanitizer name names op pieces
  sanitizer=$(PATH=$PATH:${CUDA_PATH:-/usr/local/cuda}/bin command -v compute-sanitizer) ||
    { skip "compute-sanitizer" "compute-sanitizer is not installed"; return; }
  if [ -z "$(path_of test_ops)" ]; then skip "compute-sanitizer" "test_ops is not in BIN_DIR"; return; fi
  mapfile -t names < <(run_program test_ops -tc='cuda:*' -ltc | grep '^cuda: ')
  for tool in memcheck racecheck initcheck synccheck; do
    if [ "$SECONDS" -ge "$deadline" ]; then skip "$tool" "no time is left of the budget"; continue; fi
    for name in "${names[@]}"; do
      pieces=1
      if [[ $name == "cuda: every op "* ]]; then pieces=$op_parts; fi
      for ((op = 1; op <= pieces && SECONDS < deadline; op++)); do
        section "$tool, $name$([ "$pieces" -eq 1 ] || echo ", part $op of $pieces")" env TAPEFORMER_OP_PART="$op/$pieces" \
          "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 1 test_ops "-tc=${name//,/\\,}"
        if [ "$last_result" = failed ] && grep -q "Device not supported" "$out.running"; then return; fi
      done
    done
  done
}

# Prints the minutes, steps and bits/dim of the evaluations of a run.
print_evaluations() {
  echo "minutes, step, bits/dim of ${mnist_images} test images"
  sed -n 's/.*"step":\([0-9]*\).*"split":"\(valid\|test\)".*"bits_per_dim":\([^,}]*\).*/\1 \3/p' "$runs/mnist/metrics.jsonl" |
    awk -v step="$step_seconds" '{ printf "%.1f, %d, %.4f\n", $1 * step / 60, $1, $2; found = 1 } END { exit !found }'
}

# Trains the model of the paper with the recipe of improved.toml, whose schedule ends with the time. The number of steps and
# the steps in a minute follow from the measured time of a step.
part_mnist() {
  local work="Training step, MNIST, linear attention, batch $mnist_batch, bfloat16" steps
  local start=$SECONDS limit=$((60 * mnist_minutes + 120)) deadline=$((SECONDS + 60 * mnist_minutes + 120))
  if [ -z "${measured[$work]:-}" ]; then bench_training "MNIST,mnist,$mnist_batch" bfloat16 true; fi
  step_seconds=${measured[$work]:-}
  [ -n "$step_seconds" ] || { skip "Training on MNIST" "the training step was not measured"; return; }
  steps=$(awk -v step="$step_seconds" 'BEGIN { print int(60 / step) + 1 }')
  runs=$(mktemp -d)
  section "Training on MNIST, bfloat16, batch $mnist_batch, $mnist_minutes minutes" tapeformer train configs/mnist/improved.toml \
    "${small[@]}" --device "$device" --run-dir "$runs/mnist" --set data.batch_size="$mnist_batch" --set run.precision=bfloat16 \
    --set train.steps=$((steps * mnist_minutes)) --set train.time_limit_minutes="$mnist_minutes" \
    --set train.eval_every="$steps" --set data.eval_limit="$mnist_images" --set train.checkpoint_every=0
  if [ "$last_result" = passed ]; then section "Bits/dim of the training on MNIST" print_evaluations; fi
  rm -rf "$runs"; total=$((total + SECONDS - start))  # later parts keep their time
}

# Without PyTorch, its share of the budget goes to the other parts.
"$python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))" 2>/dev/null || share[peers]=1
for part in $parts; do
  set_deadline "$part"
  "part_$part"
done
finished=true part=""
write_results
rm -f "$out.running"
printf 'gpu-check:'
for result in passed failed "timed out" "cut off" "not run"; do printf ' %d %s,' "${count_of[$result]}" "$result"; done
echo " $SECONDS s"
for work in "${works[@]}"; do print_comparison "$work"; done
echo "gpu-check: wrote $out"
exit "$failed"
