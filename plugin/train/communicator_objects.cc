// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a communicator moves without reducing: bytes of tensors and of objects.

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include <ATen/ATen.h>

#include <chainmail/communicator.h>

#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator_impl.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail {

namespace {

// Tensors of at least this size travel from where they lie, smaller ones together.
constexpr std::int64_t kDirectBytes = std::int64_t{4} << 20;
// One all-gather of equal, padded parts up to this total; beyond it one broadcast per rank.
constexpr std::size_t kPaddedGatherBytes = std::size_t{64} << 20;
// Every packed tensor starts at a multiple of the largest element.
constexpr std::int64_t kAlignment = 16;

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

std::int64_t padded(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

at::Tensor bytes_tensor(std::int64_t bytes) {
  return at::zeros({std::max<std::int64_t>(bytes, 1)}, c10::TensorOptions(c10::kByte));
}

// The place of `tensor` in a byte buffer, with its dtype and shape.
at::Tensor place_in(const at::Tensor& buffer, std::int64_t begin, const at::Tensor& tensor) {
  return buffer.narrow(0, begin, bytes_of(tensor)).view(tensor.scalar_type()).view(tensor.sizes());
}

void all_gather(ops::Group& group, const std::byte* input, std::byte* output, std::size_t bytes) {
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllGather;
  collective.dtype = ops::DataType::kUInt8;
  collective.count = bytes;
  collective.input = input;
  collective.output = output;
  collective.is_async = false;
  group.run(std::move(collective));
}

}  // namespace

void Communicator::Impl::broadcast_bytes(std::byte* data, std::size_t bytes, int root,
                                         at::ArrayRef<at::Tensor> shapes) {
  ops::Collective collective;
  collective.kind = ops::OpKind::kBroadcast;
  collective.dtype = ops::DataType::kUInt8;
  collective.count = bytes;
  collective.output = data;
  collective.root = root;
  collective.shape_hash = internal::hash_shapes(shapes);
  collective.describe_shapes = [kept = shapes.vec()] { return internal::describe_shapes(kept); };
  collective.is_async = false;
  group->run(std::move(collective));
}

void Communicator::bcast(at::ArrayRef<at::Tensor> tensors, int root) {
  impl_->check_usable();
  impl_->check_root(root, "bcast");
  internal::check_dense_cpu(tensors, "bcast");
  const at::NoGradGuard no_grad;

  std::vector<at::Tensor> small;
  std::int64_t small_bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (internal::is_flat(tensor) && bytes_of(tensor) >= kDirectBytes) {
      impl_->broadcast_bytes(static_cast<std::byte*>(tensor.data_ptr()),
                             static_cast<std::size_t>(bytes_of(tensor)), root, tensor);
      internal::mark_written(tensor);
    } else {
      small.push_back(tensor);
      small_bytes += padded(bytes_of(tensor));
    }
  }
  if (small.empty()) {
    return;
  }
  const at::Tensor buffer = bytes_tensor(small_bytes);
  const auto for_each_place = [&](const auto& visit) {
    std::int64_t begin = 0;
    for (const at::Tensor& tensor : small) {
      visit(place_in(buffer, begin, tensor), tensor);
      begin += padded(bytes_of(tensor));
    }
  };
  if (rank() == root) {
    for_each_place([](const at::Tensor& place, const at::Tensor& tensor) { place.copy_(tensor); });
  }
  impl_->broadcast_bytes(static_cast<std::byte*>(buffer.data_ptr()),
                         static_cast<std::size_t>(small_bytes), root, small);
  if (rank() != root) {
    for_each_place([](const at::Tensor& place, const at::Tensor& tensor) { tensor.copy_(place); });
  }
}

std::string Communicator::bcast_obj(const std::string& bytes, int root) {
  impl_->check_usable();
  impl_->check_root(root, "bcast_obj");
  std::uint64_t length = bytes.size();
  std::array<std::byte, sizeof length> head;
  std::memcpy(head.data(), &length, sizeof length);
  impl_->broadcast_bytes(head.data(), head.size(), root, {});
  std::memcpy(&length, head.data(), sizeof length);
  std::string result = rank() == root ? bytes : std::string(length, '\0');
  if (length != 0) {
    impl_->broadcast_bytes(reinterpret_cast<std::byte*>(result.data()), length, root, {});
  }
  return result;
}

std::vector<std::string> Communicator::allgather_obj(const std::string& bytes) {
  impl_->check_usable();
  const auto ranks = static_cast<std::size_t>(size());
  const std::uint64_t own_length = bytes.size();
  std::vector<std::uint64_t> lengths(ranks);
  all_gather(*impl_->group, reinterpret_cast<const std::byte*>(&own_length),
             reinterpret_cast<std::byte*>(lengths.data()), sizeof own_length);

  std::vector<std::string> result(ranks);
  const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest == 0) {
    return result;
  }
  if (longest <= kPaddedGatherBytes / ranks) {
    std::string own = bytes;
    own.resize(longest);
    std::string all(longest * ranks, '\0');
    all_gather(*impl_->group, reinterpret_cast<const std::byte*>(own.data()),
               reinterpret_cast<std::byte*>(all.data()), longest);
    for (std::size_t r = 0; r < ranks; ++r) {
      result[r] = all.substr(r * longest, lengths[r]);
    }
    return result;
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    const int root = static_cast<int>(r);
    result[r] = root == rank() ? bytes : std::string(lengths[r], '\0');
    if (lengths[r] != 0) {
      impl_->broadcast_bytes(reinterpret_cast<std::byte*>(result[r].data()), lengths[r], root, {});
    }
  }
  return result;
}

std::shared_ptr<Communicator> Communicator::split(int color, int key) {
  struct Wish {
    std::int32_t color;
    std::int32_t key;
  };
  const Wish own{color, key};
  std::string bytes(sizeof own, '\0');
  std::memcpy(bytes.data(), &own, sizeof own);
  const std::vector<std::string> all = allgather_obj(bytes);

  std::vector<int> members;
  std::vector<Wish> wishes(all.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    std::memcpy(&wishes[r], all[r].data(), sizeof(Wish));
    if (wishes[r].color == color) {
      members.push_back(static_cast<int>(r));
    }
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });

  auto impl = std::make_unique<Impl>();
  impl->name = impl_->name;
  impl->options = impl_->options;
  impl->world = impl_->world;
  for (const int member : members) {
    impl->world_ranks.push_back(impl_->world_ranks.at(static_cast<std::size_t>(member)));
  }
  ops::GroupOptions options = impl_->group->options();
  options.name += "/split" + std::to_string(impl_->splits++) + "." + std::to_string(color);
  impl->group = impl->create_group(std::move(options));
  return std::make_shared<Communicator>(std::move(impl));
}

}  // namespace chainmail
