// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors whose types and shapes only their senders know. Announcements with both go first, as
// objects; they also say what is wrong with an argument of one rank, so that all ranks throw.

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include <chainmail/communicator.h>

#include "plugin/train/communicator/fields.h"
#include "plugin/train/communicator/parts.h"
#include "plugin/train/communicator/values.h"

namespace chainmail {

namespace {

using internal::Part;
using internal::part_of;

struct Announcement {
  std::string problem;
  std::vector<internal::TensorShape> shapes;

  static constexpr char kObjectName[] = "tensors";
  static auto fields(auto& self) { return std::tie(self.problem, self.shapes); }
};

Announcement announce(at::ArrayRef<at::Tensor> tensors, std::size_t wanted) {
  Announcement own;
  if (tensors.size() != wanted) {
    own.problem = std::to_string(tensors.size()) + " tensors for " + std::to_string(wanted) +
                  (wanted == 1 ? " place" : " ranks");
    return own;
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string reason = internal::why_not_movable(tensors[i]);
    if (!reason.empty()) {
      return {"tensor " + std::to_string(i) + " " + reason, {}};
    }
    own.shapes.push_back(internal::shape_of(tensors[i]));
  }
  return own;
}

void throw_problem(const char* operation, int rank, const Announcement& announcement) {
  if (!announcement.problem.empty()) {
    throw InvalidArgument(std::string(operation) + ": rank " + std::to_string(rank) + ": " +
                          announcement.problem);
  }
}

// Every rank's, or the first rank's problem as an exception on all.
std::vector<Announcement> exchange_announcements(Communicator& communicator,
                                                 const Announcement& own, const char* operation) {
  std::vector<Announcement> all = communicator.allgather_obj(own);
  for (std::size_t r = 0; r < all.size(); ++r) {
    throw_problem(operation, static_cast<int>(r), all[r]);
  }
  return all;
}

Announcement announcement_of_root(Communicator& communicator, at::ArrayRef<at::Tensor> tensors,
                                  std::size_t wanted, int root, const char* operation) {
  const bool is_root = communicator.rank() == root;
  Announcement of_root =
      communicator.bcast_obj(is_root ? announce(tensors, wanted) : Announcement(), root);
  throw_problem(operation, root, of_root);
  return of_root;
}

std::vector<at::Tensor> plain(at::ArrayRef<at::Tensor> tensors, const char* operation) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : tensors) {
    values.push_back(internal::plain_values(tensor, operation));
  }
  return values;
}

std::vector<Part> parts_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Part> parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(part_of(tensor));
  return parts;
}

// For the tensor number `index` of each rank.
std::vector<at::Tensor> room_for(const std::vector<Announcement>& all, std::size_t index) {
  std::vector<at::Tensor> room;
  for (const Announcement& announcement : all) {
    room.push_back(internal::empty_of(announcement.shapes.at(index)));
  }
  return room;
}

std::size_t longest_of(const std::vector<Announcement>& all) {
  std::size_t longest = 0;
  for (const Announcement& announcement : all) {
    for (const internal::TensorShape& shape : announcement.shapes) {
      longest = std::max(longest, internal::bytes_of(shape));
    }
  }
  return longest;
}

}  // namespace

at::Tensor Communicator::bcast_tensor(const at::Tensor& tensor, int root) {
  impl_->check_usable();
  impl_->check_root(root, "bcast_tensor");
  const Announcement of_root = announcement_of_root(*this, tensor, 1, root, "bcast_tensor");
  const at::Tensor result = rank() == root ? internal::plain_values(tensor, "bcast_tensor").clone()
                                           : internal::empty_of(of_root.shapes.front());
  internal::broadcast_in_chunks(*impl_->group, impl_->options.object_chunk_bytes, part_of(result),
                                root, internal::label_of(result));
  return result;
}

std::vector<at::Tensor> Communicator::gather(const at::Tensor& tensor, int root) {
  impl_->check_usable();
  impl_->check_root(root, "gather");
  const std::vector<Announcement> all =
      exchange_announcements(*this, announce(tensor, 1), "gather");
  std::vector<at::Tensor> result;
  std::vector<Part> sent(all.size());
  std::vector<Part> received(all.size());
  const at::Tensor values = internal::plain_values(tensor, "gather");
  sent[static_cast<std::size_t>(root)] = part_of(values);
  if (rank() == root) {
    result = room_for(all, 0);
    received = parts_of(result);
  }
  internal::move_parts(*impl_->group, impl_->options.object_chunk_bytes, sent, received,
                       longest_of(all),
                       internal::label_of("gather to rank " + std::to_string(root)));
  return result;
}

std::vector<at::Tensor> Communicator::allgather(const at::Tensor& tensor) {
  impl_->check_usable();
  const std::vector<Announcement> all =
      exchange_announcements(*this, announce(tensor, 1), "allgather");
  const at::Tensor values = internal::plain_values(tensor, "allgather");
  std::vector<at::Tensor> result = room_for(all, 0);
  internal::all_gather_parts(*impl_->group, part_of(values).data, parts_of(result),
                             internal::label_of("allgather"));
  return result;
}

at::Tensor Communicator::scatter(at::ArrayRef<at::Tensor> tensors, int root) {
  impl_->check_usable();
  impl_->check_root(root, "scatter");
  const auto ranks = static_cast<std::size_t>(size());
  const Announcement of_root = announcement_of_root(*this, tensors, ranks, root, "scatter");
  const at::Tensor result = internal::empty_of(of_root.shapes[static_cast<std::size_t>(rank())]);
  std::vector<at::Tensor> values;
  std::vector<Part> sent(ranks);
  std::vector<Part> received(ranks);
  if (rank() == root) {
    values = plain(tensors, "scatter");
    sent = parts_of(values);
  }
  received[static_cast<std::size_t>(root)] = part_of(result);
  internal::move_parts(*impl_->group, impl_->options.object_chunk_bytes, sent, received,
                       longest_of({of_root}), internal::label_of("scatter"));
  return result;
}

std::vector<at::Tensor> Communicator::alltoall(at::ArrayRef<at::Tensor> tensors) {
  impl_->check_usable();
  const std::vector<Announcement> all = exchange_announcements(
      *this, announce(tensors, static_cast<std::size_t>(size())), "alltoall");
  const std::vector<at::Tensor> values = plain(tensors, "alltoall");
  std::vector<at::Tensor> result = room_for(all, static_cast<std::size_t>(rank()));
  internal::move_parts(*impl_->group, impl_->options.object_chunk_bytes, parts_of(values),
                       parts_of(result), longest_of(all), internal::label_of("alltoall"));
  return result;
}

void Communicator::send(at::ArrayRef<at::Tensor> tensors, int destination, int tag) {
  impl_->check_usable();
  const Announcement own = announce(tensors, tensors.size());
  throw_problem("send", rank(), own);
  const std::vector<at::Tensor> values = plain(tensors, "send");
  send_obj(own, destination, tag);
  for (const at::Tensor& tensor : values) {
    internal::transfer(*impl_, ops::OpKind::kSend, part_of(tensor), destination, tag,
                       internal::label_of(tensor));
  }
}

std::vector<at::Tensor> Communicator::recv(int source, int tag) {
  impl_->check_usable();
  const auto announcement = recv_obj<Announcement>(source, tag);
  std::vector<at::Tensor> result;
  for (const internal::TensorShape& shape : announcement.shapes) {
    result.push_back(internal::empty_of(shape));
    internal::transfer(*impl_, ops::OpKind::kRecv, part_of(result.back()), source, tag,
                       internal::label_of(result.back()));
  }
  return result;
}

}  // namespace chainmail
