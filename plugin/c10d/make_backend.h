// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Makes backends over a store and finds them again by group name.

#pragma once

#include <chainmail/backend.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ops/core/group_options.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/group.h"
#include "plugin/c10d/backend/chainmail_backend.h"

namespace chainmail::internal {

/// Collective over the ranks. `rank_in_job`: this rank's, for messages, where a group that it
/// comes from knows. Throws what make_process_group throws.
[[nodiscard]] c10::intrusive_ptr<ChainmailBackend> make_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const BackendOptions& options,
    std::optional<int> rank_in_job = std::nullopt);

/// Of an engine group that is made with `options`, and with what the environment says. Throws
/// InvalidArgument for names that are none.
[[nodiscard]] ops::GroupOptions engine_options(const BackendOptions& options);

/// Gives `group` a backend over `engine`, a group that is there already. `rendezvous` is its own;
/// `options` name the global ranks.
void attach_engine_group(c10d::ProcessGroup& group, std::shared_ptr<ops::Group> engine,
                         std::shared_ptr<ops::Rendezvous> rendezvous,
                         const BackendOptions& options);

/// Makes `backend` the one of a process group, for CPU and CUDA tensors and by default.
void set_backend(c10d::ProcessGroup& group, const c10::intrusive_ptr<ChainmailBackend>& backend);

/// The CPU backend of a process group; TORCH_CHECK when it is another one.
[[nodiscard]] c10::intrusive_ptr<ChainmailBackend> backend_of(c10d::ProcessGroup& group);

/// backend_of a registered process group.
[[nodiscard]] c10::intrusive_ptr<ChainmailBackend> find_backend(const std::string& group_name);

/// Reads "algorithm=flat,wire=float16,cross=mpi,timeout_ms=60000"; every part may be missing.
/// Throws InvalidArgument that lists the valid keys.
[[nodiscard]] BackendOptions parse_backend_options(std::string_view text);

}  // namespace chainmail::internal
