// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors whose types and shapes only their senders know. Announcements with both go first, as
// objects; they also say what is wrong with an argument of one rank, so that all ranks throw.

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include <chainmail/communicator.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/parts.h"
#include "plugin/train/communicator/values.h"

namespace chainmail {

namespace internal {

namespace {

struct Announcement {
  std::string problem;
  std::vector<TensorShape> shapes;
};

}  // namespace
}  // namespace internal

template <>
struct ObjectCodec<internal::Announcement> {
  static std::string name() { return "tensors"; }
  static void write(const internal::Announcement& object, ObjectWriter& writer) {
    ObjectCodec<std::string>::write(object.problem, writer);
    writer.put_count(object.shapes.size());
    for (const internal::TensorShape& shape : object.shapes) {
      ObjectCodec<std::int8_t>::write(shape.type, writer);
      ObjectCodec<std::vector<std::int64_t>>::write(shape.sizes, writer);
    }
  }
  static internal::Announcement read(ObjectReader& reader) {
    internal::Announcement object{ObjectCodec<std::string>::read(reader), {}};
    for (std::size_t left = reader.get_count(1); left > 0; --left) {
      const auto type = ObjectCodec<std::int8_t>::read(reader);
      object.shapes.push_back({type, ObjectCodec<std::vector<std::int64_t>>::read(reader)});
    }
    return object;
  }
};

namespace {

using internal::Announcement;
using internal::Part;

std::byte* data_of(const at::Tensor& tensor) { return static_cast<std::byte*>(tensor.data_ptr()); }

Part part_of(const at::Tensor& tensor) { return {data_of(tensor), tensor.nbytes()}; }

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
  std::transform(tensors.begin(), tensors.end(), std::back_inserter(parts), part_of);
  return parts;
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
  internal::broadcast_in_chunks(*impl_->group, data_of(result), result.nbytes(), root,
                                impl_->options.object_chunk_bytes, internal::label_of(result));
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
    for (const Announcement& announcement : all) {
      result.push_back(internal::empty_of(announcement.shapes.front()));
    }
    received = parts_of(result);
  }
  internal::move_parts(*impl_->group, sent, received, longest_of(all),
                       impl_->options.object_chunk_bytes,
                       internal::label_of("gather to rank " + std::to_string(root)));
  return result;
}

std::vector<at::Tensor> Communicator::allgather(const at::Tensor& tensor) {
  impl_->check_usable();
  const std::vector<Announcement> all =
      exchange_announcements(*this, announce(tensor, 1), "allgather");
  const at::Tensor values = internal::plain_values(tensor, "allgather");
  std::vector<at::Tensor> result;
  for (const Announcement& announcement : all) {
    result.push_back(internal::empty_of(announcement.shapes.front()));
  }
  internal::all_gather_parts(*impl_->group, part_of(values), parts_of(result),
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
  internal::move_parts(*impl_->group, sent, received, longest_of({of_root}),
                       impl_->options.object_chunk_bytes, internal::label_of("scatter"));
  return result;
}

std::vector<at::Tensor> Communicator::alltoall(at::ArrayRef<at::Tensor> tensors) {
  impl_->check_usable();
  const std::vector<Announcement> all = exchange_announcements(
      *this, announce(tensors, static_cast<std::size_t>(size())), "alltoall");
  const std::vector<at::Tensor> values = plain(tensors, "alltoall");
  std::vector<at::Tensor> result;
  for (const Announcement& announcement : all) {
    result.push_back(internal::empty_of(announcement.shapes[static_cast<std::size_t>(rank())]));
  }
  internal::move_parts(*impl_->group, parts_of(values), parts_of(result), longest_of(all),
                       impl_->options.object_chunk_bytes, internal::label_of("alltoall"));
  return result;
}

void Communicator::send(at::ArrayRef<at::Tensor> tensors, int destination, int tag) {
  impl_->check_usable();
  const Announcement own = announce(tensors, tensors.size());
  throw_problem("send", rank(), own);
  const std::vector<at::Tensor> values = plain(tensors, "send");
  send_obj(own, destination, tag);
  for (const at::Tensor& tensor : values) {
    internal::send_part(*impl_->group, part_of(tensor), destination, tag,
                        impl_->options.object_chunk_bytes, internal::label_of(tensor));
  }
}

std::vector<at::Tensor> Communicator::recv(int source, int tag) {
  impl_->check_usable();
  const auto announcement = recv_obj<Announcement>(source, tag);
  std::vector<at::Tensor> result;
  for (const internal::TensorShape& shape : announcement.shapes) {
    result.push_back(internal::empty_of(shape));
    internal::recv_part(*impl_->group, part_of(result.back()), source, tag,
                        impl_->options.object_chunk_bytes, internal::label_of(result.back()));
  }
  return result;
}

}  // namespace chainmail
