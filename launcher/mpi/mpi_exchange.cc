// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/mpi_exchange.h"

#include <algorithm>
#include <cerrno>

#include "base/error.h"

namespace chainmail::launch {
namespace {

// What an entry costs beside its texts, roughly.
constexpr std::size_t kEntryBytes = 64;

std::size_t bytes_of(const std::vector<MpiEntry>& entries) {
  std::size_t bytes = 0;
  for (const MpiEntry& entry : entries)
    bytes += kEntryBytes + entry.key.size() + entry.value.size();
  return bytes;
}

}  // namespace

MpiExchange::MpiExchange(std::vector<std::uint32_t> node_of_rank, Send send, SendAll send_all,
                         std::size_t limit)
    : node_of_rank_(std::move(node_of_rank)),
      send_(std::move(send)),
      send_all_(std::move(send_all)),
      limit_(limit) {}

void MpiExchange::handle(std::uint32_t node, MpiMessage message) {
  for (const std::uint32_t rank : message.ranks) {
    if (rank >= node_of_rank_.size()) {
      throw SystemError("MPI messages: there is no rank " + std::to_string(rank), EPROTO);
    }
  }
  switch (message.op) {
    case MpiOp::kGather:
      return gather(node, std::move(message));
    case MpiOp::kFetch:
      return fetch(node, message);
    case MpiOp::kPublish:
      return publish(node, message);
    case MpiOp::kLookup:
      return look_up(node, std::move(message));
    case MpiOp::kUnpublish:
      return unpublish(node, message);
    case MpiOp::kForget:
      return forget(node, message.id);
    case MpiOp::kAnswer:
      return pass_on_answer(std::move(message));
    default:
      throw SystemError("MPI messages: operation " +
                            std::to_string(static_cast<unsigned>(message.op)) +
                            " is not for the controller",
                        EPROTO);
  }
}

void MpiExchange::gather(std::uint32_t node, MpiMessage message) {
  std::set<std::uint32_t> parties;
  for (const std::uint32_t rank : message.ranks) parties.insert(node_of_rank_[rank]);
  if (message.ranks.empty()) parties.insert(node_of_rank_.begin(), node_of_rank_.end());
  if (!parties.contains(node)) {
    throw SystemError("MPI messages: node " + std::to_string(node) +
                          " speaks for a fence that none of its ranks takes part in",
                      EPROTO);
  }
  const auto at = fences_.try_emplace({message.key, message.ranks}).first;
  Fence& fence = at->second;
  fence[node].push_back(std::move(message.data));
  MpiMessage whole{.op = MpiOp::kGathered, .key = message.key, .ranks = message.ranks};
  const auto has_spoken = [&](std::uint32_t party) {
    const auto said = fence.find(party);
    return said != fence.end() && !said->second.empty();
  };
  if (!std::all_of(parties.begin(), parties.end(), has_spoken)) return;
  bool is_over = true;
  for (const std::uint32_t party : parties) {
    std::deque<std::string>& said = fence[party];
    whole.data += said.front();
    said.pop_front();
    is_over = is_over && said.empty();
  }
  if (is_over) fences_.erase(at);
  if (send_all_) return send_all_(parties, whole);
  for (const std::uint32_t party : parties) send_(party, whole);
}

void MpiExchange::fetch(std::uint32_t node, const MpiMessage& message) {
  const std::uint32_t wanted = owner_in(message);
  if (!take_room(kEntryBytes)) return answer({node, message.id}, kMpiFull, {});
  fetches_[++last_fetch_] = {node, message.id};
  send_(node_of_rank_[wanted], {.op = MpiOp::kFetch, .id = last_fetch_, .ranks = {wanted}});
}

void MpiExchange::pass_on_answer(MpiMessage message) {
  const auto asked = fetches_.find(message.id);
  if (asked == fetches_.end()) {
    throw SystemError("MPI messages: an answer that nobody waits for", EPROTO);
  }
  const Party party = asked->second;
  fetches_.erase(asked);
  bytes_ -= kEntryBytes;
  message.id = party.id;
  send_(party.node, message);
}

void MpiExchange::publish(std::uint32_t node, const MpiMessage& message) {
  const std::uint32_t owner = owner_in(message);
  const auto is_taken = [this](const MpiEntry& entry) { return names_.contains(entry.key); };
  if (std::any_of(message.entries.begin(), message.entries.end(), is_taken)) {
    return answer({node, message.id}, kMpiTaken, {});
  }
  if (!take_room(bytes_of(message.entries))) return answer({node, message.id}, kMpiFull, {});
  for (const MpiEntry& entry : message.entries) {
    const bool is_new = names_.try_emplace(entry.key, Name{owner, entry.value}).second;
    if (!is_new) bytes_ -= bytes_of({entry});  // twice in this message
  }
  answer({node, message.id}, kMpiGood, {});
  drop_lookups([this](const Waiting& lookup) { return answer_if_known(lookup, false); });
}

void MpiExchange::look_up(std::uint32_t node, MpiMessage message) {
  const bool waits = message.status != 0;
  Waiting lookup{{node, message.id}, std::move(message.entries)};
  if (answer_if_known(lookup, !waits)) return;
  if (!take_room(kEntryBytes + bytes_of(lookup.wanted))) return answer(lookup.party, kMpiFull, {});
  waiting_.push_back(std::move(lookup));
}

void MpiExchange::forget(std::uint32_t node, std::uint64_t id) {
  drop_lookups(
      [&](const Waiting& lookup) { return lookup.party.node == node && lookup.party.id == id; });
}

template <typename Predicate>
void MpiExchange::drop_lookups(const Predicate& is_over) {
  std::erase_if(waiting_, [&](const Waiting& lookup) {
    if (!is_over(lookup)) return false;
    bytes_ -= kEntryBytes + bytes_of(lookup.wanted);
    return true;
  });
}

bool MpiExchange::take_room(std::size_t bytes) {
  if (bytes > limit_ - bytes_) return false;
  bytes_ += bytes;
  return true;
}

// A rank that does not want to wait gets what is there.
bool MpiExchange::answer_if_known(const Waiting& lookup, bool is_last_word) {
  std::vector<MpiEntry> found;
  for (const MpiEntry& wanted : lookup.wanted) {
    const auto name = names_.find(wanted.key);
    if (name != names_.end()) found.push_back({wanted.key, name->second.value});
  }
  const bool is_complete = found.size() == lookup.wanted.size();
  if (!is_complete && !is_last_word) return false;
  const std::int32_t status = found.empty() ? kMpiNotFound : kMpiGood;
  answer(lookup.party, status, std::move(found));
  return true;
}

void MpiExchange::unpublish(std::uint32_t node, const MpiMessage& message) {
  const std::uint32_t owner = owner_in(message);
  const auto is_named = [&](const std::string& key) {
    return message.entries.empty() ||
           std::any_of(message.entries.begin(), message.entries.end(),
                       [&](const MpiEntry& entry) { return entry.key == key; });
  };
  const std::size_t removed = std::erase_if(names_, [&](const auto& name) {
    if (name.second.owner != owner || !is_named(name.first)) return false;
    bytes_ -= kEntryBytes + name.first.size() + name.second.value.size();
    return true;
  });
  const bool is_good = removed > 0 || message.entries.empty();
  answer({node, message.id}, is_good ? kMpiGood : kMpiNotFound, {});
}

void MpiExchange::answer(Party party, std::int32_t status, std::vector<MpiEntry> entries) {
  send_(party.node,
        {.op = MpiOp::kAnswer, .id = party.id, .status = status, .entries = std::move(entries)});
}

std::uint32_t MpiExchange::owner_in(const MpiMessage& message) const {
  if (message.ranks.size() != 1) {
    throw SystemError("MPI messages: a request that names no rank", EPROTO);
  }
  return message.ranks.front();
}

}  // namespace chainmail::launch
