// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/host_filter.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "launcher/hosts/host_text.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/options.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

// "0,2" or "0-3,6".
std::vector<int> parse_slot_numbers(const Cursor& cursor, const Token& text) {
  std::vector<int> slots;
  for (Token piece : separated_by(',', text.text)) {
    piece.column += text.column - 1;
    const auto number = [&](const Token& token) {
      return parse_number(cursor, token, "slot", 0, kMaxSlotsPerHost - 1,
                          "; slots of a host count from 0");
    };
    const std::size_t dash = piece.text.find('-', 1);
    const int first = number({piece.text.substr(0, dash), piece.column});
    int last = first;
    if (dash != std::string_view::npos) {
      last = number({piece.text.substr(dash + 1), piece.column + dash + 1});
      if (last < first) cursor.refuse(piece.column, in_quotes(piece.text) + " runs backwards");
    }
    for (int slot = first; slot <= last; ++slot) slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end());
  const auto twice = std::adjacent_find(slots.begin(), slots.end());
  if (twice != slots.end()) {
    cursor.refuse(text.column, "slot " + std::to_string(*twice) + " is named twice");
  }
  return slots;
}

HostChoice parse_choice(const Cursor& cursor, const Token& token) {
  HostChoice choice;
  std::size_t colon = token.text.find(':');
  if (!token.text.empty() && token.text.front() == '[') {
    const std::size_t close = token.text.find(']');
    if (close == std::string_view::npos) cursor.refuse(token.column, "'[' without ']'");
    choice.name = std::string(token.text.substr(1, close - 1));
    if (!is_ipv6(choice.name.substr(0, choice.name.find('%')))) {
      cursor.refuse(token.column + 1, in_quotes(choice.name) + " is not an IPv6 address");
    }
    colon = close + 1;
    if (colon == token.text.size()) return choice;
    if (token.text[colon] != ':') {
      cursor.refuse(token.column + colon, "after ']' only ':' and slots can stand");
    }
  } else {
    const Token name{token.text.substr(0, colon), token.column};
    const std::size_t comma = name.text.find(',');
    if (comma != std::string_view::npos) {
      cursor.refuse(name.column + comma,
                    "',' separates slots; separate hosts by '@', as in n1@n2:0,2");
    }
    check_name(cursor, name, "host name");
    choice.name = std::string(name.text);
    if (colon == std::string_view::npos) return choice;
  }
  choice.slots =
      parse_slot_numbers(cursor, {token.text.substr(colon + 1), token.column + colon + 1});
  return choice;
}

std::string names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return listed(std::move(names));
}

// The index of the chosen host for each choice.
std::map<std::size_t, HostChoice> find_choices(const std::vector<Host>& hosts,
                                               std::string_view text, const std::string& where) {
  std::map<std::size_t, HostChoice> found;
  for (HostChoice& choice : parse_host_pickers(text, where)) {
    // A name written out in full comes before one that only begins like it.
    auto host = std::find_if(hosts.begin(), hosts.end(),
                             [&](const Host& h) { return h.name == choice.name; });
    if (host == hosts.end()) {
      host = std::find_if(hosts.begin(), hosts.end(),
                          [&](const Host& h) { return is_same_name(h.name, choice.name); });
    }
    if (host == hosts.end()) {
      throw UsageError(where + " names " + in_quotes(choice.name) +
                       ", which is not among the hosts of the job: " + names_of(hosts));
    }
    if (!choice.slots.empty() && host->has_slots && !host->all_cores &&
        choice.slots.back() >= host->slots) {
      throw UsageError(where + " names slot " + std::to_string(choice.slots.back()) + " of host " +
                       host->name + ", which has slots 0 to " + std::to_string(host->slots - 1));
    }
    const auto index = static_cast<std::size_t>(host - hosts.begin());
    if (!found.try_emplace(index, choice).second) {
      throw UsageError(where + " names host " + host->name +
                       " twice; write all its slots once, as in " + host->name + ":0,1");
    }
  }
  return found;
}

void keep_slots(std::vector<int> slots, Host& host) {
  host.slots = static_cast<int>(slots.size());
  host.has_slots = true;
  host.all_cores = false;
  host.chosen_slots = std::move(slots);
}

}  // namespace

std::vector<HostChoice> parse_host_pickers(std::string_view text, const std::string& where) {
  const Cursor cursor{where, 1};
  std::vector<HostChoice> choices;
  for (const Token& token : separated_by('@', text)) {
    if (token.text.empty()) {
      cursor.refuse(token.column, "empty host name; separate hosts by single '@'");
    }
    choices.push_back(parse_choice(cursor, token));
  }
  return choices;
}

std::vector<Host> include_hosts(std::vector<Host> hosts, std::string_view text) {
  std::vector<Host> kept;
  for (auto& [index, choice] : find_choices(hosts, text, "--include")) {
    kept.push_back(std::move(hosts[index]));
    if (!choice.slots.empty()) keep_slots(choice.slots, kept.back());
  }
  return kept;
}

std::vector<Host> exclude_hosts(std::vector<Host> hosts, std::string_view text) {
  const auto choices = find_choices(hosts, text, "--exclude");
  std::vector<Host> kept;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const auto choice = choices.find(i);
    if (choice == choices.end()) {
      kept.push_back(std::move(hosts[i]));
      continue;
    }
    const std::vector<int>& away = choice->second.slots;
    if (away.empty()) continue;
    Host& host = hosts[i];
    if (!host.has_slots || host.all_cores) {
      throw UsageError("--exclude names slots of host " + host.name +
                       ", whose number of slots is not known; write it, as in '" + host.name +
                       " slots=4'");
    }
    std::vector<int> all(static_cast<std::size_t>(host.slots));
    std::iota(all.begin(), all.end(), 0);
    std::vector<int> left;
    std::set_difference(all.begin(), all.end(), away.begin(), away.end(), std::back_inserter(left));
    if (left.empty()) continue;
    keep_slots(std::move(left), host);
    kept.push_back(std::move(host));
  }
  if (kept.empty()) throw UsageError("--exclude leaves no host of the job");
  return kept;
}

}  // namespace chainmail::launch
