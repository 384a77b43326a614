// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// MultiNodeChainList in the shapes of ChainerMN's tests, against the same links in one process.

#include <barrier>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <chainmail/error.h>
#include <chainmail/nn/parallel/chain_list.h>
#include <chainmail/optimizer.h>

#include "tests/plugin/nn/parallel/graph_checks.h"

namespace chainmail::testing {
namespace {

using ::testing::AllOf;

constexpr std::int64_t kWidth = 3;
constexpr double kTolerance = 1e-6;

// A layer that merges any number of tensors and brings as many as it is told.
struct LayerImpl : torch::nn::Module {
  LayerImpl(std::size_t outputs, double value) : outputs_(outputs) {
    for (std::size_t i = 0; i < outputs_; ++i) {
      linears_.push_back(register_module(
          std::to_string(i), torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth))));
    }
    to(torch::kDouble);
    fill(*this, value);
  }
  Tensors forward(const Tensors& inputs) {
    torch::Tensor sum = torch::zeros({2, kWidth}, torch::kDouble);
    double factor = 1;
    for (const torch::Tensor& input : inputs) sum = sum + input * (factor *= 0.8);
    Tensors outputs;
    for (auto& linear : linears_) outputs.push_back(linear->forward(sum).tanh());
    return outputs;
  }

 private:
  std::size_t outputs_;
  std::vector<torch::nn::Linear> linears_;
};
TORCH_MODULE(Layer);

struct LinkPlan {
  LinkRanks from;
  LinkRanks to;
  std::size_t outputs = 1;
};
// Of each rank.
using ModelPlan = std::vector<std::vector<LinkPlan>>;

std::vector<Layer> make_layers(const std::vector<LinkPlan>& links, int rank) {
  std::vector<Layer> layers;
  for (std::size_t i = 0; i < links.size(); ++i) {
    layers.emplace_back(links[i].outputs, 0.1 * rank + 0.03 * static_cast<double>(i));
  }
  return layers;
}

struct RankResult {
  Tensors outputs;
  Tensors gradients;
};

torch::Tensor input_of(int rank) { return waves({2, kWidth}, 0.4 * rank); }

Tensors gradients_of(std::vector<Layer>& layers, const torch::Tensor& input) {
  Tensors gradients{input.grad()};
  for (Layer& layer : layers) {
    for (const torch::Tensor& parameter : layer->parameters())
      gradients.push_back(parameter.grad());
  }
  return gradients;
}

// One process: each rank goes on as far as what has come from others lets it.
std::vector<RankResult> run_alone(const ModelPlan& plan) {
  const std::size_t ranks = plan.size();
  std::vector<std::vector<Layer>> layers;
  Tensors inputs;
  std::vector<RankResult> results(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    layers.push_back(make_layers(plan[r], static_cast<int>(r)));
    inputs.push_back(input_of(static_cast<int>(r)));
  }
  std::map<std::pair<int, int>, std::deque<Tensors>> queues;
  std::vector<std::size_t> next(ranks);
  std::vector<std::vector<Tensors>> arguments(ranks);  // of the next link, as far as they have come
  torch::Tensor loss = torch::zeros({}, torch::kDouble);
  for (bool has_moved = true; std::exchange(has_moved, false);) {
    for (std::size_t r = 0; r < ranks; ++r) {
      const int rank = static_cast<int>(r);
      while (next[r] < plan[r].size()) {
        const LinkPlan& link = plan[r][next[r]];
        while (arguments[r].size() < link.from.ranks().size()) {
          auto& queue = queues[{link.from.ranks()[arguments[r].size()], rank}];
          if (queue.empty()) break;
          arguments[r].push_back(queue.front());
          queue.pop_front();
        }
        if (arguments[r].size() < link.from.ranks().size()) break;
        Tensors all = link.from.is_end() ? Tensors{inputs[r]} : Tensors{};
        for (const Tensors& some : arguments[r]) all.insert(all.end(), some.begin(), some.end());
        const Tensors outputs = layers[r][next[r]]->forward(all);
        for (const int to : link.to.ranks()) queues[{rank, to}].push_back(outputs);
        if (link.to.is_end()) {
          results[r].outputs = outputs;
          loss = loss + mix(outputs, rank);
        }
        arguments[r].clear();
        ++next[r];
        has_moved = true;
      }
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) EXPECT_EQ(next[r], plan[r].size()) << "rank " << r;
  loss.backward();
  for (std::size_t r = 0; r < ranks; ++r) results[r].gradients = gradients_of(layers[r], inputs[r]);
  return results;
}

void expect_close(const Tensors& got, const Tensors& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), expected[i].defined()) << what << " " << i;
    if (!got[i].defined()) continue;
    EXPECT_TRUE(torch::allclose(got[i], expected[i], kTolerance, kTolerance)) << what << " " << i;
  }
}

