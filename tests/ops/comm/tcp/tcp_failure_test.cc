// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What goes wrong between ranks on TCP: which error, on which rank, how soon.

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <future>

#include "base/bytes.h"
#include "ops/comm/frames/frame.h"
#include "tests/ops/comm/rank_threads.h"
#include "tests/support/patience.h"

namespace {
std::atomic<int> refusal{0};
}  // namespace

// In front of the C library's: a kernel, or a container's filter, that does not let it through.
extern "C" int epoll_pwait2(int epoll, epoll_event* events, int count, const timespec* time,
                            const sigset_t* mask) {
  if (refusal == 0)
    return static_cast<int>(
        ::syscall(SYS_epoll_pwait2, epoll, events, count, time, mask, _NSIG / 8));
  errno = refusal;
  return -1;
}

namespace chainmail::ops {
namespace {

using internal::UniqueFd;
using std::chrono::milliseconds;
using testing::CommWorld;
using testing::is_a;
using testing::Ops;
using testing::run_ranks_catching;
using testing::what;
using testing::Wire;

bool contains(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

void all_reduce(P2pComm& comm, Ops& ops, std::size_t count) {
  std::vector<float> data(count, 1.0F);
  comm.all_reduce(reinterpret_cast<std::byte*>(data.data()), count, {},
                  ops.next(OpKind::kAllReduce, count, DataType::kFloat32));
  const auto sum = static_cast<float>(comm.size());
  ASSERT_EQ(std::count(data.begin(), data.end(), sum), static_cast<std::ptrdiff_t>(count));
}

// Rank 1 as somebody would play it who knows the secret: a proven connection, then any bytes.
class FakePeer {
 public:
  explicit FakePeer(CommWorld& world)
      : epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        names_(world.tcp.names),
        connector_({world.tcp.secret, world.tcp.group, 0, 1, world.size}, names_,
                   internal::loopback_address(), world.rendezvous, world.tcp.group + "/tcp/0/",
                   epoll_.get(), 0) {}

  UniqueFd connect(int peer) {
    connector_.want(peer);
    const auto deadline = internal::Deadline::after(std::chrono::seconds{10});
    while (!deadline.has_passed()) {
      auto connections = connector_.progress(true);
      if (!connections.empty()) return std::move(connections.front().fd);
      std::this_thread::sleep_for(milliseconds{1});
    }
    throw TimeoutError("no connection to rank " + std::to_string(peer));
  }

 private:
  UniqueFd epoll_;
  std::vector<PeerName> names_;
  Connector connector_;
};

void send_all(const UniqueFd& fd, const void* data, std::size_t bytes) {
  ASSERT_EQ(::send(fd.get(), data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
}

// Rank 0 waits for `bytes` of rank 1, which `misbehaves` instead.
std::exception_ptr receive_from_fake(const std::function<void(UniqueFd&)>& misbehaves,
                                     std::size_t bytes = 1000) {
  CommWorld world(Wire::kTcp, 2);
  const auto transport = world.make_transport(0);
  FakePeer fake(world);
  auto played = std::async(std::launch::async, [&] {
    UniqueFd fd = fake.connect(0);
    misbehaves(fd);
  });
  std::exception_ptr error;
  try {
    std::vector<std::byte> data(bytes);
    testing::receive(*transport, data.data(), data.size(), 1, 0);
  } catch (...) {
    error = std::current_exception();
  }
  played.get();
  return error;
}

FrameHead data_head(std::span<const std::byte> payload) {
  FrameHead head;
  head.header.kind = OpKind::kSend;
  head.header.count = payload.size();
  head.tag = Tag::point_to_point(0);
  head.length = static_cast<std::uint32_t>(payload.size());
  head.message_bytes = payload.size();
  head.has_checksum = true;
  head.checksum = internal::hash64(payload);
  return head;
}

TEST(TcpFailureTest, AGoodFrameOfAFakePeerArrives) {
  // Shows that the fakes below fail for what they do wrong and nothing else.
  EXPECT_EQ(receive_from_fake([](UniqueFd& fd) {
              const std::vector<std::byte> payload(1000, std::byte{7});
              const auto head = data_head(payload).encode();
              send_all(fd, head.data(), head.size());
              send_all(fd, payload.data(), payload.size());
            }),
            nullptr);
}

TEST(TcpFailureTest, AFlippedBitOfThePayloadIsFoundAndPlaced) {
  const auto error = receive_from_fake([](UniqueFd& fd) {
    std::vector<std::byte> payload(1000, std::byte{7});
    const auto head = data_head(payload).encode();
    payload[500] ^= std::byte{16};
    send_all(fd, head.data(), head.size());
    send_all(fd, payload.data(), payload.size());
  });
  ASSERT_TRUE(is_a<PeerError>(error)) << what(error);
  EXPECT_TRUE(contains(what(error), "checksum wrong in bytes 0 to 1000")) << what(error);
  EXPECT_TRUE(contains(what(error), "rank 1 on host host1")) << what(error);
}

TEST(TcpFailureTest, AFlippedBitIsFoundWhereverItIsInALongFrame) {
  // Longer than what is summed at once, and with an odd end; it fits in a socket's buffers.
  constexpr std::size_t kBytes = 70'001;
  for (const std::size_t place : {0UL, 20'000UL, 50'000UL, kBytes - 1, kBytes}) {
    const auto error = receive_from_fake(
        [place](UniqueFd& fd) {
          std::vector<std::byte> payload(kBytes, std::byte{7});
          const auto head = data_head(payload).encode();
          if (place < kBytes) payload[place] ^= std::byte{16};
          send_all(fd, head.data(), head.size());
          for (std::size_t sent = 0; sent < kBytes; sent += 7'000) {
            send_all(fd, payload.data() + sent, std::min<std::size_t>(7'000, kBytes - sent));
          }
        },
        kBytes);
    EXPECT_EQ(is_a<PeerError>(error), place < kBytes) << place << ": " << what(error);
    EXPECT_EQ(contains(what(error), "checksum wrong in bytes 0 to 70001"), place < kBytes)
        << what(error);
  }
}

TEST(TcpFailureTest, ANonsenseHeadEndsTheConnection) {
  const auto error = receive_from_fake([](UniqueFd& fd) {
    const std::vector<std::byte> noise(FrameHead::kBytes, std::byte{0xee});
    send_all(fd, noise.data(), noise.size());
  });
  ASSERT_TRUE(is_a<PeerError>(error)) << what(error);
  EXPECT_TRUE(contains(what(error), "damaged")) << what(error);
}

TEST(TcpFailureTest, APeerThatVanishesInTheMiddleOfAMessageIsNamed) {
  const Stopwatch watch;
  const auto error = receive_from_fake([](UniqueFd& fd) {
    const std::vector<std::byte> payload(1000, std::byte{7});
    const auto head = data_head(payload).encode();
    send_all(fd, head.data(), head.size());
    send_all(fd, payload.data(), 400);
    fd.reset();
  });
  ASSERT_TRUE(is_a<PeerError>(error)) << what(error);
  for (const char* word : {"rank 1 on host host1", "closed the connection", "recv #0"}) {
    EXPECT_TRUE(contains(what(error), word)) << what(error);
  }
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{4}));
}

TEST(TcpFailureTest, APeerThatHasFinishedIsMissedOnlyWhenNeeded) {
  CommWorld world(Wire::kTcp, 2);
  std::unique_ptr<P2pComm> first = world.make(0);
  std::unique_ptr<P2pComm> second = world.make(1);
  Ops first_ops(std::chrono::seconds{10});
  Ops second_ops(std::chrono::seconds{10});
  auto other = std::async(std::launch::async, [&] {
    all_reduce(*second, second_ops, 100'000);
    second.reset();
  });
  all_reduce(*first, first_ops, 100'000);
  other.get();
  for (int i = 0; i < 50; ++i) first->progress();  // a goodbye is no error
  EXPECT_EQ(first_ops.failure().error(), nullptr);
  const Stopwatch watch;
  try {
    all_reduce(*first, first_ops, 10);
    ADD_FAILURE() << "no error";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.peer_rank(), 1);
    EXPECT_TRUE(contains(error.what(), "finished")) << error.what();
    EXPECT_TRUE(contains(error.what(), "all_reduce #1")) << error.what();
  }
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{4}));
}

TEST(TcpFailureTest, APeerThatDoesNotReadForSecondsIsNotLost) {
  // More than the kernels hold: its window closes, and that alone is no failure.
  constexpr int kCalls = 40;
  CommWorld world(Wire::kTcp, 2);
  std::vector<std::unique_ptr<P2pComm>> comms;
  for (int rank = 0; rank < 2; ++rank) comms.push_back(world.make(rank));
  const auto errors = run_ranks_catching(2, [&](int rank) {
    P2pComm& comm = *comms[static_cast<std::size_t>(rank)];
    Ops ops(std::chrono::seconds{30});
    comm.barrier(ops.next(OpKind::kBarrier, 0));
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds{5});
    for (int call = 0; call < kCalls; ++call) {
      std::vector<std::byte> data(kEagerBytes, static_cast<std::byte>(rank == 0 ? call : 0));
      comm.broadcast(data.data(), data.size(), 0, ops.next(OpKind::kBroadcast, data.size()));
      ASSERT_EQ(data.back(), static_cast<std::byte>(call));
    }
  });
  for (const auto& error : errors) EXPECT_EQ(error, nullptr) << what(error);
}

TEST(TcpFailureTest, ASilentPeerIsNamedAtTheDeadline) {
  CommWorld world(Wire::kTcp, 3);
  std::vector<std::unique_ptr<P2pComm>> comms;
  for (int rank = 0; rank < 3; ++rank) comms.push_back(world.make(rank));
  const Stopwatch watch;
  const auto errors = run_ranks_catching(3, [&](int rank) {
    if (rank == 2) return;
    Ops ops(milliseconds{700});
    all_reduce(*comms[static_cast<std::size_t>(rank)], ops, 1000);
  });
  EXPECT_GT(watch.elapsed(), milliseconds{600});
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{3}));
  for (int rank = 0; rank < 2; ++rank) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(is_a<TimeoutError>(error)) << what(error);
    try {
      std::rethrow_exception(error);
    } catch (const TimeoutError& timeout) {
      EXPECT_EQ(timeout.missing_ranks(), std::vector<int>{2}) << timeout.what();
    }
  }
}

