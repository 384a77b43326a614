// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/shared_library.h"

#include <dlfcn.h>

#include <filesystem>

namespace chainmail::internal {

void* open_library_beside(const void* code, const std::string& file, std::string& path,
                          std::string& reasons) {
  Dl_info here{};
  std::filesystem::path folder;
  if (::dladdr(code, &here) != 0) {
    std::error_code error;  // then the system looks
    folder = std::filesystem::canonical(here.dli_fname, error).parent_path();
  }
  for (const auto& place :
       {folder / file, folder / ".." / "lib" / file, std::filesystem::path(file)}) {
    void* library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library != nullptr) {
      path = place.string();
      return library;
    }
    reasons += std::string(reasons.empty() ? "" : "; ") + ::dlerror();
  }
  return nullptr;
}

}  // namespace chainmail::internal
