// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/graph_collectives.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <torch/torch.h>

#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/tensor_checks.h"

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

ops::Collective gather_of_bytes(const std::byte* input, std::size_t bytes) {
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllGather;
  collective.dtype = ops::DataType::kUInt8;
  collective.count = bytes;
  collective.input = input;
  collective.is_async = false;
  return collective;
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
  return at::empty(at::IntArrayRef(header.data() + 2, static_cast<std::size_t>(header[1])),
                   c10::TensorOptions(static_cast<c10::ScalarType>(header[0])));
}

void require_one_dtype(Communicator& communicator, const std::vector<Header>& headers) {
  const auto name_of = [](const Header& header) {
    return std::string(c10::toString(static_cast<c10::ScalarType>(header[0])));
  };
  for (std::size_t r = 1; r < headers.size(); ++r) {
    if (headers[r][0] != headers[0][0]) {
      fail_on_all_ranks(communicator, std::make_exception_ptr(MismatchError(
                                          "allgather: rank 0 has a tensor of type " +
                                          name_of(headers[0]) + ", rank " + std::to_string(r) +
                                          " one of type " + name_of(headers[r]))));
    }
  }
}

}  // namespace

at::Tensor sum_in_graph(Communicator& communicator, const at::Tensor& x) {
  check_tensor(x, "allreduce");
  ops::Group& group = communicator.impl().in_graph();
  at::Tensor sum = x.detach().clone(at::MemoryFormat::Contiguous);
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllReduce;
  collective.dtype = engine_type(sum.scalar_type(), "allreduce");
  collective.reduce_op = ops::ReduceOp::kSum;
  collective.count = static_cast<std::size_t>(sum.numel());
  collective.output = static_cast<std::byte*>(sum.data_ptr());
  // Only gradients of parameters are rounded.
  collective.wire = ops::WireFormat::kNative;
  collective.shape_hash = hash_shapes(sum);
  collective.describe_shapes = [sum] { return describe_shapes(sum); };
  collective.is_async = false;
  group.run(collective);
  return sum;
}

std::vector<at::Tensor> gather_in_graph(Communicator& communicator, const at::Tensor& x) {
  check_tensor(x, "allgather");
  const Header own = header_of(x);
  ops::Group& group = communicator.impl().in_graph();
  std::vector<Header> headers(static_cast<std::size_t>(group.size()));
  ops::Collective shapes =
      gather_of_bytes(reinterpret_cast<const std::byte*>(own.data()), sizeof own);
  shapes.output = reinterpret_cast<std::byte*>(headers.data());
  group.run(shapes);
  require_one_dtype(communicator, headers);

  const at::Tensor flat = x.detach().contiguous();
  std::vector<at::Tensor> all;
  ops::Collective elements = gather_of_bytes(static_cast<const std::byte*>(flat.const_data_ptr()),
                                             0);  // receive_counts say how many
  for (const Header& header : headers) {
    all.push_back(empty_of(header));
    elements.output_parts.push_back(static_cast<std::byte*>(all.back().data_ptr()));
    elements.receive_counts.push_back(all.back().nbytes());
  }
  elements.describe_shapes = [all] { return describe_shapes(all); };
  group.run(elements);
  return all;
}

std::vector<double> gather_numbers(Communicator& communicator, std::span<const double> own,
                                   const std::string& what) {
  ops::Group& group = communicator.impl().in_graph();
  std::vector<double> all(own.size() * static_cast<std::size_t>(group.size()));
  ops::Collective collective;
  collective.kind = ops::OpKind::kAllGather;
  collective.dtype = ops::DataType::kFloat64;
  collective.count = own.size();
  collective.input = reinterpret_cast<const std::byte*>(own.data());
  collective.output = reinterpret_cast<std::byte*>(all.data());
  collective.describe_shapes = [what] { return what; };
  collective.is_async = false;
  group.run(collective);
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
