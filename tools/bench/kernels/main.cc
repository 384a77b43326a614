// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Times packing (scale and round to 16 bits, or to blocks of integers with feedback) and unpacking
// (of integers: adding, too) beside copying, in turn, on one core:
//   chainmail-kernel-bench [MIB...]        default: 64K 1 4 256; 64K are KiB
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
#include <span>
#include <string>
#include <vector>

#include "examples/common/flags.h"
#include "ops/comm/comm.h"
#include "ops/kernels/block_wire.h"
#include "ops/kernels/cpu/blocks.h"
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

std::vector<Kernel> kernels_on(std::byte* a, std::byte* b, std::byte* residual, std::byte* packed,
                               std::size_t count) {
  std::vector<Kernel> kernels;
  const std::byte* const source[] = {a};
  kernels.push_back(
      {"copy", 12, [=] { ops::reduce(b, source, count, DataType::kFloat32, ReduceOp::kSum); }});
  kernels.push_back({"memcpy", 12, [=] { std::memcpy(b, a, count * sizeof(float)); }});
  kernels.push_back({"memcpy, uncached", 8, kernels.back().run});
  for (const WireFormat wire : {WireFormat::kFloat16, WireFormat::kBFloat16}) {
    kernels.push_back({std::string("pack ") + to_string(wire), 8,
                       [=] { static_cast<void>(round_to_wire(b, a, count, 0.5, wire)); }});
    std::byte* const message = packed;  // other bytes would be infinite as often as not
    packed += message_size(count, wire);
    static_cast<void>(round_to_wire(message, a, count, 0.5, wire));
    kernels.push_back({std::string("unpack ") + to_string(wire), 10,
                       [=] { widen_from_wire(b, message, count, wire); }});
  }
  for (const WireFormat wire : {WireFormat::kInt8, WireFormat::kInt4}) {
    const std::size_t bytes = message_size(count, wire);
    const double code = wire == WireFormat::kInt8 ? 1 : 0.5;
    kernels.push_back({std::string("encode ") + to_string(wire), 12 + code, [=] {
                         const std::span<std::byte> message(b, bytes);
                         static_cast<void>(encode_blocks(message, a, residual, count, 0.5, wire));
                       }});
    kernels.push_back({std::string("add ") + to_string(wire), 8 + code, [=] {
                         accumulate_blocks(residual, {b, bytes}, count, wire);
                       }});
  }
  return kernels;
}

/// A size as it was written: "4" MiB or "64K".
struct Size {
  std::string text;
  std::size_t bytes;
};

void measure(const Size& size) {
  const std::size_t count = size.bytes / sizeof(float);
  const auto a = allocate_private(size.bytes);
  const auto b = allocate_private(size.bytes);
  const auto residual = allocate_private(size.bytes);
  const auto packed = allocate_private(2 * message_size(count, WireFormat::kFloat16));
  // Blocks of zeros would be encoded by another path.
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i % 1009) - 504.0F;
    std::memcpy(a.get() + i * sizeof value, &value, sizeof value);
  }
  std::vector<Kernel> kernels = kernels_on(a.get(), b.get(), residual.get(), packed.get(), count);
  const std::size_t calls = std::max<std::size_t>(1, (std::size_t{32} << 20) / size.bytes);
  for (int round = -1; round < kRounds; ++round) {
    for (Kernel& kernel : kernels) {
      const auto begin = std::chrono::steady_clock::now();
      for (std::size_t call = 0; call < calls; ++call) kernel.run();
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
      if (round >= 0) kernel.seconds.push_back(time.count() / static_cast<double>(calls));
    }
  }
  const auto elements = [count](const Kernel& kernel) {
    return static_cast<double>(count) / median(kernel.seconds) / 1e9;
  };
  const auto rate = [&](const Kernel& kernel) {
    return elements(kernel) * kernel.bytes_per_element;
  };
  for (const Kernel& kernel : kernels) {
    std::printf("%6s  %-18s %8.1f  %6.2f  %10.2f\n", size.text.c_str(), kernel.name.c_str(),
                rate(kernel), rate(kernel) / rate(kernels[0]), elements(kernel));
  }
}

Size parse_size(const std::string& text) {
  const bool is_kib = !text.empty() && text.back() == 'K';
  const char* const last = text.data() + text.size() - (is_kib ? 1 : 0);
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc() || end != last || number < 1 || number > 4096) {
    throw flags::UsageError("'" + text +
                            "' is not a number of MiB from 1 to 4096, or of KiB with a K");
  }
  return {text, number << (is_kib ? 10 : 20)};
}

int run(const std::vector<std::string>& arguments) {
  std::vector<Size> sizes;
  for (const std::string& text : arguments) sizes.push_back(parse_size(text));
  if (sizes.empty())
    sizes = {parse_size("64K"), parse_size("1"), parse_size("4"), parse_size("256")};
  std::printf(
      "# %s, one core, median of %d rounds\n"
      "#  MiB  kernel                 GB/s  / copy  Gelements/s\n",
      instruction_set(), kRounds);
  for (const Size& size : sizes) measure(size);
  return 0;
}

}  // namespace
}  // namespace chainmail::ops

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "chainmail-kernel-bench",
      .what =
          "Times packing and unpacking of 16 bits and of blocks of integers beside copying, on\n"
          "one core, for arrays of these sizes (64K 1 4 256; with a K: KiB).",
      .arguments = "[MIB...]"};
  return flags::run(program, argc, argv, chainmail::ops::run);
}
