// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/layers/regions.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "plugin/nn/graph_collectives.h"
#include "plugin/nn/parallel/exchange_node.h"
#include "plugin/train/communicator/values.h"

namespace chainmail::internal {

namespace {

// One result of one argument. A walk that brings no gradient brings zeros: other ranks may have
// some.
at::Tensor record_one(std::string name, const at::Tensor& x, const at::Tensor& result,
                      std::function<at::Tensor(const at::Tensor&)> backward) {
  if (!needs_gradient(x)) return result;
  const auto run = [backward = std::move(backward),
                    shape = shape_of(result)](const std::vector<at::Tensor>& gradients) {
    const at::Tensor& gradient = gradients.front();
    return std::vector<at::Tensor>{
        backward(gradient.defined() ? dense_gradient(gradient) : empty_of(shape).zero_())};
  };
  return record_exchange({}, {.name = std::move(name),
                              .arguments = {x},
                              .results = {result},
                              .have_gradients = {true},
                              .backward = run})
      .results.front();
}

at::Tensor joined(Communicator& communicator, const at::Tensor& x, std::int64_t dimension) {
  return at::cat(gather_in_graph(communicator, x), dimension);
}

at::Tensor part_of_all(Communicator& communicator, const at::Tensor& x, std::int64_t dimension) {
  const Cut cut = cut_of(x.size(dimension), communicator.rank(), communicator.size());
  return x.narrow(dimension, cut.begin, cut.length);
}

}  // namespace

Cut cut_of(std::int64_t size, int rank, int ranks) {
  const std::int64_t less = size / ranks;
  const std::int64_t longer = size % ranks;  // that many parts
  return {rank * less + std::min<std::int64_t>(rank, longer), less + (rank < longer ? 1 : 0)};
}

at::Tensor enter_parts(const std::shared_ptr<Communicator>& communicator, const at::Tensor& x) {
  return record_one("enter_parts", x, x.detach(), [communicator](const at::Tensor& gradient) {
    return sum_in_graph(*communicator, gradient);
  });
}

at::Tensor sum_parts(const std::shared_ptr<Communicator>& communicator, const at::Tensor& x) {
  return record_one("sum_parts", x, sum_in_graph(*communicator, x),
                    [](const at::Tensor& gradient) { return gradient; });
}

at::Tensor join_parts(const std::shared_ptr<Communicator>& communicator, const at::Tensor& x,
                      std::int64_t dimension) {
  return record_one("join_parts", x, joined(*communicator, x.detach(), dimension),
                    [communicator, dimension](const at::Tensor& gradient) {
                      return part_of_all(*communicator, gradient, dimension);
                    });
}

at::Tensor take_part(const std::shared_ptr<Communicator>& communicator, const at::Tensor& x,
                     std::int64_t dimension) {
  return record_one("take_part", x, part_of_all(*communicator, x.detach(), dimension).clone(),
                    [communicator, dimension](const at::Tensor& gradient) {
                      return joined(*communicator, gradient, dimension);
                    });
}

}  // namespace chainmail::internal
