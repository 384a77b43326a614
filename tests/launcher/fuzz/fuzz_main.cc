// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One target under libFuzzer, which brings main().

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "tests/launcher/fuzz/fuzz_targets.h"

namespace {

using namespace chainmail::launch;

const FuzzTarget& target() {
  static const FuzzTarget found = [] {
    for (FuzzTarget& one : all_fuzz_targets(CHAINMAIL_HOSTS_CORPUS)) {
      if (one.name == CHAINMAIL_FUZZ_TARGET) return one;
    }
    throw std::runtime_error("no fuzz target " CHAINMAIL_FUZZ_TARGET);
  }();
  return found;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  target().run({reinterpret_cast<const char*>(data), size});
  return 0;
}
