// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job in libpmix's terms.
//
// One thread, before ranks connect.

#pragma once

#include <pmix.h>

#include <string>
#include <vector>

#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

/// Owns an array of pmix_info_t.
class PmixInfos {
 public:
  PmixInfos() = default;
  PmixInfos(const PmixInfos&) = delete;
  PmixInfos& operator=(const PmixInfos&) = delete;
  ~PmixInfos();

  void add(const char* key, const std::string& text);
  void add(const char* key, std::uint32_t number);
  void add_small(const char* key, std::uint16_t number);
  void add_rank(const char* key, pmix_rank_t rank);
  void add_flag(const char* key);
  void add_array(const char* key, const PmixInfos& infos);

  pmix_info_t* data() noexcept { return infos_.data(); }
  const pmix_info_t* data() const noexcept { return infos_.data(); }
  std::size_t size() const noexcept { return infos_.size(); }

 private:
  void add_value(const char* key, const void* value, pmix_data_type_t type);

  std::vector<pmix_info_t> infos_;
};

/// Throws SystemError with libpmix's words unless `status` is good.
void check_pmix(pmix_status_t status, const std::string& what);

/// Registers the job and its ranks of this node. Session directories go below `directory`.
void register_job(const MpiOrder& order, const std::string& directory);

}  // namespace chainmail::launch
