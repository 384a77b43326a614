// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Backward through a Chain ends, and is right, where ChainerMN's waited for ever.

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <chainmail/error.h>
#include <chainmail/nn/functions.h>
#include <chainmail/nn/parallel/chain.h>
#include <chainmail/optimizer.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "tests/plugin/nn/parallel/graph_checks.h"

namespace chainmail::testing {
namespace {

using namespace std::chrono_literals;

// More than goes without its receiver.
constexpr std::int64_t kLarge = 300'000;

bool all_equal(const torch::Tensor& tensor, double value) {
  return tensor.defined() && tensor.eq(value).all().item<bool>();
}

TEST(Chain, NeedsACommunicator) { EXPECT_THROW(Chain(nullptr), InvalidArgument); }

// Ranks that wait long compare what they have done lately: both ends of a gradient call it the
// same.
TEST(Chain, RanksThatWaitLongFindNoDisagreement) {
  for (const auto& nodes : {std::vector<int>{3}, std::vector<int>{1, 2}}) {
    with_communicator(nodes, "hierarchical", {}, [](const CommPtr& comm) {
      Chain chain(comm);
      if (comm->rank() == 0) {
        chain.send(torch::ones({3}, torch::requires_grad()), 1);
        chain.backward();
      } else if (comm->rank() == 1) {
        chain.backward(chain.recv(0).sum());
      } else {
        std::this_thread::sleep_for(1s);
      }
      comm->barrier();
    });
  }
}

TEST(Chain, WaitsForTheGradientOfWhatWasSent) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    with_communicator(nodes, "hierarchical", {}, [](const CommPtr& comm) {
      Chain chain(comm);
      if (comm->rank() == 0) {
        const auto x = torch::ones({kLarge}, torch::requires_grad());
        chain.send(x * 3, 1);  // nothing else is made of it
        chain.backward();
        EXPECT_TRUE(all_equal(x.grad(), 6));
      } else {
        chain.backward((chain.recv(0) * 2).sum());
      }
    });
  }
}

TEST(Chain, TwoSendsInARowComeBackInReverse) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    const int other = 1 - comm->rank();
    const auto x = torch::ones({kLarge}, torch::requires_grad());
    const auto y = torch::ones({kLarge}, torch::requires_grad());
    // Both send first, both ways, more than goes without a receiver.
    chain.send(x, other);
    chain.send(y, other);
    const auto first = chain.recv(other);
    const auto second = chain.recv(other);
    chain.backward((first * 2 + second * 5).sum() * (comm->rank() + 1));
    EXPECT_TRUE(all_equal(x.grad(), 2 * (other + 1)));
    EXPECT_TRUE(all_equal(y.grad(), 5 * (other + 1)));
  });
}

TEST(Chain, WhatIsReceivedAndNotUsedSendsItsGradientAllTheSame) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    if (comm->rank() == 0) {
      const auto unused = torch::ones({4}, torch::requires_grad());
      const auto used = torch::ones({4}, torch::requires_grad());
      chain.send(unused, 1);
      chain.send({used, unused * 2}, 1);
      chain.send(unused, 1);
      chain.backward();
      EXPECT_TRUE(all_equal(used.grad(), 7));
      // As in one process: not even zeros, which would decay a weight.
      EXPECT_FALSE(unused.grad().defined());
    } else {
      (void)chain.recv(0);
      const Tensors both = chain.recv_list(0);
      (void)chain.recv(0);
      chain.backward((both[0] * 7).sum());
    }
  });
}

TEST(Chain, EndsWhereNoRankHasALoss) {
  with_communicator({2, 1}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    const auto x = torch::ones({4}, torch::requires_grad());
    const auto sum = chain.allreduce(x);
    chain.send(sum, (comm->rank() + 1) % 3);
    (void)chain.recv((comm->rank() + 2) % 3);
    chain.backward();
    EXPECT_TRUE(all_equal(x.grad(), 0));
  });
}

