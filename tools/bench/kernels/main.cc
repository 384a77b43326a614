// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Times packing (scale and round to 16 bits) and unpacking beside copying, in turn, on one core:
//   chainmail-kernel-bench [MIB...]        default: 1 4 256
//
// Bytes are counted as memory moves them: read, write, and the read that an ordinary store to an
// uncached line begins with. `copy` uses ordinary stores as the others do. memcpy() may write large
// arrays past the caches, without that read, and is then counted without; which of the two columns
// holds for it depends on the C library's threshold.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "examples/common/flags.h"
#include "ops/comm/comm.h"
#include "ops/kernels/cpu/kernels.h"

namespace chainmail::ops {
namespace {

constexpr int kRounds = 15;

struct Kernel {
  std::string name;
  double bytes_per_element;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<Kernel> kernels_on(std::byte* a, std::byte* b, std::size_t count) {
  std::vector<Kernel> kernels;
  const std::byte* const source[] = {a};
  kernels.push_back(
      {"copy", 12, [=] { ops::reduce(b, source, count, DataType::kFloat32, ReduceOp::kSum); }});
  kernels.push_back({"memcpy", 12, [=] { std::memcpy(b, a, count * sizeof(float)); }});
  kernels.push_back({"memcpy, uncached", 8, kernels.back().run});
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    kernels.push_back({std::string("pack ") + to_string(wire), 8,
                       [=] { static_cast<void>(round_to_wire(b, a, count, 0.5, wire)); }});
    kernels.push_back({std::string("unpack ") + to_string(wire), 10,
                       [=] { widen_from_wire(b, a, count, wire); }});
  }
  return kernels;
}

void measure(std::size_t mib) {
  const std::size_t bytes = mib << 20;
  const std::size_t count = bytes / sizeof(float);
  const auto a = allocate_private(bytes);
  const auto b = allocate_private(bytes);
  std::vector<Kernel> kernels = kernels_on(a.get(), b.get(), count);
  const std::size_t calls = std::max<std::size_t>(1, 32 / mib);
  for (int round = -1; round < kRounds; ++round) {
    for (Kernel& kernel : kernels) {
      const auto begin = std::chrono::steady_clock::now();
      for (std::size_t call = 0; call < calls; ++call) kernel.run();
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      if (round >= 0) kernel.seconds.push_back(time.count() / static_cast<double>(calls));
    }
  }
  const auto rate = [count](const Kernel& kernel) {
    return static_cast<double>(count) * kernel.bytes_per_element / median(kernel.seconds) / 1e9;
  };
  for (const Kernel& kernel : kernels) {
    std::printf("%6zu  %-18s %8.1f  %6.2f\n", mib, kernel.name.c_str(), rate(kernel),
                rate(kernel) / rate(kernels[0]));
  }
}

int run(const std::vector<std::string>& arguments) {
  std::vector<std::size_t> sizes;
  for (const std::string& text : arguments) {
    std::size_t mib = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mib);
    if (error != std::errc() || end != text.data() + text.size() || mib < 1 || mib > 4096) {
      throw flags::UsageError("'" + text + "' is not a number of MiB from 1 to 4096");
    }
    sizes.push_back(mib);
  }
  if (sizes.empty()) sizes = {1, 4, 256};
  std::printf("# %s, one core, median of %d rounds\n#  MiB  kernel                 GB/s  / copy\n",
              instruction_set(), kRounds);
  for (const std::size_t mib : sizes) measure(mib);
  return 0;
}

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "chainmail-kernel-bench",
      .what =
          "Times packing and unpacking of 16 bits beside copying, on one core, for arrays of\n"
          "these sizes (1 4 256).",
      .arguments = "[MIB...]"};
  return flags::run(program, argc, argv, chainmail::ops::run);
}
