// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Ranks as threads for tests of Comms: starts them, joins them, hands on what they throw; and the
// Comms over all transports.

#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "ops/comm/comm.h"
#include "ops/comm/mpi/mpi_transport.h"
#include "ops/comm/p2p/p2p_comm.h"
#include "ops/comm/shm/messages/shm_transport.h"
#include "ops/comm/tcp/tcp_transport.h"
#include "ops/core/rendezvous.h"
#include "tests/ops/comm/parts_of.h"
#include "tests/ops/support/fake_mpi.h"
#include "tests/ops/support/thread_transport.h"

namespace chainmail::ops::testing {

using std::chrono::milliseconds;

/// Runs `body(rank)` on one thread per rank; what each threw, null for none.
inline std::vector<std::exception_ptr> run_ranks_catching(int size,
                                                          const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::string what(const std::exception_ptr& error) {
  if (error == nullptr) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

inline void run_ranks(int size, const std::function<void(int)>& body) {
  const auto errors = run_ranks_catching(size, body);
  for (int rank = 0; rank < size; ++rank) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    if (error) throw std::runtime_error("rank " + std::to_string(rank) + ": " + what(error));
  }
}

template <typename E>
bool is_a(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
  return false;
}

enum class Wire { kThread, kShm, kTcp, kAuthenticated, kEncrypted, kMpi };

/// The name of a test's parameter.
inline const char* to_string(Wire wire) {
  switch (wire) {
    case Wire::kThread:
      return "Thread";
    case Wire::kShm:
      return "Shm";
    case Wire::kTcp:
      return "Tcp";
    case Wire::kAuthenticated:
      return "Authenticated";
    case Wire::kEncrypted:
      return "Encrypted";
    case Wire::kMpi:
      return "Mpi";
  }
  return "";
}

/// What the ranks of one Comm under test share.
struct CommWorld {
  CommWorld(Wire wire_, int size_, const P2pOptions& options_ = {})
      : wire(wire_),
        size(size_),
        options(options_),
        hub(std::make_shared<ThreadHub>(size_)),
        mpi(std::make_shared<test::FakeMpi>(size_)) {
    tcp.group = "test";
    tcp.secret = "a secret of the job, 32 bytes lo";
    for (int rank = 0; rank < size; ++rank) {
      tcp.names.push_back({rank, "host" + std::to_string(rank)});
    }
    tcp.interface = "127.0.0.1";
  }

  std::unique_ptr<P2pComm> make(int rank) {
    return std::make_unique<P2pComm>(make_transport(rank), options);
  }

  std::unique_ptr<Transport> make_transport(int rank) {
    if (wire == Wire::kThread) return std::make_unique<ThreadTransport>(hub, rank);
    if (wire == Wire::kShm) {
      ShmTransportOptions own;
      own.rank = rank;
      own.names = tcp.names;
      own.key_prefix = "shm/";
      return std::make_unique<ShmTransport>(rendezvous, own);
    }
    if (wire == Wire::kMpi) {
      MpiOptions own;
      own.rank = rank;
      own.names = tcp.names;
      own.group = tcp.group;
      return std::make_unique<MpiTransport>(mpi->world(rank), rendezvous, own);
    }
    TcpOptions own = tcp;
    own.rank = rank;
    if (wire == Wire::kAuthenticated) own.encryption = Encryption::kAuthenticate;
    if (wire == Wire::kEncrypted) own.encryption = Encryption::kEncrypt;
    return std::make_unique<TcpTransport>(rendezvous, own);
  }

  Wire wire;
  int size;
  P2pOptions options;
  std::shared_ptr<ThreadHub> hub;
  std::shared_ptr<test::FakeMpi> mpi;
  std::shared_ptr<LocalRendezvous> rendezvous = std::make_shared<LocalRendezvous>();
  TcpOptions tcp;
};

/// Posts one message and moves the transport until it is done; as a group does, tells the peers of
/// an error.
template <typename T>
void complete(Transport& transport, T& transfer) {
  const auto deadline = internal::Deadline::after(std::chrono::seconds{10});
  try {
    transport.post(transfer);
    while (!transfer.is_done) {
      if (!transport.progress()) transport.wait(milliseconds{1});
      if (deadline.has_passed()) throw TimeoutError("nothing has come", {transfer.peer});
    }
  } catch (...) {
    transport.fail(std::current_exception());
    throw;
  }
}
inline void send(Transport& transport, const std::byte* data, std::size_t bytes, int peer,
                 std::uint32_t tag) {
  Send message;
  message.peer = peer;
  message.tag = Tag::point_to_point(tag);
  message.header.kind = OpKind::kSend;
  message.header.count = message.bytes = bytes;
  message.data = data;
  complete(transport, message);
}
inline void receive(Transport& transport, std::byte* data, std::size_t bytes, int peer,
                    std::uint32_t tag) {
  Receive message;
  message.peer = peer;
  message.tag = Tag::point_to_point(tag);
  message.header.kind = OpKind::kRecv;
  message.header.count = message.bytes = bytes;
  message.data = data;
  complete(transport, message);
}

/// Numbers the operations of one rank.
class Ops {
 public:
  explicit Ops(milliseconds timeout = milliseconds{60000}) : timeout_(timeout) {}
  OpContext next(OpKind kind, std::size_t count, DataType dtype = DataType::kUInt8,
                 ReduceOp op = ReduceOp::kSum) {
    OpContext context{{}, internal::Deadline::after(timeout_), &failure_, {}};
    context.header.kind = kind;
    context.header.sequence = sequence_++;
    context.header.count = count;
    context.header.dtype = dtype;
    context.header.reduce_op = op;
    return context;
  }
  FailureState& failure() { return failure_; }

 private:
  milliseconds timeout_;
  std::uint64_t sequence_ = 0;
  FailureState failure_;
};

}  // namespace chainmail::ops::testing
