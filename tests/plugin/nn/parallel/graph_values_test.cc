// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What functions in graphs bring: dtypes, who has a gradient, what is refused.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <chainmail/error.h>
#include <chainmail/nn/functions.h>
#include <chainmail/nn/parallel/chain.h>

#include "plugin/nn/parallel/heads.h"
#include "plugin/train/communicator/parts.h"
#include "tests/plugin/nn/parallel/graph_checks.h"

namespace chainmail::testing {
namespace {

using ::testing::Throws;

void on_ranks(const std::function<void(const CommPtr&)>& body) {
  with_communicator({2, 1}, "hierarchical", {}, body);
}

torch::Tensor numbers(int rank, torch::ScalarType dtype) {
  return (torch::arange(4) + rank)
      .to(dtype)
      .requires_grad_(torch::isFloatingType(dtype) || torch::isComplexType(dtype));
}

// Sums of small integers are exact in all of these.
TEST(GraphFunctions, KeepDtypes) {
  for (const auto dtype : {torch::kHalf, torch::kBFloat16, torch::kFloat, torch::kDouble,
                           torch::kComplexFloat, torch::kComplexDouble}) {
    on_ranks([dtype](const CommPtr& comm) {
      const int own = comm->rank();
      const torch::Tensor x = numbers(own, dtype);
      const auto expect = [&](const torch::Tensor& got, const torch::Tensor& expected) {
        EXPECT_TRUE(torch::equal(got, expected.to(dtype))) << got << expected;
        EXPECT_TRUE(got.requires_grad());
        EXPECT_EQ(got.scalar_type(), dtype);
      };
      const torch::Tensor total = torch::arange(4) * 3 + 3;
      expect(functions::bcast(comm, x, 1), torch::arange(4) + 1);
      expect(functions::reduce_scatter(comm, Tensors(3, x)), total);
      expect(functions::allreduce(comm, x), total);
      const Tensors all = functions::alltoall(comm, Tensors(3, x));
      for (int r = 0; r < 3; ++r) expect(all[static_cast<std::size_t>(r)], torch::arange(4) + r);
      // Everything that was made of x: with torch's rules, ones come back as ones.
      const torch::Tensor ring =
          functions::recv(comm, (own + 2) % 3, functions::send(x, comm, (own + 1) % 3));
      expect(ring, torch::arange(4) + (own + 2) % 3);
      ring.backward(torch::ones_like(ring) * 2);
      EXPECT_TRUE(torch::equal(x.grad(), torch::full({4}, 2, dtype))) << x.grad();
      EXPECT_EQ(x.grad().scalar_type(), dtype);
    });
  }
}

TEST(GraphFunctions, BringIntegersWithoutGradients) {
  on_ranks([](const CommPtr& comm) {
    const torch::Tensor x = numbers(comm->rank(), torch::kLong);
    for (const torch::Tensor& got :
         {functions::bcast(comm, x), functions::scatter(comm, Tensors(3, x)),
          functions::reduce_scatter(comm, Tensors(3, x)), functions::alltoall(comm, {x, x, x})[0],
          functions::gather(comm, x)[0]}) {
      EXPECT_FALSE(got.requires_grad());
    }
    // In one message with what has one.
    const torch::Tensor w = numbers(comm->rank(), torch::kFloat);
    const auto delegate = functions::send({x, w}, comm, (comm->rank() + 1) % 3);
    const Tensors got = functions::recv_list(comm, (comm->rank() + 2) % 3, delegate);
    EXPECT_EQ(got[0].scalar_type(), torch::kLong);
    EXPECT_FALSE(got[0].requires_grad());
    got[1].sum().backward();
    EXPECT_TRUE(w.grad().eq(1).all().item<bool>());
  });
}

TEST(GraphFunctions, AgreeOnWhoNeedsAGradient) {
  on_ranks([](const CommPtr& comm) {
    const auto x = torch::ones({2}, torch::dtype(torch::kFloat).requires_grad(comm->rank() == 1));
    const Tensors got = functions::alltoall(comm, Tensors(3, x));
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(got[r].requires_grad(), r == 1);
    (got[0] + got[1]).sum().backward();
    EXPECT_EQ(x.grad().defined(), comm->rank() == 1);
    if (comm->rank() == 1) {
      EXPECT_TRUE(x.grad().eq(3).all().item<bool>());
    }
    EXPECT_FALSE(functions::bcast(comm, x, 0).requires_grad());
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(functions::bcast(comm, x, 1).requires_grad());
  });
}

TEST(GraphFunctions, CopyWhatTheySend) {
  on_ranks([](const CommPtr& comm) {
    torch::Tensor x = torch::zeros({1 << 20});  // more than goes without its receiver
    const auto delegate = functions::send(x, comm, (comm->rank() + 1) % 3);
    x.fill_(7);
    EXPECT_TRUE(functions::recv(comm, (comm->rank() + 2) % 3).eq(0).all().item<bool>());
    const torch::Tensor got = functions::bcast(comm, x, comm->rank() * 0);
    EXPECT_NE(got.data_ptr(), x.data_ptr());
    EXPECT_FALSE(delegate.requires_grad());
  });
}

TEST(GraphFunctions, HaveTagsOfTheirOwn) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    const int other = 1 - comm->rank();
    const auto first = functions::send(torch::full({2}, 1), comm, other, /*tag=*/3);
    const auto second = functions::send(torch::full({2}, 2), comm, other, /*tag=*/0);
    comm->send(torch::full({2}, 4), other, /*tag=*/3);
    EXPECT_EQ(comm->recv(other, 3)[0][0].item<int>(), 4);
    EXPECT_EQ(functions::recv(comm, other, {}, 0)[0].item<int>(), 2);
    EXPECT_EQ(functions::recv(comm, other, first, 3)[0].item<int>(), 1);
  });
}

