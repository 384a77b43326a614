// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files that hosts get before ranks start: --preload, --preload-files, and what MPI needs where the
// launcher itself had to be sent.
//
// One thread, the io_context's.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/channel/wire.h"
#include "launcher/controller/state/agents.h"
#include "launcher/job/options.h"
#include "launcher/staging/preload_sender.h"

namespace chainmail::launch {

class FileStaging {
 public:
  struct Callbacks {
    /// Ranks need not wait any longer.
    std::function<void()> on_all_stored;
    std::function<void(const std::string& cause)> fail;
  };

  /// Throws UsageError for files that cannot be read: bad usage starts nothing. `programs`: of the
  /// job, as typed. `launcher_path`: what is sent for MPI lies beside it.
  FileStaging(const Options& options, const std::vector<OrderedProgram>& programs,
              std::string launcher_path, Agents& agents, Callbacks callbacks);

  /// Whether ranks have to wait for files, which are on their way from the first call on. All
  /// agents have said hello.
  bool sends_first();
  [[nodiscard]] bool has_begun() const noexcept { return has_sent_copies_; }
  /// The first rank there has called MPI_Init, and chainmail-pmix is not installed.
  void send_pmix_helper(std::uint32_t node);
  /// A kPreload frame. Throws SystemError(EPROTO).
  void on_frame(std::uint32_t node, const internal::Frame& frame);
  /// Ranks of that node run the copy and find the folder.
  void name_copies(std::uint32_t node, StartOrder& order) const;

 private:
  std::string launcher_path_;
  Callbacks callbacks_;
  PreloadSource source_;
  PreloadSender sender_;
  std::vector<std::size_t> copied_programs_;  // of each program, with --preload
  std::optional<std::size_t> helper_file_;    // MPI's, once a host has asked for it
  std::size_t nodes_;
  std::size_t hosts_without_copies_ = 0;
  bool has_sent_copies_ = false;
};

}  // namespace chainmail::launch
