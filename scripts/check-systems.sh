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

all_commands=${COMMANDS:-scripts/quickstart.sh scripts/quickstart-text.sh scripts/quickstart-translation.sh scripts/test.sh}
mirror=${MIRROR:-http://deb.debian.org/debian}
systems=("$@")
[[ $# -gt 0 ]] || systems=(bookworm trixie trixie:clang-19 trixie:required)

usage_error() { echo "check-systems: $*" >&2; exit 2; }
[[ $EUID -eq 0 ]] || usage_error "must run as root, because it makes and enters systems with chroot"
command -v debootstrap >/dev/null || usage_error "debootstrap is not installed"
for system in "${systems[@]}"; do
  [[ $system =~ ^[a-z]+(:[a-z0-9+-]+)?$ ]] || usage_error "\"$system\" is not RELEASE or RELEASE:COMPILER"
done

folder=$PWD/build/systems
mkdir -p "$folder"

# inside COMMAND…: runs a command in the system $root, in namespaces of its own: its mounts and processes end with it.
inside() {
  # shellcheck disable=SC2016  # the inner shell expands the variables
  unshare --mount --pid --fork --kill-child sh -c 'mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" &&
    mount --rbind /dev "$0/dev" && exec chroot "$0" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' "$root" "$@"
}

# Makes the bare system $root of a release, with a clone of HEAD in /tapeformer.
make_system() {
  if [[ -z ${KEEP:-} || ! -d $root/tapeformer ]]; then
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase --include=ca-certificates,git "$1" "$root" "$mirror"
    cp -r /etc/apt/apt.conf.d /etc/apt/auth.conf.d "$root/etc/apt/"
    cp -rL /usr/local/share/ca-certificates "$root/usr/local/share/"
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    inside update-ca-certificates
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
    inside sh -c "apt-get -q update && apt-get -qy install --no-install-recommends $compiler libomp-${compiler##*-}-dev" \
      >>"$log" 2>&1 </dev/null
    variables=("CC=$compiler" "CXX=${compiler/clang/clang++}")
  fi
  for command in $commands; do
    start=$SECONDS status=0
    inside env "${variables[@]}" bash -c "cd /tapeformer && bash $command" >>"$log" 2>&1 </dev/null || status=$?
    printf '%-16s %-28s %5d s  status %d\n' "$system" "$command" $((SECONDS - start)) "$status"
    if [[ $status -ne 0 ]]; then
      failed=1
      tail -n 15 "$log" >&2
    fi
  done
  if [[ -z ${KEEP:-} ]]; then rm -rf --one-file-system "$root"; fi
done
exit "$failed"
