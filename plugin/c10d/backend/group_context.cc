// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/backend/group_context.h"

#include <utility>

#include "base/deadline.h"

namespace chainmail::internal {

GroupContext::GroupContext(std::shared_ptr<ops::Group> the_group,
                           std::shared_ptr<ops::Rendezvous> its_rendezvous,
                           BackendOptions its_options, std::vector<std::uint64_t> its_global_ranks)
    : group(std::move(the_group)),
      rendezvous(std::move(its_rendezvous)),
      options(std::move(its_options)),
      global_ranks(std::move(its_global_ranks)),
      rank(group->rank()),
      size(group->size()),
      timeout_(group->options().timeout) {}

void GroupContext::check_rank(std::int64_t of, const char* what) const {
  TORCH_CHECK(of >= 0 && of < size, "chainmail: ", what, ": rank ", of, " is not in a group of ",
              size);
}

std::shared_ptr<Payload> GroupContext::make_payload(std::vector<at::Tensor> results) const {
  auto payload = std::make_shared<Payload>(group->callbacks());
  payload->results = std::move(results);
  return payload;
}

void GroupContext::set_timeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK(timeout.count() > 0, "chainmail: a timeout must be positive, got ", timeout.count(),
              " ms");
  timeout_ = timeout;
  group->set_timeout(timeout);
}

std::chrono::milliseconds GroupContext::limit_of(std::chrono::milliseconds asked) const {
  // c10d's "unset" is -1 ms; 0 would mean "at once", which is never wanted. A limit that would
  // overflow a clock becomes what a Deadline takes for never.
  return Deadline::bounded(asked.count() > 0 ? asked : timeout_.load());
}

void GroupContext::check_open(const std::string& operation) const {
  TORCH_CHECK(!is_shut_down_, "chainmail: ", operation,
              ": the group was shut down; create a new one");
}

}  // namespace chainmail::internal
