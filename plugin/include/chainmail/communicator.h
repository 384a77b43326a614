// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The group of ranks that a data-parallel program trains with; ChainerMN's communicator.
//
// Collective by contract: every rank creates, uses and destroys its communicators in the same
// order; send and recv concern two ranks only. One thread per rank uses a communicator at a time.

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
#include <chainmail/objects.h>
#include <chainmail/train/object_containers.h>

namespace chainmail {

/// How a communicator exchanges data; the same on all ranks.
struct CommunicatorOptions {
  /// What float32 gradients are rounded to between nodes: kHalf, kBFloat16; kFloat or unset: as
  /// stored, as are those of other types whatever this says.
  std::optional<c10::ScalarType> allreduce_grad_dtype;
  std::chrono::milliseconds timeout = std::chrono::minutes{10};  ///< without progress
  std::string cross = "tcp";  ///< what joins the nodes: tcp, or mpi under mpiexec
  std::size_t object_chunk_bytes = std::size_t{256} << 20;  ///< objects travel in such pieces
};

/// The ranks of a job, or of a part of it. Created by create_communicator() and split().
///
/// Thread rule: one thread per rank uses a communicator at a time.
///
/// Collective rule: every rank calls the same members in the same order. Members that say "Local"
/// and send() and recv() are exempt.
///
/// Blocking: on the CPU every member blocks until this rank's part is done. allreduce() and
/// allreduce_mean() of GPU tensors are queued on the current stream instead.
///
/// Errors: in addition to those at each member, everything that communicates throws
/// @throws InvalidArgument  after finalize(), and for this rank's mistakes, found before anything
/// is
///                          sent; the communicator stays usable
/// @throws MismatchError    ranks called different operations, or with different shapes or types
/// @throws TimeoutError     no progress within the timeout; names the ranks that were not seen
/// @throws PeerError        a rank has ended, was cut off, or called abort()
///
/// All but InvalidArgument leave the communicator dead on all ranks: later calls throw the same
/// error; make a new communicator to go on.
class CHAINMAIL_API Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Waits for queued work. During unwinding by an exception it aborts the communicator instead, so
  /// that the other ranks learn of it.
  ~Communicator();

  /// This rank, 0 .. size()-1. Local, as are the next six.
  int rank() const noexcept;
  /// The number of ranks.
  int size() const noexcept;
  /// The rank within this node.
  int intra_rank() const noexcept;
  /// The number of ranks on this node.
  int intra_size() const noexcept;
  /// The index of this node; nodes are ordered by their smallest rank.
  int inter_rank() const noexcept;
  /// The number of nodes.
  int inter_size() const noexcept;
  /// Such as "hierarchical", as given to create_communicator().
  const std::string& name() const noexcept;
  /// The options as given; kept by split(). Local.
  const CommunicatorOptions& config() const noexcept;
  /// How long this rank's steps have waited so far for the gradients of other ranks. Local.
  std::chrono::nanoseconds waited() const noexcept;

  /// Replaces each tensor by its element-wise sum over all ranks, in place, never rounded. Dense
  /// tensors of any shape, layout and numeric type, on the CPU or all on one GPU; lists agree by
  /// position on every rank.
  /// @throws InvalidArgument  a tensor that is not dense, overlaps itself, or is on another device
  void allreduce(at::ArrayRef<at::Tensor> tensors);
  /// The same with the mean, for floating-point tensors. Exchanged as the communicator's name says:
  /// "naive" one by one, all others packed into one buffer, and float32 rounded to
  /// allreduce_grad_dtype between nodes.
  /// @throws InvalidArgument  as allreduce(); a tensor that is not floating-point
  void allreduce_mean(at::ArrayRef<at::Tensor> tensors);
  /// Gives every rank the tensors of `root`, bit for bit, in place. Dense tensors of any type and
  /// device; lists agree by position on every rank.
  /// @throws InvalidArgument  as allreduce(); root is not a rank
  void bcast(at::ArrayRef<at::Tensor> tensors, int root = 0);

  /// root's tensor on every rank, as a new contiguous tensor; what others pass is ignored. As for
  /// all members that return tensors, types and shapes may differ between ranks, tensors are dense
  /// and on the CPU.
  /// @throws InvalidArgument  on all ranks, naming the rank: a tensor that cannot be sent
  [[nodiscard]] at::Tensor bcast_tensor(const at::Tensor& tensor, int root = 0);
  /// The tensors of all ranks in rank order at root, nothing elsewhere.
  /// @throws InvalidArgument  as bcast_tensor()
  [[nodiscard]] std::vector<at::Tensor> gather(const at::Tensor& tensor, int root = 0);
  /// The tensors of all ranks in rank order, on every rank.
  /// @throws InvalidArgument  as bcast_tensor()
  [[nodiscard]] std::vector<at::Tensor> allgather(const at::Tensor& tensor);
  /// This rank's tensor out of root's `tensors`, one per rank (`tensor.unbind()` for a tensor with
  /// a row per rank); what others pass is ignored.
  /// @throws InvalidArgument  as bcast_tensor(); not one tensor per rank
  [[nodiscard]] at::Tensor scatter(at::ArrayRef<at::Tensor> tensors, int root = 0);
  /// Sends tensors[r] to each rank r and returns what each rank sent to this one, in rank order.
  /// @throws InvalidArgument  as scatter()
  [[nodiscard]] std::vector<at::Tensor> alltoall(at::ArrayRef<at::Tensor> tensors);
  /// Sends a tensor, or a list, to `destination`; large ones wait for its recv(). The n-th send
  /// with a tag matches the n-th recv with that tag. Only the two ranks call.
  /// @throws InvalidArgument  a tensor that cannot be sent; a negative tag; no other rank
  void send(at::ArrayRef<at::Tensor> tensors, int destination, int tag = 0);
  /// The tensors that `source` sends with that tag. Only the two ranks call.
  /// @throws InvalidArgument  a negative tag; no other rank
  [[nodiscard]] std::vector<at::Tensor> recv(int source, int tag = 0);

