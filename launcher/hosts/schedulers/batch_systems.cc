// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Grid Engine, PBS and LSF: hosts in lines and words, each with its slots.

#include <algorithm>

#include "launcher/hosts/host_text.h"
#include "launcher/hosts/schedulers/schedulers.h"

namespace chainmail::launch {
namespace {

Host host_with(const Cursor& cursor, const Token& name, int slots) {
  Host host = named_host(cursor, name);
  host.slots = slots;
  host.has_slots = true;
  return host;
}

std::vector<Host> at_least_one(HostCollector& hosts, const std::string& where, std::size_t lines) {
  if (hosts.empty()) Cursor{where, std::max<std::size_t>(lines, 1)}.refuse(1, "no host in it");
  return hosts.take();
}

}  // namespace

std::vector<Host> parse_pe_hostfile(std::string_view text, const std::string& where) {
  HostCollector hosts;
  const std::size_t lines =
      for_each_line(text, where, [&](const Cursor& cursor, std::string_view line) {
        const std::vector<Token> words = blank_separated(line);
        if (words.empty()) return;
        if (words.size() < 2) {
          cursor.refuse(words[0].column, "no number of slots after " + in_quotes(words[0].text) +
                                             "; Grid Engine writes: host slots queue processors");
        }
        // Queue and processors may be absent, and the latter is for Grid Engine's own binding.
        if (words.size() > 4) {
          cursor.refuse(words[4].column, in_quotes(words[4].text) +
                                             " is one word too many; Grid Engine writes: host "
                                             "slots queue processors");
        }
        const int slots = parse_slots(cursor, words[1], "number of slots");
        hosts.add(cursor, words[0].column, host_with(cursor, words[0], slots));
      });
  return at_least_one(hosts, where, lines);
}

std::vector<Host> parse_pbs_nodefile(std::string_view text, const std::string& where,
                                     int slots_per_line) {
  HostCollector hosts;
  const std::size_t lines =
      for_each_line(text, where, [&](const Cursor& cursor, std::string_view line) {
        const std::vector<Token> words = blank_separated(line);
        if (words.empty()) return;
        if (words.size() > 1) {
          cursor.refuse(words[1].column,
                        in_quotes(words[1].text) +
                            " after the host's name; PBS writes one name per line, once per slot");
        }
        hosts.add(cursor, words[0].column, host_with(cursor, words[0], slots_per_line));
      });
  return at_least_one(hosts, where, lines);
}

std::vector<Host> parse_lsf_counts(std::string_view text, const std::string& where) {
  const Cursor cursor{where, 1};
  const std::vector<Token> words = blank_separated(text);
  HostCollector hosts;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    if (i + 1 == words.size()) {
      cursor.refuse(words[i].column, "no number of slots after " + in_quotes(words[i].text) +
                                         "; LSF writes: hostA 5 hostB 2");
    }
    const int slots = parse_slots(cursor, words[i + 1], "number of slots");
    hosts.add(cursor, words[i].column, host_with(cursor, words[i], slots));
  }
  return at_least_one(hosts, where, 1);
}

std::vector<Host> parse_lsf_names(std::string_view text, const std::string& where) {
  HostCollector hosts;
  const std::size_t lines =
      for_each_line(text, where, [&](const Cursor& cursor, std::string_view line) {
        for (const Token& word : blank_separated(line)) {
          hosts.add(cursor, word.column, host_with(cursor, word, 1));
        }
      });
  return at_least_one(hosts, where, lines);
}

}  // namespace chainmail::launch
