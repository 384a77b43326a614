// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/failure/rank_status.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/comm/call_log.h"

namespace chainmail::ops {
namespace {

/// One line of what a rank wrote: "<slot>\t<fingerprint>\t<call>". Equal slots of two ranks are
/// the same operation, and must have equal fingerprints.
struct Entry {
  std::string slot;
  std::string fingerprint;
  std::string call;
};

std::string slot_of(const std::string& channel, const MessageHeader& header) {
  return channel + "#" + std::to_string(header.sequence);
}

std::string fingerprint_of(MessageHeader header) {
  header.flags = 0;  // not compared
  const auto bytes = header.encode();
  return internal::to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string without_breaks(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return text;
}

std::string line(const std::string& channel, const MessageHeader& header, const std::string& call) {
  return slot_of(channel, header) + '\t' + fingerprint_of(header) + '\t' + without_breaks(call) +
         '\n';
}

std::string describe_past(const MessageHeader& header) {
  if (header.kind == OpKind::kSend) return "send of " + std::to_string(header.count) + " bytes";
  return std::string(to_string(header.kind)) + " of " + to_string(header.dtype) + " [" +
         std::to_string(header.count) + "]";
}

std::vector<Entry> parse(std::string_view text) {
  std::vector<Entry> entries;
  while (!text.empty()) {
    const std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), row.size() + 1));
    const std::size_t first = row.find('\t');
    const std::size_t second = first == std::string_view::npos ? first : row.find('\t', first + 1);
    if (second == std::string_view::npos) continue;
    entries.push_back({std::string(row.substr(0, first)),
                       std::string(row.substr(first + 1, second - first - 1)),
                       std::string(row.substr(second + 1))});
  }
  return entries;
}

std::string position_key(int rank) { return "at/" + std::to_string(rank); }
std::string sign_key(int rank) { return "noticed/" + std::to_string(rank); }
// `call`: as describe() has it.
bool is_transfer(const std::string& call) {
  return call.starts_with("send ") || call.starts_with("recv ");
}

}  // namespace

std::string host_key(int node) { return "host/" + std::to_string(node); }

std::string title_of(const PlannedOperation& operation) {
  return std::string(to_string(operation.collective.kind)) + " #" +
         std::to_string(operation.plan.header.sequence);
}

RankStatusTable::RankStatusTable(int rank, const Topology& topology, std::vector<int> global_ranks,
                                 const GroupOptions& options,
                                 std::shared_ptr<Rendezvous> rendezvous)
    : rank_(rank),
      topology_(topology),
      global_ranks_(std::move(global_ranks)),
      options_(options),
      rendezvous_(std::move(rendezvous)) {
  // Every rank of the node, so that who is seen has a name, however late its neighbours are.
  if (topology_.node_count() > 1) {
    rendezvous_->set(host_key(topology_.node_of(rank_)), options_.host);
  }
}

void RankStatusTable::publish(const Activity& activity) {
  std::string text;
  for (const auto& operation : activity.running) {
    text += line(operation->plan.channel, operation->plan.header, describe(*operation));
  }
  for (const PastOperation& operation : activity.past) {
    text += line(operation.channel, operation.header, describe_past(operation.header));
  }
  rendezvous_->set(position_key(rank_), text);
}

std::optional<std::string> RankStatusTable::find_disagreement(std::span<const int> ranks,
                                                              internal::Deadline deadline) {
  struct Caller {
    int rank = 0;
    Entry entry;
  };
  std::vector<int> sorted(ranks.begin(), ranks.end());
  sorted.push_back(rank_);
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());

  std::map<std::string, Caller> first_callers;
  for (const int rank : sorted) {
    const std::optional<std::string> text = rendezvous_->try_get(position_key(rank), deadline);
    for (Entry& entry : parse(text.value_or(""))) {
      const auto [place, is_new] = first_callers.try_emplace(entry.slot, Caller{rank, entry});
      const Caller& other = place->second;
      if (is_new || other.entry.fingerprint == entry.fingerprint) continue;
      const std::string hint = other.entry.call == entry.call
                                   ? " with other counts, splits, algorithm or wire format"
                                   : "";
      return other.entry.call.substr(0, other.entry.call.find(' ')) + " " +
             entry.slot.substr(entry.slot.find('#')) + ": " + name_of(other.rank, deadline) +
             " calls " + other.entry.call + ", " + name_of(rank, deadline) + " calls " +
             entry.call + hint +
             (is_transfer(entry.call)
                  ? kTransfersMustAgree
                  : "; every rank must call the same operation with as many elements of the same "
                    "dtype, in the same order");
    }
  }
  return std::nullopt;
}

std::vector<int> RankStatusTable::find_missing(const PlannedOperation& operation,
                                               std::span<const int> ranks,
                                               internal::Deadline deadline) {
  const std::string slot = slot_of(operation.plan.channel, operation.plan.header);
  std::vector<int> missing;
  for (const int rank : ranks) {
    const std::vector<Entry> entries =
        parse(rendezvous_->try_get(position_key(rank), deadline).value_or(""));
    const bool is_there = std::any_of(entries.begin(), entries.end(),
                                      [&](const Entry& entry) { return entry.slot == slot; });
    if (rank != rank_ && !is_there) missing.push_back(rank);
  }
  return missing;
}

void RankStatusTable::sign() { rendezvous_->set(sign_key(rank_), "1"); }

std::vector<int> RankStatusTable::find_silent(std::span<const int> ranks,
                                              internal::Deadline deadline) {
  std::vector<int> silent;
  for (const int rank : ranks) {
    if (rank != rank_ && !rendezvous_->try_get(sign_key(rank), deadline)) silent.push_back(rank);
  }
  return silent;
}

std::string RankStatusTable::describe(const PlannedOperation& operation) const {
  return describe_call(operation.collective, operation.plan, options_, global_ranks_);
}

std::string RankStatusTable::host_of_node(int node, internal::Deadline deadline) {
  const std::string unknown = "node " + std::to_string(node);
  try {
    return rendezvous_->try_get(host_key(node), deadline).value_or(unknown);
  } catch (const TimeoutError&) {
    return unknown;
  }
}

std::string RankStatusTable::with_host(int rank, const std::string& host) const {
  const std::string name = "rank " + std::to_string(global_rank(rank));
  return host.empty() ? name : name + " (" + host + ")";
}

std::string RankStatusTable::name_of(int rank, internal::Deadline deadline) {
  const int node = topology_.node_of(rank);
  return node == topology_.node_of(rank_) ? with_host(rank, options_.host)
                                          : with_host(rank, host_of_node(node, deadline));
}

std::string RankStatusTable::own_name() const { return with_host(rank_, options_.host); }

}  // namespace chainmail::ops
