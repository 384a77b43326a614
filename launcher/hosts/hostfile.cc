// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/hostfile.h"

#include <algorithm>
#include <array>

namespace chainmail::launch {
namespace {

// Comments become blanks, so that lines and columns stay.
std::string without_comments(std::string_view text, const std::string& where) {
  std::string out(text);
  std::size_t line = 1;
  std::size_t line_begin = 0;
  const auto blank = [&](std::size_t at) {
    if (out[at] != '\n') out[at] = ' ';
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      line_begin = i + 1;
    } else if (text[i] == '#' || text.substr(i, 2) == "//") {
      for (; i < text.size() && text[i] != '\n'; ++i) blank(i);
      --i;
    } else if (text.substr(i, 2) == "/*") {
      const std::size_t end = text.find("*/", i + 2);
      if (end == std::string_view::npos) {
        Cursor{where, line}.refuse(i - line_begin + 1, "'/*' begins a comment that no '*/' ends");
      }
      for (const std::size_t after = end + 2; i < after; ++i) {
        if (text[i] == '\n') {
          ++line;
          line_begin = i + 1;
        }
        blank(i);
      }
      --i;
    }
  }
  return out;
}

void parse_count(const Cursor& cursor, const Token& count, Host& host) {
  host.has_slots = true;
  if (count.text == "*") {
    host.all_cores = true;
  } else {
    host.slots = parse_slots(cursor, count, "number of slots");
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
    cursor.refuse(token.column + 1, in_quotes(inside) +
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
  parse_count(cursor, {rest.substr(1), token.column + close + 2}, host);
}

// "name", "name:4", "name:*", or a bare IPv6 address that cannot be read as address and count.
void parse_plain(const Cursor& cursor, const Token& token, Host& host) {
  const std::size_t colon = token.text.rfind(':');
  if (std::count(token.text.begin(), token.text.end(), ':') > 1) {
    if (!is_ipv6(token.text)) {
      cursor.refuse(token.column, in_quotes(token.text) +
                                      " is neither host:slots nor an IPv6 "
                                      "address; write [address]:slots");
    }
    if (is_ipv6(token.text.substr(0, colon))) {
      cursor.refuse(token.column, in_quotes(token.text) +
                                      " can mean one address, or an address and "
                                      "its slots; write [address] or "
                                      "[address]:slots");
    }
    host.name = std::string(token.text);
    return;
  }
  if (colon != std::string_view::npos) {
    parse_count(cursor, {token.text.substr(colon + 1), token.column + colon + 1}, host);
  }
  const Token name{token.text.substr(0, colon), token.column};
  check_name(cursor, name, "host name");
  host.name = std::string(name.text);
}

Host parse_host(const Cursor& cursor, Token token) {
  if (token.text.front() == '^') {
    cursor.refuse(token.column, in_quotes(token.text) +
                                    ": exclusion by '^' is not supported in lists of hosts; name "
                                    "the hosts to use, and the others by --exclude");
  }
  if (token.text.front() == '+') {
    cursor.refuse(token.column,
                  in_quotes(token.text) +
                      ": relative hosts ('+n0', '+e') are not supported, because their meaning "
                      "changes with the order of the allocation; name the hosts to use");
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
  for (const Token& piece : blank_separated(line)) {
    for (std::size_t i = 0; i < piece.text.size(); ++i) {
      const char c = piece.text[i];
      if (c < ' ' || c >= 0x7f) {
        cursor.refuse(piece.column + i, "byte " + std::to_string(static_cast<unsigned char>(c)) +
                                            " cannot stand in a hostfile; use plain ASCII text");
      }
      const bool continues = i > 0 && c != '=' && piece.text[i - 1] != '=';
      if (continues) {
        words.back().text = {words.back().text.data(), words.back().text.size() + 1};
      } else {
        words.push_back({piece.text.substr(i, 1), piece.column + i});
      }
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
  constexpr std::array<std::string_view, 12> kMaxSlots = {
      "max_slots", "max-slots", "slots_max", "slots-max", "cpu_max",   "cpu-max",
      "max_cpu",   "max-cpu",   "count_max", "count-max", "max_count", "max-count"};
  // Open MPI's description of a host's inside; here each agent looks for itself.
  constexpr std::array<std::string_view, 5> kInside = {"sockets", "sockets_per_board", "cores",
                                                       "cores_per_socket", "boards"};
  const auto once = [&](bool is_given) {
    if (is_given) cursor.refuse(key.column, in_quotes(key.text) + " is given twice for this host");
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
  } else if (is_one_of(key.text, kInside)) {
    (void)parse_number(cursor, value, std::string(key.text), 1, 65536, "");
  } else if (key.text == "binding") {
    cursor.refuse(key.column,
                  "'binding=' of a single host is not supported; --bind-to says it for all hosts");
  } else {
    cursor.refuse(key.column, "unknown word " + in_quotes(key.text) +
                                  "; known are slots=, max_slots=, port= and user=");
  }
}

void refuse_other_formats(const Cursor& cursor, const std::vector<Token>& words) {
  const Token& first = words.front();
  if (first.text == "=") cursor.refuse(first.column, "no host name before '='");
  if (first.text.find(',') != std::string_view::npos) {
    cursor.refuse(first.column,
                  "a hostfile has one host per line; give a list by commas "
                  "to -H instead");
  }
  if (first.text == "rank" && words.size() > 2 && words[2].text == "=") {
    cursor.refuse(first.column,
                  "this is a line of Open MPI's rankfile, which is not supported; write a line "
                  "such as 'node01 slots=2' per host, ranks fill them in this order");
  }
}

void parse_line(const Cursor& cursor, std::string_view line, const HostfileRules& rules,
                HostCollector& hosts) {
  const std::vector<Token> words = words_of(cursor, line);
  if (words.empty()) return;
  refuse_other_formats(cursor, words);
  Host host = parse_host(cursor, words.front());
  for (std::size_t i = 1; i < words.size(); i += 3) {
    const Token& key = words[i];
    if (i + 1 >= words.size() || words[i + 1].text != "=") {
      cursor.refuse(key.column, in_quotes(key.text) +
                                    " is not understood; write name=value after "
                                    "the host, one host per line");
    }
    if (i + 2 >= words.size() || words[i + 2].text == "=") {
      cursor.refuse(words[i + 1].column, "no value after " + in_quotes(key.text) + " '='");
    }
    parse_key(cursor, key, words[i + 2], host);
  }
  if (rules.needs_numbers && host.all_cores) {
    cursor.refuse(words.front().column, why_it_needs_a_number(host));
  }
  hosts.add(cursor, words.front().column, std::move(host));
}

}  // namespace

std::string why_it_needs_a_number(const Host& host) {
  return "host " + host.name + " has '*' slots; an elastic job needs a number, as in " + host.name +
         " slots=4";
}

std::vector<Host> parse_hostfile(std::string_view text, const std::string& where,
                                 const HostfileRules& rules) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.substr(0, 3) == kByteOrderMark) text.remove_prefix(3);
  const std::string plain = without_comments(text, where);
  HostCollector hosts(rules.refuses_repeats);
  const std::size_t lines = for_each_line(
      plain, where,
      [&](const Cursor& cursor, std::string_view line) { parse_line(cursor, line, rules, hosts); });
  if (hosts.empty()) {
    Cursor{where, std::max<std::size_t>(lines, 1)}.refuse(
        1, "no host in it; write lines such as 'node1 slots=4'");
  }
  return hosts.take();
}

std::vector<Host> parse_host_list(std::string_view text, const std::string& where) {
  HostCollector hosts;
  const Cursor cursor{where, 1};
  for (const Token& token : separated_by(',', text)) {
    if (token.text.empty()) {
      cursor.refuse(token.column, "empty host name; separate hosts by single commas");
    }
    hosts.add(cursor, token.column, parse_host(cursor, token));
  }
  return hosts.take();
}

}  // namespace chainmail::launch