TEST(TcpFailureTest, AWrongSecretGetsNobodyIn) {
  CommWorld world(Wire::kTcp, 2);
  const auto errors = run_ranks_catching(2, [&](int rank) {
    TcpOptions tcp = world.tcp;
    tcp.rank = rank;
    if (rank == 1) tcp.secret.back() = '!';
    P2pComm comm(std::make_unique<TcpTransport>(world.rendezvous, tcp));
    Ops ops(milliseconds{3000});
    all_reduce(comm, ops, 100);
  });
  bool is_told = false;
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<PeerError>(error) || is_a<TimeoutError>(error)) << what(error);
    is_told |= contains(what(error), "secret");
  }
  EXPECT_TRUE(is_told);
}

TEST(TcpFailureTest, AnotherGroupOrGenerationIsTurnedAway) {
  for (const bool other_group : {true, false}) {
    CommWorld world(Wire::kTcp, 2);
    const auto comm = world.make(0);
    TcpOptions tcp = world.tcp;
    tcp.rank = 1;
    if (other_group) tcp.group = "other";
    if (!other_group) tcp.generation = 7;
    // The stranger finds the address as if it were that of its own rank 0.
    const auto deadline = internal::Deadline::after(milliseconds{1000});
    world.rendezvous->set(other_group ? "other/tcp/0/0" : "test/tcp/7/0",
                          world.rendezvous->get("test/tcp/0/0", deadline));
    P2pComm stranger(std::make_unique<TcpTransport>(world.rendezvous, tcp));
    const auto errors = run_ranks_catching(2, [&](int rank) {
      Ops ops(milliseconds{500});
      if (rank == 0) comm->barrier(ops.next(OpKind::kBarrier, 0));
      if (rank == 1) stranger.barrier(ops.next(OpKind::kBarrier, 0));
    });
    EXPECT_TRUE(is_a<TimeoutError>(errors[0])) << what(errors[0]);
    EXPECT_TRUE(is_a<TimeoutError>(errors[1])) << what(errors[1]);
  }
}