TEST(Chain, ReachesWhatALossIsNotMadeOf) {
  with_communicator({2, 2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    const auto x = waves({3}, comm->rank());
    check_gradients(
        comm, {x},
        [&](const Tensors& inputs) {
          const auto all = chain.allgather(inputs[0]);
          const auto sum = chain.reduce_scatter(all);
          (void)chain.bcast(sum, 2);
          const auto got = chain.gather(sum, 1);
          // Of what went around, ranks 0 and 3 use nothing; 2 uses what all have had.
          if (comm->rank() == 1) return mix(got, 1);
          return mix({comm->rank() == 2 ? all[3] : inputs[0]}, comm->rank());
        },
        [&](const torch::Tensor& loss) { chain.backward(loss); });
  });
}

TEST(Chain, ConnectsWhatProgramsOfChainerMNCallBackwardOn) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    const auto x = torch::ones({4}, torch::requires_grad());
    chain.send(x, 1 - comm->rank());
    const auto got = chain.recv(1 - comm->rank());
    if (comm->rank() == 0) {
      chain.connect((got * 2).sum()).backward();
    } else {
      chain.delegate().backward();
    }
    chain.reset();
    EXPECT_EQ(x.grad().defined(), comm->rank() == 1);
    EXPECT_FALSE(chain.delegate().requires_grad());
  });
}

TEST(Chain, BeginsAnewAfterBackward) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    const auto x = torch::ones({4}, torch::requires_grad());
    for (int step = 1; step <= 3; ++step) {
      chain.backward(chain.allreduce(x).sum());
      EXPECT_TRUE(all_equal(x.grad(), 2 * step));
      EXPECT_FALSE(chain.delegate().requires_grad());
    }
  });
}

TEST(Chain, GoesWithARankThatComputesWithoutGradients) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    const auto x = torch::ones({4}, torch::requires_grad());
    if (comm->rank() == 0) {
      chain.send(x, 1);
      const auto sum = chain.allreduce(x);
      chain.backward(sum.sum());
      EXPECT_TRUE(all_equal(x.grad(), 1));
    } else {
      const torch::NoGradGuard no_grad;
      EXPECT_FALSE(chain.recv(0).requires_grad());
      EXPECT_FALSE(chain.allreduce(x).requires_grad());
      chain.backward();
      EXPECT_FALSE(x.grad().defined());
    }
  });
}

