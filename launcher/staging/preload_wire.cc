// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/staging/preload_wire.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <set>

#include "base/error.h"
#include "launcher/channel/wire.h"

namespace chainmail::launch {
namespace {

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
  return static_cast<char>(PreloadOp::kList) + encode_fields(files);
}

std::vector<PreloadedFile> decode_preload_list(std::string_view bytes) {
  auto files = decode_fields<std::vector<PreloadedFile>>(bytes, "files to preload");
  check(files.size() <= kMostPreloadedFiles, std::to_string(files.size()) + " are too many");
  std::set<std::string> names;
  for (const PreloadedFile& file : files) {
    check(is_file_name(file.name), "an invalid name");
    check(names.insert(file.name).second, "a name twice");
    check(file.bytes <= kMostFileBytes, "an impossible size");
    check((file.mode & ~kPermissions) == 0, "invalid permissions");
  }
  return files;
}

std::string encode_preload(PreloadOp op, std::string_view text) {
  return internal::BodyWriter().u8(static_cast<std::uint8_t>(op)).text(text).take();
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
