// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the carrier needs of MPI, without a type of MPI's: libchainmail_mpi.so implements it, and
// tests put threads in MPI's place.
//
// Thread rule: any thread. Nothing here blocks or throws.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace chainmail::ops {

inline constexpr int kMpiAnySource = -1;

/// 0 for success, MPI's own code, or one of these.
using MpiCode = int;
inline constexpr MpiCode kMpiSuccess = 0;
inline constexpr MpiCode kMpiClosed = -1;  ///< MPI_Finalize has begun

/// A send or receive under way. Its buffer stays where it is until test() says that it is done.
struct MpiRequest {
  std::uintptr_t handle = 0;
};

/// A message that has come; only the receive it is given to can take it now.
struct MpiArrival {
  int source = 0;
  int bytes = 0;
  std::uintptr_t message = 0;
};

class MpiApi {
 public:
  virtual ~MpiApi() = default;
  /// This process in MPI_COMM_WORLD; messages go over a communicator of our own with its numbers.
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual int max_tag() const noexcept = 0;

  virtual MpiCode send(const std::byte* data, int bytes, int peer, int tag,
                       MpiRequest& request) noexcept = 0;
  /// Looks for the next message of `source` with this tag.
  virtual MpiCode probe(int source, int tag, bool& is_found, MpiArrival& arrival) noexcept = 0;
  virtual MpiCode receive(std::byte* data, const MpiArrival& arrival,
                          MpiRequest& request) noexcept = 0;
  virtual MpiCode test(MpiRequest& request, bool& is_done) noexcept = 0;
  virtual std::string describe(MpiCode code) const = 0;

  /// Some process may never reach MPI_Finalize: this one will not wait for it long when it ends.
  virtual void distrust_peers() noexcept = 0;
};

/// What libchainmail_mpi.so gives: MPI of this process, before and after its start.
class MpiLibrary {
 public:
  virtual ~MpiLibrary() = default;
  /// Why MPI cannot carry this process's data; empty when it can. Starts nothing.
  virtual std::string refusal() = 0;
  /// Calls MPI_Init_thread unless the program has, which blocks until all processes of
  /// MPI_COMM_WORLD do. Returns what is wrong, empty for nothing.
  virtual std::string start() = 0;
  /// True once all processes of MPI_COMM_WORLD have called start(): then api() can be used.
  virtual bool is_ready() = 0;
  virtual MpiApi& api() = 0;
};

/// `chainmail_mpi_library(kMpiLibraryVersion)` is the library's one function: null when it was
/// built for another version of this header.
using MpiLibraryFunction = MpiLibrary* (*)(std::uint32_t version);
inline constexpr std::uint32_t kMpiLibraryVersion = 1;
inline constexpr char kMpiLibraryFunction[] = "chainmail_mpi_library";

}  // namespace chainmail::ops
