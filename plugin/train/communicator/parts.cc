// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/communicator/parts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <chainmail/error.h>

#include "base/bytes.h"
#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail::internal {

namespace {

ops::Collective bytes_of_kind(ops::OpKind kind, std::size_t bytes, const Label& label) {
  ops::Collective collective;
  collective.kind = kind;
  collective.dtype = ops::DataType::kUInt8;
  collective.count = bytes;
  collective.shape_hash = label.hash;
  collective.describe_shapes = label.describe;
  collective.is_async = false;
  return collective;
}

// Calls visit(begin, length) for each chunk.
template <typename Visit>
void for_each_chunk(std::size_t bytes, std::size_t chunk_bytes, const Visit& visit) {
  for (std::size_t begin = 0; begin < bytes;) {
    const std::size_t length = std::min(chunk_bytes, bytes - begin);
    visit(begin, length);
    begin += length;
  }
}

}  // namespace

Label label_of(at::ArrayRef<at::Tensor> tensors) {
  return {hash_shapes(tensors), [kept = tensors.vec()] { return describe_shapes(kept); }};
}

Label label_of(std::string text) {
  const auto hash = static_cast<std::uint32_t>(hash64(text));
  return {hash, [kept = std::move(text)] { return "(" + kept + ")"; }};
}

Part part_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

Part part_of(std::string& bytes) {
  return {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()};
}

ops::Collective all_reduce_of(const at::Tensor& flat, ops::ReduceOp op, ops::WireFormat wire,
                              at::ArrayRef<at::Tensor> shapes) {
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllReduce;
  collective.dtype = engine_type(flat.scalar_type(), "allreduce");
  collective.reduce_op = op;
  collective.count = static_cast<std::size_t>(flat.numel());
  collective.output = part_of(flat).data;
  collective.wire = wire;
  collective.shape_hash = hash_shapes(shapes);
  collective.describe_shapes = label_of(shapes).describe;
  collective.is_async = false;
  return collective;
}

void broadcast(ops::Group& group, Part part, int root, const Label& label) {
  ops::Collective collective = bytes_of_kind(ops::OpKind::kBroadcast, part.bytes, label);
  collective.output = part.data;
  collective.root = root;
  group.run(std::move(collective));
}

void broadcast_in_chunks(ops::Group& group, std::size_t chunk_bytes, Part part, int root,
                         const Label& label) {
  for_each_chunk(part.bytes, chunk_bytes, [&](std::size_t begin, std::size_t length) {
    broadcast(group, {part.data + begin, length}, root, label);
  });
}

void all_gather(ops::Group& group, const void* input, void* output, std::size_t bytes,
                const Label& label) {
  ops::Collective collective = bytes_of_kind(ops::OpKind::kAllGather, bytes, label);
  collective.input = static_cast<const std::byte*>(input);
  collective.output = static_cast<std::byte*>(output);
  group.run(std::move(collective));
}

void all_gather_parts(ops::Group& group, const std::byte* own, const std::vector<Part>& received,
                      const Label& label) {
  ops::Collective collective = bytes_of_kind(ops::OpKind::kAllGather, 0, label);
  collective.input = own;
  for (const Part& part : received) {
    collective.receive_counts.push_back(part.bytes);
    collective.output_parts.push_back(part.data);
  }
  group.run(std::move(collective));
}

void move_parts(ops::Group& group, std::size_t chunk_bytes, const std::vector<Part>& sent,
                const std::vector<Part>& received, std::size_t longest, const Label& label) {
  for_each_chunk(longest, chunk_bytes, [&](std::size_t begin, std::size_t length) {
    ops::Collective collective = bytes_of_kind(ops::OpKind::kAllToAll, 0, label);
    const auto add = [&](const std::vector<Part>& parts, auto& counts, auto& places) {
      for (const Part& part : parts) {
        counts.push_back(std::min(length, part.bytes - std::min(begin, part.bytes)));
        places.push_back(counts.back() == 0 ? nullptr : part.data + begin);
      }
    };
    add(sent, collective.send_counts, collective.input_parts);
    add(received, collective.receive_counts, collective.output_parts);
    group.run(std::move(collective));
  });
}

void check_peer(const Communicator::Impl& communicator, ops::OpKind kind, int peer, int tag) {
  const int size = communicator.group->size();
  // The engine would take -1 for a message of any rank, and a part of nothing never gets there.
  if (peer < 0 || peer >= size) {
    throw InvalidArgument(std::string(kind == ops::OpKind::kSend ? "send: " : "recv: ") + "rank " +
                          std::to_string(peer) + " is not a rank of this communicator of " +
                          std::to_string(size));
  }
  if (tag < 0) throw InvalidArgument("a tag must not be negative, got " + std::to_string(tag));
}

void transfer(const Communicator::Impl& communicator, ops::OpKind kind, Part part, int peer,
              int tag, const Label& label) {
  check_peer(communicator, kind, peer, tag);
  transfer_with_tag(communicator, kind, part, peer, static_cast<std::uint32_t>(tag), label,
                    nullptr);
}

void transfer_with_tag(const Communicator::Impl& communicator, ops::OpKind kind, Part part,
                       int peer, std::uint32_t tag, const Label& label,
                       const std::shared_ptr<const void>& keep) {
  const std::size_t chunk_bytes = communicator.options.object_chunk_bytes;
  for_each_chunk(part.bytes, chunk_bytes, [&](std::size_t begin, std::size_t length) {
    ops::Collective collective = bytes_of_kind(kind, length, label);
    collective.root = peer;
    collective.tag = tag;
    (kind == ops::OpKind::kSend ? collective.input = part.data + begin
                                : collective.output = part.data + begin);
    if (keep == nullptr) {
      communicator.group->run(std::move(collective));
      return;
    }
    collective.keep = keep;
    collective.is_async = true;
    static_cast<void>(communicator.group->submit(std::move(collective)));
  });
}

}  // namespace chainmail::internal
