// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Errors as text, so that a rank can tell the others why their group is dead.
//
// Pure functions over text.

#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace chainmail::ops {

/// Type, message and ranks of any exception.
[[nodiscard]] std::string encode_error(const std::exception_ptr& error);

/// The same error again, as the type it was; a PeerError that quotes the text when it is not one of
/// encode_error().
[[nodiscard]] std::exception_ptr decode_error(std::string_view text);

/// what() of any exception.
[[nodiscard]] std::string message_of(const std::exception_ptr& error);

/// What an operation ends with when its group has failed with `error`: a PeerError that comes from
/// outside, from the launcher perhaps, and knows of no operation, gets `title` ("all_reduce #5 on
/// rank 0 (n1)") in front; any other error stays as it is.
[[nodiscard]] std::exception_ptr in_operation(const std::string& title,
                                              const std::exception_ptr& error);

}  // namespace chainmail::ops
