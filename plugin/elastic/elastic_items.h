// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a job of shards adds to a checkpoint, and to what ranks that join are given.
//
// Thread rules are the checkpointer's.

#pragma once

#include <string>

#include <chainmail/elastic.h>

#include "plugin/checkpoint/items/items.h"

namespace chainmail::internal {

[[nodiscard]] CheckpointItem shard_sampler_item(const std::string& name, ShardSampler& sampler);
[[nodiscard]] CheckpointItem elastic_job_item(const std::string& name, ElasticJob& job);

}  // namespace chainmail::internal
