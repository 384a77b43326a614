// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What examples in jobs of shards have in common.
//
// One thread per rank.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <chainmail/chainmail.h>
#include <chainmail/elastic.h>

#include "flags.h"
#include "job.h"

/// Joins the job, as join() does. Collective.
inline std::unique_ptr<chainmail::ElasticJob> join_in_shards(chainmail::ElasticJobOptions options,
                                                             const std::string& wire_dtype) {
  try {
    options.communicator_options.allreduce_grad_dtype = chainmail::parse_wire_dtype(wire_dtype);
    return chainmail::create_elastic_job(options);
  } catch (const chainmail::InvalidArgument& error) {
    throw flags::LocalUsageError(error.what());
  }
}

/// For index_select(). Local.
inline torch::Tensor rows_of(const std::vector<std::size_t>& indices) {
  return torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), torch::kLong);
}

/// The backward pass of a shard, and its loss and accuracy: logits `y`, classes `t`. Collective, as
/// Shard::backward() is.
inline void learn(chainmail::Shard& shard, const torch::Tensor& y, const torch::Tensor& t) {
  const torch::Tensor loss = torch::nn::functional::cross_entropy(y, t);
  shard.backward(loss);
  chainmail::Metrics metrics;
  add_batch(metrics, "", y, t, loss);
  for (const auto& [name, mean] : metrics.means()) shard.report(name, mean, t.size(0));
}

/// Loss and accuracy of a shard of the samples to test with. Local.
inline chainmail::Metrics test_metrics(const torch::Tensor& y, const torch::Tensor& t) {
  chainmail::Metrics metrics;
  add_batch(metrics, "validation/", y, t, torch::nn::functional::cross_entropy(y, t));
  return metrics;
}