TEST(GraphFunctions, RefuseWhatCannotBe) {
  on_ranks([](const CommPtr& comm) {
    const torch::Tensor x = torch::ones({2}, torch::requires_grad());
    const int own = comm->rank();
    const auto message = [](const std::string& text) {
      return ThrowsMessage<InvalidArgument>(HasSubstr(text));
    };
    EXPECT_THAT([&] { (void)functions::send(x, comm, own); }, message("this rank itself"));
    EXPECT_THAT([&] { (void)functions::recv(comm, 3); }, message("not a rank"));
    EXPECT_THAT([&] { (void)functions::send(x, comm, (own + 1) % 3, -1); }, message("negative"));
    EXPECT_THAT([&] { (void)functions::send(x, comm, (own + 1) % 3, 1 << 30); },
                message("at most"));
    EXPECT_THAT([&] { (void)functions::send(Tensors{}, comm, (own + 1) % 3); },
                message("no tensors"));
    EXPECT_THAT([&] { (void)functions::send(x.to_sparse(), comm, (own + 1) % 3); },
                message("not dense"));
    EXPECT_THAT([&] { (void)functions::bcast(comm, x, 3); }, message("root 3"));
    EXPECT_THAT([&] { (void)functions::reduce_scatter(comm, {x, x}); }, message("for 3 ranks"));
    EXPECT_THAT([&] { (void)functions::pseudo_connect({}, x); }, message("undefined"));
    EXPECT_THAT([&] { (void)functions::pseudo_connect(x, Tensors{x, {}}); }, message("undefined"));
    EXPECT_THAT([&] { (void)functions::send(x, nullptr, 0); }, message("communicator"));
    // One rank's mistake, on all.
    EXPECT_THAT([&] { (void)functions::alltoall(comm, own == 1 ? Tensors{x} : Tensors(3, x)); },
                message("rank 1"));
    EXPECT_THAT([&] { (void)functions::gather(comm, own == 2 ? torch::Tensor() : x); },
                message("rank 2"));
    // Nothing of it has harmed the communicator.
    EXPECT_TRUE(functions::bcast(comm, x, 1).eq(1).all().item<bool>());
  });
}

