// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/make_backend.h"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <charconv>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/engine/failure/rendezvous_news.h"
#include "plugin/c10d/store/launcher_store.h"
#include "plugin/c10d/store/store_rendezvous.h"
#include "plugin/job/boards.h"
#include "plugin/job/env.h"
#include "plugin/job/job_connection.h"
#include "plugin/job/launcher_place.h"
#include "plugin/job/node_id.h"
#include "plugin/job/settings.h"

namespace chainmail {
namespace internal {
namespace {

// The launcher behind a store, if it is the launcher's.
std::shared_ptr<LauncherClient> launcher_of(c10::intrusive_ptr<c10d::Store> store) {
  if (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    store = prefixed->getUnderlyingNonPrefixStore();
  }
  const auto* launcher = dynamic_cast<const LauncherStore*>(store.get());
  return launcher != nullptr ? launcher->client() : nullptr;
}

// Who a rank of the group is, told to the others: its node, and its rank in the launcher's job.
struct Member {
  std::string node;
  int global_rank = -1;
};

std::string encode(const Member& member) {
  return BodyWriter().i64(member.global_rank).text(member.node).take();
}

Member decode(const std::string& text) {
  BodyReader body(text);
  Member member;
  member.global_rank = static_cast<int>(body.i64());
  member.node = body.text();
  return member;
}

void check_arguments(int rank, int size, const BackendOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw InvalidArgument("group \"" + options.group_name + "\": rank " + std::to_string(rank) +
                          " of " + std::to_string(size) + " cannot be");
  }
  if (!options.node_ids.empty() && options.node_ids.size() != static_cast<std::size_t>(size)) {
    throw InvalidArgument("group \"" + options.group_name + "\" of " + std::to_string(size) +
                          " ranks got " + std::to_string(options.node_ids.size()) +
                          " node ids; one per rank is needed");
  }
}

}  // namespace

c10::intrusive_ptr<ChainmailBackend> make_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int rank, int size,
                                                  const BackendOptions& options) {
  check_arguments(rank, size, options);
  ops::GroupOptions group_options;
  group_options.name = options.group_name;
  group_options.algorithm = ops::parse_algorithm(options.algorithm);
  group_options.wire = ops::parse_wire_format(options.wire);
  group_options.timeout = options.timeout;
  const Environment environment = process_environment();
  apply(read_settings(environment), group_options);

  const auto launcher = launcher_of(store);
  const std::string keys = "chainmail/" + options.group_name + "/";
  // A later group of the same name must not read the earlier one's keys. Ranks make groups in the
  // same order, so that counts agree.
  const auto instance = store->add(keys + "made/" + std::to_string(rank), 1);
  auto board = std::make_shared<StoreRendezvous>(
      c10::make_intrusive<c10d::PrefixStore>(keys + std::to_string(instance), store));
  const Deadline deadline = Deadline::after(group_options.timeout);

  Member me{node_id(environment), -1};
  if (launcher) {
    const Welcome& welcome = launcher->welcome();
    me = {"node " + std::to_string(welcome.node_of_rank.at(welcome.rank)),
          static_cast<int>(welcome.rank)};
  }
  std::vector<std::string> nodes;
  std::vector<int> global_ranks;
  for (const std::string& text : exchange(*board, "member", rank, size, encode(me), deadline)) {
    Member member = decode(text);
    nodes.push_back(std::move(member.node));
    if (launcher) global_ranks.push_back(member.global_rank);
  }
  if (!options.node_ids.empty()) nodes = options.node_ids;
  ops::Topology topology = ops::Topology::from_node_ids(nodes);
  if (launcher && group_options.interface.empty() && topology.node_count() > 1) {
    group_options.interface = launcher_interface(launcher->welcome(), environment);
  }
  group_options.secret = share_secret(*board, rank, deadline);
  group_options.host = host_name();
  std::shared_ptr<ops::FailureNews> news = launcher;
  if (!news && size > 1) news = std::make_shared<ops::RendezvousNews>(board);
  return c10::make_intrusive<ChainmailBackend>(
      ops::create_group(rank, std::move(topology), board, std::move(group_options),
                        std::move(global_ranks), std::move(news)),
      options.group_name);
}

void set_backend(c10d::ProcessGroup& group, c10::intrusive_ptr<ChainmailBackend> backend) {
  // The default first: c10d keys backends by kind, too, and an unset default makes barriers fail.
  group.setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  group.setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                   c10::intrusive_ptr<c10d::Backend>(std::move(backend)));
}

c10::intrusive_ptr<ChainmailBackend> backend_of(c10d::ProcessGroup& group) {
  const auto found = group.getBackend(c10::kCPU);
  auto backend = c10::dynamic_intrusive_pointer_cast<ChainmailBackend>(found);
  TORCH_CHECK(backend, "chainmail: the CPU backend of group \"", group.getGroupName(), "\" is ",
              found->getBackendName(),
              "; make the group with chainmail::make_process_group or chainmail::attach");
  return backend;
}

c10::intrusive_ptr<ChainmailBackend> find_backend(const std::string& group_name) {
  return backend_of(*c10d::resolve_process_group(group_name));
}

BackendOptions parse_backend_options(std::string_view text) {
  BackendOptions options;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const auto equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    long long timeout_ms = 0;
    if (key == "algorithm") {
      options.algorithm = value;
    } else if (key == "wire") {
      options.wire = value;
    } else if (key == "timeout_ms" &&
               std::from_chars(value.data(), value.data() + value.size(), timeout_ms).ec ==
                   std::errc{} &&
               timeout_ms > 0) {
      options.timeout = std::chrono::milliseconds(timeout_ms);
    } else {
      throw InvalidArgument("cannot read the backend option \"" + std::string(part) +
                            "\"; valid are algorithm=NAME, wire=NAME, timeout_ms=N, separated by "
                            "commas");
    }
  }
  return options;
}

}  // namespace internal

c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    const BackendOptions& options) {
  auto backend = internal::make_backend(store, rank, size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  internal::set_backend(*group, backend);
  group->setGroupName(options.group_name);
  c10d::register_process_group(options.group_name, group);
  backend->unregister_when_gone();
  return group;
}

}  // namespace chainmail
