// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Opens the libraries of ours that are loaded on demand (MPI, CUDA).
//
// Any thread.

#pragma once

#include <string>

namespace chainmail::internal {

class LibraryOnDemand {
 public:
  /// Opens `file` in the folder of the library or program that `code` lies in, in ../lib beside a
  /// program's, or where the system looks. Never unloaded again: MPI and CUDA leave threads and
  /// handlers behind. Throws InvalidArgument that begins with `who` and ends with `needs`, a
  /// sentence, and why it cannot be opened.
  LibraryOnDemand(std::string who, const void* code, const std::string& file,
                  const std::string& needs);

  /// What `call` gets from the library's one function. Throws InvalidArgument where there is none,
  /// or null comes of it: the library is of another version.
  template <typename Function, typename Call>
  auto* ask(const char* function, const Call& call) const {
    const auto address = reinterpret_cast<Function>(address_of(function));
    auto* const answer = address == nullptr ? nullptr : call(address);
    if (answer == nullptr) refuse();
    return answer;
  }

 private:
  void* address_of(const char* function) const noexcept;
  [[noreturn]] void refuse() const;

  const std::string who_;
  std::string path_;
  void* library_ = nullptr;
};

}  // namespace chainmail::internal