// What one rank cannot add up is no reason for the others to wait.
TEST(GraphFunctions, RefuseSumsOnAllRanks) {
  on_ranks([](const CommPtr& comm) {
    Chain chain(comm);
    const torch::Tensor x = torch::ones({2}, torch::requires_grad());
    const bool is_odd = comm->rank() == 1;
    const torch::Tensor other = is_odd ? x.detach().to(torch::kFloat8_e4m3fn) : x;
    const torch::Tensor wide = is_odd ? x.to(torch::kDouble) : x;
    const auto message = [](const std::string& text) {
      return ThrowsMessage<InvalidArgument>(HasSubstr("rank 1: tensors of type" + text));
    };
    EXPECT_THAT([&] { (void)chain.allreduce(other); }, message(" Float8_e4m3fn"));
    EXPECT_THAT([&] { (void)chain.reduce_scatter(Tensors(3, other)); }, message(" Float8_e4m3fn"));
    EXPECT_THAT([&] { (void)chain.reduce_scatter({x, x, wide}); }, message("s Float and Double"));
    EXPECT_TRUE(chain.allreduce(x).eq(3).all().item<bool>());
  });
}

TEST(GraphFunctions, RefuseHeadsThatCannotBe) {
  const auto bytes_of = [](std::vector<std::uint8_t> needs) {
    return to_bytes(internal::Head{{}, {{6, {2}}, {6, {}}}, std::move(needs)});
  };
  EXPECT_EQ(internal::head_from_bytes(bytes_of({0, 1})).needs_gradient[1], 1);
  EXPECT_THROW((void)internal::head_from_bytes(bytes_of({1})), MismatchError);
  EXPECT_THROW((void)internal::head_from_bytes(bytes_of({1, 2})), MismatchError);
  EXPECT_THROW((void)internal::head_from_bytes(to_bytes(internal::Head{{}, {{99, {}}}, {0}})),
               MismatchError);
  EXPECT_THROW((void)internal::head_from_bytes(bytes_of({0, 1}).substr(1)), MismatchError);
}

// From a rank that runs another program.
TEST(GraphFunctions, RefuseNumbersOfDimensionsThatCannotBe) {
  const auto errors =
      testing::errors_with_communicator({2}, "hierarchical", [](const CommPtr& comm) {
        if (comm->rank() == 0) {
          (void)functions::allgather(comm, torch::ones({2}));
          return;
        }
        std::vector<std::int64_t> header(16, 1 << 20);
        header[0] = static_cast<std::int64_t>(torch::kFloat);
        std::vector<std::int64_t> all(32);
        internal::all_gather(comm->impl().in_graph(), header.data(), all.data(),
                             16 * sizeof header[0], internal::label_of("allgather"));
      });
  EXPECT_THAT(errors[0], HasSubstr("1048576 dimensions"));
}

TEST(GraphFunctions, HaveNoSecondDerivativeAndSaySo) {
  on_ranks([](const CommPtr& comm) {
    const torch::Tensor x = torch::ones({2}, torch::requires_grad());
    const torch::Tensor y = functions::bcast(comm, x);
    EXPECT_THAT(
        [&] { torch::autograd::backward({y.sum()}, {}, /*retain_graph=*/true, /*create=*/true); },
        ThrowsMessage<InvalidArgument>(HasSubstr("second derivative")));
  });
}

TEST(GraphFunctions, FindAnotherRootOnOneRank) {
  const auto errors = errors_with_communicator({2, 1}, "hierarchical", [](const CommPtr& comm) {
    (void)functions::gather(comm, torch::ones({2}), comm->rank() == 2 ? 1 : 0);
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("to rank 1"));
}

TEST(GraphFunctions, ReceiveOneTensorOrAList) {
  with_communicator({2}, "hierarchical", {}, [](const CommPtr& comm) {
    const auto x = torch::ones({2});
    const auto delegate = functions::send({x, x}, comm, 1 - comm->rank());
    EXPECT_THAT([&] { (void)functions::recv(comm, 1 - comm->rank(), delegate); },
                ThrowsMessage<InvalidArgument>(HasSubstr("recv_list")));
  });
}

}  // namespace
}  // namespace chainmail::testing
