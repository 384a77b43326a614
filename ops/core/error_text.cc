// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/core/error_text.h"

#include <algorithm>
#include <charconv>

namespace chainmail::ops {
namespace {

// "<type>\n<number>,<number>...\n<message>"; the numbers are missing ranks, the peer or errno.
struct Parts {
  std::string_view type;
  std::vector<int> numbers;
  std::string message;
};

std::optional<Parts> split(std::string_view text) {
  const std::size_t first = text.find('\n');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = text.find('\n', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  Parts parts;
  parts.type = text.substr(0, first);
  parts.message = text.substr(second + 1);
  std::string_view numbers = text.substr(first + 1, second - first - 1);
  while (!numbers.empty()) {
    int number = 0;
    const auto [end, error] =
        std::from_chars(numbers.data(), numbers.data() + numbers.size(), number);
    if (error != std::errc{} || end == numbers.data() + numbers.size() || *end != ',') {
      return std::nullopt;
    }
    parts.numbers.push_back(number);
    numbers.remove_prefix(static_cast<std::size_t>(end - numbers.data()) + 1);
  }
  return parts;
}

}  // namespace

ErrorParts describe_error(const std::exception_ptr& error) {
  if (!error) return {{}, "an unknown error", {}};
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError& e) {
    return {e.code(), e.what(), e.missing_ranks()};
  } catch (const PeerError& e) {
    return {e.code(), e.what(), {e.peer_rank()}};
  } catch (const SystemError& e) {
    return {e.code(), e.what(), {e.native_code()}};
  } catch (const Error& e) {
    return {e.code(), e.what(), {}};
  } catch (const std::exception& e) {
    return {{}, e.what(), {}};
  } catch (...) {
    return {{}, "an exception of unknown type", {}};
  }
}

// Half of the bytes are the message's: whoever reads it needs that more than the last ranks.
std::string encode_error(const std::exception_ptr& error, std::size_t max_bytes) {
  const ErrorParts parts = describe_error(error);
  std::string text = parts.code ? to_string(*parts.code) : "Error";
  text += '\n';
  for (const int number : parts.numbers) {
    const std::string next = std::to_string(number) + ',';
    if (text.size() + next.size() > max_bytes / 2) break;
    text += next;
  }
  text += '\n' + parts.message;
  text.resize(std::min(text.size(), max_bytes));
  return text;
}

std::exception_ptr decode_error(std::string_view text, FailedWhere where) {
  const std::optional<Parts> parts = split(text);
  if (!parts) {
    return std::make_exception_ptr(
        PeerError("another rank reported a failure: " + std::string(text.substr(0, 200))));
  }
  const std::string_view type = parts->type;
  const int number = parts->numbers.empty() ? -1 : parts->numbers.front();
  if (type == to_string(ErrorCode::kMismatch)) {
    return std::make_exception_ptr(MismatchError(parts->message));
  }
  if (type == to_string(ErrorCode::kTimeout)) {
    return std::make_exception_ptr(TimeoutError(parts->message, parts->numbers));
  }
  if (type == to_string(ErrorCode::kPeer)) {
    return std::make_exception_ptr(PeerError(parts->message, number));
  }
  if (where == FailedWhere::kThisNode && type == to_string(ErrorCode::kSystem)) {
    return std::make_exception_ptr(SystemError(parts->message, number));
  }
  return std::make_exception_ptr(PeerError("another rank failed: " + parts->message));
}

std::exception_ptr in_operation(const std::string& title, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerError& e) {
    // What a rank has found out itself begins with an operation's title: "send #2", "barrier #7".
    const std::string text = e.what();
    if (text.substr(0, text.find(' ') + 2).find('#') != std::string::npos) return error;
    return std::make_exception_ptr(PeerError(title + ": " + text, e.peer_rank()));
  } catch (...) {
    return error;
  }
}

}  // namespace chainmail::ops
