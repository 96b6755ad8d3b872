#!/usr/bin/env bash
# scripts/check-systems.sh [SYSTEM…]: runs the commands of the README in bare Debian systems. A SYSTEM is a release, a
# release and a compiler of its packages, or a release without optional packages, where only scripts/test.sh runs: bookworm,
# trixie, trixie:clang-19, trixie:required (default: these four). Each system is made by debootstrap with the apt
# configuration and the certificates of this machine, and gets a clone of HEAD. Needs root and debootstrap. Prints the seconds
# and the exit status of each command, and writes logs to build/systems.
# Environment variables:
#   COMMANDS  the commands, each run by bash (default: the three scripts/quickstart*.sh of the README, and scripts/test.sh)
#   MIRROR    the mirror of Debian (default: http://deb.debian.org/debian)
#   KEEP      if not empty, a system that exists is used again with its packages and builds, and is kept
# Exit status: 0 if all commands succeeded, 1 if one failed, 2 for invalid arguments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bare-system.sh

all_commands=${COMMANDS:-scripts/quickstart.sh scripts/quickstart-text.sh scripts/quickstart-translation.sh scripts/test.sh}
systems=("$@")
[[ $# -gt 0 ]] || systems=(bookworm trixie trixie:clang-19 trixie:required)

usage_error() { echo "check-systems: $*" >&2; exit 2; }
can_make_systems || exit 2
for system in "${systems[@]}"; do
  [[ $system =~ ^[a-z]+(:[a-z0-9+-]+)?$ ]] || usage_error "\"$system\" is not RELEASE or RELEASE:COMPILER"
done

folder=$PWD/build/systems
mkdir -p "$folder"

# Makes the bare system $root of a release, with a clone of HEAD in /tapeformer.
make_system() {
  if [[ -z ${KEEP:-} || ! -d $root/tapeformer ]]; then
    make_bare_system "$1" "$root" git
    git clone --quiet . "$root/tapeformer"
  else
    git -C "$root/tapeformer" pull --quiet "$PWD" HEAD
  fi
}

failed=0
for system in "${systems[@]}"; do
  release=${system%%:*} compiler=${system#"$release"}
  root=$folder/${system/:/-}
  log=$root.log
  make_system "$release" >"$log" 2>&1
  variables=()
  commands=$all_commands
  if [[ $compiler == :required ]]; then
    variables=(OPTIONAL=none)
    commands=${COMMANDS:-scripts/test.sh}
  elif [[ -n $compiler ]]; then
    compiler=${compiler#:}
    inside "$root" sh -c "apt-get -q update && apt-get -qy install --no-install-recommends $compiler libomp-${compiler##*-}-dev" \
      >>"$log" 2>&1 </dev/null
    variables=("CC=$compiler" "CXX=${compiler/clang/clang++}")
  fi
  for command in $commands; do
    start=$SECONDS status=0
    inside "$root" env "${variables[@]}" bash -c "cd /tapeformer && bash $command" >>"$log" 2>&1 </dev/null || status=$?
    printf '%-16s %-28s %5d s  status %d\n' "$system" "$command" $((SECONDS - start)) "$status"
    if [[ $status -ne 0 ]]; then
      failed=1
      tail -n 15 "$log" >&2
    fi
  done
  if [[ -z ${KEEP:-} ]]; then rm -rf --one-file-system "$root"; fi
done
exit "$failed"
