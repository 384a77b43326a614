// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a rank and its launcher say to each other over the inherited socket CHAINMAIL_JOB_FD, and
// agents relay. Frames: 16-byte head (length, version, type, generation), then the body.
//
// Pure functions over bytes: every length is checked before use, a frame is at most 1 MiB.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chainmail::internal {

inline constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 20;
inline constexpr std::uint16_t kJobProtocolVersion = 6;

enum class JobMessage : std::uint16_t {
  // rank -> launcher; each request has an id that the reply repeats
  kHello = 1,        ///< protocol version, pid, library version; answered by kWelcome
  kStoreSet,         ///< key, value; no reply
  kStoreGet,         ///< key; replied when the key exists
  kStoreTryGet,      ///< key; replied at once: exists flag, value
  kStoreAdd,         ///< key, amount; replied with the new number
  kStoreCompareSet,  ///< key, expected, desired; replied with the value afterwards
  kStoreAppend,      ///< key, value; no reply
  kStoreDelete,      ///< key; replied with a flag
  kStoreCount,       ///< replied with the number of keys
  kStep,  ///< world (0: the job is not elastic), steps of the training loop, operations begun,
          ///< microseconds that a shard takes (0: not known); no reply
  kGroupFailed,  ///< group name, error code, message, peer, ranks that are missing: relayed to all
                 ///< ranks as kNewsGroupFailed
  kFromMember,   ///< a MemberMessage (base/membership/wire.h); of elastic jobs, as kToMember
  kWill,         ///< to the agent, after kLauncherGone: a Will; and again when it is on disk
  kFixedSize,    ///< of an elastic job: this program's ranks keep their number, and have to be
                 ///< started anew
  // launcher -> rank
  kWelcome = 64,     ///< rank, size, node of every rank, host names, job id, job secret
  kReply,            ///< request id, status, value
  kNewsRankLost,     ///< rank, host, cause ("killed by signal 9", "host n2 lost", "stopped")
  kNewsGroupFailed,  ///< rank that announced, and what it has announced
  kNewsEnding,       ///< the job is being ended; reason
  kToMember,         ///< a LauncherWord
  // agent -> rank, of elastic jobs
  kLauncherGone,  ///< the job ends here, and why, unless the launcher has gone; answered by kWill,
                  ///< with what this rank could save
  kWriteWill,     ///< save it
};

struct Frame {
  JobMessage type = JobMessage::kHello;
  std::uint32_t generation = 0;
  std::string body;
};

/// Head and body, ready to be written. Throws InvalidArgument when the body is too long.
[[nodiscard]] std::string encode_frame(const Frame& frame);

/// Cuts frames out of a byte stream.
class FrameReader {
 public:
  /// Appends received bytes.
  void append(std::span<const std::byte> bytes);
  /// The next whole frame, or nothing yet. Throws SystemError(EPROTO) on a bad head.
  [[nodiscard]] std::optional<Frame> next();

 private:
  std::string buffer_;
  std::size_t start_ = 0;
};

/// Builds and reads bodies: little-endian integers and length-prefixed strings.
class BodyWriter {
 public:
  BodyWriter& u8(std::uint8_t value);
  BodyWriter& u32(std::uint32_t value);
  BodyWriter& u64(std::uint64_t value);
  BodyWriter& i64(std::int64_t value);
  /// Throws InvalidArgument for what does not fit into a frame.
  BodyWriter& text(std::string_view value);
  /// The same for bodies that travel in several frames; read by BodyReader::text().
  BodyWriter& long_text(std::string_view value);
  [[nodiscard]] std::string take() { return std::move(body_); }

 private:
  std::string body_;
};

/// Throws SystemError(EPROTO) when the body is shorter than what is asked for.
class BodyReader {
 public:
  explicit BodyReader(std::string_view body) : rest_(body) {}
  std::uint8_t u8();
  std::uint32_t u32();
  std::uint64_t u64();
  std::int64_t i64();
  std::string text();
  bool at_end() const noexcept { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// Where the launcher's store lists the ranks that have ended, however they did, in an elastic job
/// since the last two worlds; missing or empty while there are none. Asked for by those who wait,
/// since telling all of all would take a square of messages.
inline constexpr char kEndedRanksKey[] = "launcher/ended";
struct EndedRank {
  std::uint32_t rank = 0;
  std::string host;
  std::string cause;  ///< "exited with code 0"
  static void fields(auto& archive, auto& m) { archive(m.rank, m.host, m.cause); }
};
/// Several of these, one after the other, are the key's value.
[[nodiscard]] std::string encode_ended(const EndedRank& ended);
[[nodiscard]] std::vector<EndedRank> decode_ended(std::string_view value);

/// The body of kWelcome.
struct Welcome {
  std::uint32_t rank = 0;
  std::string job_id;
  std::string secret;                       ///< 32 random bytes, the same for all ranks
  std::vector<std::uint32_t> node_of_rank;  ///< in an elastic job any for members that are gone
  std::vector<std::string> addresses;       ///< of each node as the agent reports it, may be empty
  /// Of an elastic job: `rank` and the places in `node_of_rank` are member ids; which of them make
  /// up a world is told by kToMember.
  bool is_elastic = false;
  std::uint32_t grace_ms = 0;  ///< of an elastic job: --grace
};
/// Neighbours on one node, and nodes without an address, take no room of their own, since any
/// number of an elastic job's may be gone.
[[nodiscard]] std::string encode_welcome(const Welcome& welcome);
[[nodiscard]] Welcome decode_welcome(std::string_view body);

/// The body of kWill, always of the same length.
struct WillBody {
  bool has_state = false;
  std::uint64_t step = 0;  ///< committed
  bool is_saved = false;
  static void fields(auto& archive, auto& m) { archive(m.has_state, m.step, m.is_saved); }
};
[[nodiscard]] std::string encode_will(const WillBody& will);
[[nodiscard]] WillBody decode_will(std::string_view body);

}  // namespace chainmail::internal
