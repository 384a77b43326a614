// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/shared_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <utility>

#include "base/error.h"

namespace chainmail::internal {

LibraryOnDemand::LibraryOnDemand(std::string who, const void* code, const std::string& file,
                                 const std::string& needs)
    : who_(std::move(who)) {
  Dl_info here{};
  std::filesystem::path folder;
  if (::dladdr(code, &here) != 0) {
    std::error_code error;  // then the system looks
    folder = std::filesystem::canonical(here.dli_fname, error).parent_path();
  }
  std::string reasons;
  for (const auto& place :
       {folder / file, folder / ".." / "lib" / file, std::filesystem::path(file)}) {
    path_ = place.string();
    library_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library_ != nullptr) return;
    reasons += std::string(reasons.empty() ? "" : "; ") + ::dlerror();
  }
  throw InvalidArgument(who_ + ": " + file + " cannot be opened. " + needs + " (" + reasons + ")");
}

void* LibraryOnDemand::address_of(const char* function) const noexcept {
  return ::dlsym(library_, function);
}

void LibraryOnDemand::refuse() const {
  throw InvalidArgument(who_ + ": " + path_ + " belongs to another version of Chainmail");
}

}  // namespace chainmail::internal
