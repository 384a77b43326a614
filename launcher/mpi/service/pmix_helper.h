// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The agent's hand on chainmail-pmix: started when the first rank calls, killed with the job.
//
// One thread, the io_context's; start() only from the main thread (fork_exec.h).

#pragma once

#include <signal.h>
#include <sys/types.h>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/job/job_protocol.h"
#include "base/unique_fd.h"
#include "launcher/channel/byte_stream.h"
#include "launcher/files/trusted_path.h"
#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

inline constexpr const char* kPmixHelperName = "chainmail-pmix";

/// Beside the launcher's own executable; both texts are empty where it is not installed, and where
/// the executable was sent here: its folder is gone, and anybody could have made it anew.
[[nodiscard]] TrustedPath find_pmix_helper();

class PmixHelper {
 public:
  struct Callbacks {
    std::function<void(MpiMessage)> on_message;
    /// Once: it ended by itself. `words` are the last that it wrote to stderr.
    std::function<void(const std::string& words)> on_lost;
  };

  /// Starts `program`. Throws SystemError.
  PmixHelper(asio::io_context& io, const std::string& program, Callbacks callbacks);
  ~PmixHelper();
  PmixHelper(const PmixHelper&) = delete;
  PmixHelper& operator=(const PmixHelper&) = delete;

  void send(const MpiMessage& message);
  /// Hands a rank's connection over.
  void pass(internal::UniqueFd connection);
  /// Handles what it has said already.
  void drain();
  /// For who reaps this process's children: takes down how the helper ended; false: another one.
  bool on_child_end(const siginfo_t& info);

 private:
  void receive(std::span<const std::byte> bytes);
  void lose(const std::string& cause);  // empty: it has ended
  void pass_waiting();
  void look_at_end();

  Callbacks callbacks_;
  pid_t pid_ = -1;
  internal::UniqueFd process_;  // a pidfd: the number may be somebody else's by now
  std::string end_;             // how it ended, once that is known
  std::shared_ptr<ByteStream> control_;
  std::shared_ptr<ByteStream> errors_;
  asio::posix::stream_descriptor handoff_;
  asio::steady_timer pause_;
  std::deque<internal::UniqueFd> waiting_;
  internal::FrameReader frames_;
  MpiPieces pieces_;
  std::string words_;
  bool is_lost_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace chainmail::launch
