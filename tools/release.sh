#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# Makes and checks everything that a release consists of. Uploads nothing.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tools/release.sh [--key FILE] [--once] [--without-install-tests] X.Y.Z [DIR]

Makes the wheel, the tarballs, the Debian package and the source archive of the commit that is checked
out, twice and in folders of different names, and compares them byte by byte; checks the ABI against the
last release's, installs every package as users do, and writes with them, into DIR (build-package/release-X.Y.Z),
their bills of materials and SHA256SUMS. Uploads nothing and sets no tag: its last lines say how to.
  --key FILE  signs SHA256SUMS with this SSH key (ssh-keygen -Y sign; ~/.ssh/id_ed25519 unless given)
  --once      makes everything once, for a rehearsal; such a DIR says so
  --without-install-tests  leaves out what takes a download of torch, and root
The tree must be clean, CMakeLists.txt must say X.Y.Z, and CHANGELOG.md must have a section "## X.Y.Z (YEAR-MONTH-DAY)".
One of the two passes takes 17 minutes on two cores. docs/maintainers/releases.md has the steps before and after.
TEXT
}

say() { echo "release: $*"; }
fail() {
  echo "release: error: $1" >&2
  exit "${2:-1}"
}

key=$HOME/.ssh/id_ed25519 builds=2 install_tests=1 version='' output=''
while (($#)); do
  case $1 in
    --key)
      (($# > 1)) || fail "--key needs a file" 2
      key=$2
      shift
      ;;
    --key=*) key=${1#*=} ;;
    --once) builds=1 ;;
    --without-install-tests) install_tests=0 ;;
    -h | --help)
      usage
      exit 0
      ;;
    -*) fail "unknown option '$1'; see --help" 2 ;;
    *)
      if [[ -z $version ]]; then
        version=$1
      elif [[ -z $output ]]; then
        output=$1
      else
        fail "too many arguments: '$1'; see --help" 2
      fi
      ;;
  esac
  shift
done
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || { usage >&2 && fail "'$version' is no version such as 0.2.0" 2; }
[[ -r $key ]] || fail "there is no key $key to sign with; make one by ssh-keygen -t ed25519, or give --key FILE" 2
key=$(realpath "$key")
# Now, and not after the builds: it may want a passphrase, or be the public half.
public=$(ssh-keygen -y -f "$key") || fail "$key is no private key that can be read" 2
output=$(realpath -m -- "${output:-"$(dirname "${BASH_SOURCE[0]}")/../build-package/release-$version"}")
[[ ! -e $output || -z $(ls -A "$output") ]] || fail "$output is not empty; remove it, or give another DIR"

CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
check_tree() {
  local said
  said=$(git status --porcelain) || fail "this is no git repository"
  [[ -z $said ]] || fail "the tree is not clean: $(head -3 <<<"$said")"
  grep -qF "project(chainmail VERSION $version " CMakeLists.txt ||
    fail "CMakeLists.txt has another version: $(grep '^project(' CMakeLists.txt)"
  grep -Eq "^## ${version//./\\.} \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md ||
    fail "CHANGELOG.md has no section '## $version (YEAR-MONTH-DAY)'"
}
check_tree
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
scratch=$(mktemp -d)
trap 'rm -rf --one-file-system "$scratch"' EXIT

# make_all CLONE OUTPUT: in a clone of its own; what set-up has installed is used.
make_all() {
  local clone=$1 made=$2 kind
  git clone -q . "$clone"
  mkdir -p "$made" .deps
  ln -s "$PWD/.deps" "$clone/.deps"
  for kind in wheel tarball deb; do
    # What a cache keeps was compiled in another folder, perhaps.
    CCACHE_DISABLE=1 "$clone/tools/package.sh" "$kind" "$made"
  done
  git -C "$clone" -c tar.umask=0022 archive --format=tar --prefix="chainmail-$version/" HEAD |
    gzip -9 -n >"$made/chainmail-$version.tar.gz"
}

say "making the packages of $(git log -1 --format='%h %s')"
make_all "$scratch/first" "$scratch/made"
if ((builds == 2)); then
  say "making them once more, in a folder with a longer name"
  make_all "$scratch/second_in_a_folder_with_a_longer_name" "$scratch/again"
  diff -r "$scratch/made" "$scratch/again" || fail "two builds differ; diffoscope shows where"
  say "two builds gave the same bytes"
fi
# With the types that packages leave out.
say "comparing the binary interface with the last release's"
source tools/setup/build.sh
cmake -G Ninja -S "$scratch/first" -B "$scratch/abi" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-g \
  -DCHAINMAIL_BUILD_TESTS=OFF "-DCHAINMAIL_LIBTORCH=$(libtorch_root 2.11.0)" >"$scratch/log" 2>&1 &&
  cmake --build "$scratch/abi" --parallel "$(build_jobs)" --target chainmail >>"$scratch/log" 2>&1 ||
  { tail -n 40 "$scratch/log" >&2 && fail "the library with types was not built"; }
tools/abi.sh check "$scratch/abi/lib/libchainmail.so"

mkdir -p "$output"
tools/abi.sh dump "$scratch/abi/lib/libchainmail.so" "$output/libchainmail-$version.abi"
cp "$scratch"/made/* "$output/"
tree=$PWD
cd "$output"
((builds == 2)) || echo "made once: that the same comes of it again has not been checked" >REHEARSAL
python3 - <<'PYTHON'
import glob, zipfile
for path in glob.glob("*.whl"):
    with zipfile.ZipFile(path) as wheel:
        name = next(name for name in wheel.namelist() if ".dist-info/sboms/" in name)
        open(f"{path.removesuffix('.whl')}.cdx.json", "wb").write(wheel.read(name))
PYTHON
for archive in chainmail-*-torch*.tar.gz; do
  tar -xzOf "$archive" --wildcards '*/share/doc/chainmail/chainmail.cdx.json' >"${archive%.tar.gz}.cdx.json"
done
for package in chainmail-launcher_*.deb; do
  dpkg-deb -x "$package" "$scratch/deb"
  "$tree/.deps/checks/bin/python" -B "$tree/packaging/sbom.py" chainmail-launcher "$version" "$scratch/deb" \
    "$scratch/first/build-package/third_party" >"${package%.deb}.cdx.json"
done
sha256sum -- * >"$scratch/sums"
mv "$scratch/sums" SHA256SUMS
ssh-keygen -q -Y sign -f "$key" -n chainmail-release SHA256SUMS
echo "chainmail-release namespaces=\"chainmail-release\" $public" >allowed_signers
cd - >/dev/null
packaging/verify "$output"

if ((install_tests)); then
  tests/soak/packaging/wheel.sh "$output"/chainmail-*.whl
  for archive in "$output"/chainmail-*-torch2.11-*.tar.gz; do
    tests/soak/packaging/tarball.sh "$archive" "$(realpath .deps/torch-2.11.0/lib/python3*/site-packages/torch)"
  done
  tests/soak/packaging/deb.sh "$output"/chainmail-launcher_*.deb
fi
say "in $output:"
ls -l "$output" | awk 'NR > 1 {printf "  %10s  %s\n", $5, $9}'
cat <<TEXT
release: nothing has been uploaded. To publish:
  cp $output/libchainmail-$version.abi abi/ and commit it
  git tag -s v$version && git push origin v$version
  python -m twine upload $output/*.whl
  and put the other files of that folder beside the tag's notes
TEXT
