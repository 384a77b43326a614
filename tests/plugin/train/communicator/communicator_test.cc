// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <torch/torch.h>

#include <chainmail/communicator.h>
#include <chainmail/train/agreed_error.h>
#include <chainmail/train/agreement.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "tests/plugin/support/thread_world.h"
#include "tests/support/patience.h"

namespace chainmail {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using CommPtr = std::shared_ptr<Communicator>;

const std::vector<std::string> kCommunicators = {"naive",           "flat",        "hierarchical",
                                                 "two_dimensional", "single_node", "auto"};
const std::vector<std::vector<int>> kShapes = {{1}, {2}, {3}, {4}, {8}, {2, 2}, {3, 1}};

// Calls `body` for every communicator on every shape of job.
void everywhere(const std::function<void(const CommPtr&)>& body,
                const CommunicatorOptions& options = {}) {
  for (const std::string& name : kCommunicators) {
    for (const std::vector<int>& shape : kShapes) {
      if (name == "single_node" && shape.size() > 1) continue;
      SCOPED_TRACE(name + " on " + ops::Topology::from_node_sizes(shape).describe());
      testing::with_communicator(shape, name, options, body);
    }
  }
}

TEST(Communicator, KnowsItsPlace) {
  testing::with_communicator({3, 1}, "flat", {}, [](const CommPtr& comm) {
    EXPECT_EQ(comm->size(), 4);
    EXPECT_EQ(comm->inter_size(), 2);
    EXPECT_EQ(comm->inter_rank(), comm->rank() == 3 ? 1 : 0);
    EXPECT_EQ(comm->intra_size(), comm->rank() == 3 ? 1 : 3);
    EXPECT_EQ(comm->intra_rank(), comm->rank() % 3);
    EXPECT_EQ(comm->name(), "flat");
  });
}

TEST(Communicator, MeanOfChainerMnsShapesTwice) {
  everywhere([](const CommPtr& comm) {
    const double mean = (comm->size() - 1) / 2.0;
    std::vector<at::Tensor> tensors = {at::empty({3, 2}), at::empty({4, 3}), at::empty({5}),
                                       at::empty({}, at::kDouble), at::empty({0, 7})};
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        tensors[i].fill_(comm->rank() + static_cast<double>(i));
      }
      comm->allreduce_mean(tensors);
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_TRUE(
            at::allclose(tensors[i], at::full_like(tensors[i], mean + static_cast<double>(i))));
      }
    }
  });
}

TEST(Communicator, SumOfEveryType) {
  everywhere([](const CommPtr& comm) {
    std::vector<at::Tensor> tensors;
    for (const auto type : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
                            at::kBFloat16, at::kFloat, at::kDouble, at::kInt}) {
      tensors.push_back(at::full({33}, comm->rank() + 1, at::TensorOptions(type)));
    }
    comm->allreduce(tensors);
    const int sum = comm->size() * (comm->size() + 1) / 2;
    for (const at::Tensor& tensor : tensors) {
      EXPECT_TRUE(tensor.eq(sum).all().item<bool>()) << tensor.scalar_type();
    }
  });
}

