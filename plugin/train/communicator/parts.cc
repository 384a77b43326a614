// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/communicator/parts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <chainmail/error.h>

#include "base/bytes.h"
#include "plugin/tensor/tensor_bytes.h"

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

void transfer(ops::Group& group, ops::OpKind kind, Part part, int peer, int tag,
              std::size_t chunk_bytes, const Label& label) {
  // The engine would take -1 for a message of any rank, and a part of nothing never gets there.
  if (peer < 0 || peer >= group.size()) {
    throw InvalidArgument(std::string(kind == ops::OpKind::kSend ? "send: " : "recv: ") + "rank " +
                          std::to_string(peer) + " is not a rank of this communicator of " +
                          std::to_string(group.size()));
  }
  if (tag < 0) throw InvalidArgument("a tag must not be negative, got " + std::to_string(tag));
  for_each_chunk(part.bytes, chunk_bytes, [&](std::size_t begin, std::size_t length) {
    ops::Collective collective = bytes_of_kind(kind, length, label);
    collective.root = peer;
    collective.tag = static_cast<std::uint32_t>(tag);
    (kind == ops::OpKind::kSend ? collective.input = part.data + begin
                                : collective.output = part.data + begin);
    group.run(std::move(collective));
  });
}

}  // namespace

Label label_of(at::ArrayRef<at::Tensor> tensors) {
  return {hash_shapes(tensors), [kept = tensors.vec()] { return describe_shapes(kept); }};
}

Label label_of(std::string text) {
  const auto hash = static_cast<std::uint32_t>(hash64(text));
  return {hash, [kept = std::move(text)] { return "(" + kept + ")"; }};
}

void broadcast(ops::Group& group, std::byte* data, std::size_t bytes, int root,
               const Label& label) {
  ops::Collective collective = bytes_of_kind(ops::OpKind::kBroadcast, bytes, label);
  collective.output = data;
  collective.root = root;
  group.run(std::move(collective));
}

void broadcast_in_chunks(ops::Group& group, std::byte* data, std::size_t bytes, int root,
                         std::size_t chunk_bytes, const Label& label) {
  for_each_chunk(bytes, chunk_bytes, [&](std::size_t begin, std::size_t length) {
    broadcast(group, data + begin, length, root, label);
  });
}

void all_gather(ops::Group& group, const void* input, void* output, std::size_t bytes,
                const Label& label) {
  ops::Collective collective = bytes_of_kind(ops::OpKind::kAllGather, bytes, label);
  collective.input = static_cast<const std::byte*>(input);
  collective.output = static_cast<std::byte*>(output);
  group.run(std::move(collective));
}

void all_gather_parts(ops::Group& group, const Part& own, const std::vector<Part>& received,
                      const Label& label) {
  ops::Collective collective = bytes_of_kind(ops::OpKind::kAllGather, 0, label);
  collective.input = own.data;
  for (const Part& part : received) {
    collective.receive_counts.push_back(part.bytes);
    collective.output_parts.push_back(part.data);
  }
  group.run(std::move(collective));
}

void move_parts(ops::Group& group, const std::vector<Part>& sent, const std::vector<Part>& received,
                std::size_t longest, std::size_t chunk_bytes, const Label& label) {
  for_each_chunk(longest, chunk_bytes, [&](std::size_t begin, std::size_t length) {
    const auto count = [&](const Part& part) {
      return std::min(length, part.bytes - std::min(begin, part.bytes));
    };
    ops::Collective collective = bytes_of_kind(ops::OpKind::kAllToAll, 0, label);
    for (const Part& part : sent) {
      collective.send_counts.push_back(count(part));
      collective.input_parts.push_back(count(part) == 0 ? nullptr : part.data + begin);
    }
    for (const Part& part : received) {
      collective.receive_counts.push_back(count(part));
      collective.output_parts.push_back(count(part) == 0 ? nullptr : part.data + begin);
    }
    group.run(std::move(collective));
  });
}

void send_part(ops::Group& group, Part part, int destination, int tag, std::size_t chunk_bytes,
               const Label& label) {
  transfer(group, ops::OpKind::kSend, part, destination, tag, chunk_bytes, label);
}

void recv_part(ops::Group& group, Part part, int source, int tag, std::size_t chunk_bytes,
               const Label& label) {
  transfer(group, ops::OpKind::kRecv, part, source, tag, chunk_bytes, label);
}

}  // namespace chainmail::internal
