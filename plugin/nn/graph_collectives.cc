// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/graph_collectives.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <torch/torch.h>

#include "plugin/job/torch_group.h"
#include "plugin/tensor/element_type.h"
#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/parts.h"
#include "plugin/train/communicator/values.h"

namespace chainmail::internal {

namespace {

constexpr char kCommunicatorKey[] = "communicator";
constexpr std::size_t kMaxDimensions = 14;

// What a rank sends about its tensor before the elements: dtype, number of dimensions, sizes.
using Header = std::array<std::int64_t, kMaxDimensions + 2>;

struct CommunicatorHolder : torch::CustomClassHolder {
  explicit CommunicatorHolder(std::shared_ptr<Communicator> kept) : communicator(std::move(kept)) {}
  std::shared_ptr<Communicator> communicator;
};

void check_tensor(const at::Tensor& x, const char* function) {
  const std::string reason = why_not_dense_cpu(x);
  if (!reason.empty()) throw InvalidArgument(std::string(function) + ": the tensor " + reason);
}

Header header_of(const at::Tensor& x) {
  if (static_cast<std::size_t>(x.dim()) > kMaxDimensions) {
    throw InvalidArgument("allgather: the tensor has " + std::to_string(x.dim()) +
                          " dimensions; at most " + std::to_string(kMaxDimensions) +
                          " are possible");
  }
  Header header{static_cast<std::int64_t>(x.scalar_type()), x.dim()};
  std::copy(x.sizes().begin(), x.sizes().end(), header.begin() + 2);
  return header;
}

at::Tensor empty_of(const Header& header) {
  const auto dimensions = static_cast<std::size_t>(header[1]);
  if (dimensions > kMaxDimensions) {
    throw MismatchError("allgather: a tensor of " + std::to_string(header[1]) +
                        " dimensions cannot be: the ranks do not run the same program");
  }
  const at::IntArrayRef sizes(header.data() + 2, dimensions);
  return empty_of(TensorShape{static_cast<std::int8_t>(header[0]), sizes.vec()});
}

void require_one_dtype(Communicator& communicator, const std::vector<Header>& headers) {
  const auto name_of = [](const Header& header) {
    return std::string(c10::toString(static_cast<c10::ScalarType>(header[0])));
  };
  for (std::size_t r = 1; r < headers.size(); ++r) {
    if (headers[r][0] != headers[0][0]) {
      fail_on_all_ranks(communicator, "allgather: rank 0 has a tensor of type " +
                                          name_of(headers[0]) + ", rank " + std::to_string(r) +
                                          " one of type " + name_of(headers[r]));
    }
  }
}

// Complex numbers add up like pairs.
at::Tensor as_numbers(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor) : tensor;
}

// Torch's own groups, which exist to compare with.
bool carries_few(Communicator& communicator) {
  return parse_torch_backend(communicator.name()).has_value();
}

void check_parts(Communicator& communicator, at::ArrayRef<at::Tensor> parts) {
  if (parts.size() != static_cast<std::size_t>(communicator.size())) {
    throw InvalidArgument("reduce_scatter: " + std::to_string(parts.size()) + " tensors for " +
                          std::to_string(communicator.size()) + " ranks");
  }
  for (const at::Tensor& part : parts) check_tensor(part, "reduce_scatter");
  const std::string reason = why_not_summable(parts);
  if (!reason.empty()) throw InvalidArgument("reduce_scatter: " + reason);
}

at::Tensor part_of_sum(Communicator& communicator, at::ArrayRef<at::Tensor> parts,
                       std::size_t own) {
  std::int64_t begin = 0;
  std::vector<at::Tensor> flat;
  for (std::size_t r = 0; r < parts.size(); ++r) {
    begin += r < own ? parts[r].numel() : 0;
    flat.push_back(resolved(parts[r].detach()).reshape({-1}));
  }
  const at::Tensor sum = at::cat(flat);
  communicator.impl().in_graph().run(
      all_reduce_of(as_numbers(sum), ops::ReduceOp::kSum, ops::WireFormat::kNative, parts));
  return sum.narrow(0, begin, parts[own].numel()).view(parts[own].sizes()).clone();
}

}  // namespace