TEST(Communicator, NonContiguousTensorsAreExchanged) {
  everywhere([](const CommPtr& comm) {
    const float mean = static_cast<float>(comm->size() - 1) / 2.0F;
    at::Tensor base = at::zeros({4, 6});
    const at::Tensor columns = base.slice(1, 0, 6, 2);
    const at::Tensor transposed = at::arange(6, at::kFloat).view({2, 3}).t() + comm->rank();
    const at::Tensor channels =
        at::full({2, 3, 4, 4}, comm->rank(), at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
    columns.fill_(comm->rank());
    comm->allreduce_mean({columns, transposed, channels});
    EXPECT_TRUE(columns.eq(mean).all().item<bool>());
    EXPECT_EQ(base.sum().item<float>(), mean * 12);  // what lies between is untouched
    EXPECT_TRUE(at::allclose(transposed, at::arange(6, at::kFloat).view({2, 3}).t() + mean));
    EXPECT_TRUE(channels.eq(mean).all().item<bool>());
    EXPECT_TRUE(channels.is_contiguous(at::MemoryFormat::ChannelsLast));
  });
}

TEST(Communicator, ResultIsTheSameBitsOnAllRanks) {
  for (const auto wire : {c10::kFloat, c10::kHalf, c10::kBFloat16}) {
    CommunicatorOptions options;
    options.allreduce_grad_dtype = wire;
    everywhere(
        [](const CommPtr& comm) {
          at::Tensor tensor = at::rand({1003}, at::make_generator<at::CPUGeneratorImpl>(
                                                   static_cast<std::uint64_t>(comm->rank())));
          comm->allreduce_mean(tensor);
          EXPECT_NO_THROW(verify_equal(*comm, tensor));
        },
        options);
  }
}

TEST(Communicator, HalfWireRoundsBetweenNodesOnlyAndNotSums) {
  CommunicatorOptions options;
  options.allreduce_grad_dtype = c10::kHalf;
  const float value = 1.0F + 1e-5F;  // not a float16
  testing::with_communicator({2, 2}, "hierarchical", options, [&](const CommPtr& comm) {
    const at::Tensor mean = at::full({64}, value);
    const at::Tensor sum = at::full({64}, value);
    comm->allreduce_mean(mean);
    comm->allreduce(sum);
    EXPECT_TRUE(mean.eq(1.0F).all().item<bool>());
    EXPECT_TRUE(at::allclose(sum, at::full({64}, 4 * value), 1e-7, 0));
    // Float64 keeps its digits whatever the option says.
    const at::Tensor wide = at::full({64}, 1.0 + 1e-12, at::kDouble);
    comm->allreduce_mean(wide);
    EXPECT_TRUE(at::allclose(wide, at::full({64}, 1.0 + 1e-12, at::kDouble), 1e-15, 0));
  });
  testing::with_communicator({4}, "hierarchical", options, [&](const CommPtr& comm) {
    const at::Tensor mean = at::full({64}, value);
    comm->allreduce_mean(mean);
    EXPECT_TRUE(at::allclose(mean, at::full({64}, value), 1e-7, 0));
  });
}

TEST(Communicator, MeanOfLargeHalvesDoesNotOverflow) {
  CommunicatorOptions options;
  options.allreduce_grad_dtype = c10::kHalf;
  everywhere(
      [](const CommPtr& comm) {
        const at::Tensor single = at::full({9}, 60000.0F);
        const at::Tensor half = at::full({9}, 60000.0F, at::kHalf);
        comm->allreduce_mean({single, half});
        EXPECT_TRUE(at::allclose(single, at::full({9}, 60000.0F), 2e-3, 0));
        EXPECT_TRUE(at::allclose(half.to(at::kFloat), at::full({9}, 60000.0F), 2e-3, 0));
      },
      options);
}

TEST(Communicator, BcastIsExactFromEveryRoot) {
  everywhere([](const CommPtr& comm) {
    for (int root = 0; root < comm->size(); ++root) {
      auto generator =
          at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(comm->rank()));
      std::vector<at::Tensor> tensors = {at::rand({17, 3}, generator),
                                         at::rand({5}, generator).to(at::kHalf),
                                         at::rand({4, 4}, generator).t(),
                                         at::randint(0, 255, {9}, generator).to(at::kByte),
                                         at::full({600000}, comm->rank() + 0.1, at::kDouble),
                                         at::rand({3}, generator).gt(0.5),
                                         at::empty({0})};
      comm->bcast(tensors, root);
      auto of_root = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(root));
      EXPECT_TRUE(at::equal(tensors[0], at::rand({17, 3}, of_root)));
      EXPECT_TRUE(at::equal(tensors[1], at::rand({5}, of_root).to(at::kHalf)));
      EXPECT_TRUE(at::equal(tensors[2], at::rand({4, 4}, of_root).t()));
      EXPECT_NO_THROW(verify_equal(*comm, tensors));
    }
  });
}

