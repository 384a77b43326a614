// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/hostfile.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace chainmail::launch {
namespace {

// The place that a message points at.
struct Cursor {
  const std::string& where;
  std::size_t line;

  [[noreturn]] void refuse(std::size_t column, const std::string& reason) const {
    throw HostfileError(where, line, column, reason);
  }
};

// A piece of a line and its column, counted from 1.
struct Token {
  std::string_view text;
  std::size_t column;
};

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

bool is_ipv6(std::string_view text) {
  std::array<unsigned char, 16> address{};
  return inet_pton(AF_INET6, std::string(text).c_str(), address.data()) == 1;
}

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 60)) {
    // A terminal must not obey what stands in a file.
    out += (c >= ' ' && c < 0x7f) ? c : '?';
  }
  return out + (text.size() > 60 ? "...'" : "'");
}

int parse_number(const Cursor& cursor, const Token& token, const std::string& what, int lowest,
                 int highest, const std::string& advice) {
  int value = 0;
  const char* end = token.text.data() + token.text.size();
  const auto [stop, error] = std::from_chars(token.text.data(), end, value);
  if (token.text.empty() || stop != end || error == std::errc::invalid_argument) {
    cursor.refuse(token.column, what + " must be a whole number, not " + quoted(token.text));
  }
  if (error != std::errc() || value < lowest || value > highest) {
    cursor.refuse(token.column, what + " is " + quoted(token.text) + ", allowed are " +
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
    cursor.refuse(token.column, std::string(what) + " " + quoted(token.text) +
                                    " begins with '-': the remote shell would take it for an "
                                    "option");
  }
  for (std::size_t i = 0; i < token.text.size(); ++i) {
    const char c = token.text[i];
    if (is_letter_or_digit(c) || c == '.' || c == '_' || c == '-') continue;
    cursor.refuse(token.column + i, quoted(token.text.substr(i, 1)) + " cannot stand in a " + what +
                                        "; letters, digits, '.', '_' and '-' can");
  }
}

// "[fd00::5]" or "[fd00::5]:2"; the name is kept without brackets, as ssh wants it.
void parse_bracketed(const Cursor& cursor, const Token& token, Host& host) {
  const std::size_t close = token.text.find(']');
  if (close == std::string_view::npos) cursor.refuse(token.column, "'[' without ']'");
  const std::string_view inside = token.text.substr(1, close - 1);
  // A link-local address needs its interface: fe80::1%eth0.
  const std::size_t percent = inside.find('%');
  if (!is_ipv6(inside.substr(0, percent))) {
    cursor.refuse(token.column + 1, quoted(inside) +
                                        " is not an IPv6 address; brackets are for "
                                        "IPv6 only");
  }
  if (percent != std::string_view::npos) {
    check_name(cursor, {inside.substr(percent + 1), token.column + percent + 2}, "interface");
  }
  host.name = std::string(inside);
  const std::string_view rest = token.text.substr(close + 1);
  if (rest.empty()) return;
  if (rest.front() != ':') {
    cursor.refuse(token.column + close + 1, "after ']' only ':' and a number of slots can stand");
  }
  host.slots = parse_slots(cursor, {rest.substr(1), token.column + close + 2}, "number of slots");
  host.has_slots = true;
}

// "name", "name:4", or a bare IPv6 address that cannot be read as address and count.
void parse_plain(const Cursor& cursor, const Token& token, Host& host) {
  const std::size_t colon = token.text.rfind(':');
  if (std::count(token.text.begin(), token.text.end(), ':') > 1) {
    if (!is_ipv6(token.text)) {
      cursor.refuse(token.column, quoted(token.text) +
                                      " is neither host:slots nor an IPv6 "
                                      "address; write [address]:slots");
    }
    if (is_ipv6(token.text.substr(0, colon))) {
      cursor.refuse(token.column, quoted(token.text) +
                                      " can mean one address, or an address and "
                                      "its slots; write [address] or "
                                      "[address]:slots");
    }
    host.name = std::string(token.text);
    return;
  }
  if (colon != std::string_view::npos) {
    const Token count{token.text.substr(colon + 1), token.column + colon + 1};
    if (count.text == "*") {
      cursor.refuse(count.column, "':*' (all cores of a host) is not supported; give a number");
    }
    host.slots = parse_slots(cursor, count, "number of slots");
    host.has_slots = true;
  }
  const Token name{token.text.substr(0, colon), token.column};
  check_name(cursor, name, "host name");
  host.name = std::string(name.text);
}

Host parse_host(const Cursor& cursor, Token token) {
  if (token.text.front() == '^' || token.text.front() == '+') {
    cursor.refuse(token.column, quoted(token.text) +
                                    ": excluded and relative hosts ('^', '+n') "
                                    "are not supported; list the hosts to use");
  }
  if (token.text.substr(0, 2) == "/*") {
    cursor.refuse(token.column, "comments by '/*' are not supported; use '#'");
  }
  Host host;
  const std::size_t at = token.text.find('@');
  if (at != std::string_view::npos) {
    const Token user{token.text.substr(0, at), token.column};
    check_name(cursor, user, "user name");
    host.user = std::string(user.text);
    token = {token.text.substr(at + 1), token.column + at + 1};
    if (token.text.empty()) cursor.refuse(token.column, "no host name after '@'");
  }
  if (token.text.front() == '[') {
    parse_bracketed(cursor, token, host);
  } else {
    parse_plain(cursor, token, host);
  }
  return host;
}

// Words of a line, with '=' as a word of its own so that "slots = 4" reads like "slots=4".
std::vector<Token> words_of(const Cursor& cursor, std::string_view line) {
  std::vector<Token> words;
  std::size_t i = 0;
  while (i < line.size()) {
    const char c = line[i];
    if (is_blank(c)) {
      ++i;
    } else if (c == '#' || line.substr(i, 2) == "//") {
      break;
    } else if (c == '=') {
      words.push_back({line.substr(i, 1), i + 1});
      ++i;
    } else {
      const std::size_t begin = i;
      while (i < line.size() && !is_blank(line[i]) && line[i] != '=' && line[i] != '#' &&
             line.substr(i, 2) != "//") {
        if (line[i] < ' ' || line[i] >= 0x7f) {
          cursor.refuse(i + 1, "byte " + std::to_string(static_cast<unsigned char>(line[i])) +
                                   " cannot stand in a hostfile; use plain ASCII text");
        }
        ++i;
      }
      words.push_back({line.substr(begin, i - begin), begin + 1});
    }
  }
  return words;
}

template <std::size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

void parse_key(const Cursor& cursor, const Token& key, const Token& value, Host& host) {
  constexpr std::array<std::string_view, 4> kSlots = {"slots", "cpu", "count", "gpus"};
  constexpr std::array<std::string_view, 8> kMaxSlots = {"max_slots", "max-slots", "slots_max",
                                                         "slots-max", "cpu_max",   "cpu-max",
                                                         "count_max", "count-max"};
  const auto once = [&](bool is_given) {
    if (is_given) cursor.refuse(key.column, quoted(key.text) + " is given twice for this host");
  };
  if (is_one_of(key.text, kSlots)) {
    once(host.has_slots);
    host.slots = parse_slots(cursor, value, std::string(key.text));
    host.has_slots = true;
  } else if (is_one_of(key.text, kMaxSlots)) {
    once(host.max_slots.has_value());
    host.max_slots = parse_slots(cursor, value, std::string(key.text));
  } else if (key.text == "port") {
    once(host.port.has_value());
    host.port = parse_number(cursor, value, "port", 1, 65535, "");
  } else if (key.text == "user" || key.text == "username") {
    once(!host.user.empty());
    check_name(cursor, value, "user name");
    host.user = std::string(value.text);
  } else {
    cursor.refuse(key.column, "unknown word " + quoted(key.text) +
                                  "; known are slots=, max_slots=, port= and user=");
  }
}

void check_max_slots(const Cursor& cursor, const Host& host) {
  if (host.max_slots && *host.max_slots < host.slots) {
    cursor.refuse(1, "host " + host.name + " has slots=" + std::to_string(host.slots) +
                         " but max_slots=" + std::to_string(*host.max_slots));
  }
}

void add_host(const Cursor& cursor, std::size_t column, Host host, std::vector<Host>& hosts) {
  const auto same = std::find_if(hosts.begin(), hosts.end(),
                                 [&](const Host& other) { return other.name == host.name; });
  if (same == hosts.end()) {
    hosts.push_back(std::move(host));
    return;
  }
  if (same->user != host.user || same->port != host.port) {
    cursor.refuse(column, "host " + host.name + " appears again with another user or port");
  }
  same->slots += host.slots;
  same->has_slots = true;
  if (same->slots > kMaxSlotsPerHost) {
    cursor.refuse(column, "host " + host.name + " has " + std::to_string(same->slots) +
                              " slots in all; at most " + std::to_string(kMaxSlotsPerHost) +
                              " are allowed");
  }
  if (host.max_slots) same->max_slots = same->max_slots.value_or(0) + *host.max_slots;
}

void parse_line(const Cursor& cursor, std::string_view line, std::vector<Host>& hosts) {
  const std::vector<Token> words = words_of(cursor, line);
  if (words.empty()) return;
  if (words.front().text == "=") cursor.refuse(words.front().column, "no host name before '='");
  if (words.front().text.find(',') != std::string_view::npos) {
    cursor.refuse(words.front().column,
                  "a hostfile has one host per line; give a list by commas "
                  "to -H instead");
  }
  Host host = parse_host(cursor, words.front());
  for (std::size_t i = 1; i < words.size(); i += 3) {
    const Token& key = words[i];
    if (i + 1 >= words.size() || words[i + 1].text != "=") {
      cursor.refuse(key.column, quoted(key.text) +
                                    " is not understood; write name=value after "
                                    "the host, one host per line");
    }
    if (i + 2 >= words.size() || words[i + 2].text == "=") {
      cursor.refuse(words[i + 1].column, "no value after " + quoted(key.text) + " '='");
    }
    parse_key(cursor, key, words[i + 2], host);
  }
  add_host(cursor, words.front().column, std::move(host), hosts);
}

}  // namespace