std::string why_not_summable(at::ArrayRef<at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) {
    const auto name = [](const at::Tensor& x) {
      return std::string(c10::toString(x.scalar_type()));
    };
    if (tensor.scalar_type() != tensors[0].scalar_type()) {
      return "tensors of types " + name(tensors[0]) + " and " + name(tensor) +
             "; the parts of a sum have one";
    }
    if (!data_type_of(c10::toRealValueType(tensor.scalar_type()))) {
      return "tensors of type " + name(tensor) + " are not added up; convert them before";
    }
  }
  return {};
}

at::Tensor sum_in_graph(Communicator& communicator, const at::Tensor& x) {
  check_tensor(x, "allreduce");
  ops::Group& group = communicator.impl().in_graph();
  at::Tensor sum = resolved(x.detach()).clone(at::MemoryFormat::Contiguous);
  // Only gradients of parameters are rounded.
  group.run(all_reduce_of(as_numbers(sum), ops::ReduceOp::kSum, ops::WireFormat::kNative, sum));
  return sum;
}

at::Tensor sum_to_root(Communicator& communicator, const at::Tensor& x, int root) {
  if (carries_few(communicator)) return sum_in_graph(communicator, x);
  check_tensor(x, "bcast");
  ops::Group& group = communicator.impl().in_graph();
  at::Tensor sum = resolved(x.detach()).clone(at::MemoryFormat::Contiguous);
  ops::Collective collective =
      all_reduce_of(as_numbers(sum), ops::ReduceOp::kSum, ops::WireFormat::kNative, sum);
  collective.kind = ops::OpKind::kReduce;
  collective.root = root;
  group.run(collective);
  return sum;
}

at::Tensor scatter_sum_in_graph(Communicator& communicator, at::ArrayRef<at::Tensor> parts) {
  check_parts(communicator, parts);
  const auto own = static_cast<std::size_t>(communicator.rank());
  const auto is_as_large = [&](const at::Tensor& part) { return part.numel() == parts[0].numel(); };
  if (!std::ranges::all_of(parts, is_as_large) || carries_few(communicator)) {
    return part_of_sum(communicator, parts, own);
  }
  ops::Group& group = communicator.impl().in_graph();
  std::vector<at::Tensor> values;
  for (const at::Tensor& part : parts) values.push_back(resolved(part.detach()).contiguous());
  const at::Tensor sum = at::empty_like(values[own]);
  ops::Collective collective =
      all_reduce_of(as_numbers(sum), ops::ReduceOp::kSum, ops::WireFormat::kNative, parts);
  collective.kind = ops::OpKind::kReduceScatter;
  for (const at::Tensor& value : values) collective.input_parts.push_back(part_of(value).data);
  group.run(collective);
  return sum;
}

std::vector<at::Tensor> gather_in_graph(Communicator& communicator, const at::Tensor& x) {
  check_tensor(x, "allgather");
  const Header own = header_of(x);
  ops::Group& group = communicator.impl().in_graph();
  std::vector<Header> headers(static_cast<std::size_t>(group.size()));
  all_gather(group, own.data(), headers.data(), sizeof own, label_of("allgather"));
  require_one_dtype(communicator, headers);

  const at::Tensor flat = resolved(x.detach()).contiguous();
  std::vector<at::Tensor> all;
  std::vector<Part> parts;
  for (const Header& header : headers) parts.push_back(part_of(all.emplace_back(empty_of(header))));
  all_gather_parts(group, static_cast<const std::byte*>(flat.const_data_ptr()), parts,
                   {.hash = 0, .describe = label_of(all).describe});
  return all;
}

std::vector<double> gather_numbers(Communicator& communicator, std::span<const double> own,
                                   const std::string& what) {
  ops::Group& group = communicator.impl().in_graph();
  std::vector<double> all(own.size() * static_cast<std::size_t>(group.size()));
  all_gather(group, own.data(), all.data(), own.size_bytes(),
             {.hash = 0, .describe = [what] { return what; }});
  return all;
}

void save_communicator(torch::autograd::AutogradContext* context,
                       const std::shared_ptr<Communicator>& communicator) {
  context->saved_data[kCommunicatorKey] =
      c10::IValue::make_capsule(c10::make_intrusive<CommunicatorHolder>(communicator));
}

std::shared_ptr<Communicator> saved_communicator(torch::autograd::AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<CommunicatorHolder>(
             context->saved_data[kCommunicatorKey].toCapsule())
      ->communicator;
}

}  // namespace chainmail::internal