TEST(Communicator, ObjectsOfAnyLength) {
  everywhere([](const CommPtr& comm) {
    for (const std::size_t length : {0U, 1U, 10U, 1024U, 355678U}) {
      const std::string own(length + static_cast<std::size_t>(comm->rank()),
                            static_cast<char>('a' + comm->rank()));
      const int root = comm->size() - 1;
      EXPECT_EQ(comm->bcast_obj(own, root), std::string(length + static_cast<std::size_t>(root),
                                                        static_cast<char>('a' + root)));
      const std::vector<std::string> all = comm->allgather_obj(own);
      ASSERT_EQ(all.size(), static_cast<std::size_t>(comm->size()));
      for (std::size_t r = 0; r < all.size(); ++r) {
        EXPECT_EQ(all[r], std::string(length + r, static_cast<char>('a' + r)));
      }
    }
  });
}

TEST(Communicator, LongObjectsOfDifferentLength) {
  testing::with_communicator({2, 1}, "flat", {}, [](const CommPtr& comm) {
    const std::size_t lengths[] = {30U << 20, 0, 5};  // beyond what is gathered padded
    const std::string own(lengths[comm->rank()], 'x');
    const std::vector<std::string> all = comm->allgather_obj(own);
    for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(all[r].size(), lengths[r]);
  });
}

TEST(Communicator, SplitKeepsNameWireAndOrdersByKey) {
  CommunicatorOptions options;
  options.allreduce_grad_dtype = c10::kHalf;
  testing::with_communicator({2, 2}, "two_dimensional", options, [](const CommPtr& comm) {
    // Odd and even ranks, each in reverse order.
    const CommPtr part = comm->split(comm->rank() % 2, -comm->rank());
    EXPECT_EQ(part->size(), 2);
    EXPECT_EQ(part->rank(), comm->rank() < 2 ? 1 : 0);
    EXPECT_EQ(part->name(), "two_dimensional");
    EXPECT_EQ(part->impl().group->options().wire, ops::WireFormat::kFloat16);
    const at::Tensor sum = at::full({3}, comm->rank());
    part->allreduce(sum);
    EXPECT_TRUE(sum.eq(comm->rank() % 2 == 0 ? 2 : 4).all().item<bool>());
    // A second split by the same colors is another group.
    EXPECT_EQ(comm->split(0, 0)->size(), 4);
  });
}

TEST(Communicator, RefusesWhatCannotBeReduced) {
  testing::with_communicator({1}, "flat", {}, [](const CommPtr& comm) {
    EXPECT_THROW(comm->allreduce(at::Tensor()), InvalidArgument);
    EXPECT_THROW(comm->allreduce(at::zeros({1}).expand({4})), InvalidArgument);
    EXPECT_THROW(comm->allreduce(at::eye(2).to_sparse()), InvalidArgument);
    EXPECT_THROW(comm->allreduce_mean(at::zeros({2}, at::kLong)), InvalidArgument);
    EXPECT_THROW(comm->bcast(at::zeros({2}), 1), InvalidArgument);
    EXPECT_THROW((void)comm->bcast_obj("", -1), InvalidArgument);
    const at::Tensor fine = at::ones({2});
    comm->allreduce(fine);  // the communicator is still usable
    EXPECT_TRUE(fine.eq(1).all().item<bool>());
  });
}

TEST(Communicator, InPlaceResultsAreSeenByAutograd) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    const at::Tensor x = torch::ones({2}, torch::requires_grad());
    at::Tensor factor = torch::full({2}, 3.0);
    const at::Tensor y = (x * factor).sum();
    comm->allreduce(factor);
    EXPECT_THROW(y.backward(), c10::Error);  // factor was saved for backward
  });
}

