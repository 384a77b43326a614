// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One target under libFuzzer, which brings main(). The program's name says which: fuzz_<target>.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/launcher/fuzz/fuzz_targets.h"

namespace {

chainmail::launch::FuzzTarget& target() {
  static chainmail::launch::FuzzTarget chosen;
  return chosen;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** argv) {
  const std::string path = (*argv)[0];
  const std::string name = path.substr(path.rfind('/') + 1);
  for (auto& one : chainmail::launch::all_fuzz_targets(CHAINMAIL_HOSTS_CORPUS)) {
    if ("fuzz_" + one.name == name) target() = one;
  }
  if (target().run) return 0;
  std::fprintf(stderr, "%s: no fuzz target of this name\n", name.c_str());
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  target().run({reinterpret_cast<const char*>(data), size});
  return 0;
}
