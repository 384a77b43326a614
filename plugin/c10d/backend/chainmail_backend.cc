// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/backend/chainmail_backend.h"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace chainmail::internal {

ChainmailBackend::ChainmailBackend(std::shared_ptr<ops::Group> group,
                                   std::shared_ptr<ops::Rendezvous> rendezvous,
                                   BackendOptions options, std::vector<std::uint64_t> global_ranks,
                                   DeviceContexts::Maker make_device_group)
    : Backend(group->rank(), group->size()),
      group_(std::move(group), std::move(rendezvous), std::move(options), std::move(global_ranks)),
      issuer_(group_, std::move(make_device_group)) {
  init();
  setGroupUid(group_.options.group_name);
}

ChainmailBackend::~ChainmailBackend() {
  if (!is_registered_) return;
  const std::string& name = group_.options.group_name;
  try {
    c10d::unregister_process_group(name);
  } catch (const std::exception& failure) {
    log_line(LogLevel::kWarning, "unregistering group " + name + ": " + failure.what());
  }
}

c10::intrusive_ptr<c10d::Backend::Options> ChainmailBackend::getBackendOptions() {
  auto options = c10::make_intrusive<ChainmailOptions>(group_.options);
  options->timeout = group_.timeout();
  options->group_desc = getGroupDesc();
  options->global_ranks_in_group = group_.global_ranks;
  return options;
}

void ChainmailBackend::abort() {
  const int self = group_.global_rank();
  group_.group->abort(std::make_exception_ptr(
      PeerError("group " + group_.options.group_name + " was aborted by rank " +
                    std::to_string(self) + " on " + group_.group->options().host,
                self)));
  issuer_.check_self_transfers();
}

void ChainmailBackend::shutdown() {
  if (!group_.begin_shutdown()) return;  // another call does it
  issuer_.shutdown();
  group_.group->shutdown();
  // A handle may be kept until the process ends, and rank 0's store is gone then.
  group_.rendezvous->leave();
}

c10d::ErrorType ChainmailBackend::getError() {
  const std::exception_ptr found = error();
  if (!found) return c10d::ErrorType::SUCCESS;
  try {
    std::rethrow_exception(found);
  } catch (const TimeoutError&) {
    return c10d::ErrorType::TIMEOUT;
  } catch (const PeerError&) {
    return c10d::ErrorType::REMOTE_ERROR;
  } catch (...) {
    return c10d::ErrorType::COMM_ERROR;
  }
}

}  // namespace chainmail::internal
