// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/pmix/pmix_names.h"

#include <pmix_server.h>

#include <cstring>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace chainmail::launch {
namespace {

std::string packed(const pmix_value_t& value) {
  pmix_data_buffer_t buffer;
  PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
  std::string bytes;
  if (PMIx_Data_pack(nullptr, &buffer, const_cast<pmix_value_t*>(&value), 1, PMIX_VALUE) ==
      PMIX_SUCCESS) {
    bytes.assign(buffer.base_ptr, buffer.bytes_used);
  }
  PMIX_DATA_BUFFER_DESTRUCT(&buffer);
  return bytes;
}

bool unpack(std::string bytes, pmix_value_t& value) {
  pmix_data_buffer_t buffer;
  PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
  // The buffer frees what it holds, so that it gets memory of its own.
  char* copy = static_cast<char*>(std::malloc(bytes.size()));
  if (copy == nullptr) return false;
  std::memcpy(copy, bytes.data(), bytes.size());
  PMIX_DATA_BUFFER_LOAD(&buffer, copy, bytes.size());
  std::int32_t count = 1;
  const pmix_status_t status = PMIx_Data_unpack(nullptr, &buffer, &value, &count, PMIX_VALUE);
  PMIX_DATA_BUFFER_DESTRUCT(&buffer);
  return status == PMIX_SUCCESS && count == 1;
}

bool is_directive(const char* key) { return std::strncmp(key, "pmix.", 5) == 0; }

}  // namespace

std::vector<MpiEntry> packed_names(const pmix_proc_t& owner, const pmix_info_t* infos,
                                   std::size_t count) {
  std::vector<MpiEntry> entries;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_directive(infos[i].key)) continue;
    entries.push_back(
        {infos[i].key, internal::BodyWriter().u32(owner.rank).text(packed(infos[i].value)).take()});
  }
  return entries;
}

std::vector<MpiEntry> names_in(char** keys) {
  std::vector<MpiEntry> names;
  for (; keys != nullptr && *keys != nullptr; ++keys) names.push_back({*keys, {}});
  return names;
}

LookupTerms lookup_terms(const pmix_info_t* infos, std::size_t count) {
  LookupTerms terms;
  for (std::size_t i = 0; i < count; ++i) {
    const pmix_info_t& info = infos[i];
    if (std::strcmp(info.key, PMIX_WAIT) == 0) terms.waits = true;
    if (std::strcmp(info.key, PMIX_TIMEOUT) == 0 && info.value.type == PMIX_INT &&
        info.value.data.integer > 0) {
      terms.limit = std::chrono::seconds(info.value.data.integer);
    }
  }
  return terms;
}

FoundNames::FoundNames(const std::string& job, const std::vector<MpiEntry>& entries) {
  for (const MpiEntry& entry : entries) {
    pmix_pdata_t item;
    PMIX_PDATA_CONSTRUCT(&item);
    try {
      internal::BodyReader body(entry.value);
      const std::uint32_t owner = body.u32();
      if (!unpack(body.text(), item.value)) continue;
      PMIX_LOAD_PROCID(&item.proc, job.c_str(), owner);
      PMIX_LOAD_KEY(item.key, entry.key.c_str());
    } catch (const SystemError&) {
      continue;  // no helper wrote this
    }
    found_.push_back(item);
  }
}

FoundNames::~FoundNames() {
  for (pmix_pdata_t& item : found_) PMIX_PDATA_DESTRUCT(&item);
}

}  // namespace chainmail::launch
