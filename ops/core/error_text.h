// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Errors as text, so that a rank can tell the others why their group is dead: in its last message,
// in shared memory, in the rendezvous.
//
// Pure functions over text.

#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace chainmail::ops {

inline constexpr std::size_t kMaxErrorBytes = std::size_t{16} << 10;

/// What is told of an exception.
struct ErrorParts {
  std::optional<ErrorCode> code;  ///< nothing where it is not one of ours
  std::string message;
  std::vector<int> numbers;  ///< missing ranks, or the peer, or errno
};
[[nodiscard]] ErrorParts describe_error(const std::exception_ptr& error);

/// Type, message and ranks of any exception, cut to `max_bytes`: of very many ranks the first.
[[nodiscard]] std::string encode_error(const std::exception_ptr& error,
                                       std::size_t max_bytes = kMaxErrorBytes);

enum class FailedWhere { kElsewhere, kThisNode };
/// The same error again: as the type it was when it is the group's; else a PeerError, since a
/// native failure elsewhere is, from here, a peer that failed. A SystemError of this node stays
/// one. Text that is not of encode_error() is quoted in a PeerError.
[[nodiscard]] std::exception_ptr decode_error(std::string_view text,
                                              FailedWhere where = FailedWhere::kElsewhere);

/// What an operation ends with when its group has failed with `error`: a PeerError that comes from
/// outside, from the launcher perhaps, and knows of no operation, gets `title` ("all_reduce #5 on
/// rank 0 (n1)") in front; any other error stays as it is.
[[nodiscard]] std::exception_ptr in_operation(const std::string& title,
                                              const std::exception_ptr& error);

}  // namespace chainmail::ops
