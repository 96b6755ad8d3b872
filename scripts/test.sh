#!/usr/bin/env bash
# scripts/test.sh [BUILD_DIR]: installs missing Debian packages (with sudo if necessary), builds everything and runs all tests.
# Tests without their data or device are listed as skipped. Warnings are errors if the variable WERROR is ON. If the variable
# LEVELS is ON, the levels of processors are tested even if no CPU kernel changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build/test}

scripts/install-packages.sh test
settings=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DTAPEFORMER_WERROR="${WERROR:-OFF}" -DTAPEFORMER_TESTS=ON -DCMAKE_UNITY_BUILD=ON
  -DTAPEFORMER_PYTHON=AUTO)
# nvcc takes longest for machine code. Without a device, the code of one architecture suffices to find errors.
if ! nvidia-smi -L >/dev/null 2>&1; then settings+=(-DTAPEFORMER_CUDA_ARCHITECTURES=80); fi
cmake -S . -B "$build" "${settings[@]}"
cmake --build "$build" --parallel "$(nproc)"
# Test programs run in parallel, so waiting threads must sleep instead of spinning.
export OMP_WAIT_POLICY=passive
ctest --test-dir "$build" --output-on-failure --parallel "$(nproc)" --no-tests=error

# If nvcc is found, the first build compiles kernels for devices. A second build runs the kernels in the emulation, and the
# CPU kernels with the vector length that the first build does not use. For vectors of 32 bytes, it has no fused
# multiply-adds and no AVX-512, so that valgrind can count its instructions.
emulated=("${settings[@]}" -DTAPEFORMER_CUDA=EMULATED -DTAPEFORMER_VECTOR_BYTES=64)
if grep -qw avx512f /proc/cpuinfo; then
  emulated+=(-DTAPEFORMER_VECTOR_BYTES=32 -DTAPEFORMER_ARCH=x86-64-v3 -DCMAKE_CXX_FLAGS=-ffp-contract=off)
fi
if grep -q '^TAPEFORMER_NVCC:FILEPATH=/' "$build/CMakeCache.txt"; then
  cmake -S . -B "$build-emulated" "${emulated[@]}"
  cmake --build "$build-emulated" --parallel "$(nproc)" --target test_core test_ops test_launches count_instructions
  ctest --test-dir "$build-emulated" --output-on-failure --parallel "$(nproc)" --no-tests=error \
    -L '^(core|ops|launches|instructions)$'
fi

# Whether the CPU kernels, or files that decide how they are built, differ from the commit where the branch left
# origin/main. On origin/main, they are compared with the previous commit.
kernels_changed() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || return 0
  if [ "$base" = "$(git rev-parse HEAD)" ]; then base=HEAD~1; fi
  ! git diff --quiet "$base" -- core/base core/cpu ops/cpu ops/kernels cmake CMakeLists.txt tests/distribution scripts/test.sh
}

# Builds the kernels for several processors without optimization. The preset "distribution" is the optimized build.
if [ "$(uname -m)" = x86_64 ] && { [ "${LEVELS:-OFF}" = ON ] || kernels_changed; }; then
  cmake -S . -B "$build-levels" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DTAPEFORMER_TESTS=ON \
    -DCMAKE_UNITY_BUILD=ON -DTAPEFORMER_CUDA=OFF -DTAPEFORMER_ARCH=x86-64-v2 "-DTAPEFORMER_LEVELS=x86-64-v3;x86-64-v4"
  cmake --build "$build-levels" --parallel "$(nproc)" --target level_losses
  ctest --test-dir "$build-levels" --output-on-failure --no-tests=error -R '^distribution: kernels'
fi
