// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Functions in graphs over each of the communicators, and what torch's own groups refuse.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

namespace chainmail {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Parts = std::vector<torch::Tensor>;

class OnCommunicator : public ::testing::TestWithParam<const char*> {
 protected:
  OnCommunicator() { at::set_num_threads(1); }

  int own() const { return comm_->rank(); }
  int ranks() const { return comm_->size(); }
  // 0 + 1 + ... of all ranks.
  double sum_of_all() const { return ranks() * (ranks() - 1) / 2.0; }
  torch::Tensor leaf(std::int64_t rows) const {
    return torch::full({rows, 3}, own() + 1.0, torch::dtype(torch::kFloat).requires_grad(true));
  }
  void expect_all(const torch::Tensor& tensor, double value) const {
    EXPECT_TRUE(tensor.eq(value).all().item<bool>()) << tensor << " is not " << value;
  }
  // A tensor of each length, 1 and up, by rank.
  void check_gathered(const Parts& parts) const {
    ASSERT_EQ(parts.size(), static_cast<std::size_t>(ranks()));
    for (int r = 0; r < ranks(); ++r) {
      const torch::Tensor& part = parts[static_cast<std::size_t>(r)];
      EXPECT_EQ(part.sizes(), at::IntArrayRef({r + 1, 3}));
      expect_all(part, r + 1);
    }
  }

  const std::shared_ptr<Communicator> comm_ = create_communicator(GetParam());
};

// What the collectives are made of that torch's groups carry, too.
class OnAny : public OnCommunicator {};
TEST_P(OnAny, SumsGathersAndBroadcasts) {
  const torch::Tensor x = leaf(2);
  expect_all(functions::allreduce(comm_, x), sum_of_all() + ranks());
  functions::allreduce(comm_, x).sum().backward();
  expect_all(x.grad(), ranks());

  const torch::Tensor longer = leaf(own() + 1);
  const Parts all = functions::allgather(comm_, longer);
  check_gathered(all);
  (all.front().sum() + 2 * all.back().sum()).backward();
  expect_all(longer.grad(), ranks() * ((own() == 0 ? 1 : 0) + (own() == ranks() - 1 ? 2 : 0)));

  const torch::Tensor y = leaf(2);
  const torch::Tensor roots = functions::bcast(comm_, y, ranks() - 1);
  expect_all(roots, ranks());
  (roots * (own() + 1)).sum().backward();
  if (own() == ranks() - 1) expect_all(y.grad(), sum_of_all() + ranks());

  const torch::Tensor z = leaf(2);
  const torch::Tensor sum =
      functions::reduce_scatter(comm_, Parts(static_cast<std::size_t>(ranks()), z));
  expect_all(sum, sum_of_all() + ranks());
  (sum * (own() + 1)).sum().backward();
  expect_all(z.grad(), sum_of_all() + ranks());
}

TEST_P(OnAny, CarriesTheSameThroughAChain) {
  Chain chain(comm_);
  const torch::Tensor x = leaf(own() + 1);
  check_gathered(chain.allgather(x));
  const torch::Tensor sum = chain.allreduce(x.sum());
  chain.backward(sum * (own() + 1));
  expect_all(x.grad(), sum_of_all() + ranks());
}

// Those of Chainmail carry everything.
class OnOwn : public OnCommunicator {};
TEST_P(OnOwn, MovesTensorsBetweenRanks) {
  const auto all = static_cast<std::size_t>(ranks());
  Chain chain(comm_);
  const torch::Tensor x = leaf(own() + 1);
  const Parts gathered = chain.gather(x);
  if (own() == 0) check_gathered(gathered);
  const torch::Tensor scattered = chain.scatter(own() == 0 ? gathered : Parts());
  expect_all(scattered, own() + 1);
  const Parts exchanged = chain.alltoall(Parts(all, scattered));
  check_gathered(exchanged);
  torch::Tensor ring = exchanged[static_cast<std::size_t>(own())];
  if (ranks() > 1) {
    chain.send(ring, (own() + 1) % ranks());
    ring = chain.recv((own() + ranks() - 1) % ranks());
  }
  chain.backward((ring * 2).sum());
  expect_all(x.grad(), 2);
}

TEST_P(OnOwn, TrainsAPipeline) {
  torch::nn::Linear layer(3, 3);
  Pipeline pipeline(layer, comm_, {.microbatches = 3});
  const torch::Tensor loss =
      pipeline.step(torch::ones({6, 3}), torch::zeros({6, 3}),
                    [](const auto& y, const auto& t) { return (y - t).pow(2).mean(); });
  EXPECT_EQ(loss.defined(), own() == ranks() - 1);
  EXPECT_TRUE(layer->weight.grad().isfinite().all().item<bool>());
}

class OnTorchs : public OnCommunicator {};
TEST_P(OnTorchs, RefusesToMoveThem) {
  const auto all = static_cast<std::size_t>(ranks());
  const torch::Tensor x = leaf(2);
  const int other = (own() + 1) % ranks();
  std::vector<std::function<void()>> refused{
      [&] { (void)functions::gather(comm_, x); },
      [&] { (void)functions::scatter(comm_, own() == 0 ? Parts(all, x) : Parts()); },
      [&] { (void)functions::alltoall(comm_, Parts(all, x)); }};
  if (ranks() > 1) {
    refused.push_back([&] { (void)functions::send(x, comm_, other); });
    refused.push_back([&] { (void)functions::recv(comm_, other); });
  }
  for (const auto& function : refused) {
    EXPECT_THAT(function, ThrowsMessage<InvalidArgument>(HasSubstr("use one of Chainmail's own")));
  }
  expect_all(functions::allreduce(comm_, x), sum_of_all() + ranks());  // it is as good as before
}

INSTANTIATE_TEST_SUITE_P(Names, OnAny,
                         ::testing::Values("naive", "flat", "two_dimensional", "single_node",
                                           "gloo"));
INSTANTIATE_TEST_SUITE_P(Names, OnOwn,
                         ::testing::Values("naive", "flat", "two_dimensional", "single_node"));
INSTANTIATE_TEST_SUITE_P(Names, OnTorchs, ::testing::Values("gloo"));

}  // namespace
}  // namespace chainmail
