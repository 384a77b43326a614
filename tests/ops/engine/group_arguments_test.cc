// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a group refuses before anything is sent, and that it stays usable.

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/ops/support/groups.h"

namespace chainmail::ops {
namespace {

using test::bytes_of;
using test::GroupMaker;
using test::on;
using test::TransportKind;

class GroupArguments : public testing::Test {
 protected:
  void expect_refused(const Collective& collective, const std::string& part) {
    try {
      static_cast<void>(group_->submit(collective));
      FAIL() << "not refused: " << part;
    } catch (const InvalidArgument& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }

  Collective on_int8() {
    Collective collective = on(values_);
    collective.wire = WireFormat::kInt8;
    collective.feedback = WireFeedback{bytes_of(residuals_), bytes_of(residuals_), 0};
    return collective;
  }

  GroupMaker maker_{{1, 1}, TransportKind::kReference};
  std::shared_ptr<Group> group_ = maker_.join(0);
  std::vector<float> values_ = std::vector<float>(4, 1.0F);
  std::vector<float> residuals_ = std::vector<float>(4);
};

TEST_F(GroupArguments, NullBuffers) {
  Collective collective = on(values_);
  collective.output = nullptr;
  expect_refused(collective, "output is null");
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kReduceScatter, OpKind::kGather,
                            OpKind::kAllToAll, OpKind::kScatter, OpKind::kSend}) {
    Collective other = on(values_, kind);
    other.root = kind == OpKind::kSend ? 1 : 0;
    other.input = nullptr;
    expect_refused(other, std::string(to_string(kind)) + ": the input is null");
  }
}

TEST_F(GroupArguments, IntegerWiresOfWhatIsNoSumOfFloat32) {
  Collective collective = on_int8();
  collective.dtype = DataType::kInt32;
  expect_refused(collective,
                 "the wire int8 is for sums and means of float32, not for sum of int32");
  collective = on_int8();
  collective.wire = WireFormat::kInt4;
  collective.reduce_op = ReduceOp::kMax;
  expect_refused(collective, "the wire int4 is for sums and means of float32, not for max of");
  collective = on_int8();
  collective.kind = OpKind::kBroadcast;
  expect_refused(collective, "not for what only moves data");
}

TEST_F(GroupArguments, FeedbackAndPartsThatAreRounded) {
  Collective collective = on_int8();
  collective.wire = WireFormat::kFloat16;
  expect_refused(collective,
                 "feedback is for an all_reduce on the wires int8 and int4; the wire here");
  collective = on_int8();
  collective.kind = OpKind::kReduce;
  expect_refused(collective, "feedback is for an all_reduce");
  collective = on_int8();
  collective.feedback->results = nullptr;
  expect_refused(collective, "feedback needs memory");
  collective = on_int8();
  collective.compressed_count = 5;
  expect_refused(collective, "the first 5 of 4 elements cannot be rounded alone");
}

TEST_F(GroupArguments, IntegerWiresOfShardsAndOfSlicesOverAllNodes) {
  Collective collective = on_int8();
  auto cut = std::make_shared<NodeCut>();
  cut->bounds = {0, 2, 4};
  cut->common_from = 4;
  cut->is_over_nodes = true;
  collective.cut = cut;
  expect_refused(collective, "the wire int8 is not for slices over all nodes: what it rounds away");
  collective = on_int8();
  ShardCut shards;
  shards.tree = ShardTree(2);
  shards.bounds = {0, 1, 2};
  collective.shards = std::make_shared<ShardCut>(shards);
  collective.pieces = {bytes_of(values_)};
  expect_refused(collective, "the wire int8 depends on who sums what");
}

TEST_F(GroupArguments, RootsAndPeers) {
  for (const OpKind kind : {OpKind::kReduce, OpKind::kBroadcast, OpKind::kGather, OpKind::kScatter,
                            OpKind::kSend, OpKind::kRecv}) {
    for (const int root : {-2, 2}) {
      Collective collective = on(values_, kind);
      collective.root = root;
      expect_refused(collective, std::to_string(root) + " is not a rank of a group of 2");
    }
  }
  Collective to_any = on(values_, OpKind::kSend);
  to_any.root = kAnyRank;
  expect_refused(to_any, "peer -1 is not a rank of a group of 2");
  expect_refused(on(values_, OpKind::kSend), "is this rank itself");
}

TEST_F(GroupArguments, ReductionsWithoutMeaning) {
  Collective bits = on(values_);
  bits.reduce_op = ReduceOp::kBitXor;
  expect_refused(bits, "bitwise reductions take integers");
  Collective mean = on(values_);
  mean.dtype = DataType::kBool;
  mean.reduce_op = ReduceOp::kAvg;
  expect_refused(mean, "avg of bool");
}

TEST_F(GroupArguments, CountsAndSizes) {
  Collective collective = on(values_, OpKind::kAllToAll);
  collective.send_counts = {1, 2, 3};
  expect_refused(collective, "counts for 3 ranks in a group of 2");
  Collective huge = on(values_);
  huge.count = std::size_t{1} << 62;
  expect_refused(huge, "more than memory can hold");
}

TEST_F(GroupArguments, SingleNodeOverTwo) {
  Collective collective = on(values_);
  collective.algorithm = Algorithm::kSingleNode;
  expect_refused(collective, "single_node over 2 nodes");
  GroupOptions options;
  options.algorithm = Algorithm::kSingleNode;
  GroupMaker maker({1, 1}, TransportKind::kReference, options);
  EXPECT_THROW(maker.join(0), InvalidArgument);
}

TEST_F(GroupArguments, EncryptionWhereNothingWouldEncrypt) {
  const auto refusal = [](const GroupOptions& options, const std::vector<int>& nodes) {
    try {
      (void)create_group(0, Topology::from_node_sizes(nodes), std::make_shared<LocalRendezvous>(),
                         options);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    } catch (const std::exception&) {
    }
    return std::string("not refused");
  };
  for (const Encryption mode : {Encryption::kAuthenticate, Encryption::kEncrypt}) {
    GroupOptions options;
    options.name = "vault";
    options.encryption = mode;
    EXPECT_THAT(refusal(options, {1, 1}), testing::HasSubstr("needs a secret"));
    options.secret = std::string(32, 's');
    options.cross = CrossTransport::kMpi;
    const std::string text = refusal(options, {1, 1});
    EXPECT_THAT(text, testing::HasSubstr("group vault is to " + std::string(to_string(mode))));
    EXPECT_THAT(text, testing::HasSubstr("MPI would carry them over 2 nodes"));
    EXPECT_THAT(text, testing::HasSubstr("use tcp (CHAINMAIL_CROSS=tcp)"));
    EXPECT_THAT(refusal(options, {1}), testing::HasSubstr("not refused"));  // alone
  }
}

TEST_F(GroupArguments, TheGroupStaysUsable) {
  Collective wrong = on(values_);
  wrong.output = nullptr;
  expect_refused(wrong, "null");
  EXPECT_EQ(group_->sequence(), 0U);
  std::thread peer([this] {
    const auto other = maker_.join(1);
    std::vector<float> values(4, 2.0F);
    other->run(on(values));
  });
  group_->run(on(values_));
  peer.join();
  EXPECT_EQ(values_[0], 3.0F);
}

TEST_F(GroupArguments, AForkedChildIsRefusedAndHarmless) {
  std::thread peer([this] {
    const auto other = maker_.join(1);
    std::vector<float> values(4, 2.0F);
    other->run(on(values));
    other->run(on(values));
  });
  group_->run(on(values_));
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      static_cast<void>(group_->submit(on(values_)));
    } catch (const InvalidArgument& e) {
      code = std::string(e.what()).find("forked child") == std::string::npos ? 2 : 0;
    }
    group_.reset();  // must neither hang nor end the parent's connections
    _exit(code);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  group_->run(on(values_));
  peer.join();
}

}  // namespace
}  // namespace chainmail::ops
