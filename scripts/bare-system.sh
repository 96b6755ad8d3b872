# shellcheck shell=bash
# scripts/bare-system.sh: functions that make and enter bare Debian systems. Other scripts source this file. The functions
# need root and debootstrap. The environment variable MIRROR is the mirror of Debian (default: http://deb.debian.org/debian).

# Returns 1 with a message if this machine cannot make systems.
can_make_systems() {
  [[ $EUID -eq 0 ]] || { echo "must run as root, because it makes and enters systems with chroot" >&2; return 1; }
  command -v debootstrap >/dev/null || { echo "debootstrap is not installed" >&2; return 1; }
}

# inside ROOT COMMAND…: runs a command in a system, in namespaces of its own: its mounts and processes end with it. If the
# environment variable MOUNT is the name of a folder, the command sees the folder as /mnt.
inside() {
  # shellcheck disable=SC2016  # the inner shell expands the variables
  unshare --mount --pid --fork --kill-child sh -c 'mount -t proc proc "$0/proc" && mount --rbind /sys "$0/sys" &&
    mount --rbind /dev "$0/dev" && { [ -z "${MOUNT:-}" ] || mount --bind -o ro "$MOUNT" "$0/mnt"; } &&
    exec chroot "$0" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' "$@"
}

# make_bare_system RELEASE ROOT [PACKAGES]: makes a system in the folder ROOT, with the apt configuration and the
# certificates of this machine. PACKAGES are more packages of Debian, separated by commas.
make_bare_system() {
  rm -rf --one-file-system "$2"
  debootstrap --variant=minbase --include="ca-certificates${3:+,$3}" "$1" "$2" "${MIRROR:-http://deb.debian.org/debian}"
  cp -r /etc/apt/apt.conf.d /etc/apt/auth.conf.d "$2/etc/apt/"
  cp -rL /usr/local/share/ca-certificates "$2/usr/local/share/"
  cp /etc/resolv.conf /etc/hosts "$2/etc/"
  inside "$2" update-ca-certificates
}
