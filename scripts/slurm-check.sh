#!/usr/bin/env bash
# scripts/slurm-check.sh [TAPEFORMER]: starts Slurm with this machine as its only node, and checks trainings of two processes that
# srun starts. Must run as root. Needs Debian's packages slurm-wlm and munge. TAPEFORMER is the program (default:
# build/release/tapeformer). Stops the started daemons at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tapeformer=$(realpath "${1:-build/release/tapeformer}")
folder=$(mktemp -d)
export SLURM_CONF=$folder/slurm.conf
mkdir "$folder/state" "$folder/spool"
node=$(hostname -s)
cat >"$SLURM_CONF" <<END
ClusterName=check
SlurmctldHost=$node(127.0.0.1)
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc)
PartitionName=all Nodes=ALL Default=YES
END

pid_files=("$folder/slurmd.pid" "$folder/slurmctld.pid")
# Stops the daemons, which remove their PID files when they end.
# shellcheck disable=SC2317  # called by trap
stop() {
  local file i
  for file in "${pid_files[@]}"; do
    [ ! -f "$file" ] || kill "$(cat "$file")" || true
    for ((i = 0; i < 300; i++)); do
      [ -f "$file" ] || break
      sleep 0.1
    done
  done
  rm -rf "$folder"
}
trap stop EXIT

install -d -o munge -g munge /run/munge
if ! munge -n 2>/dev/null | unmunge >/dev/null 2>&1; then
  setpriv --reuid=munge --regid=munge --clear-groups munged
  pid_files+=(/run/munge/munged.pid)
fi
slurmctld
slurmd
idle_nodes() { sinfo --noheader --states=idle 2>/dev/null; }
for ((i = 0; i < 30; i++)); do
  [ -n "$(idle_nodes)" ] && break
  sleep 1
done
if [ -z "$(idle_nodes)" ]; then
  tail -n 5 "$folder"/slurmctld.log "$folder"/slurmd.log >&2
  echo "slurm-check: the node is not idle 30 seconds after the start of Slurm" >&2
  exit 1
fi

train=("$tapeformer" train configs/copy/linear.toml --quiet --set model.layers=1 --set data.batch_size=8 --set data.eval_limit=8
  --set train.log_every=1)
pair=(srun -n 2 --kill-on-bad-exit=1 --mpi=pmix)
# expect STATUS WHAT COMMAND…: runs a command and compares its exit status.
expect() {
  local status=0
  "${@:3}" >"$folder/output" 2>&1 || status=$?
  if [ "$status" -ne "$1" ]; then
    cat "$folder/output"
    echo "slurm-check: $2: exit status $status, expected $1" >&2
    exit 1
  fi
  echo "slurm-check: $2: exit status $status"
}
losses() { sed -n 's/.*"split":"train","loss_nats":\([^,}]*\).*/\1/p' "$1/metrics.jsonl"; }
# Fails if the relative difference of two losses exceeds 1e-5 or if a step is missing.
agree() {
  paste <(losses "$folder/one") <(losses "$folder/two") |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (!($1 + 0 > 0 && $2 + 0 > 0 && d <= 1e-5 * $1)) bad = 1 } END { exit bad || NR != 20 }'
}
# signal_process SIGNAL RUN: starts a training and sends a signal to one of its processes after the third step. Returns the
# exit status of srun, or 2 if the training ends before the third step or if no process of it is found.
signal_process() {
  "${pair[@]}" "${train[@]}" --run-dir "$2" --set train.steps=100000 &
  local job=$!
  until grep -qs '"step":3,' "$2/metrics.jsonl"; do
    kill -0 "$job" 2>/dev/null || return 2
    sleep 0.2
  done
  local process
  process=$(pgrep -f "^$tapeformer train .*--run-dir $2 " | tail -1)
  if [ -z "$process" ]; then
    kill "$job"
    return 2
  fi
  kill "-$1" "$process"
  wait "$job"
}

expect 0 "one process" "${train[@]}" --run-dir "$folder/one" --set train.steps=20
expect 0 "two processes of srun" "${pair[@]}" "${train[@]}" --run-dir "$folder/two" --set train.steps=20
expect 0 "equal losses" agree
expect 2 "srun without PMIx" srun -n 2 --mpi=none "${train[@]}" --run-dir "$folder/none" --set train.steps=20
expect 75 "SIGTERM to one process" signal_process TERM "$folder/term"
expect 0 "checkpoint after SIGTERM" test -e "$folder/term/checkpoints/latest/model.safetensors"
expect 1 "SIGKILL of one process" signal_process KILL "$folder/kill"
