#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Installs what Chainmail needs on Debian 12 and is missing; says what it did. Safe to repeat.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/setup.sh [--torch X.Y.Z] [--python] [--cuda] [--tests] [--packages]

Installs Debian packages (root only) and LibTorch from the PyPI wheel, in .deps/torch-X.Y.Z.
  --torch X.Y.Z  another torch than 2.11.0, in an environment of its own; .deps/torch and
                 .deps/venv point at the one asked for last
  --python       also what `import torch` and torchrun need (3.5 GB instead of 1.3 GB)
  --cuda         also nvcc, the CUDA headers and NCCL from PyPI, where no toolkit is installed
  --tests        also the packages that only tests use; missing ones make tests skip
  --packages     also what tools/package.sh needs; no LibTorch, unless --torch is given
CHAINMAIL_LIBTORCH=/path/to/torch uses that LibTorch and downloads nothing of torch.
TEXT
}

readonly DEFAULT_TORCH=2.11.0
readonly BUILD_PACKAGES=(
  ca-certificates ccache cmake dataset-fashion-mnist g++ git libasio-dev libbenchmark-dev
  libgflags-dev libgmock-dev libgoogle-glog-dev libgtest-dev libhwloc-dev libhwy-dev libssl-dev
  libxxhash-dev ninja-build nlohmann-json3-dev openssh-client pkg-config zlib1g-dev)
readonly PYTHON_PACKAGES=(python3 python3-venv)
readonly TEST_PACKAGES=(
  abigail-tools clang-format-14 curl doxygen iproute2 libmpich-dev libopenmpi-dev libpmix-dev nftables openmpi-bin
  openssh-server openssl procps shellcheck)
readonly PACKAGING_PACKAGES=(binutils debhelper dpkg-dev libpmix-dev python3 python3-venv)

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
readonly DEPS=$PWD/.deps
source tools/setup/python_environment.sh

say() { echo "setup: $*"; }
fail() {
  echo "setup: error: $*" >&2
  exit 1
}

parse_options() {
  torch_version=$DEFAULT_TORCH
  with_python=0 with_cuda=0 with_tests=0 with_packages=0 torch_is_asked_for=0
  while (($#)); do
    case $1 in
      --torch)
        (($# > 1)) || fail "--torch needs a version, such as --torch $DEFAULT_TORCH"
        torch_version=$2 torch_is_asked_for=1
        shift
        ;;
      --torch=*) torch_version=${1#*=} torch_is_asked_for=1 ;;
      --python) with_python=1 ;;
      --cuda) with_cuda=1 ;;
      --tests) with_tests=1 ;;
      --packages) with_packages=1 ;;
      -h | --help)
        usage
        exit 0
        ;;
      *)
        usage >&2
        fail "unknown option '$1'"
        ;;
    esac
    shift
  done
  [[ $torch_version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] ||
    fail "--torch '$torch_version' is no version such as $DEFAULT_TORCH"
}

# Names of those packages among the arguments that are not installed.
missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^installed //p') || true
  for package in "$@"; do
    grep -qxF "$package" <<<"$installed" || echo "$package"
  done
}

# Services that come with a package (sshd) must not start on the machine of somebody who only
# wanted to run tests. Debian asks this script before it starts one.
deny_services() {
  [[ ! -e /usr/sbin/policy-rc.d && -w /usr/sbin ]] || return 0
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
  chmod 755 /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
}

