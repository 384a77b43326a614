// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What controller and agent say to each other over the stdio of the remote shell: the frames of
// base/job/job_protocol.h with message types of their own. Structs here are encoded by
// encode_fields(). Pure functions over bytes.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/job/codec.h"
#include "base/job/job_protocol.h"
#include "launcher/job/options.h"

namespace chainmail::launch {

using internal::decode_fields;
using internal::encode_fields;

/// Of the messages here alone; with internal::kJobProtocolVersion it says which launchers and
/// agents understand each other.
inline constexpr std::uint16_t kAgentProtocolVersion = 1;

/// Types above every JobMessage, so that a frame on the wrong channel is noticed.
enum class AgentMessage : std::uint16_t {
  // agent -> controller
  kAgentHello = 256,  ///< AgentHello
  kRankStarted,       ///< rank, pid, processors ("0-3,8", empty: not bound)
  kStartFailed,       ///< rank, errno, "chdir", "exec", "late chdir", "late search", "late exec",
                      ///< "spawn", path; "host", the whole reason
  kRankExited,        ///< RankExit
  kRankStopped,       ///< rank, 1 stopped or 0 continued
  kOutput,            ///< rank, stream (1 or 2), whole lines
  kAllExited,         ///< every rank of this agent is gone
  kInputTaken,        ///< rank has taken the last kRankInput; 1 it may take more, 0 it never will
  kTunnelOutput,      ///< tunnel, stream (1 or 2), bytes; none: the end (launcher/tree)
  kTunnelEnded,       ///< TunnelEnd
  kTunnelNoImage,     ///< tunnel: this agent's program is not the one of kTunnelImage
  kSignalled,         ///< signal number, 1 its ranks have got it: somebody signals the job here
  kWillMade,          ///< WillEnd, the step that has been saved here
  // controller -> agent
  kStartPart = 320,  ///< a piece of the encoded StartOrder
  kStart,            ///< the order is complete; again when all ranks have exited
  kSignalRanks,      ///< signal number, to the process groups of all ranks
  kOutputTaken,      ///< rank, stream (1 or 2), bytes of kOutput that have been written
  kLeave,            ///< the agent sweeps up and ends
  kRankInput,        ///< rank, bytes for its stdin; none: the end
  kTunnelOpen,       ///< TunnelOrder: run a command and carry its bytes
  kTunnelInput,      ///< tunnel, bytes for the command; none: both its streams are closed
  kTunnelImage,      ///< tunnel, checksum: the agent's own program is what the command reads next
  kTunnelKill,       ///< tunnel: SIGKILL to the command's process group
  kPassSignal,    ///< signal number, to the main processes of all ranks; the terminal's WindowSize
  kLease,         ///< ms of silence after which the launcher counts as lost
  kTunnelUrgent,  ///< as kTunnelInput, ahead of what waits to be read by the command
  kTunnelShared,  ///< tunnel, number: the agent behind gets the text of that number, too
  kSharedPart,    ///< number, a piece of a text that many agents get; none: it is complete
  kSharedDrop,    ///< number: that text is not asked for any more
  kTable,         ///< number of the encoded JobTable
  kWelcomeRank,   ///< rank: it has said hello, and gets what the table says of the job
  kNews,          ///< JobMessage, rank that does not hear it (kNobody: none), body: to all others
  kSharedMpi,     ///< number of an encoded MpiMessage
  kEndRank,       ///< rank: SIGKILL to its process group; the others go on
  kMakeWill,      ///< ms, reason: ranks save what they have, the job ends; answered by kWillMade
  // both ways
  kHeartbeat = 384,
  kRankBytes,  ///< rank, bytes of its job socket
  kMpi,        ///< a piece of an MpiMessage (launcher/mpi/mpi_wire.h)
  kPreload,    ///< files for the host, and answers (launcher/staging/preload_wire.h)
};

/// What became of the last will of an agent's ranks.
enum class WillEnd : std::uint8_t {
  kNothing,  ///< no rank has had a state to save
  kSaved,
  kLate,    ///< a rank has had one, or has not answered, and the time was over
  kFailed,  ///< who was to save it has ended without, and no other could
};

[[nodiscard]] internal::Frame make_frame(AgentMessage type, std::string body);
[[nodiscard]] AgentMessage type_of(const internal::Frame& frame);

/// Begins every line that an agent prints to its standard error.
inline constexpr char kAgentSays[] = "agent: ";

/// What an agent says first.
struct AgentHello {
  std::string host;  ///< what gethostname says
  std::uint32_t pid = 0;
  std::uint32_t cores = 0;
  std::string addresses;  ///< of interfaces other than loopback, comma-separated, best first
  std::uint32_t free_port = 0;
  static void fields(auto& archive, auto& m) {
    archive(m.host, m.pid, m.cores, m.addresses, m.free_port);
  }
};
[[nodiscard]] AgentHello decode_hello(std::string_view body);

/// One of the programs that the ranks of a job run.
struct OrderedProgram {
  std::string working_directory;
  std::vector<std::string> words;
  std::map<std::string, std::string> variables;  ///< on top of the agent's own environment
  bool expands = false;  ///< words and working directory are patterns (launcher/job/expansion.h)
  std::map<std::string, std::string> patterns = {};  ///< variables whose values are
  static void fields(auto& archive, auto& m) {
    archive(m.working_directory, m.words, m.variables, m.expands, m.patterns);
  }
};

struct OrderedRank {
  std::uint32_t rank = 0;
  std::uint32_t program = 0;  ///< index into StartOrder::programs
  bool has_input = false;     ///< its stdin is kRankInput instead of empty
  std::uint32_t place = 0;    ///< of StartOrder::places
  static void fields(auto& archive, auto& m) { archive(m.rank, m.program, m.has_input, m.place); }
};

/// Of the launcher's terminal; nothing where it writes to none.
struct WindowSize {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  static void fields(auto& archive, auto& m) { archive(m.rows, m.columns); }
};
/// Of standard output.
[[nodiscard]] WindowSize own_window_size() noexcept;

/// What one agent shall start.
struct StartOrder {
  std::uint32_t generation = 0;
  std::uint32_t world_size = 0;
  std::uint32_t node_rank = 0;
  std::vector<OrderedRank> ranks;  ///< by local rank, unless they have places
  /// Of an elastic job: how many ranks share the cores here, some of which other agents may have;
  /// 0: those of this order.
  std::uint32_t places = 0;
  std::vector<OrderedProgram> programs;
  Binding binding;
  std::uint32_t start_timeout_ms = 0;  ///< from a rank's process to its program; 0: any time
  std::uint32_t processors = 0;        ///< that a scheduler gives the job here; 0: it says nothing
  std::uint32_t output_window = 0;     ///< bytes of one stream of one rank that may be on their way
  std::string mpi;                     ///< an encoded MpiOrder; empty: none
  bool carriage_returns = false;       ///< a terminal shows '\r' lines as they come
  WindowSize window;                   ///< of the terminals of ranks
  std::vector<std::uint32_t> ignored_signals;  ///< by the launcher's caller, so by ranks, too
  std::uint32_t will_ms =
      0;  ///< for ranks to save their state without a launcher; 0: they have none
  bool has_job_temp = false;    ///< CHAINMAIL_JOB_TEMP is a folder that lasts as long as the agent
  bool is_preparation = false;  ///< no ranks: signals that announce something are not for them
  static void fields(auto& archive, auto& m) {
    archive(m.generation, m.world_size, m.node_rank, m.ranks, m.places, m.programs, m.binding,
            m.start_timeout_ms, m.processors, m.output_window, m.carriage_returns, m.window, m.mpi,
            m.ignored_signals, m.will_ms, m.has_job_temp, m.is_preparation);
  }
};
[[nodiscard]] StartOrder decode_order(std::string_view body);

/// What is the same for all nodes; it travels once, before the first order (launcher/tree).
struct JobTable {
  internal::Welcome welcome;                ///< as of rank 0
  std::vector<std::string> mpi_node_names;  ///< of each node, or none
  static void fields(auto& archive, auto& m) { archive(m.welcome, m.mpi_node_names); }
};
[[nodiscard]] JobTable decode_table(std::string_view body);

/// In the place of a rank's number.
inline constexpr std::uint32_t kNobody = 0xffffffff;

/// How a rank ended.
struct RankExit {
  std::uint32_t rank = 0;
  bool by_signal = false;
  std::uint32_t value = 0;  ///< exit code or signal number
  bool out_of_memory = false;
  std::string detail = {};  ///< what is known of a SIGKILL that came from outside, for people
  static void fields(auto& archive, auto& m) {
    archive(m.rank, m.by_signal, m.value, m.out_of_memory, m.detail);
  }
};
[[nodiscard]] RankExit decode_exit(std::string_view body);

}  // namespace chainmail::launch