TEST(Communicator, DifferentShapesAreAMismatchOnAllRanks) {
  for (const std::string& name : kCommunicators) {
    const std::vector<int> shape = name == "single_node" ? std::vector{3} : std::vector{2, 1};
    const auto errors = testing::errors_with_communicator(shape, name, [](const CommPtr& comm) {
      const at::Tensor tensor = at::zeros(comm->rank() == 2 ? std::vector<std::int64_t>{3, 4}
                                                            : std::vector<std::int64_t>{4, 3});
      comm->allreduce(tensor);
    });
    for (const std::string& error : errors) {
      EXPECT_THAT(error, HasSubstr("[3, 4]")) << name;
      EXPECT_THAT(error, HasSubstr("[4, 3]")) << name;
    }
  }
}

TEST(Communicator, AbortEndsTheOthers) {
  const Stopwatch watch;
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    if (comm->rank() == 0) comm->abort("a reason");
    comm->barrier();
  });
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{10}));
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("a reason"));
}

TEST(Communicator, AnExceptionOnOneRankDoesNotLeaveTheOthersWaiting) {
  const Stopwatch watch;
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    const CommPtr last_owner = comm->split(0, 0);
    if (comm->rank() == 0) throw std::runtime_error("a mistake of the program");
    last_owner->barrier();
  });
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{10}));
  EXPECT_EQ(errors[0], "a mistake of the program");
  EXPECT_THAT(errors[1], HasSubstr("rank 0"));
}

TEST(Communicator, FinalizeIsIdempotentAndFinal) {
  testing::with_communicator({2}, "flat", {}, [](const CommPtr& comm) {
    comm->barrier();
    comm->finalize();
    comm->finalize();
    EXPECT_THROW(comm->barrier(), InvalidArgument);
  });
}

TEST(CreateCommunicator, UnknownNamesListTheKnownOnes) {
  try {
    (void)create_communicator("hierachical");
    FAIL();
  } catch (const InvalidArgument& error) {
    for (const char* known : {"naive", "flat", "hierarchical", "two_dimensional", "single_node"}) {
      EXPECT_THAT(error.what(), HasSubstr(known));
    }
  }
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // as on a machine without a GPU
  for (const char* name : {"pure_nccl", "non_cuda_aware", "nccl"}) {
    try {
      (void)create_communicator(name);
      FAIL();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("communicator '" + std::string(name) + "' needs CUDA: "));
    }
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  CommunicatorOptions options;
  options.allreduce_grad_dtype = c10::kLong;
  EXPECT_THROW((void)create_communicator("flat", options), InvalidArgument);
}

TEST(CreateCommunicator, SingleNodeRefusesTwoNodes) {
  const auto errors =
      testing::errors_with_communicator({1, 1}, "single_node", [](const CommPtr&) {});
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("single_node"));
    EXPECT_THAT(error, HasSubstr("2 nodes"));
  }
  testing::with_communicator({2}, "single_node", {}, [](const CommPtr& comm) {
    const at::Tensor one = at::ones({5});
    comm->allreduce(one);
    EXPECT_TRUE(one.eq(2).all().item<bool>());
  });
}

// Whether it is one that one rank may tell for all.
template <typename F>
void expect_agreed(const F& run) {
  try {
    run();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(dynamic_cast<const AgreedError*>(&error), nullptr) << error.what();
    throw;
  }
}

TEST(OnAllRanks, EverybodyGetsTheSameError) {
  const auto errors = testing::errors_with_communicator({3}, "flat", [](const CommPtr& comm) {
    EXPECT_EQ(on_all_ranks(*comm, [&] { return comm->rank() * 2; }), comm->rank() * 2);
    EXPECT_THROW(on_all_ranks(*comm,
                              [&] {
                                if (comm->rank() == 2) throw 42;
                              }),
                 InvalidArgument);
    expect_agreed([&] {
      on_all_ranks(*comm, [&] {
        if (comm->rank() == 0) return;
        throw InvalidArgument("no file number " + std::to_string(comm->rank()));
      });
    });
  });
  for (const std::string& error : errors) {
    EXPECT_EQ(error, "rank 1 on host0: no file number 1 (and rank 2)");
  }
}

