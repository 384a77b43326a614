// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/host_text.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace chainmail::launch {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

}  // namespace

HostfileError::HostfileError(const std::string& where, std::size_t line, std::size_t column,
                             const std::string& reason)
    : HostsError(where + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + reason),
      line_(line),
      column_(column) {}

void Cursor::refuse(std::size_t column, const std::string& reason) const {
  throw HostfileError(where, line, column, reason);
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) out += (c >= ' ' && c < 0x7f) ? c : '?';
  return out;
}

std::string in_quotes(std::string_view text) {
  return "'" + printable(text.substr(0, 60)) + (text.size() > 60 ? "...'" : "'");
}

int parse_number(const Cursor& cursor, const Token& token, const std::string& what, int lowest,
                 int highest, const std::string& advice) {
  int value = 0;
  const char* end = token.text.data() + token.text.size();
  const auto [stop, error] = std::from_chars(token.text.data(), end, value);
  if (token.text.empty() || stop != end || error == std::errc::invalid_argument) {
    cursor.refuse(token.column, what + " must be a whole number, not " + in_quotes(token.text));
  }
  if (error != std::errc() || value < lowest || value > highest) {
    cursor.refuse(token.column, what + " is " + in_quotes(token.text) + ", allowed are " +
                                    std::to_string(lowest) + " to " + std::to_string(highest) +
                                    advice);
  }
  return value;
}

int parse_slots(const Cursor& cursor, const Token& token, const std::string& what) {
  return parse_number(cursor, token, what, 1, kMaxSlotsPerHost,
                      "; an unused host is left out, a port of ssh is written port=n");
}

void check_name(const Cursor& cursor, const Token& token, const char* what) {
  if (token.text.empty()) cursor.refuse(token.column, std::string("empty ") + what);
  if (token.text.front() == '-') {
    cursor.refuse(token.column, std::string(what) + " " + in_quotes(token.text) +
                                    " begins with '-': the remote shell would take it for an "
                                    "option");
  }
  for (std::size_t i = 0; i < token.text.size(); ++i) {
    const char c = token.text[i];
    if (is_letter_or_digit(c) || c == '.' || c == '_' || c == '-') continue;
    cursor.refuse(token.column + i, in_quotes(token.text.substr(i, 1)) + " cannot stand in a " +
                                        what + "; letters, digits, '.', '_' and '-' can");
  }
}

Host named_host(const Cursor& cursor, const Token& name) {
  check_name(cursor, name, "host name");
  Host host;
  host.name = std::string(name.text);
  return host;
}

void check_hosts(const Cursor& cursor, std::size_t column, std::size_t count) {
  if (count > kMaxHosts) cursor.refuse(column, "more than " + std::to_string(kMaxHosts) + " hosts");
}

bool is_ipv6(std::string_view text) {
  // inet_pton reads up to a zero byte and would not see what stands behind it.
  if (text.find('\0') != std::string_view::npos) return false;
  std::array<unsigned char, 16> address{};
  return inet_pton(AF_INET6, std::string(text).c_str(), address.data()) == 1;
}

std::vector<Token> blank_separated(std::string_view line) {
  std::vector<Token> words;
  for (std::size_t i = 0; i < line.size();) {
    if (is_blank(line[i])) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < line.size() && !is_blank(line[i])) ++i;
    words.push_back({line.substr(begin, i - begin), begin + 1});
  }
  return words;
}

std::vector<Token> separated_by(char separator, std::string_view text) {
  std::vector<Token> pieces;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    pieces.push_back({text.substr(begin, end - begin), begin + 1});
    begin = end + 1;
  }
  return pieces;
}

void HostCollector::add(const Cursor& cursor, std::size_t column, Host host) {
  const auto [known, is_new] = index_.try_emplace(host.name, hosts_.size());
  if (is_new) {
    check_hosts(cursor, column, hosts_.size() + 1);
    hosts_.push_back(std::move(host));
  } else {
    add_again(cursor, column, host, hosts_[known->second]);
  }
  // Sums over repeated lines grow only here, so the line at fault is this one.
  const Host& sum = hosts_[known->second];
  if (sum.max_slots && *sum.max_slots < sum.slots) {
    cursor.refuse(column, "host " + sum.name + " has slots=" + std::to_string(sum.slots) +
                              " but max_slots=" + std::to_string(*sum.max_slots));
  }
}

void HostCollector::add_again(const Cursor& cursor, std::size_t column, const Host& host,
                              Host& same) const {
  if (refuses_repeats_) {
    cursor.refuse(
        column,
        "host " + host.name +
            " is named again, which --hostfile-strict forbids, and --elastic too; give it one line "
            "with all its slots");
  }
  if (same.user != host.user || same.port != host.port) {
    cursor.refuse(column, "host " + host.name + " appears again with another user or port");
  }
  if (same.all_cores || host.all_cores) {
    cursor.refuse(column, "host " + host.name +
                              " appears again, and once with ':*', which are all its cores "
                              "already; name it once");
  }
  same.slots += host.slots;
  same.has_slots = true;
  if (same.slots > kMaxSlotsPerHost) {
    cursor.refuse(column, "host " + host.name + " has " + std::to_string(same.slots) +
                              " slots in all; at most " + std::to_string(kMaxSlotsPerHost) +
                              " are allowed");
  }
  if (host.granted) same.granted = same.granted.value_or(0) + *host.granted;
  if (host.processors) same.processors = same.processors.value_or(0) + *host.processors;
  if (host.max_slots) same.max_slots = same.max_slots.value_or(0) + *host.max_slots;
}

}  // namespace chainmail::launch
