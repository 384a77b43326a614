// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The group of ranks that a data-parallel program trains with; ChainerMN's communicator.
//
// Collective by contract: every rank creates, uses and destroys its communicators in the same
// order. One thread per rank calls a communicator at a time.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <chainmail/error.h>
#include <chainmail/export.h>

namespace chainmail {

struct CommunicatorOptions {
  /// What float gradients are rounded to between nodes: kHalf, kBFloat16, kFloat; unset: as stored.
  std::optional<c10::ScalarType> allreduce_grad_dtype;
  std::chrono::milliseconds timeout = std::chrono::minutes{10};  ///< without progress
  std::string cross = "tcp";  ///< what joins the nodes: tcp, or mpi under mpiexec
};

class CHAINMAIL_API Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();  ///< Waits for queued work; ends at once when unwinding or failed.

  int rank() const noexcept;  ///< 0 .. size()-1
  int size() const noexcept;
  int intra_rank() const noexcept;  ///< rank within this node
  int intra_size() const noexcept;  ///< ranks on this node
  int inter_rank() const noexcept;  ///< index of this node; nodes are ordered by smallest rank
  int inter_size() const noexcept;  ///< number of nodes
  const std::string& name() const noexcept;  ///< "hierarchical", as given to create_communicator

  /// Replaces each tensor by its element-wise sum over all ranks, in place. Dense CPU tensors, any
  /// shape and layout; blocks. Lists must agree by position on every rank.
  void allreduce(at::ArrayRef<at::Tensor> tensors);
  /// The same with the mean; floating-point tensors. Exchanged as the communicator's name says:
  /// "naive" one by one, all others packed into one buffer, rounded to allreduce_grad_dtype between
  /// nodes.
  void allreduce_mean(at::ArrayRef<at::Tensor> tensors);
  /// Gives every rank the tensors of `root`, bit for bit, in place.
  void bcast(at::ArrayRef<at::Tensor> tensors, int root = 0);
  /// Gives every rank the bytes of `root`; what others pass is ignored.
  [[nodiscard]] std::string bcast_obj(const std::string& bytes, int root = 0);
  /// Everybody's bytes in rank order, on every rank; lengths may differ.
  [[nodiscard]] std::vector<std::string> allgather_obj(const std::string& bytes);
  void barrier();
  /// New communicators: ranks with equal `color` form one, ordered by (`key`, rank); the
  /// configuration is kept. Collective over all ranks.
  [[nodiscard]] std::shared_ptr<Communicator> split(int color, int key);
  /// Ends the communicator: pending and later calls on all ranks throw.
  void abort(const std::string& reason);
  /// Waits for queued work and closes connections; later calls throw InvalidArgument. Idempotent.
  void finalize();

  struct Impl;
  explicit Communicator(std::unique_ptr<Impl> impl) noexcept;  // used by create_communicator
  Impl& impl() noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Joins the job described by the environment (launcher, torchrun, mpirun, srun, or alone).
///
/// @param name  naive, flat, hierarchical, two_dimensional, single_node or auto, which picks by
///              size and shape of the nodes and says so in one log line. To compare with: gloo,
///              torch's own process group, which has neither wire dtypes nor our errors
/// @throws InvalidArgument  unknown name (the message lists the known ones), a wire dtype that is
///                          no float16, bfloat16 or float32, single_node over several nodes, a
///                          name that needs CUDA where there is none
/// @throws TimeoutError     a rank did not come
[[nodiscard]] CHAINMAIL_API std::shared_ptr<Communicator> create_communicator(
    std::string_view name = "hierarchical", const CommunicatorOptions& options = {});

}  // namespace chainmail