// As a program of Chainmail's, then as one of ChainerMN's, whose loss goes backward by itself.
void run_together(const ModelPlan& plan, const CommPtr& comm, const RankResult& expected) {
  const int rank = comm->rank();
  const std::vector<LinkPlan>& links = plan[static_cast<std::size_t>(rank)];
  std::vector<Layer> layers = make_layers(links, rank);
  MultiNodeChainList list(comm);
  for (std::size_t i = 0; i < links.size(); ++i) {
    list->add_link(layers[i], links[i].from, links[i].to);
  }
  for (const bool is_ported : {false, true, false}) {
    list->zero_grad();
    const torch::Tensor input = input_of(rank);
    const Tensors outputs = list->forward_list({input});
    const bool has_output = !expected.outputs.empty();
    if (has_output) expect_close(outputs, expected.outputs, "output");
    if (is_ported) {
      (has_output ? mix(outputs, rank) : outputs.at(0)).backward();
    } else if (has_output) {
      list->backward(mix(outputs, rank));
    } else {
      list->backward();
    }
    expect_close(gradients_of(layers, input), expected.gradients, "gradient");
  }
}

void check(const std::vector<int>& nodes, const ModelPlan& plan) {
  const std::vector<RankResult> expected = run_alone(plan);
  with_communicator(nodes, "hierarchical", {}, [&](const CommPtr& comm) {
    run_together(plan, comm, expected[static_cast<std::size_t>(comm->rank())]);
  });
}

std::vector<int> ranks_from(int first, int end) {
  std::vector<int> ranks;
  for (int r = first; r < end; ++r) ranks.push_back(r);
  return ranks;
}

TEST(MultiNodeChainList, Alone) {
  check({1}, {{{kInput, kOutput}}});
  check({1}, {{{kInput, {0, 0}}, {0, 0, 2}, {{0, 0}, kOutput, 2}}});
}

TEST(MultiNodeChainList, Cycle) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    check(nodes, {{{kInput, 1}, {1, kOutput}}, {{0, 0}}});
  }
}

TEST(MultiNodeChainList, Cross) {
  check({2}, {{{kInput, 1}, {1, kOutput}}, {{kInput, 0}, {0, kOutput}}});
}

