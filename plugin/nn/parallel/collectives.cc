// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/parallel/collectives.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <chainmail/error.h>

#include "plugin/nn/graph_collectives.h"
#include "plugin/nn/parallel/heads.h"
#include "plugin/nn/parallel/tensor_moves.h"
#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::internal {

namespace {

using CommPtr = std::shared_ptr<Communicator>;
using Tensors = std::vector<at::Tensor>;

std::size_t index_of(int rank) { return static_cast<std::size_t>(rank); }

bool do_any_need(const std::vector<Head>& heads) { return std::ranges::any_of(heads, needs_any); }

// Everything has a gradient that needs_gradient() said so of, on the rank that it came from. Where
// this rank gets nothing of that kind, all that can have one: backward is collective, and comes
// through a result.
std::vector<bool> which_have_gradients(const std::vector<std::uint8_t>& flags,
                                       const Tensors& results) {
  const bool none = std::ranges::all_of(flags, [](std::uint8_t flag) { return flag == 0; });
  std::vector<bool> have;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const c10::ScalarType type = results[i].scalar_type();
    const bool has = none ? at::isFloatingType(type) || at::isComplexType(type) : flags[i] != 0;
    have.push_back(at::GradMode::is_enabled() && has);
  }
  return have;
}

// That of a result, zeros where there is none.
at::Tensor dense(const at::Tensor& gradient, const TensorShape& shape) {
  if (!gradient.defined()) return empty_of(shape).zero_();
  return dense_gradient(gradient);
}

// Of tensors that the ranks add up.
Head head_of_sum(at::ArrayRef<at::Tensor> tensors, std::size_t wanted) {
  Head head = head_of(tensors, wanted);
  if (head.problem.empty()) head.problem = why_not_summable(tensors);
  return head;
}

// The first tensor of every rank.
std::vector<TensorShape> firsts(const std::vector<Head>& heads) {
  std::vector<TensorShape> shapes;
  for (const Head& head : heads) shapes.push_back(head.shapes.front());
  return shapes;
}

std::vector<std::uint8_t> first_needs(const std::vector<Head>& heads) {
  std::vector<std::uint8_t> needs;
  for (const Head& head : heads) needs.push_back(head.needs_gradient.front());
  return needs;
}

void require_one_type(Communicator& communicator, const std::vector<TensorShape>& shapes,
                      const char* function) {
  for (std::size_t r = 1; r < shapes.size(); ++r) {
    if (shapes[r].type == shapes[0].type) continue;
    const auto name = [](const TensorShape& shape) {
      return std::string(c10::toString(static_cast<c10::ScalarType>(shape.type)));
    };
    fail_on_all_ranks(communicator, std::string(function) + ": rank 0 has a tensor of type " +
                                        name(shapes[0]) + ", rank " + std::to_string(r) +
                                        " one of type " + name(shapes[r]));
  }
}

void check(const CommPtr& communicator, const char* function) {
  require_communicator(communicator, function);
  communicator->impl().check_usable();
}

void check(const CommPtr& communicator, const char* function, int root) {
  check(communicator, function);
  communicator->impl().check_root(root, function);
}

std::string with_root(const char* function, const char* preposition, int root) {
  return std::string(function) + preposition + std::to_string(root);
}

}  // namespace

Exchanged bcast_in_graph(const CommPtr& communicator, const at::Tensor& token, const at::Tensor& x,
                         int root) {
  check(communicator, "bcast", root);
  const bool is_root = communicator->rank() == root;
  const std::vector<Head> heads = exchange_heads(*communicator, is_root ? head_of(x, 1) : Head(),
                                                 with_root("bcast", " from rank ", root));
  const Head& head = heads[index_of(root)];
  const at::Tensor result = broadcast_tensor(
      *communicator, is_root ? plain_values(x, "bcast") : at::Tensor(), head.shapes.front(), root);
  if (!needs_any(head)) return without_record(token, {result});
  return record_exchange(
      token, {.name = "bcast",
              .arguments = is_root ? Tensors{x} : Tensors{},
              .results = {result},
              .have_gradients = {at::GradMode::is_enabled()},
              .backward = [communicator, root, is_root,
                           shape = head.shapes.front()](const Tensors& gradients) {
                const at::Tensor sum = sum_to_root(*communicator, dense(gradients[0], shape), root);
                return is_root ? Tensors{sum} : Tensors{};
              }});
}

Exchanged gather_to_root_in_graph(const CommPtr& communicator, const at::Tensor& token,
                                  const at::Tensor& x, int root) {
  check(communicator, "gather", root);
  const bool is_root = communicator->rank() == root;
  const std::vector<Head> heads =
      exchange_heads(*communicator, head_of(x, 1), with_root("gather", " to rank ", root));
  const std::vector<TensorShape> shapes = firsts(heads);
  const std::vector<std::uint8_t> needs = first_needs(heads);
  const Tensors received =
      gather_tensors(*communicator, plain_values(x, "gather"), shapes, root, "gather");
  if (!do_any_need(heads)) return without_record(token, received);
  return record_exchange(
      token, {.name = "gather",
              .arguments = {x},
              .results = received,
              .have_gradients = which_have_gradients(needs, received),
              .backward = [communicator, root, is_root, shapes, needs](const Tensors& gradients) {
                Tensors sent(is_root ? needs.size() : 0);
                for (std::size_t r = 0; r < sent.size(); ++r) {
                  if (needs[r] != 0) sent[r] = dense(gradients[r], shapes[r]);
                }
                return Tensors{scatter_tensors(*communicator, sent, shapes, needs, root, "gather")};
              }});
}

