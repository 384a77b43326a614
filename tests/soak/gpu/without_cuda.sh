#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What a machine without a CUDA toolkit gets: hides every toolkit of this one in a mount namespace of
# its own, then configures and builds everything from nothing, runs CPU programs and asks for CUDA.
# The CUDA libraries that LibTorch itself runs with stay: a wheel for CUDA has them everywhere.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/soak/gpu/without_cuda.sh [--configure BUILD] [--jobs N] [--keep] [CMAKE_ARGUMENT...]

Builds in build/, over which a new folder is mounted meanwhile, so that the compiler cache of the
ordinary build serves. --keep leaves that folder, build-without-cuda/. --configure builds nothing: it
looks at what the programs and libraries of the finished build in BUILD link instead. Exit code 77
where this user may not make mount namespaces.
TEXT
}

readonly SENTENCE="needs CUDA: [^ ]"

root=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
jobs=$(nproc) keep=0 configure_only=''
while (($#)); do
  case $1 in
    --configure) configure_only=$(realpath "$2") && shift ;;
    --jobs) jobs=$2 && shift ;;
    --keep) keep=1 ;;
    -h | --help) usage && exit 0 ;;
    -D*) break ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done

say() { echo "without_cuda: $*"; }
fail() { echo "without_cuda: FAILED: $*" >&2 && exit 1; }

# --- outside: a namespace ---------------------------------------------------------------------------

if [[ -z ${WITHOUT_CUDA_INSIDE-} ]]; then
  scratch=$(mktemp -d)
  folder=$root/build-without-cuda had_build=1
  cleanup() {
    rm -rf "$scratch"
    ((keep)) || rm -rf "$folder"
    ((had_build)) || rmdir "$root/build"
  }
  trap cleanup EXIT
  enter=(unshare --mount --propagation private)
  "${enter[@]}" true 2>/dev/null || enter=(unshare --map-root-user --mount --propagation private)
  reason=$("${enter[@]}" mount -t tmpfs tmpfs "$scratch" 2>&1) ||
    { say "skipped: this user may not make mount namespaces ($reason)" && exit 77; }
  if [[ -z $configure_only ]]; then
    [[ -d $root/build ]] || { had_build=0 && mkdir "$root/build"; }
    rm -rf "$folder" && mkdir "$folder"
  fi
  WITHOUT_CUDA_INSIDE=1 WITHOUT_CUDA_SCRATCH=$scratch WITHOUT_CUDA_FOLDER=$folder \
    "${enter[@]}" "${BASH_SOURCE[0]}" ${configure_only:+--configure "$configure_only"} \
    --jobs "$jobs" "$@"
  exit
fi

# --- inside -----------------------------------------------------------------------------------------

scratch=$WITHOUT_CUDA_SCRATCH
mount -t tmpfs tmpfs "$scratch"
overlays=0

hide_folder() {
  local target
  target=$(realpath "$1")
  [[ -d $target ]] || return 0
  mount -t tmpfs tmpfs "$target"
  say "hidden: $target"
}

# One file of a folder that must otherwise stay: a whiteout over it.
hide_file() {
  local folder name layer=$scratch/overlay$((++overlays))
  folder=$(dirname "$1") name=$(basename "$1")
  mkdir -p "$layer"/{upper,work}
  mknod "$layer/upper/$name" c 0 0
  mount -t overlay overlay -o "lowerdir=$folder,upperdir=$layer/upper,workdir=$layer/work" "$folder"
  say "hidden: $1"
}

hide_toolkits() {
  local nvcc home path
  while nvcc=$(command -v nvcc); do
    home=$(dirname "$(dirname "$(realpath "$nvcc")")")
    if [[ -e $home/include/cuda_runtime.h && $home != /usr ]]; then
      hide_folder "$home"
    else
      hide_file "$nvcc"
    fi
    hash -r
  done
  for path in /usr/local/cuda* /opt/cuda* /usr/lib/cuda* /usr/lib/nvidia-cuda-toolkit; do
    [[ -e $path/include || -e $path/bin ]] && hide_folder "$path"
  done
  # Beside torch: the compiler and the headers, not what libtorch_cpu is linked with.
  for path in "$site"/nvidia/cu*/{bin,nvvm,include} "$site"/nvidia/{nccl,cuda_nvcc,cuda_runtime}/include; do
    [[ -d $path ]] && hide_folder "$path"
  done
  for path in /usr/include /usr/local/include "/usr/include/$(gcc -print-multiarch)"; do
    local name
    for name in cuda.h cuda_runtime.h nccl.h; do
      [[ ! -e $path/$name ]] || hide_file "$path/$name"
    done
  done
}