HostfileError::HostfileError(const std::string& where, std::size_t line, std::size_t column,
                             const std::string& reason)
    : std::runtime_error(where + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " +
                         reason),
      line_(line),
      column_(column) {}

std::vector<Host> parse_hostfile(std::string_view text, const std::string& where) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.substr(0, 3) == kByteOrderMark) text.remove_prefix(3);
  std::vector<Host> hosts;
  Cursor cursor{where, 0};
  while (!text.empty()) {
    ++cursor.line;
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    parse_line(cursor, line, hosts);
    // Sums over repeated lines grow only here, so the line at fault is this one.
    for (const Host& host : hosts) check_max_slots(cursor, host);
  }
  if (hosts.empty()) {
    Cursor{where, std::max<std::size_t>(cursor.line, 1)}.refuse(
        1, "no host in it; write lines such as 'node1 slots=4'");
  }
  return hosts;
}

std::vector<Host> parse_host_list(std::string_view text, const std::string& where) {
  std::vector<Host> hosts;
  const Cursor cursor{where, 1};
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const Token token{text.substr(begin, end - begin), begin + 1};
    if (token.text.empty()) {
      cursor.refuse(token.column, "empty host name; separate hosts by single commas");
    }
    add_host(cursor, token.column, parse_host(cursor, token), hosts);
    begin = end + 1;
  }
  return hosts;
}

}  // namespace chainmail::launch