  /// root's object on every rank; what others pass is ignored. As for all members on objects, T is
  /// a type of <chainmail/objects.h>, the same on every rank.
  /// @throws MismatchError  on all ranks: the ranks pass different types
  template <internal::IsSendable T>
  [[nodiscard]] T bcast_obj(const T& object, int root = 0);
  /// The same for bytes.
  [[nodiscard]] std::string bcast_obj(const std::string& bytes, int root = 0);
  /// The objects of all ranks in rank order, on every rank; lengths may differ.
  /// @throws MismatchError  on all ranks: the ranks pass different types
  template <internal::IsSendable T>
  [[nodiscard]] std::vector<T> allgather_obj(const T& object);
  /// The same for bytes.
  [[nodiscard]] std::vector<std::string> allgather_obj(const std::string& bytes);
  /// The objects of all ranks in rank order at root, nothing elsewhere.
  /// @throws MismatchError  on all ranks: the ranks pass different types
  template <internal::IsSendable T>
  [[nodiscard]] std::vector<T> gather_obj(const T& object, int root = 0);
  /// The objects of all ranks added with +, in rank order: the same on every rank.
  /// @throws MismatchError  on all ranks: the ranks pass different types
  template <internal::IsSendable T>
  [[nodiscard]] T allreduce_obj(const T& object);
  /// Sends an object, as send() does tensors. Only the two ranks call.
  template <internal::IsSendable T>
  void send_obj(const T& object, int destination, int tag = 0);
  /// The object that `source` sends with that tag. Only the two ranks call.
  /// @throws MismatchError  it is of another type
  template <internal::IsSendable T>
  [[nodiscard]] T recv_obj(int source, int tag = 0);

  /// Returns when all ranks have called it.
  void barrier();
  /// New communicators: ranks with equal `color` form one, ordered by (`key`, rank); the
  /// configuration is kept. Collective over all ranks of this communicator.
  [[nodiscard]] std::shared_ptr<Communicator> split(int color, int key);
  /// Ends the communicator: pending and later calls on all ranks throw PeerError. Local, any
  /// thread.
  void abort(const std::string& reason);
  /// Waits for queued work and closes connections; later calls throw InvalidArgument. Idempotent.
  void finalize();

  struct Impl;
  /// Used by create_communicator() and split().
  explicit Communicator(std::unique_ptr<Impl> impl) noexcept;
  /// For Chainmail's own sources.
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

template <internal::IsSendable T>
T Communicator::bcast_obj(const T& object, int root) {
  // No conditional expression: GCC 12 takes its temporary for an overrun in callers' code.
  std::string bytes;
  if (rank() == root) bytes = to_bytes(object);
  return from_bytes<T>(bcast_bytes(std::move(bytes), object_type<T>(), root));
}

template <internal::IsSendable T>
std::vector<T> Communicator::allgather_obj(const T& object) {
  return all_from_bytes<T>(allgather_bytes(to_bytes(object), object_type<T>()));
}

template <internal::IsSendable T>
std::vector<T> Communicator::gather_obj(const T& object, int root) {
  return all_from_bytes<T>(gather_bytes(to_bytes(object), object_type<T>(), root));
}

template <internal::IsSendable T>
T Communicator::allreduce_obj(const T& object) {
  std::vector<T> all = allgather_obj(object);
  T sum = std::move(all.front());
  for (std::size_t r = 1; r < all.size(); ++r) sum = static_cast<T>(sum + all[r]);
  return sum;
}

template <internal::IsSendable T>
void Communicator::send_obj(const T& object, int destination, int tag) {
  send_bytes(to_bytes(object), object_type<T>(), destination, tag);
}

template <internal::IsSendable T>
T Communicator::recv_obj(int source, int tag) {
  return from_bytes<T>(recv_bytes(object_type<T>(), source, tag));
}

/// Joins the job described by the environment (launcher, torchrun, mpirun, srun, or alone).
/// Collective over all ranks of the job.
///
/// @param options  the same on all ranks
/// @param name  naive, flat, hierarchical, two_dimensional, single_node or auto, which picks by
///              size and shape of the nodes and says so in one log line. For gradients on GPUs also
///              pure_nccl and non_cuda_aware. To compare with: gloo and, on GPUs, nccl, torch's own
///              process groups, which have neither wire dtypes nor our errors
/// @throws InvalidArgument  unknown name (the message lists the known ones), a wire dtype other
/// than
///                          float16, bfloat16 and float32, single_node over several nodes, a name
///                          that needs CUDA where there is none
/// @throws TimeoutError     a rank did not join; names it
/// @throws PeerError        a rank ended before it joined
[[nodiscard]] CHAINMAIL_API std::shared_ptr<Communicator> create_communicator(
    std::string_view name = "hierarchical", const CommunicatorOptions& options = {});

namespace internal {

/// Throws InvalidArgument, "`what` needs a communicator", for a null pointer.
CHAINMAIL_API void require_communicator(const std::shared_ptr<Communicator>& communicator,
                                        const char* what);

}  // namespace internal

}  // namespace chainmail
