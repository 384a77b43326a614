// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Backward that comes more than once, through parts of a graph, or where a rank has nothing that
// leads it there.

#include <memory>

#include <chainmail/error.h>
#include <chainmail/nn/functions.h>
#include <chainmail/nn/parallel/chain.h>
#include <chainmail/nn/parallel/layers.h>

#include "tests/plugin/nn/parallel/graph_checks.h"

namespace chainmail::testing {
namespace {

torch::Tensor ones_of(std::int64_t size) { return torch::ones({size}, torch::requires_grad()); }

bool has_all(const torch::Tensor& tensor, double value) {
  return tensor.defined() && tensor.eq(value).all().item<bool>();
}

auto refuses_second_walk() { return ThrowsMessage<InvalidArgument>(HasSubstr("retain_graph")); }

// More steps than there are tags of gradients: one that went twice would be taken for a later one.
TEST(GraphWalks, ALossOfItsOwnMayGoBeforeTheChain) {
  constexpr int kSteps = 4100;
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    for (int step = 0; step < kSteps; ++step) {
      const auto x = ones_of(1);
      if (comm->rank() == 0) {
        const auto h = chain.recv(1);
        chain.send(x, 1);
        (h * 2).sum().backward();
        chain.backward();
      } else {
        chain.send(x, 0);
        chain.backward((chain.recv(0) * 3).sum());
      }
      ASSERT_TRUE(has_all(x.grad(), comm->rank() == 0 ? 3 : 2)) << step;
    }
  });
}

TEST(GraphWalks, RefuseToGoTwiceThroughWhatIsFreed) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    const auto x = ones_of(3);
    if (comm->rank() == 0) {
      chain.send(x, 1);
      chain.backward();
      EXPECT_TRUE(has_all(x.grad(), 1));
    } else {
      const auto h = chain.recv(0);
      chain.backward(h.sum());
      EXPECT_THAT([&] { chain.backward((h * 2).sum()); }, refuses_second_walk());
    }
    const auto y = functions::bcast(comm, x);
    const auto wide = functions::pseudo_connect(functions::send(x, comm, 1 - comm->rank()), x);
    const auto got = functions::recv(comm, 1 - comm->rank());
    for (const auto& loss : {y.sum(), got.sum(), wide.sum()}) loss.backward();
    for (const auto& loss : {y.sum(), got.sum(), wide.sum()}) {
      EXPECT_THAT([&] { loss.backward(); }, refuses_second_walk());
    }
  });
}

TEST(GraphWalks, GoAgainWhereTheGraphIsRetained) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    const auto x = ones_of(3);
    chain.send(x, 1 - comm->rank());
    const auto sum = chain.allreduce(x) + chain.recv(1 - comm->rank());
    const auto loss = chain.connect((sum * sum).sum());
    loss.backward({}, /*retain_graph=*/true);
    EXPECT_TRUE(has_all(x.grad(), 3 * 2 * 3));
    loss.backward();
    EXPECT_TRUE(has_all(x.grad(), 2 * 3 * 2 * 3));
  });
}

// A loss that is kept for a log, say.
TEST(GraphWalks, ResultsKeepNoCommunicatorOpen) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& given) {
    CommPtr comm = given->split(0, given->rank());
    const std::weak_ptr<Communicator> watched = comm;
    const auto x = torch::ones({2, 4}, torch::requires_grad());
    torch::Tensor loss;
    {
      Chain chain(comm);
      ColumnParallelLinear layer(torch::nn::LinearOptions(4, 4), comm);
      chain.send(chain.bcast(x), 1 - comm->rank());
      loss = chain.connect(layer->forward(chain.recv(1 - comm->rank())).sum());
    }
    comm.reset();
    EXPECT_FALSE(watched.expired());  // backward needs it
    loss.backward();
    EXPECT_TRUE(watched.expired());
    EXPECT_EQ(x.grad().defined(), given->rank() == 0);
  });
}

// What comes needs no gradient where it is from, and leads to what went all the same.
TEST(GraphWalks, RecvLeadsToItsDelegate) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    const auto x = ones_of(3);
    if (comm->rank() == 0) {
      const auto delegate = functions::send(x * 2, comm, 1);
      const auto got = functions::recv(comm, 1, delegate);
      EXPECT_TRUE(has_all(got.detach(), 3));
      (got * ones_of(3)).sum().backward();
      EXPECT_TRUE(has_all(x.grad(), 10));
    } else {
      const auto got = functions::recv(comm, 0);
      const torch::Tensor plain = torch::full({3}, 3.0F);
      EXPECT_FALSE(functions::send(plain, comm, 0).requires_grad());
      (got * 5).sum().backward();
    }
  });
}

// Backward of a collective needs all ranks, and one gets only what nobody needs a gradient of.
TEST(GraphWalks, CollectivesReachRanksThatGetNothingWithAGradient) {
  with_communicator({2, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    const auto weight = ones_of(2);
    const auto x = ones_of(2);
    const torch::Tensor plain = torch::ones({2});
    const bool is_first = comm->rank() == 0;
    const auto part = functions::scatter(comm, is_first ? Tensors{plain, plain, x} : Tensors{});
    (part * weight).sum().backward();
    const Tensors all = functions::alltoall(comm, {plain, is_first ? x : plain, plain});
    ((all[0] + all[1] + all[2]) * weight).sum().backward();
    EXPECT_EQ(x.grad().defined(), is_first);
    if (is_first) {
      EXPECT_TRUE(has_all(x.grad(), 2));
    }
    EXPECT_TRUE(has_all(weight.grad(), 4));
    EXPECT_TRUE(has_all(functions::bcast(comm, plain), 1));  // all are at the same place
  });
}

// As of a table that is looked up in.
TEST(GraphWalks, TakeSparseGradients) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    const auto look_up = [](const torch::Tensor& table) {
      const auto rows = torch::tensor({0, 2}, torch::kLong);
      return torch::embedding(table, rows, -1, /*scale_grad_by_freq=*/false, /*sparse=*/true).sum();
    };
    const auto table = torch::ones({4, 2}, torch::requires_grad());
    look_up(functions::allreduce(comm, table)).backward();
    look_up(functions::allgather(comm, table)[0]).backward();
    look_up(functions::reduce_scatter(comm, {table, table})).backward();
    Chain chain(comm);
    chain.send(table, 1 - comm->rank());
    const auto got = chain.recv(1 - comm->rank());
    ColumnParallelLinear layer(torch::nn::LinearOptions(2, 2), comm);
    chain.backward(look_up(got) + look_up(chain.bcast(table)) + look_up(layer->forward(got)));
    EXPECT_FALSE(table.grad().is_sparse());
    EXPECT_EQ(table.grad()[1].count_nonzero().item<int>(), 0);
    EXPECT_EQ(layer->weight.grad().count_nonzero().item<int>(), 2);
  });
}

}  // namespace
}  // namespace chainmail::testing
