// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/measure/control.h"

#include <algorithm>
#include <cstring>

namespace chainmail::bench {
namespace {

constexpr std::size_t kTextBytes = 64;

ops::GroupOptions control_options() {
  ops::GroupOptions options;
  options.name = "bench/control";
  // Ranks wait here while another makes its buffers or starts MPI.
  options.timeout = std::chrono::minutes{5};
  return options;
}

std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

Control::Control(World& world)
    : group_(world.create_group(control_options())),
      ranks_{world.rank(), world.size(), world.topology().node_count()} {}

void Control::all_reduce(ops::DataType type, ops::ReduceOp op, std::size_t count, void* data) {
  ops::Collective call;
  call.dtype = type;
  call.reduce_op = op;
  call.count = count;
  call.output = bytes_of(data);
  call.is_async = false;
  group_->run(call);
}

void Control::barrier() {
  ops::Collective call;
  call.kind = ops::OpKind::kBarrier;
  call.is_async = false;
  group_->run(call);
}

void Control::maximum(std::span<double> values) {
  all_reduce(ops::DataType::kFloat64, ops::ReduceOp::kMax, values.size(), values.data());
}

double Control::sum(double value) {
  all_reduce(ops::DataType::kFloat64, ops::ReduceOp::kSum, 1, &value);
  return value;
}

std::int64_t Control::sum(std::int64_t value) {
  all_reduce(ops::DataType::kInt64, ops::ReduceOp::kSum, 1, &value);
  return value;
}

std::vector<std::string> Control::collect(const std::string& text) {
  std::string mine = text.substr(0, kTextBytes - 1);
  mine.resize(kTextBytes);
  std::string all(kTextBytes * static_cast<std::size_t>(ranks_.size), '\0');
  ops::Collective call;
  call.kind = ops::OpKind::kAllGather;
  call.dtype = ops::DataType::kUInt8;
  call.count = kTextBytes;
  call.input = bytes_of(mine.data());
  call.output = bytes_of(all.data());
  call.is_async = false;
  group_->run(call);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += kTextBytes) texts.emplace_back(all.data() + at);
  return texts;
}

std::string Control::share(const std::string& text) { return collect(text).front(); }

std::vector<int> by_node_order(const ops::Topology& topology) {
  std::vector<int> order;
  for (std::size_t local = 0; order.size() < static_cast<std::size_t>(topology.size()); ++local) {
    for (int node = 0; node < topology.node_count(); ++node) {
      const std::vector<int>& ranks = topology.ranks_of_node(node);
      if (local < ranks.size()) order.push_back(ranks[local]);
    }
  }
  return order;
}

}  // namespace chainmail::bench
