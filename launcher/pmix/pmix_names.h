// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Published names between libpmix's structures and messages. A value travels as libpmix packs it,
// behind the number of the rank that published it. Pure; no thread of its own.

#pragma once

#include <pmix.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

/// The data among `infos`; directives to the server are left out.
[[nodiscard]] std::vector<MpiEntry> packed_names(const pmix_proc_t& owner, const pmix_info_t* infos,
                                                 std::size_t count);

/// `keys` ends with a null pointer, or is one.
[[nodiscard]] std::vector<MpiEntry> names_in(char** keys);

struct LookupTerms {
  bool waits = false;
  std::optional<std::chrono::seconds> limit;
};
[[nodiscard]] LookupTerms lookup_terms(const pmix_info_t* infos, std::size_t count);

/// What a lookup found, as libpmix wants it. Entries that cannot be read are left out.
class FoundNames {
 public:
  FoundNames(const std::string& job, const std::vector<MpiEntry>& entries);
  FoundNames(const FoundNames&) = delete;
  FoundNames& operator=(const FoundNames&) = delete;
  ~FoundNames();

  pmix_pdata_t* data() noexcept { return found_.data(); }
  std::size_t size() const noexcept { return found_.size(); }

 private:
  std::vector<pmix_pdata_t> found_;
};

}  // namespace chainmail::launch
