// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/ops/comm/shm/shm_ranks.h"

namespace chainmail::ops {
namespace {

using Bytes = std::vector<std::byte>;

std::byte pattern(int rank, std::size_t index) {
  return static_cast<std::byte>(static_cast<std::size_t>(rank + 1) * 37 + index * 7 + (index >> 8));
}

class ShmExchangeTest : public ::testing::TestWithParam<int> {};

TEST_P(ShmExchangeTest, AllGatherOfUnevenParts) {
  run_shm_ranks(GetParam(), [](ShmRank& self) {
    for (const std::size_t unit : {0u, 1u, 29u, 3001u, 50021u}) {
      // Rank r contributes (r % 3) units: some parts are empty.
      std::vector<std::size_t> bounds = {0};
      for (int r = 0; r < self.comm.size(); ++r) {
        bounds.push_back(bounds.back() + unit * static_cast<std::size_t>((r + 1) % 3));
      }
      Bytes expected(bounds.back());
      for (int r = 0; r < self.comm.size(); ++r) {
        for (std::size_t i = bounds[static_cast<std::size_t>(r)];
             i < bounds[static_cast<std::size_t>(r) + 1]; ++i) {
          expected[i] = pattern(r, i);
        }
      }
      Bytes data(bounds.back(), std::byte{0xee});
      const auto rank = static_cast<std::size_t>(self.comm.rank());
      std::copy(expected.begin() + static_cast<long>(bounds[rank]),
                expected.begin() + static_cast<long>(bounds[rank + 1]),
                data.begin() + static_cast<long>(bounds[rank]));
      self.comm.all_gather(parts_of(data.data(), bounds), self.context(OpKind::kAllGather, unit));
      ASSERT_TRUE(data == expected) << "unit " << unit << " on rank " << rank;
    }
  });
}

TEST_P(ShmExchangeTest, BroadcastFromEveryRoot) {
  run_shm_ranks(GetParam(), [](ShmRank& self) {
    for (int root = 0; root < self.comm.size(); ++root) {
      for (const std::size_t bytes : {0u, 1u, 88u, 89u, 16384u, 100003u}) {
        Bytes expected(bytes);
        for (std::size_t i = 0; i < bytes; ++i) expected[i] = pattern(root, i);
        Bytes data = self.comm.rank() == root ? expected : Bytes(bytes);
        self.comm.broadcast(data.data(), bytes, root, self.context(OpKind::kBroadcast, bytes));
        ASSERT_TRUE(data == expected) << bytes << " bytes from " << root;
      }
    }
  });
}

TEST_P(ShmExchangeTest, AllToAllOfUnevenPieces) {
  run_shm_ranks(GetParam(), [](ShmRank& self) {
    const int size = self.comm.size();
    const int rank = self.comm.rank();
    const auto piece = [](int from, int to, std::size_t unit) {
      return unit * static_cast<std::size_t>((from * 2 + to) % 4);
    };
    for (const std::size_t unit : {0u, 3u, 20011u}) {
      std::vector<std::size_t> out = {0};
      std::vector<std::size_t> in = {0};
      for (int r = 0; r < size; ++r) {
        out.push_back(out.back() + piece(rank, r, unit));
        in.push_back(in.back() + piece(r, rank, unit));
      }
      Bytes send(out.back());
      Bytes expected(in.back());
      for (int r = 0; r < size; ++r) {
        const auto at = static_cast<std::size_t>(r);
        for (std::size_t i = 0; i < piece(rank, r, unit); ++i) {
          send[out[at] + i] = pattern(rank * size + r, i);
        }
        for (std::size_t i = 0; i < piece(r, rank, unit); ++i) {
          expected[in[at] + i] = pattern(r * size + rank, i);
        }
      }
      Bytes receive(in.back());
      self.comm.all_to_all(parts_of<const std::byte>(send.data(), out),
                           parts_of(receive.data(), in), self.context(OpKind::kAllToAll, unit));
      ASSERT_TRUE(receive == expected) << "unit " << unit << " on rank " << rank;
    }
  });
}

TEST_P(ShmExchangeTest, NobodyPassesABarrierBeforeTheLastCame) {
  std::atomic<int> arrived{0};
  run_shm_ranks(GetParam(), [&arrived](ShmRank& self) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      self.comm.barrier(self.context(OpKind::kBarrier, 0));
      EXPECT_GE(arrived.load(), round * self.comm.size());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShmExchangeTest, ::testing::Values(1, 2, 3, 4, 8));

TEST(ShmExchangeErrorTest, ManyRanksWithSmallStagingAreasStillHaveRoom) {
  ShmCommOptions options = small_steps();
  options.chunk_bytes = 1;
  run_shm_ranks(
      64,
      [](ShmRank& self) {
        std::vector<std::byte> send(64, static_cast<std::byte>(self.comm.rank()));
        std::vector<std::byte> receive(64);
        std::vector<std::span<const std::byte>> out;
        std::vector<std::span<std::byte>> in;
        for (std::size_t r = 0; r < 64; ++r) {
          out.emplace_back(send.data() + r, 1);
          in.emplace_back(receive.data() + r, 1);
        }
        self.comm.all_to_all(out, in, self.context(OpKind::kAllToAll, 64, DataType::kUInt8));
        for (std::size_t r = 0; r < 64; ++r) EXPECT_EQ(receive[r], static_cast<std::byte>(r));
      },
      options);
}

TEST(ShmExchangeErrorTest, PiecesThatDoNotFitAreAMismatch) {
  const auto errors = run_shm_ranks_with_errors(2, [](ShmRank& self) {
    Bytes send(8);
    Bytes receive(8);
    const std::vector<std::size_t> out = {0, 4, 8};
    const std::vector<std::size_t> in =
        self.comm.rank() == 0 ? out : std::vector<std::size_t>{0, 3, 7};
    self.comm.all_to_all(parts_of<const std::byte>(send.data(), out), parts_of(receive.data(), in),
                         self.context(OpKind::kAllToAll, 8));
    self.comm.barrier(self.context(OpKind::kBarrier, 0));
  });
  for (const auto& error : errors) {
    ASSERT_NE(error, nullptr);
    EXPECT_THROW(std::rethrow_exception(error), MismatchError);
    EXPECT_THAT(describe(error), ::testing::HasSubstr("sends 4 bytes to rank 1"));
    EXPECT_THAT(describe(error), ::testing::HasSubstr("expects 3"));
  }
}

}  // namespace
}  // namespace chainmail::ops