check_hidden() {
  local header
  ! command -v nvcc || fail "nvcc is still there"
  for header in cuda_runtime.h nccl.h; do
    ! g++ -E -x c++ - <<<"#include <$header>" >/dev/null 2>&1 || fail "g++ still finds $header"
  done
}

configure() {
  cmake --preset dev -S "$root" -B "$1" -DCHAINMAIL_CUDA=AUTO "${@:2}" >"$scratch/configure.log" 2>&1 ||
    { cat "$scratch/configure.log" && fail "CMake does not configure without CUDA"; }
  local lines
  lines=$(grep -c 'CUDA .*not found: no libchainmail_cuda.so, CPU tensors only (no nvcc)' \
    "$scratch/configure.log") || true
  ((lines == 1)) ||
    { cat "$scratch/configure.log" && fail "$lines lines of CMake's say what is left out, not one"; }
  ! grep -q '^CMAKE_CUDA_COMPILER:' "$1/CMakeCache.txt" || fail "CMake has found a CUDA compiler"
  ! grep -qE 'libchainmail_(cuda|torch_nccl)\.so' "$1/build.ninja" ||
    fail "CUDA libraries are among the targets"
  say "CMake: $(sed -n 's/^-- *\(CUDA .*\)/\1/p' "$scratch/configure.log" | tail -n 1)"
}

# What every file of a CPU user links: nothing of CUDA's, which torch brings where it is wanted.
check_links() {
  local file count=0 found
  for file in "$1"/lib/libchainmail*.so "$1"/bin/*; do
    [[ $file != */libchainmail_cuda.so && $file != */libchainmail_torch_nccl.so && -x $file ]] || continue
    [[ $file != *_test ]] || continue # one of them tests the library
    found=$(readelf -d "$file" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p') || continue
    [[ -n $found ]] || continue
    count=$((count + 1))
    ! grep -E 'cuda|cudart|cupti|nccl|nvrtc' <<<"$found" || fail "$file links that"
  done
  ((count >= ${2:-10})) || fail "only $count programs and libraries in $1"
  say "$count programs and libraries link nothing of CUDA's"
}

# refused COMMAND...: ends with an error and one sentence, and does not crash.
refused() {
  local code=0
  timeout 60 "$@" >"$scratch/refused" 2>&1 || code=$?
  ((code > 0 && code < 124)) ||
    { cat "$scratch/refused" && fail "exit code $code of: $*"; }
  (($(grep -cE "$SENTENCE" "$scratch/refused") == 1)) ||
    { cat "$scratch/refused" && fail "no single sentence from: $*"; }
  say "refused: $(grep -E "$SENTENCE" "$scratch/refused")"
}

check_programs() {
  local bin=$1/bin program
  for program in "$1"/lib/libchainmail_{cuda,torch_nccl}.so; do
    [[ ! -e $program ]] || fail "$program was built"
  done
  "$bin/launcher" -H localhost:2 -n 2 --timeout 100 "$bin/train_mnist" --unit 50 --epoch 1 \
    --dataset fashion_mnist --out "$scratch/out" --verify | tr -d '\r' | grep -E '^digest [0-9a-f]{16} on 2 ranks$' ||
    fail "train_mnist does not train on CPUs"
  "$bin/launcher" -H localhost:2 -n 2 --timeout 100 "$bin/chainmail-bench" --sizes 1K -n 2 -w 1 --rounds 2 >/dev/null ||
    fail "chainmail-bench does not run"
  "$bin/device_all_reduce_test" --gtest_brief=1 >/dev/null || fail "the tests over a fake GPU need one"
  refused "$bin/train_mnist" --dataset fashion_mnist --out "$scratch/out" --device cuda
  refused "$bin/train_mnist" --dataset fashion_mnist --out "$scratch/out" --communicator pure_nccl
  refused "$bin/train_mnist" --dataset fashion_mnist --out "$scratch/out" --communicator nccl --device cuda
}

site=$(dirname "$(realpath "${CHAINMAIL_LIBTORCH:-$root/.deps/torch}" 2>/dev/null || echo /nowhere)")
hide_toolkits
check_hidden
if [[ -n $configure_only ]]; then
  configure "$scratch/build" "$@"
  check_links "$configure_only"
else
  mount --bind "$WITHOUT_CUDA_FOLDER" "$root/build"
  cd "$root" # whose build/ may have been the working folder
  # Debug information of the objects alone would take gigabytes once more in every program.
  configure build -DCMAKE_EXE_LINKER_FLAGS=-Wl,--strip-debug -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--strip-debug "$@"
  cmake --build build --parallel "$jobs" >"$scratch/build.log" 2>&1 ||
    { tail -n 60 "$scratch/build.log" && fail "it does not build without CUDA"; }
  say "built: $(tail -n 1 "$scratch/build.log")"
  check_links build
  check_programs "$root/build"
fi
say "passed"