Exchanged scatter_in_graph(const CommPtr& communicator, const at::Tensor& token,
                           at::ArrayRef<at::Tensor> tensors, int root) {
  check(communicator, "scatter", root);
  const bool is_root = communicator->rank() == root;
  const std::size_t ranks = index_of(communicator->size());
  const std::vector<Head> heads =
      exchange_heads(*communicator, is_root ? head_of(tensors, ranks) : Head(),
                     with_root("scatter", " from rank ", root));
  const Head head = heads[index_of(root)];
  const at::Tensor received =
      scatter_tensors(*communicator, is_root ? plain_values(tensors, "scatter") : Tensors{},
                      head.shapes, std::vector<std::uint8_t>(ranks, 1), root, "scatter");
  if (!needs_any(head)) return without_record(token, {received});
  const std::size_t own = index_of(communicator->rank());
  return record_exchange(
      token, {.name = "scatter",
              .arguments = is_root ? tensors.vec() : Tensors{},
              .results = {received},
              .have_gradients = which_have_gradients({head.needs_gradient[own]}, {received}),
              .backward = [communicator, root, own, head](const Tensors& gradients) {
                const bool needs = head.needs_gradient[own] != 0;
                return gather_tensors(*communicator,
                                      needs ? dense(gradients[0], head.shapes[own]) : at::Tensor(),
                                      without_unneeded(head), root, "scatter");
              }});
}

Exchanged alltoall_in_graph(const CommPtr& communicator, const at::Tensor& token,
                            at::ArrayRef<at::Tensor> tensors) {
  check(communicator, "alltoall");
  const std::size_t own = index_of(communicator->rank());
  const std::vector<Head> heads =
      exchange_heads(*communicator, head_of(tensors, index_of(communicator->size())), "alltoall");
  Moves forward;  // what I send to each rank, and what I get of it
  Moves backward;
  std::vector<std::uint8_t> needs;
  for (const Head& head : heads) {
    forward.received.push_back(head.shapes[own]);
    needs.push_back(head.needs_gradient[own]);
    forward.longest = std::max(forward.longest, longest_of(head.shapes));
  }
  backward.received = without_unneeded(heads[own]);
  backward.longest = forward.longest;
  const Tensors results =
      move_tensors(*communicator, plain_values(tensors, "alltoall"), forward, "alltoall");
  if (!do_any_need(heads)) return without_record(token, results);
  return record_exchange(token, {.name = "alltoall",
                                 .arguments = tensors.vec(),
                                 .results = results,
                                 .have_gradients = which_have_gradients(needs, results),
                                 .backward = [communicator, shapes = forward.received, backward,
                                              needs](const Tensors& gradients) {
                                   Tensors sent(needs.size());
                                   for (std::size_t r = 0; r < sent.size(); ++r) {
                                     if (needs[r] != 0) sent[r] = dense(gradients[r], shapes[r]);
                                   }
                                   return move_tensors(*communicator, sent, backward, "alltoall");
                                 }});
}

Exchanged allgather_in_graph(const CommPtr& communicator, const at::Tensor& token,
                             const at::Tensor& x) {
  check(communicator, "allgather");
  const std::vector<Head> heads = exchange_heads(*communicator, head_of(x, 1), "allgather");
  const std::vector<TensorShape> shapes = firsts(heads);
  require_one_type(*communicator, shapes, "allgather");
  const Tensors results = all_gather_tensors(*communicator, plain_values(x, "allgather"), shapes);
  if (!do_any_need(heads)) return without_record(token, results);
  return record_exchange(
      token, {.name = "allgather",
              .arguments = {x},
              .results = results,
              // A part has a gradient where its rank asks for none, too: all of them are summed.
              .have_gradients = std::vector<bool>(heads.size(), at::GradMode::is_enabled()),
              .backward = [communicator, shapes](const Tensors& gradients) {
                Tensors parts;
                for (std::size_t r = 0; r < shapes.size(); ++r) {
                  parts.push_back(dense(gradients[r], shapes[r]));
                }
                return Tensors{scatter_sum_in_graph(*communicator, parts)};
              }});
}

Exchanged allreduce_in_graph(const CommPtr& communicator, const at::Tensor& token,
                             const at::Tensor& x) {
  check(communicator, "allreduce");
  const std::vector<Head> heads = exchange_heads(*communicator, head_of_sum(x, 1), "allreduce");
  const at::Tensor sum = sum_in_graph(*communicator, x);
  if (!do_any_need(heads)) return without_record(token, {sum});
  return record_exchange(
      token, {.name = "allreduce",
              .arguments = {x},
              .results = {sum},
              .have_gradients = {at::GradMode::is_enabled()},
              .backward = [communicator, shape = shape_of(x)](const Tensors& gradients) {
                return Tensors{sum_in_graph(*communicator, dense(gradients[0], shape))};
              }});
}

Exchanged reduce_scatter_in_graph(const CommPtr& communicator, const at::Tensor& token,
                                  at::ArrayRef<at::Tensor> tensors) {
  check(communicator, "reduce_scatter");
  const std::size_t ranks = index_of(communicator->size());
  const std::vector<Head> heads =
      exchange_heads(*communicator, head_of_sum(tensors, ranks), "reduce_scatter");
  const at::Tensor sum = scatter_sum_in_graph(*communicator, tensors);
  if (!do_any_need(heads)) return without_record(token, {sum});
  const std::vector<TensorShape> shapes = heads.front().shapes;
  return record_exchange(token, {.name = "reduce_scatter",
                                 .arguments = tensors.vec(),
                                 .results = {sum},
                                 .have_gradients = {at::GradMode::is_enabled()},
                                 .backward = [communicator, shapes](const Tensors& gradients) {
                                   const std::size_t own = index_of(communicator->rank());
                                   return all_gather_tensors(
                                       *communicator, dense(gradients[0], shapes[own]), shapes);
                                 }});
}

}  // namespace chainmail::internal
