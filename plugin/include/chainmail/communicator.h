// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The group of ranks that a data-parallel program trains with; ChainerMN's communicator.
//
// Collective by contract: every rank creates, uses and destroys its communicators in the same
// order; send and recv concern two ranks only. One thread per rank calls a communicator at a time.
// Tensors are dense, of any shape and layout. Those that are moved as new tensors are on the CPU,
// of any type.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <chainmail/error.h>
#include <chainmail/export.h>
#include <chainmail/object_containers.h>
#include <chainmail/objects.h>

namespace chainmail {

struct CommunicatorOptions {
  /// What float32 gradients are rounded to between nodes: kHalf, kBFloat16; kFloat or unset: as
  /// stored, as are those of other types whatever this says.
  std::optional<c10::ScalarType> allreduce_grad_dtype;
  std::chrono::milliseconds timeout = std::chrono::minutes{10};  ///< without progress
  std::string cross = "tcp";  ///< what joins the nodes: tcp, or mpi under mpiexec
  std::size_t object_chunk_bytes = std::size_t{256} << 20;  ///< objects travel in such pieces
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
  const CommunicatorOptions& config() const noexcept;  ///< as given; kept by split()
  /// How long this rank's steps have waited so far for gradients of others to come in.
  std::chrono::nanoseconds waited() const noexcept;

  /// Replaces each tensor by its element-wise sum over all ranks, in place. Dense tensors, any
  /// shape and layout, on the CPU, where it blocks, or on one GPU, where it is queued on the
  /// current stream. Lists must agree by position on every rank.
  void allreduce(at::ArrayRef<at::Tensor> tensors);
  /// The same with the mean; floating-point tensors. Exchanged as the communicator's name says:
  /// "naive" one by one, all others packed into one buffer, rounded to allreduce_grad_dtype between
  /// nodes.
  void allreduce_mean(at::ArrayRef<at::Tensor> tensors);
  /// Gives every rank the tensors of `root`, bit for bit, in place.
  void bcast(at::ArrayRef<at::Tensor> tensors, int root = 0);

  // New tensors, contiguous, whose types and shapes only their senders know. What one rank cannot
  // pass (not dense, not one per rank ...) is an InvalidArgument that names it on all ranks.

  /// root's tensor on every rank; what others pass is ignored.
  [[nodiscard]] at::Tensor bcast_tensor(const at::Tensor& tensor, int root = 0);
  /// Everybody's tensor in rank order; at root only, nothing elsewhere.
  [[nodiscard]] std::vector<at::Tensor> gather(const at::Tensor& tensor, int root = 0);
  [[nodiscard]] std::vector<at::Tensor> allgather(const at::Tensor& tensor);
  /// The own one of root's `tensors`, one per rank (tensor.unbind() of one with a row per rank);
  /// what others pass is ignored.
  [[nodiscard]] at::Tensor scatter(at::ArrayRef<at::Tensor> tensors, int root = 0);
  /// Sends one tensor to every rank and returns what each rank had for this one.
  [[nodiscard]] std::vector<at::Tensor> alltoall(at::ArrayRef<at::Tensor> tensors);
  /// Gives `destination` a tensor, or a list; large ones wait for its recv(). The n-th send with a
  /// tag meets the n-th recv with that tag.
  void send(at::ArrayRef<at::Tensor> tensors, int destination, int tag = 0);
  [[nodiscard]] std::vector<at::Tensor> recv(int source, int tag = 0);

  // Objects of the types in <chainmail/objects.h>, the same type on every rank, or it is a
  // MismatchError on all of them.

  /// root's object on every rank; what others pass is ignored.
  template <IsObject T>
  [[nodiscard]] T bcast_obj(const T& object, int root = 0);
  [[nodiscard]] std::string bcast_obj(const std::string& bytes, int root = 0);
  /// Everybody's object in rank order; lengths may differ.
  template <IsObject T>
  [[nodiscard]] std::vector<T> allgather_obj(const T& object);
  [[nodiscard]] std::vector<std::string> allgather_obj(const std::string& bytes);
  /// The same at root only, nothing elsewhere.
  template <IsObject T>
  [[nodiscard]] std::vector<T> gather_obj(const T& object, int root = 0);
  /// The objects of all ranks added with +, in rank order: the same on every rank.
  template <IsObject T>
  [[nodiscard]] T allreduce_obj(const T& object);
  template <IsObject T>
  void send_obj(const T& object, int destination, int tag = 0);
  template <IsObject T>
  [[nodiscard]] T recv_obj(int source, int tag = 0);

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
  // Bytes of objects; the ranks compare `type`.
  std::string bcast_bytes(std::string bytes, const std::string& type, int root);
  std::vector<std::string> allgather_bytes(std::string bytes, const std::string& type);
  std::vector<std::string> gather_bytes(const std::string& bytes, const std::string& type,
                                        int root);
  void send_bytes(const std::string& bytes, const std::string& type, int destination, int tag);
  std::string recv_bytes(const std::string& type, int source, int tag);

  std::unique_ptr<Impl> impl_;
};

template <IsObject T>
T Communicator::bcast_obj(const T& object, int root) {
  return from_bytes<T>(bcast_bytes(rank() == root ? to_bytes(object) : "", object_type<T>(), root));
}

template <IsObject T>
std::vector<T> Communicator::allgather_obj(const T& object) {
  return all_from_bytes<T>(allgather_bytes(to_bytes(object), object_type<T>()));
}

template <IsObject T>
std::vector<T> Communicator::gather_obj(const T& object, int root) {
  return all_from_bytes<T>(gather_bytes(to_bytes(object), object_type<T>(), root));
}

template <IsObject T>
T Communicator::allreduce_obj(const T& object) {
  std::vector<T> all = allgather_obj(object);
  T sum = std::move(all.front());
  for (std::size_t r = 1; r < all.size(); ++r) {
    sum = static_cast<T>(sum + all[r]);
  }
  return sum;
}

template <IsObject T>
void Communicator::send_obj(const T& object, int destination, int tag) {
  send_bytes(to_bytes(object), object_type<T>(), destination, tag);
}

template <IsObject T>
T Communicator::recv_obj(int source, int tag) {
  return from_bytes<T>(recv_bytes(object_type<T>(), source, tag));
}

/// Joins the job described by the environment (launcher, torchrun, mpirun, srun, or alone).
///
/// @param name  naive, flat, hierarchical, two_dimensional, single_node or auto, which picks by
///              size and shape of the nodes and says so in one log line. For gradients on GPUs also
///              pure_nccl and non_cuda_aware. To compare with: gloo and, on GPUs, nccl, torch's own
///              process groups, which have neither wire dtypes nor our errors
/// @throws InvalidArgument  unknown name (the message lists the known ones), a wire dtype that is
///                          no float16, bfloat16 or float32, single_node over several nodes, a
///                          name that needs CUDA where there is none
/// @throws TimeoutError     a rank did not come
[[nodiscard]] CHAINMAIL_API std::shared_ptr<Communicator> create_communicator(
    std::string_view name = "hierarchical", const CommunicatorOptions& options = {});

}  // namespace chainmail
