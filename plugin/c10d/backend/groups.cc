// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Groups made of this one: split and merge of the backend.

#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <utility>

#include "plugin/c10d/backend/chainmail_backend.h"
#include "plugin/c10d/make_backend.h"

namespace chainmail::internal {
namespace {

std::string key_of(const std::vector<int>& ranks) { return c10::Join(",", ranks); }

c10::intrusive_ptr<c10d::Backend> make_sibling(
    const GroupContext& group, const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts, BackendOptions options) {
  options.timeout = group.timeout();
  if (const auto ours = c10::dynamic_intrusive_pointer_cast<ChainmailOptions>(opts)) {
    options.algorithm = ours->ours.algorithm;
    options.wire = ours->ours.wire;
    options.cross = ours->ours.cross;
  }
  if (opts) {
    options.timeout = opts->timeout;
    if (!opts->group_name.empty()) options.group_name = opts->group_name;
  }
  return make_backend(store, rank, size, options, group.global_rank());
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> ChainmailBackend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<Options>& opts) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  for (const int rank : sorted) group_.check_rank(rank, "split");
  TORCH_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
              "chainmail: split: ranks ", key_of(ranks), " name one of them twice");
  const auto me = std::find(ranks.begin(), ranks.end(), rank_);
  if (me == ranks.end()) return nullptr;

  BackendOptions options = group_.options;
  options.group_name += ":split:" + key_of(ranks);
  options.node_ids.clear();
  options.global_ranks.clear();
  for (const int rank : ranks) {
    // Nodes as this group sees them, also where its maker said what they are.
    options.node_ids.push_back("node " + std::to_string(group_.group->topology().node_of(rank)));
    options.global_ranks.push_back(group_.global_rank(rank));
  }
  // Two parts of one split may have been given the same store and name.
  auto own_keys = c10::make_intrusive<c10d::PrefixStore>("split/" + key_of(ranks), store);
  return make_sibling(group_, own_keys, static_cast<int>(me - ranks.begin()),
                      static_cast<int>(ranks.size()), opts, std::move(options));
}

c10::intrusive_ptr<c10d::Backend> ChainmailBackend::merge(
    const c10::intrusive_ptr<c10d::Store>& store, const c10::intrusive_ptr<Options>& opts,
    const int& rank, const int& size) {
  BackendOptions options = group_.options;
  options.group_name = "merge";  // the ranks come from groups of different names
  options.node_ids.clear();
  options.global_ranks.clear();
  return make_sibling(group_, store, rank, size, opts, std::move(options));
}

}  // namespace chainmail::internal
