// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The bytes of objects between ranks. Their length goes first, under a label with the object's
// type: ranks that mean different types find out before a byte of the object is used. Labels of
// sends are not compared, so there the type itself travels.

#include <algorithm>
#include <cstdint>
#include <exception>

#include <chainmail/communicator.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/parts.h"

namespace chainmail {

namespace {

using internal::Label;
using internal::Part;
using internal::part_of;

// One all-gather of equal, padded parts up to this total; beyond it one broadcast per rank.
constexpr std::size_t kPaddedGatherBytes = std::size_t{64} << 20;

// What goes before a sent object.
struct Head {
  std::uint64_t type_bytes = 0;
  std::uint64_t object_bytes = 0;
};

std::vector<std::uint64_t> gather_lengths(ops::Group& group, std::uint64_t own,
                                          const Label& label) {
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(group.size()));
  internal::all_gather(group, &own, lengths.data(), sizeof own, label);
  return lengths;
}

}  // namespace

std::string Communicator::bcast_bytes(std::string bytes, const std::string& type, int root) {
  impl_->check_usable();
  impl_->check_root(root, "bcast_obj");
  const Label label = internal::label_of(type);
  std::uint64_t length = bytes.size();
  internal::broadcast(*impl_->group, {reinterpret_cast<std::byte*>(&length), sizeof length}, root,
                      label);
  if (rank() != root) bytes.assign(length, '\0');
  internal::broadcast_in_chunks(*impl_->group, impl_->options.object_chunk_bytes, part_of(bytes),
                                root, label);
  return bytes;
}

std::vector<std::string> Communicator::allgather_bytes(std::string bytes, const std::string& type) {
  impl_->check_usable();
  const Label label = internal::label_of(type);
  const auto ranks = static_cast<std::size_t>(size());
  const std::vector<std::uint64_t> lengths = gather_lengths(*impl_->group, bytes.size(), label);
  std::vector<std::string> result(ranks);
  const std::size_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest == 0) return result;
  if (longest <= std::min(kPaddedGatherBytes, impl_->options.object_chunk_bytes) / ranks) {
    bytes.resize(longest);
    std::string all(longest * ranks, '\0');
    internal::all_gather(*impl_->group, bytes.data(), all.data(), longest, label);
    for (std::size_t r = 0; r < ranks; ++r) result[r] = all.substr(r * longest, lengths[r]);
    return result;
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    const int root = static_cast<int>(r);
    result[r] = root == rank() ? std::move(bytes) : std::string(lengths[r], '\0');
    internal::broadcast_in_chunks(*impl_->group, impl_->options.object_chunk_bytes,
                                  part_of(result[r]), root, label);
  }
  return result;
}

std::vector<std::string> Communicator::gather_bytes(const std::string& bytes,
                                                    const std::string& type, int root) {
  impl_->check_usable();
  impl_->check_root(root, "gather_obj");
  const Label label = internal::label_of(type + " for rank " + std::to_string(root));
  const auto ranks = static_cast<std::size_t>(size());
  const std::vector<std::uint64_t> lengths = gather_lengths(*impl_->group, bytes.size(), label);
  std::string own = bytes;
  std::vector<std::string> result(rank() == root ? ranks : 0);
  std::vector<Part> sent(ranks);
  std::vector<Part> received(ranks);
  sent[static_cast<std::size_t>(root)] = part_of(own);
  for (std::size_t r = 0; r < result.size(); ++r) {
    result[r].assign(lengths[r], '\0');
    received[r] = part_of(result[r]);
  }
  internal::move_parts(*impl_->group, impl_->options.object_chunk_bytes, sent, received,
                       *std::max_element(lengths.begin(), lengths.end()), label);
  return result;
}

void Communicator::send_bytes(const std::string& bytes, const std::string& type, int destination,
                              int tag) {
  impl_->check_usable();
  std::string name = type;
  std::string own = bytes;
  Head head{type.size(), bytes.size()};
  const Label label = internal::label_of("object");
  for (const Part part :
       {Part{reinterpret_cast<std::byte*>(&head), sizeof head}, part_of(name), part_of(own)}) {
    internal::transfer(*impl_, ops::OpKind::kSend, part, destination, tag, label);
  }
}

std::string Communicator::recv_bytes(const std::string& type, int source, int tag) {
  impl_->check_usable();
  const Label label = internal::label_of("object");
  const auto receive = [&](Part part) {
    internal::transfer(*impl_, ops::OpKind::kRecv, part, source, tag, label);
  };
  Head head;
  receive({reinterpret_cast<std::byte*>(&head), sizeof head});
  std::string name(head.type_bytes, '\0');
  receive(part_of(name));
  if (name != type) {
    const MismatchError error("rank " + std::to_string(source) + " sent " + name + " with tag " +
                              std::to_string(tag) + ", rank " + std::to_string(rank()) +
                              " expects " + type);
    impl_->group->abort(std::make_exception_ptr(error));  // the sender may wait, or be gone on
    throw error;
  }
  std::string bytes(head.object_bytes, '\0');
  receive(part_of(bytes));
  return bytes;
}

std::string Communicator::bcast_obj(const std::string& bytes, int root) {
  return bcast_bytes(rank() == root ? bytes : "", object_type<std::string>(), root);
}

std::vector<std::string> Communicator::allgather_obj(const std::string& bytes) {
  return allgather_bytes(bytes, object_type<std::string>());
}

}  // namespace chainmail