// One parent and its children, in four orders.
TEST(MultiNodeChainList, Branches) {
  for (const auto& nodes :
       {std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{4}, std::vector<int>{2, 2}}) {
    int size = 0;
    for (const int ranks : nodes) size += ranks;
    const std::vector<int> children = ranks_from(1, size);
    ModelPlan all(static_cast<std::size_t>(size));
    for (const int child : children) all[static_cast<std::size_t>(child)] = {{0, 0}};

    // To all at once, from all at once.
    all[0] = {{kInput, children}, {children, kOutput}};
    check(nodes, all);
    // To each from a link of its own.
    all[0].clear();
    for (const int child : children) all[0].push_back({kInput, child});
    all[0].push_back({children, kOutput});
    check(nodes, all);
    // To all at once, from each into a link of its own; the last has the output.
    all[0] = {{kInput, children}};
    for (const int child : children) {
      all[0].push_back({child, child == size - 1 ? LinkRanks(kOutput) : LinkRanks(0)});
    }
    all[0].back().from = LinkRanks(size - 1);
    if (size > 2) {
      all[0].back().to = LinkRanks(0);
      all[0].push_back({std::vector<int>(children.size(), 0), kOutput});
    }
    check(nodes, all);
    // One after the other, the latest first.
    all[0].clear();
    for (int child = size - 1; child > 0; --child) {
      all[0].push_back({kInput, child});
      all[0].push_back({child, 0});
    }
    all[0].push_back({std::vector<int>(children.size(), 0), kOutput});
    check(nodes, all);
  }
}

// Every rank with the one before it and the one after it, in both directions.
TEST(MultiNodeChainList, Twist) {
  for (const int size : {2, 3, 4}) {
    ModelPlan all;
    for (int r = 0; r < size; ++r) {
      std::vector<LinkPlan> links;
      if (r > 0) links.push_back({r - 1, r - 1});
      if (r + 1 < size) links.push_back({kInput, r + 1});
      if (r + 1 < size) links.push_back({r + 1, r == 0 ? LinkRanks(kOutput) : LinkRanks(r)});
      if (r > 0) links.push_back({r + 1 < size ? LinkRanks(r) : LinkRanks(kInput), kOutput});
      all.push_back(links);
    }
    check({size}, all);
  }
}

TEST(MultiNodeChainList, Tuples) {
  check({2}, {{{kInput, 1, 2}, {1, kOutput, 2}}, {{0, 0, 3}}});
  check({1, 1}, {{{kInput, {0, 1}, 2}, {{0, 1}, kOutput}}, {{0, 0, 2}}});
}

TEST(MultiNodeChainList, Ring) {
  for (const auto& nodes : {std::vector<int>{2}, std::vector<int>{3}, std::vector<int>{2, 2}}) {
    int size = 0;
    for (const int ranks : nodes) size += ranks;
    ModelPlan all{{{kInput, 1}, {size - 1, kOutput}}};
    for (int r = 1; r < size; ++r) all.push_back({{r - 1, (r + 1) % size}});
    check(nodes, all);
  }
}

TEST(MultiNodeChainList, LinksWithoutAnOutputGoBackward) {
  check({2}, {{{kInput, 1}}, {{0, kOutput}}});
}

TEST(MultiNodeChainList, TakesModulesOfAnyForward) {
  with_communicator({1}, "hierarchical", {}, [](const CommPtr& comm) {
    MultiNodeChainList list(comm);
    list->add_link(torch::nn::Sequential(torch::nn::Linear(5, 3), torch::nn::ReLU()), kInput, 0)
        .add_link(torch::nn::GRU(3, 2), 0, 0)  // brings a tuple of two
        .add_link(std::make_shared<torch::nn::BilinearImpl>(2, 2, 1), 0, kOutput);
    EXPECT_EQ(list->named_parameters().size(), 8U);
    EXPECT_TRUE(list->named_parameters().contains("0.0.weight"));
    EXPECT_EQ(list->forward(torch::ones({1, 1, 5})).sizes(), at::IntArrayRef({1, 1, 1}));
  });
  with_communicator({1}, "hierarchical", {}, [](const CommPtr& comm) {
    MultiNodeChainList list(comm);
    list->add_link(torch::nn::Bilinear(2, 2, 1), kInput, kOutput);
    EXPECT_EQ(list->forward(torch::ones({1, 2}), torch::ones({1, 2})).numel(), 1);
    EXPECT_THAT(
        [&] {
          (void)list->forward(torch::ones({1, 2}));
        },
        ThrowsMessage<InvalidArgument>(HasSubstr("takes 1 tensor")));
  });
}

