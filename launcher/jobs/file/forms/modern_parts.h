// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The parts of the modern form that hold no patterns, each an object of a few keys. One thread.

#pragma once

#include "launcher/jobs/file/values/job_reading.h"

namespace chainmail::launch {

void read_hosts(const JobReading& reading, const JsonNode& node, JobSpec::Hosts& hosts);
void read_container(const JobReading& reading, const JsonNode& node, JobSpec::Container& container);
void read_limits(const JobReading& reading, const JsonNode& node, JobSpec::Limits& limits);
void read_retry(const JobReading& reading, const JsonNode& node, JobSpec::Retry& retry);
void read_elastic(const JobReading& reading, const JsonNode& node, JobSpec::Elastic& elastic);

/// More ranks, or hosts, are a mistake.
inline constexpr std::uint32_t kMostRanks = 65536;

}  // namespace chainmail::launch
