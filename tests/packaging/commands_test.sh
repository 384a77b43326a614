#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What tools/package.sh and tools/release.sh refuse before they build, and packaging/verify.
# usage: commands_test.sh     (in the repository's root)
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
source tests/support/expect.sh

command -v ssh-keygen >/dev/null || { echo "skipped: no ssh-keygen (package openssh-client)" && exit 77; }

expect 0 '^usage: tools/package.sh' tools/package.sh --help
expect 2 "'' is no package" tools/package.sh
expect 2 "'rpm' is no package" tools/package.sh rpm "$scratch"
expect 2 'no DIR' tools/package.sh wheel
expect 2 "unknown option '--fast'" tools/package.sh --fast wheel "$scratch"
expect 2 "'newest' is no version" tools/package.sh --torch newest wheel "$scratch"
expect 2 "too many arguments: 'more'" tools/package.sh wheel "$scratch" more
expect 2 'one library for torch 2\.11' tools/package.sh --torch 2.11.0 --torch 2.11.1 wheel "$scratch"
for moment in soon -1 1e9 08 4354819200; do
  expect 2 "SOURCE_DATE_EPOCH='$moment' is no number of seconds" env SOURCE_DATE_EPOCH="$moment" tools/package.sh wheel "$scratch"
done
touch "$scratch/file"
expect 1 'cannot make' tools/package.sh wheel "$scratch/file/below"

ssh-keygen -q -t ed25519 -N '' -f "$scratch/key"
expect 0 '^usage: tools/release.sh' tools/release.sh --help
expect 2 "'' is no version" tools/release.sh --key "$scratch/key"
expect 2 "'1.0' is no version" tools/release.sh --key "$scratch/key" 1.0
expect 2 'there is no key' tools/release.sh --key "$scratch/none" 1.0.0
mkdir "$scratch/full" && touch "$scratch/full/file"
expect 1 'is not empty' tools/release.sh --key "$scratch/key" 1.0.0 "$scratch/full"
expect 2 'is no private key' tools/release.sh --key "$scratch/full/file" 1.0.0 "$scratch/made"

# What others have in a folder stays there.
expect 1 'full holds something else' packaging/third_party/build.sh "$scratch/full"
# shellcheck disable=SC2016  # the other shell's
expect 1 'full holds something else' bash -c 'source tools/setup/python_environment.sh && make_environment "$1" LICENSE' bash \
  "$scratch/full"
[[ -e $scratch/full/file ]] || fail "a folder of somebody else's was emptied"

# In a small repository, so that this one's state does not matter.
mkdir -p "$scratch/repository/tools"
cp tools/release.sh "$scratch/repository/tools/"
release=("$scratch/repository/tools/release.sh" --key "$scratch/key" 1.2.3 "$scratch/made")
expect 1 'no git repository' "${release[@]}"
cd "$scratch/repository"
git init -q .
expect 1 'not clean' "${release[@]}"
# By a path such as tools/release.sh, cd would look in CDPATH first.
mkdir -p "$scratch/elsewhere/tools"
expect 1 'not clean' env CDPATH="$scratch/elsewhere" tools/release.sh "${release[@]:1}"
commit() { git add -A && git -c user.name=test -c user.email=test@localhost commit -q -m change; }
echo 'project(chainmail VERSION 1.2.2 LANGUAGES CXX)' >CMakeLists.txt
commit
expect 1 'another version: project\(chainmail VERSION 1\.2\.2' "${release[@]}"
echo 'project(chainmail VERSION 1.2.3 LANGUAGES CXX)' >CMakeLists.txt
printf '# Changelog\n\n## 1.2.3 (not released)\n' >CHANGELOG.md
commit
expect 1 "no section '## 1\.2\.3 \(YEAR-MONTH-DAY\)'" "${release[@]}"
# One at a time in a tree.
mkdir -p tools/setup build-package
cp "$OLDPWD/tools/package.sh" tools/ && cp "$OLDPWD/tools/setup/build.sh" tools/setup/
expect 1 'another tools/package.sh is at work' flock build-package/lock tools/package.sh wheel "$scratch/made_at_once"
cd - >/dev/null
[[ ! -e $scratch/made ]] || fail "something was made"

made=$scratch/signed
mkdir "$made"
echo one >"$made/chainmail.whl" && echo two >"$made/chainmail.tar.gz"
(cd "$made" && sha256sum -- * >SHA256SUMS && ssh-keygen -q -Y sign -f "$scratch/key" -n chainmail-release SHA256SUMS &&
  ssh-keygen -y -f "$scratch/key" | sed 's/^/chainmail-release namespaces="chainmail-release" /' >allowed_signers) 2>/dev/null
expect 0 'all files .* as they were signed' packaging/verify "$made"
echo onf >"$made/chainmail.whl"
expect 1 'a file is not what was signed' packaging/verify "$made"
echo one >"$made/chainmail.whl"
echo three >"$made/more"
expect 1 'more is not among the files' packaging/verify "$made"
rm "$made/more"
mv "$made/chainmail.tar.gz" "$scratch/"
expect 1 'a file is not what was signed' packaging/verify "$made"
mv "$scratch/chainmail.tar.gz" "$made/"
sed -i '1s/^./x/' "$made/SHA256SUMS"
expect 1 'was not signed by a key' packaging/verify "$made"
(cd "$made" && rm SHA256SUMS && sha256sum -- *.gz *.whl >SHA256SUMS)
expect 0 'all files' packaging/verify "$made"
ssh-keygen -q -t ed25519 -N '' -f "$scratch/other"
sed 's/^/chainmail-release namespaces="chainmail-release" /' "$scratch/other.pub" >"$scratch/signers"
expect 1 'was not signed by a key' packaging/verify "$made" "$scratch/signers"
expect 2 '^usage: packaging/verify' packaging/verify
sed 's/^/chainmail-release namespaces="chainmail-release" /' "$scratch/key.pub" >"$scratch/signers"
expect 0 'as they were signed$' packaging/verify "$made" "$scratch/signers"
for name in .hidden ..hidden; do
  echo more >"$made/$name"
  expect 1 "$name is not among the files" packaging/verify "$made"
  rm "$made/$name"
done
mkdir "$made/.folder"
expect 1 'folder is not among the files' packaging/verify "$made"
rmdir "$made/.folder"
mv "$made/chainmail.whl" "$scratch/" && ln -s ../chainmail.whl "$made/"
expect 1 'chainmail.whl is no plain file' packaging/verify "$made"
mv "$scratch/chainmail.whl" "$made/"
expect 1 "no folder $scratch/none" packaging/verify "$scratch/none"
expect 1 'no file .*/none with the keys' packaging/verify "$made" "$scratch/none"
# What is checked is the folder that was named, though CDPATH has another one of its name.
verify=$PWD/packaging/verify
cp -r "$made" "$scratch/-bad" && echo onf >"$scratch/-bad/chainmail.whl"
mkdir "$scratch/cdpath" && cp -r "$made" "$scratch/cdpath/-bad"
cd "$scratch"
expect 1 'a file is not what was signed' env CDPATH="$scratch/cdpath" "$verify" -bad "$scratch/signers"
cd - >/dev/null
rm "$made/SHA256SUMS"
expect 1 'has no SHA256SUMS$' packaging/verify "$made"
echo passed