TEST(MultiNodeChainList, RefusesLinksThatCannotBe) {
  EXPECT_THROW(MultiNodeChainListImpl(nullptr), InvalidArgument);
  EXPECT_THROW((void)internal::make_component(std::shared_ptr<torch::nn::LinearImpl>()),
               InvalidArgument);
  EXPECT_THROW((void)internal::make_component(torch::nn::Linear(nullptr)), InvalidArgument);
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    MultiNodeChainList list(comm);
    const auto refuses = [&](LinkRanks from, LinkRanks to, const std::string& text) {
      EXPECT_THAT([&] { list->add_link(Layer(1, 0), from, to); },
                  ThrowsMessage<InvalidArgument>(HasSubstr(text)));
    };
    refuses(2, kOutput, "rank 2, which is not a rank");
    refuses(kInput, {0, -1}, "rank -1, which is not a rank");
    refuses(std::vector<int>{}, 0, "empty list");
    list->add_link(Layer(2, 0), kInput, kOutput);
    refuses(kInput, kOutput, "second to kOutput");
    EXPECT_THAT([&] { (void)list->forward(input_of(0)); },
                ThrowsMessage<InvalidArgument>(HasSubstr("2 outputs")));
    refuses(kInput, 0, "up to the first forward");
  });
}

// Every rank keeps its list and its communicator.
TEST(MultiNodeChainList, TellsTheOthersWhatALinkThrows) {
  struct Broken : torch::nn::Module {
    torch::Tensor forward(const torch::Tensor& /*x*/) { throw std::runtime_error("link broke"); }
  };
  std::barrier<> all(2);
  for (const int odd_rank : {0, 1}) {
    with_communicator({2}, "hierarchical", {}, [&](const CommPtr& comm) {
      MultiNodeChainList list(comm);
      const LinkRanks from = comm->rank() == 0 ? LinkRanks(kInput) : LinkRanks(0);
      const LinkRanks to = comm->rank() == 0 ? LinkRanks(1) : LinkRanks(kOutput);
      if (comm->rank() == odd_rank) {
        list->add_link(std::make_shared<Broken>(), from, to);
      } else {
        list->add_link(Layer(1, 0), from, to);
      }
      const auto run = [&] {
        const torch::Tensor y = list->forward(input_of(0));
        comm->rank() == 0 ? list->backward() : list->backward(y.sum());
      };
      if (comm->rank() == odd_rank) {
        EXPECT_THAT(run, ThrowsMessage<std::runtime_error>(HasSubstr("link broke")));
      } else {
        EXPECT_THAT(run, ThrowsMessage<PeerError>(
                             HasSubstr("a link of a MultiNodeChainList has failed: link broke")));
      }
      all.arrive_and_wait();
    });
  }
}

TEST(MultiNodeChainList, EdgesThatDoNotMeetAreFoundBeforeTheFirstForward) {
  int forwards = 0;
  struct Counted : torch::nn::Module {
    explicit Counted(int* forwards) : count(forwards) {}
    torch::Tensor forward(const torch::Tensor& x) {
      ++*count;
      return x;
    }
    int* count;
  };
  const auto errors = errors_with_communicator({2, 1}, "hierarchical", [&](const CommPtr& comm) {
    MultiNodeChainList list(comm);
    const auto module = std::make_shared<Counted>(&forwards);
    if (comm->rank() == 0) list->add_link(module, kInput, 2).add_link(module, kInput, kOutput);
    if (comm->rank() == 2) list->add_link(module, 1, kOutput);
    try {
      (void)list->forward(torch::ones({1}));
    } catch (const MismatchError&) {
      throw;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not a MismatchError: " << error.what();
    }
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("rank 0 sends to rank 2 in 1 link, rank 2 receives from rank 0 in "
                                 "0 links"));
  }
  EXPECT_EQ(forwards, 0);
}

}  // namespace
}  // namespace chainmail::testing
