#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# pip makes a wheel of the build tree and installs it into a scratch environment that sees the torch
# of PYTHON; two ranks use it there. In a torch of another minor version the import is refused.
#
# usage: wheel_test.sh PYTHON LAUNCHER BUILD_DIR
set -euo pipefail

python=$1 launcher=$2 build=$3
here=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset PYTHONPATH
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

"$python" -m venv "$scratch/venv"
venv=$scratch/venv/bin/python
# The scratch environment finds torch where PYTHON has it.
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
  >"$("$venv" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch.pth"
# Without dependencies, since set-up leaves out those of torch's that only CUDA uses.
"$venv" -m pip --disable-pip-version-check --no-cache-dir install --no-index --no-deps \
  "$build/python"
cd "$scratch"
"$venv" - <<'PYTHON'
import importlib.metadata as metadata, re
minor = ".".join(metadata.version("torch").split("+")[0].split(".")[:2])
assert metadata.requires("chainmail") == [f"torch=={minor}.*"], metadata.requires("chainmail")
assert re.fullmatch(rf"[0-9.]+\+torch{minor}", metadata.version("chainmail"))
PYTHON

installed=$("$venv" -c 'import chainmail; print(chainmail.__file__)')
[[ $installed == "$scratch"/* ]] || fail "imported $installed"
if readelf -d "${installed%/*}/libchainmail.so" | grep -E 'R(UN)?PATH' | grep -vF '[$ORIGIN:$ORIGIN/../torch/lib:$ORIGIN/../nvidia/cu13/lib]'; then
  fail "the installed library looks for others elsewhere"
fi
OMP_NUM_THREADS=1 "$launcher" -H localhost:2 -n 2 --timeout 100 "$venv" -B "$here/starter.py" 2 |
  tr -d '\r' | tee printed
grep -qxF "sum 84 on 2 ranks" printed || fail "no sum of two ranks"

# From 2.14 on torch finds the backend of an installed wheel without an import.
"$venv" - >discovery <<'PYTHON'
import torch
major, minor = map(int, torch.__version__.split(".")[:2])
if (major, minor) >= (2, 14):
    import torch.distributed as dist
    dist.init_process_group("chainmail", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.get_backend() == "chainmail"
    dist.destroy_process_group()
print("ok")
PYTHON
grep -qx ok discovery || fail "torch does not find the installed backend"

# A torch that only says another version.
mkdir -p other/torch
printf '__version__ = "9.9.0"\n' >other/torch/__init__.py
touch other/torch/distributed.py
if PYTHONPATH=$scratch/other "$venv" -c 'import chainmail' >refused 2>&1; then
  fail "imported with torch 9.9.0"
fi
grep -E 'ImportError: .*built with torch [0-9.]+ .* but torch 9\.9\.0 is installed' refused ||
  { cat refused && fail "the refusal does not name both versions"; }