# apt_install PACKAGE...: false, with the end of apt-get's output, when it fails.
apt_install() {
  local log
  log=$(mktemp)
  deny_services
  if ! { apt-get update && apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}

install_packages() {
  local wanted=("${BUILD_PACKAGES[@]}") missing
  if [[ -z ${CHAINMAIL_LIBTORCH:-} ]] || ((with_python || with_tests)); then
    wanted+=("${PYTHON_PACKAGES[@]}")
  fi
  if ((with_packages)); then
    wanted+=("${PACKAGING_PACKAGES[@]}")
  fi
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: make sure the equivalents of these are there: ${wanted[*]}"
    return
  fi
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  if ((${#missing[@]} == 0)); then
    say "Debian packages: all there"
  elif [[ $(id -u) != 0 ]]; then
    fail "packages are missing and this is not root; run:
  sudo apt-get install -y --no-install-recommends ${missing[*]}"
  else
    say "Debian packages: installing ${missing[*]}"
    apt_install "${missing[@]}" || fail "apt-get could not install: ${missing[*]}"
  fi
}

# Tests that need a package that is not there are skipped, so none of these must be there.
install_test_packages() {
  local missing
  command -v dpkg-query >/dev/null || return 0
  mapfile -t missing < <(missing_packages "${TEST_PACKAGES[@]}")
  if ((${#missing[@]} == 0)); then
    say "Debian packages for tests: all there"
  elif [[ $(id -u) != 0 ]]; then
    say "tests that need these packages will be skipped (not root): ${missing[*]}"
  else
    say "Debian packages for tests: installing ${missing[*]}"
    apt_install "${missing[@]}" || say "tests that need these will be skipped: ${missing[*]}"
    if [[ " ${missing[*]} " == *" openssh-server "* ]] && command -v systemctl >/dev/null; then
      systemctl disable --quiet ssh.service 2>/dev/null || true
    fi
  fi
}

# install_environment NAME REQUIREMENTS WHAT [PIP_OPTION...]: in .deps/NAME. Tests that need it are skipped without.
install_environment() {
  local name=$1 requirements=$2 what=$3
  shift 3
  if has_environment "$DEPS/$name" "$requirements"; then
    say "$what: all there"
    return
  fi
  say "$what: installing in .deps/$name"
  make_environment "$DEPS/$name" "$requirements" "$@" && return
  ((!with_packages)) || fail "pip could not install $requirements (is the package index reachable?)"
  say "tests that need $requirements will be skipped: pip could not install it"
}

install_checks() {
  install_environment checks tools/setup/checks.txt "programs that check packages and templates"
  if ((with_tests)); then
    install_environment docs docs/site/requirements.txt "programs that make the site" --no-deps
  fi
}

# install_wheels DEPTH: what torch needs beside itself, once.
install_wheels() {
  local depth=$1 stamp=$venv/chainmail-$1 requirements
  if [[ -e $stamp ]]; then
    return
  fi
  requirements=$("$venv/bin/python" tools/setup/torch_wheels.py "$depth")
  mapfile -t requirements <<<"$requirements"
  say "LibTorch: installing for $depth: ${requirements[*]}"
  pip_install "${requirements[@]}"
  touch "$stamp"
}

# pip's output is shown only when it fails: it calls the wheels left out on purpose conflicts.
pip_install() {
  local log=$venv/pip.log
  if ! "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off "$@" \
    >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "pip could not install: $* (is the package index reachable?)"
  fi
}

install_torch() {
  venv=$DEPS/torch-$torch_version
  local root
  mkdir -p "$DEPS"
  exec 9>"$DEPS/lock"
  flock -w 1800 9 || fail "another tools/setup.sh has been at work in $DEPS for half an hour: is it stuck?"
  if [[ ! -e $venv/chainmail-torch ]]; then
    say "LibTorch: installing the wheel torch $torch_version in .deps/torch-$torch_version"
    python3 -m venv "$venv"
    # One without torch would be taken for an environment that has it.
    (pip_install --no-deps "torch==$torch_version") || { rm -rf "$venv" && exit 1; }
    touch "$venv/chainmail-torch"
  fi
  install_wheels cpp
  if ((with_python)); then
    install_wheels python
  fi
  if ((with_cuda)); then
    install_cuda
  fi
  root=$(echo "$venv"/lib/python3*/site-packages/torch)
  [[ -e $root/lib/libtorch_cpu.so ]] ||
    fail "$root/lib/libtorch_cpu.so is not there; remove $venv and run this again"
  ln -sfn "torch-$torch_version" "$DEPS/venv"
  ln -sfn "${root#"$DEPS"/}" "$DEPS/torch"
  exec 9>&-
  say "LibTorch: torch $torch_version at ${root#"$PWD"/}"
}

install_cuda() {
  local nvcc
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
  if [[ -n $nvcc ]]; then
    say "CUDA: the toolkit of $nvcc is used"
    return
  fi
  install_wheels cuda
  say "CUDA: nvcc at $(cd "$venv" && ls -d lib/python3*/site-packages/nvidia/cu*/bin/nvcc | head -1)"
}

check_own_libtorch() {
  local root=$CHAINMAIL_LIBTORCH
  [[ -e $root/lib/libtorch_cpu.so && -d $root/include/torch ]] ||
    fail "CHAINMAIL_LIBTORCH=$root holds no LibTorch: lib/libtorch_cpu.so or include/torch is missing"
  say "LibTorch: $root (CHAINMAIL_LIBTORCH); nothing of torch is downloaded"
}

parse_options "$@"
export DEBIAN_FRONTEND=noninteractive
install_packages
if ((with_tests)); then
  install_test_packages
fi
if ((with_tests || with_packages)); then
  install_checks
fi
if [[ -n ${CHAINMAIL_LIBTORCH:-} ]]; then
  check_own_libtorch
elif ((!with_packages || torch_is_asked_for)); then
  install_torch
fi
say "ready"