TEST(TcpFailureTest, AbortWakesWhoWaits) {
  CommWorld world(Wire::kTcp, 2);
  const auto comm = world.make(0);
  Ops ops(std::chrono::seconds{20});
  auto waiting = std::async(std::launch::async, [&] { all_reduce(*comm, ops, 100); });
  std::this_thread::sleep_for(milliseconds{100});
  const Stopwatch watch;
  comm->abort();
  EXPECT_THROW(waiting.get(), PeerError);
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{4}));
}

TEST(TcpFailureTest, AFailureFromOutsideReachesThePeersWithItsTypeAndText) {
  CommWorld world(Wire::kTcp, 2);
  std::vector<std::unique_ptr<P2pComm>> comms;
  std::vector<std::unique_ptr<Ops>> ops;
  for (int rank = 0; rank < 2; ++rank) {
    comms.push_back(world.make(rank));
    ops.push_back(std::make_unique<Ops>(std::chrono::seconds{20}));
  }
  const Stopwatch watch;
  const auto errors = run_ranks_catching(2, [&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    comms[i]->barrier(ops[i]->next(OpKind::kBarrier, 0));
    if (rank == 1) {
      ops[1]->failure().fail(
          std::make_exception_ptr(PeerError("rank 9 was killed by signal 9", 9)));
    }
    all_reduce(*comms[i], *ops[i], 3'000'000);
  });
  EXPECT_LT(watch.elapsed(), patient(std::chrono::seconds{4}));
  for (const auto& error : errors) {
    EXPECT_TRUE(is_a<PeerError>(error)) << what(error);
    EXPECT_EQ(what(error), "rank 9 was killed by signal 9");
  }
}

