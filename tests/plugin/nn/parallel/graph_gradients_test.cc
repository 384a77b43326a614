// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every function that gradients go back through, against differences, on one node and on two.

#include <gtest/gtest-spi.h>

#include <functional>
#include <string>
#include <vector>

#include <chainmail/nn/functions.h>
#include <chainmail/nn/parallel/chain.h>

#include "tests/plugin/nn/parallel/graph_checks.h"

namespace chainmail::testing {
namespace {

// By sizes of nodes.
class Gradients : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  static void on_ranks(const std::function<void(const CommPtr&)>& body) {
    with_communicator(GetParam(), "hierarchical", {}, body);
  }

  // Of a function by itself and of the same one in a Chain, in this order.
  static void check(const CommPtr& comm, const Tensors& inputs,
                    const std::function<torch::Tensor(const Tensors&)>& free,
                    const std::function<torch::Tensor(Chain&, const Tensors&)>& chained) {
    check_gradients(comm, inputs, free, [](const torch::Tensor& loss) { loss.backward(); });
    for (const torch::Tensor& input : inputs) input.mutable_grad() = torch::Tensor();
    Chain chain(comm);
    check_gradients(
        comm, inputs, [&](const Tensors& xs) { return chained(chain, xs); },
        [&](const torch::Tensor& loss) { chain.backward(loss); });
  }
};

// Another shape on every rank, one of them empty.
std::vector<std::int64_t> shape_of(int rank) {
  return rank == 1 ? std::vector<std::int64_t>{0, 2} : std::vector<std::int64_t>{rank + 1, 2};
}

// One per rank, for `rank`.
Tensors parts_of(int rank, int ranks) {
  Tensors parts;
  for (int r = 0; r < ranks; ++r) parts.push_back(waves(shape_of((rank + r) % 3), rank + 0.1 * r));
  return parts;
}

TEST_P(Gradients, OfAllreduce) {
  on_ranks([](const CommPtr& comm) {
    check(
        comm, {waves({2, 2}, comm->rank())},
        [&](const Tensors& x) { return mix({functions::allreduce(comm, x[0])}, comm->rank()); },
        [&](Chain& chain, const Tensors& x) { return mix({chain.allreduce(x[0])}, comm->rank()); });
  });
}

TEST_P(Gradients, OfAllgather) {
  on_ranks([](const CommPtr& comm) {
    for (const bool are_equal : {true, false}) {
      check(
          comm, {waves(are_equal ? shape_of(2) : shape_of(comm->rank()), comm->rank())},
          [&](const Tensors& x) { return mix(functions::allgather(comm, x[0]), comm->rank()); },
          [&](Chain& chain, const Tensors& x) { return mix(chain.allgather(x[0]), comm->rank()); });
    }
  });
}

TEST_P(Gradients, OfReduceScatter) {
  on_ranks([](const CommPtr& comm) {
    for (const bool are_equal : {true, false}) {
      Tensors parts;
      for (int r = 0; r < comm->size(); ++r) {
        parts.push_back(waves(are_equal ? shape_of(2) : shape_of(r), comm->rank() + 0.3 * r));
      }
      check(
          comm, parts,
          [&](const Tensors& x) { return mix({functions::reduce_scatter(comm, x)}, comm->rank()); },
          [&](Chain& chain, const Tensors& x) {
            return mix({chain.reduce_scatter(x)}, comm->rank());
          });
    }
  });
}

TEST_P(Gradients, OfBcast) {
  on_ranks([](const CommPtr& comm) {
    const int root = comm->size() - 1;
    check(
        comm, comm->rank() == root ? Tensors{waves({3}, 1)} : Tensors{},
        [&](const Tensors& x) {
          return mix({functions::bcast(comm, x.empty() ? torch::Tensor() : x[0], root)},
                     comm->rank());
        },
        [&](Chain& chain, const Tensors& x) {
          return mix({chain.bcast(x.empty() ? torch::Tensor() : x[0], root)}, comm->rank());
        });
  });
}

TEST_P(Gradients, OfGather) {
  on_ranks([](const CommPtr& comm) {
    const int root = comm->size() / 2;
    check(
        comm, {waves(shape_of(comm->rank()), comm->rank())},
        [&](const Tensors& x) {
          const Tensors all = functions::gather(comm, x[0], root);
          if (comm->rank() == root) return mix(all, 2);
          return functions::pseudo_connect(all[0], mix({x[0]}, comm->rank()));
        },
        [&](Chain& chain, const Tensors& x) {
          const Tensors all = chain.gather(x[0], root);
          return comm->rank() == root ? mix(all, 2) : mix({x[0]}, comm->rank());
        });
  });
}

TEST_P(Gradients, OfScatter) {
  on_ranks([](const CommPtr& comm) {
    const int root = comm->size() - 1;
    check(
        comm, comm->rank() == root ? parts_of(0, comm->size()) : Tensors{},
        [&](const Tensors& x) { return mix({functions::scatter(comm, x, root)}, comm->rank()); },
        [&](Chain& chain, const Tensors& x) {
          return mix({chain.scatter(x, root)}, comm->rank());
        });
  });
}

TEST_P(Gradients, OfAlltoall) {
  on_ranks([](const CommPtr& comm) {
    check(
        comm, parts_of(comm->rank(), comm->size()),
        [&](const Tensors& x) { return mix(functions::alltoall(comm, x), comm->rank()); },
        [&](Chain& chain, const Tensors& x) { return mix(chain.alltoall(x), comm->rank()); });
  });
}

// Everybody to the next and from the one before; what comes is mixed with what went.
TEST_P(Gradients, OfSendAndRecv) {
  on_ranks([](const CommPtr& comm) {
    if (comm->size() == 1) return;
    const int next = (comm->rank() + 1) % comm->size();
    const int before = (comm->rank() + comm->size() - 1) % comm->size();
    check(
        comm, {waves(shape_of(comm->rank()), comm->rank()), waves({2}, comm->rank())},
        [&](const Tensors& x) {
          const auto delegate = functions::send({x[0] * 2, x[1]}, comm, next);
          Tensors all = functions::recv_list(comm, before, delegate);
          all.push_back(x[1]);
          return mix(all, comm->rank());
        },
        [&](Chain& chain, const Tensors& x) {
          chain.send({x[0] * 2, x[1]}, next);
          Tensors all = chain.recv_list(before);
          all.push_back(x[1]);
          return mix(all, comm->rank());
        });
  });
}

// All in one model, each made of what the one before has brought.
TEST_P(Gradients, OfAllFunctionsTogether) {
  on_ranks([](const CommPtr& comm) {
    const auto ranks = static_cast<std::size_t>(comm->size());
    Chain chain(comm);
    check_gradients(
        comm, {waves({2, 2}, comm->rank())},
        [&](const Tensors& x) {
          torch::Tensor h = chain.allreduce(x[0]).tanh();
          h = torch::stack(chain.allgather(h * x[0])).sum(0).tanh();
          const Tensors at_root = chain.gather(h);
          h = chain.scatter(comm->rank() == 0 ? at_root : Tensors{}) * x[0];
          h = chain.reduce_scatter(Tensors(ranks, h.tanh()));
          h = torch::stack(chain.alltoall(Tensors(ranks, h.sin()))).sum(0);
          h = h + chain.bcast(comm->rank() == 0 ? h : torch::Tensor());
          if (comm->rank() == 0 && ranks > 1) chain.send(h, 1);
          if (comm->rank() == 1) h = h * chain.recv(0).tanh();
          return mix({h}, comm->rank());
        },
        [&](const torch::Tensor& loss) { chain.backward(loss); });
  });
}

// What the comparisons above stand on. One rank, whose half of the gradient is cut off.
TEST(GradientCheck, FindsAWrongGradient) {
  EXPECT_NONFATAL_FAILURE_ON_ALL_THREADS(
      with_communicator({1}, "hierarchical", {},
                        [](const CommPtr& comm) {
                          check_gradients(
                              comm, {waves({1}, 1)},
                              [](const Tensors& x) { return (x[0] * x[0].detach()).sum(); },
                              [](const torch::Tensor& loss) { loss.backward(); });
                        }),
      "element 0");
}

std::string name_of(const ::testing::TestParamInfo<std::vector<int>>& info) {
  std::string name = "nodes";
  for (const int ranks : info.param) name += "_" + std::to_string(ranks);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Nodes, Gradients,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                           std::vector<int>{3}, std::vector<int>{4},
                                           std::vector<int>{1, 1}, std::vector<int>{2, 1},
                                           std::vector<int>{2, 2}),
                         name_of);

}  // namespace
}  // namespace chainmail::testing
