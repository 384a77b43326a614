// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/report/files.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/error.h"

namespace chainmail::internal {

void make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) {
    throw SystemError("cannot make folder " + folder.string() + ": " + error.message(),
                      error.value());
  }
}

void replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  {
    std::ofstream file(temporary, std::ios::trunc);
    file << text;
    if (!file.flush()) throw system_error("cannot write " + temporary);
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error) {
    throw SystemError("cannot rename " + temporary + ": " + error.message(), error.value());
  }
}

}  // namespace chainmail::internal