TEST(Chain, NamesTheRankThatLeavesBackwardOut) {
  const auto errors = errors_with_communicator({2}, "hierarchical", [](const CommPtr& comm) {
    Chain chain(comm);
    const auto x = torch::ones({4}, torch::requires_grad());
    if (comm->rank() == 0) {
      chain.send(x, 1);
      chain.backward();
    } else {
      (void)chain.recv(0);
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 1"));
  EXPECT_EQ(errors[1], "");
}

TEST(Chain, RefusesALossThatIsNone) {
  with_communicator({1}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    EXPECT_THAT([&] { chain.backward(torch::ones({2})); },
                ThrowsMessage<InvalidArgument>(HasSubstr("2 elements")));
    EXPECT_THAT([&] { chain.backward(torch::Tensor()); },
                ThrowsMessage<InvalidArgument>(HasSubstr("undefined")));
    EXPECT_THAT([&] { chain.backward(torch::ones({})); },
                ThrowsMessage<InvalidArgument>(HasSubstr("nothing needs a gradient")));
    chain.backward();
    EXPECT_THAT([&] { (void)chain.connect({}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("undefined")));
  });
}

// Where a rank's exception leaves its Chain. It keeps the communicator, whose end would tell the
// others too.
void expect_told(const std::vector<int>& nodes, int odd_rank,
                 const std::function<void(const CommPtr&)>& body) {
  int ranks = 0;
  for (const int node : nodes) ranks += node;
  std::barrier<> all(ranks);
  with_communicator(nodes, "hierarchical", {}, [&](const CommPtr& comm) {
    try {
      body(comm);
      ADD_FAILURE() << "rank " << comm->rank() << " was told nothing";
    } catch (const PeerError& error) {
      EXPECT_NE(comm->rank(), odd_rank);
      EXPECT_EQ(error.peer_rank(), odd_rank);
      EXPECT_THAT(error.what(), HasSubstr("an exception has left the scope of its Chain"));
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(comm->rank(), odd_rank) << error.what();
    }
    EXPECT_THROW(comm->barrier(), PeerError);
    all.arrive_and_wait();
  });
}

torch::Tensor break_forward(bool is_odd, const torch::Tensor& x) {
  return is_odd ? throw std::runtime_error("forward broke") : x * 2;
}

TEST(Chain, TellsTheOthersOfAnExceptionThatLeavesIt) {
  for (const auto& nodes : {std::vector<int>{3}, std::vector<int>{1, 2}}) {
    for (const int odd_rank : {0, 1, 2}) {
      // The ranks before it wait in backward, those after it in recv().
      expect_told(nodes, odd_rank, [&](const CommPtr& comm) {
        Chain chain(comm);
        const int rank = comm->rank();
        torch::Tensor x = torch::ones({4}, torch::requires_grad());
        if (rank > 0) x = chain.recv(rank - 1);
        x = break_forward(rank == odd_rank, x);
        if (rank + 1 < comm->size()) {
          chain.send(x, rank + 1);
          chain.backward();
        } else {
          chain.backward(x.sum());
        }
      });
    }
    expect_told(nodes, 1, [](const CommPtr& comm) {
      Chain chain(comm);
      (void)break_forward(comm->rank() == 1, chain.allreduce(torch::ones({4})));
      (void)chain.allreduce(torch::ones({4}));
    });
  }
}

// Ranks that have agreed on an error, and those that catch theirs, can go on.
TEST(Chain, LeavesTheCommunicatorOfErrorsThatNobodyWaitsForAlone) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    const torch::Tensor x = torch::ones({4}, torch::requires_grad());
    const auto refused = [&] {
      Chain chain(comm);
      (void)chain.allgather(comm->rank() == 0 ? x : torch::Tensor());
    };
    EXPECT_THAT(refused,
                ThrowsMessage<InvalidArgument>(HasSubstr("rank 1: tensor 0 is undefined")));
    Chain chain(comm);
    if (comm->rank() == 0) {
      EXPECT_THROW((void)break_forward(true, x), std::runtime_error);
    }
    EXPECT_TRUE(all_equal(chain.allreduce(x), 2));
  });
  with_communicator({1}, "hierarchical", {}, [](const CommPtr& comm) {
    const auto broken = [&] {
      const Chain chain(comm);
      (void)break_forward(true, {});
    };
    EXPECT_THROW(broken(), std::runtime_error);
    comm->barrier();
  });
}

// A group that counts what this rank sends from one rank to another.
class CountingGroup final : public ops::Group {
 public:
  explicit CountingGroup(std::shared_ptr<ops::Group> group) : group_(std::move(group)) {}
  std::size_t sent() const { return sent_; }

  int rank() const noexcept override { return group_->rank(); }
  int size() const noexcept override { return group_->size(); }
  const ops::Topology& topology() const noexcept override { return group_->topology(); }
  const ops::GroupOptions& options() const noexcept override { return group_->options(); }
  std::shared_ptr<ops::Operation> submit(ops::Collective collective) override {
    count(collective);
    return group_->submit(std::move(collective));
  }
  void run(const ops::Collective& collective) override {
    count(collective);
    group_->run(collective);
  }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return group_->allocate(bytes);
  }
  void abort(std::exception_ptr error) override { group_->abort(std::move(error)); }
  void shutdown() override { group_->shutdown(); }
  std::exception_ptr error() const override { return group_->error(); }
  void on_failure(std::function<void(const std::exception_ptr&)> listener) override {
    group_->on_failure(std::move(listener));
  }
  std::uint64_t sequence() const noexcept override { return group_->sequence(); }
  void set_timeout(std::chrono::milliseconds timeout) override { group_->set_timeout(timeout); }
  std::shared_ptr<ops::CallbackExecutor> callbacks() const override { return group_->callbacks(); }

 private:
  void count(const ops::Collective& collective) {
    if (collective.kind == ops::OpKind::kSend) sent_ += collective.count;
  }

  std::shared_ptr<ops::Group> group_;
  std::atomic<std::size_t> sent_ = 0;
};

