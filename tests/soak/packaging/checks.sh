# SPDX-License-Identifier: BSD-3-Clause
# SPDX-FileCopyrightText: 2026 the Chainmail authors

# What holds for every file of machine code in a package. Sourced.

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# Programs may have a glog, a gflags, an OpenSSL and a Highway of their own.
hides_what_it_bundles() {
  local seen
  seen=$(nm -DC --defined-only "$1" | awk '{$1 = ""; $2 = ""; print}' |
    grep -E '^ *(google::|gflags::|fL[BISDU]|hwy::|typeinfo (name )?for google::|vtable for google::|EVP_|CRYPTO_|AES_|SHA256|RAND_|OPENSSL_|XXH)' || true)
  [[ -z $seen ]] || fail "$1 shows symbols of what is inside: $(head -3 <<<"$seen")"
}

has_no_foreign_run_path() {
  local found
  found=$(readelf -d "$1" | sed -n 's/.*R\(UN\)\?PATH).*\[\(.*\)\]/\2/p' | tr ':' '\n' | grep -v '^\$ORIGIN' || true)
  [[ -z $found ]] || fail "$1 looks for libraries in $found"
}

has_no_debug_information() {
  if readelf -S "$1" | grep -q '\.debug_info'; then fail "$1 has debug information"; fi
}