TEST(OnAllRanks, ItsErrorIsNotAnnouncedAsTheEndOfACommunicator) {
  const auto errors = testing::run_ranks({2}, [](const std::shared_ptr<World>& world) {
    std::vector<std::shared_ptr<ops::Group>> groups;
    EXPECT_THROW(
        {
          const CommPtr whole = internal::make_communicator(world, "flat", {}, "agreed");
          const CommPtr part = whole->split(0, -whole->rank());
          groups.push_back(whole->impl().group);
          groups.push_back(part->impl().group);
          on_all_ranks(*whole, [] { throw InvalidArgument("no file"); });
        },
        InvalidArgument);
    for (const auto& group : groups) EXPECT_EQ(group->error(), nullptr);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// Rows and columns of a grid: rank 0 is in none with rank 3, and waits for one that is.
TEST(Communicator, TellsRanksOfItsPartsWhoFailedFirst) {
  const auto errors = testing::errors_with_communicator({2, 2}, "flat", [](const CommPtr& comm) {
    const CommPtr row = comm->split(comm->rank() / 2, comm->rank());
    const CommPtr column = comm->split(comm->rank() % 2, comm->rank());
    if (comm->rank() == 3) throw InvalidArgument("of rank 3");
    (comm->rank() == 1 ? column : row)->barrier();
  });
  EXPECT_EQ(errors[3], "of rank 3");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)], HasSubstr("rank 3 on ")) << rank;
  }
}

TEST(Communicator, TellsItsRanksWhatHasEndedItsGraphs) {
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    ops::Group& of_graphs = comm->impl().in_graph();
    comm->barrier();
    if (comm->rank() == 0) return comm->barrier();
    of_graphs.abort(std::make_exception_ptr(TimeoutError("no progress in a graph")));
    throw InvalidArgument("of rank 1");
  });
  EXPECT_THAT(errors, ElementsAre(HasSubstr("no progress in a graph"), "of rank 1"));
}

// What it throws now may have nothing to do with the communicator that it gave up.
TEST(Communicator, LogsWhyItEndsWhereAnEarlierErrorIsTold) {
  ::testing::internal::CaptureStderr();
  const auto errors = testing::errors_with_communicator({2}, "flat", [](const CommPtr& comm) {
    const CommPtr given_up = comm->split(0, comm->rank());
    comm->barrier();
    if (comm->rank() == 0) return comm->barrier();
    given_up->abort("it is given up");
    throw InvalidArgument("of rank 1");
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(errors, ElementsAre(HasSubstr("it is given up"), "of rank 1"));
  EXPECT_THAT(log, HasSubstr("rank 1 on host0 ends communicator test: an exception ends its "
                             "program; the other ranks are told"));
}

TEST(OnAllRanks, AnErrorOfOneRankAfterItsErrorIsAnnounced) {
  const auto errors = testing::run_ranks({2}, [](const std::shared_ptr<World>& world) {
    CommPtr comm = internal::make_communicator(world, "flat", {}, "announced");
    EXPECT_THROW(on_all_ranks(*comm, [] { throw InvalidArgument("no file"); }), InvalidArgument);
    comm->barrier();
    if (world->rank() == 0) return comm->barrier();
    const CommPtr own = std::move(comm);
    throw InvalidArgument("of rank 1");
  });
  EXPECT_THAT(errors, ElementsAre(HasSubstr("an exception ends its program"), "of rank 1"));
}

TEST(VerifyEqual, NamesTheRankThatDiffers) {
  const auto errors = testing::errors_with_communicator({3}, "flat", [](const CommPtr& comm) {
    at::Tensor tensor = at::zeros({100});
    if (comm->rank() == 1) tensor[99] = 1e-30;
    expect_agreed([&] { verify_equal(*comm, tensor); });
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("rank 1 has"));
}

}  // namespace
}  // namespace chainmail
