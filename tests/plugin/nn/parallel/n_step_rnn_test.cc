// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sequences that go on on the next rank, against one process.

#include <vector>

#include <chainmail/nn/parallel/n_step_rnn.h>

#include "tests/plugin/nn/parallel/graph_checks.h"

namespace chainmail::testing {
namespace {

constexpr std::int64_t kSequences = 3;
constexpr std::int64_t kFeatures = 4;
constexpr std::int64_t kHidden = 5;

Tensors list_of(const torch::Tensor& state) { return {state}; }
Tensors list_of(const std::tuple<torch::Tensor, torch::Tensor>& state) {
  return {std::get<0>(state), std::get<1>(state)};
}

struct How {
  bool is_bidirectional = false;
  bool is_packed = false;
};

template <typename Holder, typename Options>
Holder make_rnn(int rank, const How& how) {
  Holder rnn(Options(kFeatures, kHidden).num_layers(2).bidirectional(how.is_bidirectional));
  rnn->to(torch::kDouble);
  fill(*rnn, 0.05 * rank);
  return rnn;
}

// Other lengths on every rank, and within a batch where that is packed.
torch::Tensor sequence_of(int rank) { return waves({3 + rank, kSequences, kFeatures}, rank); }

torch::nn::utils::rnn::PackedSequence pack(const torch::Tensor& x) {
  const auto lengths = torch::tensor({x.size(0), std::int64_t{1}, std::int64_t{2}}, torch::kLong);
  return torch::nn::utils::rnn::pack_padded_sequence(x, lengths, /*batch_first=*/false,
                                                     /*enforce_sorted=*/false);
}

// Output and last state of `rnn`, torch's own or one that goes on from another rank.
template <typename Rnn, typename... First>
auto call(Rnn& rnn, const torch::Tensor& x, const How& how, const First&... first) {
  if (!how.is_packed) return rnn.forward(x, first...);
  auto [output, state] = rnn.forward_with_packed_input(pack(x), first...);
  return std::make_tuple(output.data(), state);
}

struct Result {
  torch::Tensor output;
  Tensors gradients;
};

Tensors gradients_of(torch::nn::Module& rnn, const torch::Tensor& x) {
  Tensors gradients{x.grad()};
  for (const torch::Tensor& parameter : rnn.parameters()) gradients.push_back(parameter.grad());
  return gradients;
}

// The loss is made of every rank's outputs and the last rank's state.
template <typename Holder, typename Options>
std::vector<Result> run_alone(int ranks, const How& how) {
  std::vector<Holder> rnns{make_rnn<Holder, Options>(0, how)};
  Tensors inputs{sequence_of(0)};
  auto [output, state] = call(*rnns[0], inputs[0], how);
  std::vector<Result> results{{output, {}}};
  torch::Tensor loss = mix({output}, 0);
  for (int rank = 1; rank < ranks; ++rank) {
    rnns.push_back(make_rnn<Holder, Options>(rank, how));
    inputs.push_back(sequence_of(rank));
    std::tie(output, state) = call(*rnns.back(), inputs.back(), how, state);
    loss = loss + mix({output}, rank);
    results.push_back({output, {}});
  }
  (loss + mix(list_of(state), 9)).backward();
  for (std::size_t r = 0; r < results.size(); ++r) {
    results[r].gradients = gradients_of(*rnns[r], inputs[r]);
  }
  return results;
}

template <typename Holder, typename Options>
void check(const How& how) {
  for (const auto& nodes : {std::vector<int>{1}, std::vector<int>{2}, std::vector<int>{2, 1}}) {
    const int ranks = nodes.size() == 1 ? nodes[0] : 3;
    const std::vector<Result> expected = run_alone<Holder, Options>(ranks, how);
    with_communicator(nodes, "hierarchical", {}, [&](const CommPtr& comm) {
      const int rank = comm->rank();
      Chain chain(comm);
      NStepRanks where;
      if (rank > 0) where.rank_in = rank - 1;
      if (rank + 1 < ranks) where.rank_out = rank + 1;
      auto rnn = create_multi_node_n_step_rnn(make_rnn<Holder, Options>(rank, how), chain, where);
      const torch::Tensor x = sequence_of(rank);
      const auto [output, state] = call(*rnn, x, how);
      torch::Tensor loss = mix({output}, rank);
      if (!where.rank_out) loss = loss + mix(list_of(state), 9);
      chain.backward(loss);

      const Result& right = expected[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(torch::allclose(output, right.output, 1e-5, 1e-8));
      const Tensors gradients = gradients_of(*rnn, x);
      ASSERT_EQ(gradients.size(), right.gradients.size());
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_TRUE(torch::allclose(gradients[i], right.gradients[i], 1e-5, 1e-8)) << i;
      }
    });
  }
}

template <typename Holder, typename Options>
void check_all() {
  for (const bool is_bidirectional : {false, true}) {
    for (const bool is_packed : {false, true}) {
      SCOPED_TRACE(::testing::Message()
                   << "both directions: " << is_bidirectional << ", packed: " << is_packed);
      check<Holder, Options>({is_bidirectional, is_packed});
    }
  }
}

TEST(MultiNodeNStepRNN, OfRnns) { check_all<torch::nn::RNN, torch::nn::RNNOptions>(); }
TEST(MultiNodeNStepRNN, OfGrus) { check_all<torch::nn::GRU, torch::nn::GRUOptions>(); }
TEST(MultiNodeNStepRNN, OfLstms) { check_all<torch::nn::LSTM, torch::nn::LSTMOptions>(); }

TEST(MultiNodeNStepRNN, RefusesStatesThatCannotBe) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    Chain chain(comm);
    const auto x = torch::ones({2, 1, 3});
    if (comm->rank() == 0) {
      auto rnn = create_multi_node_n_step_rnn(torch::nn::LSTM(3, 2), chain, {.rank_out = 1});
      (void)rnn->forward(x);
      EXPECT_EQ(rnn->parameters().size(), 4U);
      EXPECT_THROW((void)create_multi_node_n_step_rnn(torch::nn::LSTM(nullptr), chain, {}),
                   InvalidArgument);
    } else {
      auto rnn = create_multi_node_n_step_rnn(torch::nn::GRU(3, 2), chain, {.rank_in = 0});
      EXPECT_THAT(
          [&] {
            (void)rnn->forward(x, torch::zeros({1, 1, 2}));
          },
          ThrowsMessage<InvalidArgument>(HasSubstr("comes from rank 0")));
      EXPECT_THAT([&] { (void)rnn->forward(x); },
                  ThrowsMessage<InvalidArgument>(HasSubstr("state of 2 tensors")));
    }
  });
}

}  // namespace
}  // namespace chainmail::testing