TEST(TcpFailureTest, ARankThatComesLaterLearnsWhyTheGroupIsDead) {
  CommWorld world(Wire::kTcp, 3);
  std::vector<std::unique_ptr<P2pComm>> comms;
  for (int rank = 0; rank < 3; ++rank) comms.push_back(world.make(rank));
  const auto errors = run_ranks_catching(3, [&](int rank) {
    Ops ops(std::chrono::seconds{20});
    if (rank == 2) std::this_thread::sleep_for(milliseconds{400});
    all_reduce(*comms[static_cast<std::size_t>(rank)], ops,
               100 + static_cast<std::size_t>(rank == 1));
  });
  for (const auto& error : errors) EXPECT_TRUE(is_a<MismatchError>(error)) << what(error);
}

TEST(TcpFailureTest, ADroppedRequestEndsTheCommOnBothSides) {
  CommWorld world(Wire::kTcp, 2);
  std::vector<std::unique_ptr<P2pComm>> comms;
  for (int rank = 0; rank < 2; ++rank) comms.push_back(world.make(rank));
  const auto errors = run_ranks_catching(2, [&](int rank) {
    P2pComm& comm = *comms[static_cast<std::size_t>(rank)];
    Ops ops(std::chrono::seconds{20});
    comm.barrier(ops.next(OpKind::kBarrier, 0));
    std::vector<float> data(4'000'000, 1.0F);
    {
      const auto request =
          comm.start_all_reduce(reinterpret_cast<std::byte*>(data.data()), data.size(), {},
                                ops.next(OpKind::kAllReduce, data.size(), DataType::kFloat32));
      if (rank == 0) request->wait();
    }
    comm.barrier(ops.next(OpKind::kBarrier, 0));
  });
  for (const auto& error : errors) EXPECT_TRUE(is_a<PeerError>(error)) << what(error);
}

TEST(TcpFailureTest, WaitsWhereTheKernelOrAFilterRefusesTheFinerClock) {
  for (const int code : {0, ENOSYS, EPERM}) {
    CommWorld world(Wire::kTcp, 2);
    const auto transport = world.make_transport(0);
    refusal = code;
    std::atomic<bool> is_interrupted{false};
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds{50});
      is_interrupted = true;
      transport->interrupt();
    });
    transport->wait(std::chrono::minutes{1});
    EXPECT_TRUE(is_interrupted) << code;
    other.join();
    refusal = 0;
  }
}

}  // namespace
}  // namespace chainmail::ops
