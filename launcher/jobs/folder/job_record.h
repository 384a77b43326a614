// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What state.json says of a job, and its JSON. Values, pure functions; thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace chainmail::launch {

enum class JobPhase {
  kQueued,     ///< waits for hosts
  kPreparing,  ///< agents start, hosts are prepared
  kRunning,    ///< ranks have started
  kRetrying,   ///< between two attempts
  kStopping,   ///< somebody has asked for its end
  kSucceeded,
  kFailed,
  kStopped,
  kLost,  ///< its supervisor is gone: never written, found by who reads
};
/// "queued", "preparing", ...
[[nodiscard]] std::string_view to_string(JobPhase phase);
/// kLost as well.
[[nodiscard]] bool is_ended(JobPhase phase) noexcept;

/// What is random in an id: letters and digits that nobody takes for another.
inline constexpr std::string_view kIdLetters = "abcdefghjkmnpqrstuvwxyz23456789";
inline constexpr std::size_t kRandomLetters = 6;

/// Letters, digits, '-', '_' and '.', 1 to 64 of them; neither '-' nor '.' is the first.
[[nodiscard]] bool is_job_name(std::string_view text) noexcept;
/// NAME-XXXXXX.
[[nodiscard]] bool is_job_id(std::string_view text) noexcept;
/// Of an id.
[[nodiscard]] std::string_view job_name_of(std::string_view id) noexcept;
/// 8-4-4-4-12 lower-case hexadecimal digits.
[[nodiscard]] bool is_uuid(std::string_view text) noexcept;

struct JobRecord {
  struct Launcher {
    std::string host;
    std::string boot_id;
    std::int64_t pid = 0;
    std::uint64_t start_time = 0;  ///< of the process, in ticks since the boot (/proc/PID/stat)
  };
  struct Host {
    std::string name;
    std::uint32_t slots = 0;
    std::string state;  ///< "used", "lost", "spare"
  };
  struct Output {
    std::string id;
    std::string path;  ///< absolute
  };

  std::string id;    ///< NAME-XXXXXX
  std::string uuid;  ///< 8-4-4-4-12
  std::string name;
  JobPhase phase = JobPhase::kQueued;
  std::string reason;            ///< of the phase, a sentence; may be empty
  std::optional<int> exit_code;  ///< once it has ended
  std::uint32_t attempt = 0;     ///< 1 for the first
  std::uint32_t losses = 0;
  std::uint32_t failures = 0;
  std::int64_t created_ms = 0;  ///< UTC, milliseconds since 1970; 0: not yet
  std::int64_t started_ms = 0;  ///< when ranks of the first attempt had started
  std::int64_t ended_ms = 0;
  std::int64_t grace_ms = 0;  ///< what ranks get from SIGTERM to SIGKILL; 0: the launcher's default
  Launcher launcher;
  std::uint32_t ranks = 0;
  std::vector<Host> hosts;
  std::vector<Output> inputs;   ///< of which nothing is made, nor removed
  std::vector<Output> outputs;  ///< PREFIX/jobs/NAME/UUID/SUFFIX
  std::string stdouterr;        ///< the folder of stdout.txt and stderr.txt
  std::string image;            ///< of its container, with its digest where that is known
  std::string resize;           ///< hosts.resize of its file, words with blanks between them
  std::vector<std::string> warnings;
};

/// One object, indented, with a line's end. ASCII alone: names cannot command a terminal.
[[nodiscard]] std::string json_of(const JobRecord& record);
/// Unknown keys are ignored, and what is missing has its default, but for the version, the id and
/// the state. Throws SystemError(EPROTO) that says what is wrong with it.
[[nodiscard]] JobRecord record_of(std::string_view json);

}  // namespace chainmail::launch
