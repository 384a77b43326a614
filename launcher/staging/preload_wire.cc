// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/staging/preload_wire.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;

// What no disk holds; sums of so many fit into 64 bits.
constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 50;
constexpr std::uint32_t kPermissions = 0777;

void check(bool is_good, const std::string& what) {
  if (!is_good) throw SystemError("files to preload: " + what, EPROTO);
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

}  // namespace

std::string encode_preload_list(const std::vector<PreloadedFile>& files) {
  BodyWriter body;
  body.u8(static_cast<std::uint8_t>(PreloadOp::kList));
  body.u32(static_cast<std::uint32_t>(files.size()));
  for (const PreloadedFile& file : files) {
    body.text(file.name).u64(file.bytes).u32(file.mode).u32(file.checksum);
  }
  return body.take();
}

std::vector<PreloadedFile> decode_preload_list(std::string_view bytes) {
  BodyReader body(bytes);
  const std::uint32_t count = body.u32();
  check(count <= kMostPreloadedFiles, std::to_string(count) + " are too many");
  std::vector<PreloadedFile> files;
  std::set<std::string> names;
  for (std::uint32_t i = 0; i < count; ++i) {
    PreloadedFile& file = files.emplace_back();
    file.name = body.text();
    file.bytes = body.u64();
    file.mode = body.u32();
    file.checksum = body.u32();
    check(is_file_name(file.name), "a name that is none");
    check(names.insert(file.name).second, "a name that comes twice");
    check(file.bytes <= kMostFileBytes, "a size that cannot be");
    check((file.mode & ~kPermissions) == 0, "permissions that are none");
  }
  check(body.at_end(), "more than was announced");
  return files;
}

std::string encode_preload(PreloadOp op, std::string_view text) {
  return BodyWriter().u8(static_cast<std::uint8_t>(op)).text(text).take();
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace chainmail::launch