// What rank 1 sends to rank 0 when that sends it something that needs a gradient, or does not, and
// rank 1 uses it, or does not.
std::size_t bytes_back(bool is_needed, bool is_used) {
  std::atomic<std::size_t> bytes = 0;
  with_communicator({1, 1}, "hierarchical", {}, [&](const CommPtr& comm) {
    const auto counter = std::make_shared<CountingGroup>(comm->impl().group);
    comm->impl().group = counter;
    Chain chain(comm);
    const auto weight = torch::ones({1000}, torch::requires_grad());
    if (comm->rank() == 0) {
      const auto x = torch::ones({1000}, torch::dtype(torch::kHalf).requires_grad(is_needed));
      chain.send(x, 1);
      chain.backward();
      EXPECT_EQ(x.grad().defined(), is_needed && is_used);
    } else {
      const auto got = chain.recv(0);
      chain.backward((is_used ? got * weight : weight).sum());
      EXPECT_TRUE(all_equal(weight.grad(), 1));
      bytes = counter->sent();
    }
  });
  return bytes;
}

TEST(Chain, SendsBackOnlyGradientsThatSomebodyNeeds) {
  EXPECT_EQ(bytes_back(/*is_needed=*/false, /*is_used=*/true), 0U);
  EXPECT_EQ(bytes_back(/*is_needed=*/false, /*is_used=*/false), 0U);
  EXPECT_EQ(bytes_back(/*is_needed=*/true, /*is_used=*/false), 9U);
  // As float16, in which it came.
  EXPECT_EQ(bytes_back(/*is_needed=*/true, /*is_used=*/true), 9U + 2000U);
}

// Two halves of a model, each over two ranks, whose gradients are averaged while backward still
// travels between the halves.
TEST(Chain, GoesTogetherWithDataParallelHalves) {
  const auto inputs = [](int replica) {
    return (torch::arange(12, torch::kFloat) * (replica + 1)).sin().view({3, 4});
  };
  const auto make = [](std::int64_t in, std::int64_t out, double value) {
    torch::nn::Sequential half(torch::nn::Linear(in, 6), torch::nn::Tanh(),
                               torch::nn::Linear(6, out));
    fill(*half, value);
    return half;
  };
  torch::nn::Sequential front = make(4, 5, 0.1);
  torch::nn::Sequential back = make(5, 1, 0.2);
  torch::optim::SGD plain({torch::optim::OptimizerParamGroup(front->parameters()),
                           torch::optim::OptimizerParamGroup(back->parameters())},
                          torch::optim::SGDOptions(0.05));
  constexpr int kSteps = 4;
  for (int step = 0; step < kSteps; ++step) {
    plain.zero_grad();
    const auto both = torch::cat({inputs(0), inputs(1)});
    back->forward(front->forward(both)).pow(2).mean().backward();
    plain.step();
  }

  with_communicator({2, 2}, "hierarchical", {}, [&](const CommPtr& comm) {
    const int stage = comm->rank() % 2;
    const int replica = comm->rank() / 2;
    const auto data = comm->split(stage, replica);
    const auto model = comm->split(replica, stage);
    torch::nn::Sequential half = stage == 0 ? make(4, 5, 0.1) : make(5, 1, 0.2);
    auto optimizer = create_multi_node_optimizer(
        std::make_unique<torch::optim::SGD>(half->parameters(), 0.05), data,
        {.model = &half, .overlap = true, .bucket_bytes = 64, .first_bucket_bytes = 64});
    Chain chain(model);
    for (int step = 0; step < kSteps; ++step) {
      optimizer->zero_grad();
      if (stage == 0) {
        chain.send(half->forward(inputs(replica)), 1);
        chain.backward();
      } else {
        chain.backward(half->forward(chain.recv(0)).pow(2).mean());
      }
      optimizer->step();
    }
    const auto expected = (stage == 0 ? front : back)->parameters();
    for (std::size_t p = 0; p < expected.size(); ++p) {
      EXPECT_TRUE(torch::allclose(half->parameters()[p], expected[p], 1e-5, 1e-6)) << p;
    }
  });
}

}  // namespace
}  // namespace chainmail::testing
