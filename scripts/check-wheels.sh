#!/usr/bin/env bash
# scripts/check-wheels.sh FOLDER [RELEASE…]: tests the wheels of scripts/build-wheels.sh in bare Debian systems with no package
# but python3-venv (default: bookworm and trixie). Installs the wheel with NumPy, runs the program on all levels of kernels and
# the tests of models, then installs PyTorch, and runs its tests with both orders of imports. Needs root, debootstrap, and access to Debian
# and PyPI. Writes logs to FOLDER.
# scripts/check-wheels.sh --here FOLDER: tests the wheel on this system, in a new virtual environment.
# Environment variables:
#   DATA      a folder with the data set mnist, for a training run (default: TAPEFORMER_DATA)
#   PACKAGES  a folder of packages with PyTorch and transformers for the Python of the release, instead of a download
#   MIRROR    the mirror of Debian (default: http://deb.debian.org/debian)
# Exit status: 0 if all commands succeeded, 1 if one failed, 2 for invalid arguments.
set -euo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
. "$here/scripts/bare-system.sh"

# check_here FOLDER: FOLDER can also contain the data set.
check_here() {
  local folder tag=abi3 scratch level tunables without
  folder=$(realpath "$1") scratch=$(mktemp -d)
  cd "$scratch"
  python3 -m venv venv
  export PATH=$scratch/venv/bin:$PATH OMP_WAIT_POLICY=passive
  python -c 'import sys; sys.exit(sys.version_info < (3, 12))' || tag=cp311-cp311
  pip install -q "$folder"/tapeformer-*"$tag"*.whl pytest
  set -x
  tapeformer info
  for without in "" -AVX512F -AVX2,-AVX512F; do
    tunables=${without:+glibc.cpu.hwcaps=$without}
    level=$(GLIBC_TUNABLES=$tunables tapeformer info | sed -n 's/.*cpu kernels *//p')
    echo "kernels without [$without]: $level"
    GLIBC_TUNABLES=$tunables tapeformer train copy/linear --set train.steps=3 --set data.batch_size=4 \
      --run-dir "runs/copy$without" --quiet
  done
  if [[ -d $folder/mnist ]]; then
    TAPEFORMER_DATA=$folder tapeformer train quickstart --set data.dataset=mnist --set train.steps=20 --set data.eval_limit=100 \
      --run-dir runs/quickstart
    tapeformer generate runs/quickstart --count 4 --out grid.png
  fi
  python "$here/python/examples/sample.py" runs/copy
  cp -r "$here/python/tests" "$here/configs" "$here/docs" .  # without the sources of the package beside them
  mkdir python && mv tests python/ && cp -r "$here/python/examples" python/
  pytest -q -rs -p no:cacheprovider python/tests/test_models.py
  if [[ -n ${PACKAGES:-} ]]; then
    echo "$PACKAGES" >"$(python -c 'import site; print(site.getsitepackages()[0])')/packages.pth"
  else
    pip install -q torch transformers
  fi
  python "$here/tests/scripts/wheel_openmp.py"
  python "$here/python/examples/min_gpt.py" "$here/python/examples/min_gpt.py" 50
  pytest -q -rs -p no:cacheprovider python/tests
  { set +x; } 2>/dev/null
  cd /
  rm -rf "$scratch"
}

if [[ ${1:-} == --here && $# -eq 2 ]]; then
  check_here "$2"
  exit
fi
[[ $# -ge 1 && -d $1 ]] || { echo "usage: scripts/check-wheels.sh FOLDER [RELEASE…]" >&2; exit 2; }
can_make_systems || exit 2
folder=$(realpath "$1") data=${DATA:-${TAPEFORMER_DATA:-}} failed=0
shift
[[ $# -gt 0 ]] || set -- bookworm trixie
for release in "$@"; do
  root=$folder/system-$release log=$folder/check-$release.log status=0 start=$SECONDS
  {
    make_bare_system "$release" "$root" python3-venv
    mkdir "$root/files" "$root/tapeformer"
    git -C "$here" archive HEAD | tar x -C "$root/tapeformer"
    cp "$folder"/tapeformer-*.whl "$root/files/"
    if [[ -d $data/mnist ]]; then cp -r "$data/mnist" "$root/files/"; fi
    MOUNT=${PACKAGES:-} inside "$root" env ${PACKAGES:+PACKAGES=/mnt} /tapeformer/scripts/check-wheels.sh --here /files || status=$?
  } >"$log" 2>&1 </dev/null
  printf '%-10s %5d s  status %d\n' "$release" $((SECONDS - start)) "$status"
  if [[ $status -eq 0 ]]; then
    rm -rf --one-file-system "$root"
  else
    failed=1
    tail -n 15 "$log" >&2
  fi
done
exit "$failed"
