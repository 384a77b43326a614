// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <limits>

#include "launcher/hosts/host_text.h"
#include "launcher/hosts/schedulers/schedulers.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kMaxNameLength = 253;  // of DNS

// "7" or "007-009", with the zeros of the first number.
void expand_range(const Cursor& cursor, const Token& range, std::vector<std::string>& numbers) {
  const std::size_t dash = range.text.find('-');
  const auto number = [&](const Token& token) {
    if (!token.text.empty() && (token.text.front() == '-' || token.text.size() > 9)) {
      cursor.refuse(token.column, "number in a range is " + in_quotes(token.text));
    }
    return parse_number(cursor, token, "number in a range", 0, 999999999, "");
  };
  const Token low{range.text.substr(0, dash), range.column};
  const int first = number(low);
  if (dash == std::string_view::npos) {
    numbers.emplace_back(low.text);
    return;
  }
  const int last = number({range.text.substr(dash + 1), range.column + dash + 1});
  if (last < first)
    cursor.refuse(range.column, "range " + in_quotes(range.text) + " runs backwards");
  check_hosts(cursor, range.column, numbers.size() + static_cast<std::size_t>(last - first) + 1);
  for (int value = first; value <= last; ++value) {
    const std::string digits = std::to_string(value);
    const std::size_t width = std::max(low.text.size(), digits.size());
    numbers.push_back(std::string(width - digits.size(), '0') + digits);
  }
}

// Every name so far, continued by every piece.
void multiply(const Cursor& cursor, std::size_t column, const std::vector<std::string>& pieces,
              std::vector<std::string>& names) {
  check_hosts(cursor, column, names.size() * pieces.size());
  std::vector<std::string> longer;
  longer.reserve(names.size() * pieces.size());
  for (const std::string& name : names) {
    for (const std::string& piece : pieces) {
      if (name.size() + piece.size() > kMaxNameLength) cursor.refuse(column, "host name too long");
      longer.push_back(name + piece);
    }
  }
  names = std::move(longer);
}

// One item of the list, "rack[0-1]n[00-15]"; brackets are closed.
void expand_item(const Cursor& cursor, const Token& item, std::vector<std::string>& all) {
  if (item.text.empty()) cursor.refuse(item.column, "empty host name");
  std::vector<std::string> names = {""};
  std::size_t i = 0;
  while (i < item.text.size()) {
    const std::size_t column = item.column + i;
    if (item.text[i] != '[') {
      const std::size_t end = std::min(item.text.find('[', i), item.text.size());
      const Token literal{item.text.substr(i, end - i), column};
      // Only the name's own beginning must not be a '-'.
      if (i == 0 || literal.text.front() != '-') {
        check_name(cursor, literal, "host name");
      } else if (literal.text.size() > 1) {
        const std::size_t dashes =
            std::min(literal.text.find_first_not_of('-'), literal.text.size() - 1);
        check_name(cursor, {literal.text.substr(dashes), column + dashes}, "host name");
      }
      multiply(cursor, column, {std::string(literal.text)}, names);
      i = end;
      continue;
    }
    const std::size_t close = item.text.find(']', i);
    std::vector<std::string> numbers;
    for (Token range : separated_by(',', item.text.substr(i + 1, close - i - 1))) {
      range.column += column;
      expand_range(cursor, range, numbers);
    }
    multiply(cursor, column, numbers, names);
    i = close + 1;
  }
  check_hosts(cursor, item.column, all.size() + names.size());
  all.insert(all.end(), names.begin(), names.end());
}

// One number for each of `names`, of $SLURM_<name>; nothing where the variable is absent.
std::vector<int> numbers_of(const Environment& variables, const std::string& name,
                            const std::string& list_where, std::size_t hosts) {
  const auto text = value_of(variables, name);
  if (!text) return {};
  const std::string where = "$" + name;
  std::vector<int> numbers = expand_slurm_counts(*text, where);
  if (numbers.size() != hosts) {
    Cursor{where, 1}.refuse(1, in_quotes(*text) + " gives " + std::to_string(numbers.size()) +
                                   " numbers, but " + list_where + " names " +
                                   std::to_string(hosts) + " hosts");
  }
  return numbers;
}

// In a step of one task, such as a shell on a node, the number of tasks per node is the step's. The
// job's is not told, but the job has processors for its tasks.
void give_slots_of_processors(const Environment& variables, std::vector<Host>& hosts) {
  const auto number = [&variables](const std::string& name) -> std::optional<int> {
    const auto text = value_of(variables, name);
    if (!text) return std::nullopt;
    const std::string where = "$" + name;
    return parse_number({where, 1}, {*text, 1}, "number", 1, static_cast<int>(kMaxHosts), "");
  };
  const int per_task = number("SLURM_CPUS_PER_TASK").value_or(1);
  const auto per_node = number("SLURM_NTASKS_PER_NODE");
  // Shells of salloc may keep the job's number, where others have the step's.
  int left = number("SLURM_NTASKS").value_or(1);
  if (left == 1) left = std::numeric_limits<int>::max();
  for (Host& host : hosts) {
    host.slots = std::max(1, std::min(*host.processors / per_task, left));
    if (per_node) host.slots = std::min(host.slots, *per_node);
    host.has_slots = true;
    left = std::max(0, left - host.slots);
  }
}

// Of one component of a job; `suffix` is "" or "_HET_GROUP_<n>".
std::vector<Host> hosts_of_group(const Environment& variables, const std::string& suffix) {
  const auto value = [&](const std::string& name) { return value_of(variables, name + suffix); };
  auto list = value("SLURM_JOB_NODELIST");
  std::string list_name = "SLURM_JOB_NODELIST" + suffix;
  if (!list) {
    list = value("SLURM_NODELIST");
    list_name = "SLURM_NODELIST" + suffix;
  }
  const std::string where = "$" + list_name;
  const std::vector<std::string> names = expand_slurm_nodes(list.value_or(""), where);
  std::vector<Host> hosts(names.size());
  // Without --ntasks or --ntasks-per-node, tasks per node are processors and srun starts one each.
  const bool asked_for_tasks =
      value("SLURM_NTASKS") || value("SLURM_NPROCS") || value("SLURM_NTASKS_PER_NODE");
  std::vector<int> processors;
  try {
    processors = numbers_of(variables, "SLURM_JOB_CPUS_PER_NODE" + suffix, where, names.size());
  } catch (const HostsError&) {
    if (!asked_for_tasks) throw;
    // Only threads are counted by it then.
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    hosts[i].name = names[i];
    if (!processors.empty()) hosts[i].processors = processors[i];
  }
  if (suffix.empty() && is_in_slurm_step_of_one_task(variables) && !processors.empty()) {
    give_slots_of_processors(variables, hosts);
    return hosts;
  }
  const std::vector<int> tasks =
      asked_for_tasks ? numbers_of(variables, "SLURM_TASKS_PER_NODE" + suffix, where, names.size())
                      : std::vector<int>();
  const std::vector<int>& counts = tasks.empty() ? processors : tasks;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (asked_for_tasks) {
      hosts[i].slots = counts[i];
      hosts[i].has_slots = true;
    } else {
      hosts[i].granted = counts[i];
    }
  }
  return hosts;
}

}  // namespace

bool is_in_slurm_step_of_one_task(const Environment& variables) {
  return value_of(variables, "SLURM_STEP_ID") &&
         value_of(variables, "SLURM_STEP_NUM_TASKS").value_or("1") == "1" &&
         value_of(variables, "SLURM_TASKS_PER_NODE").value_or("1") == "1";
}

std::vector<std::string> expand_slurm_nodes(std::string_view text, const std::string& where) {
  const Cursor cursor{where, 1};
  std::vector<std::string> names;
  std::size_t begin = 0;
  bool in_brackets = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[' && in_brackets) cursor.refuse(i + 1, "'[' inside of brackets");
    if (c == ']' && !in_brackets) cursor.refuse(i + 1, "']' without '['");
    if (i == text.size() && in_brackets) cursor.refuse(text.rfind('[') + 1, "'[' without ']'");
    if (c == '[') in_brackets = true;
    if (c == ']') in_brackets = false;
    if (c != ',' || in_brackets) continue;
    expand_item(cursor, {text.substr(begin, i - begin), begin + 1}, names);
    begin = i + 1;
  }
  return names;
}

std::vector<int> expand_slurm_counts(std::string_view text, const std::string& where) {
  const Cursor cursor{where, 1};
  std::vector<int> counts;
  for (const Token& item : separated_by(',', text)) {
    const std::size_t open = item.text.find('(');
    const int count =
        parse_slots(cursor, {item.text.substr(0, open), item.column}, "number of tasks");
    int times = 1;
    if (open != std::string_view::npos) {
      const std::string_view rest = item.text.substr(open);
      if (rest.size() < 4 || rest.substr(0, 2) != "(x" || rest.back() != ')') {
        cursor.refuse(item.column + open, in_quotes(rest) + " is not a repetition such as (x3)");
      }
      times = parse_number(cursor, {rest.substr(2, rest.size() - 3), item.column + open + 2},
                           "repetition", 1, static_cast<int>(kMaxHosts), "");
    }
    check_hosts(cursor, item.column, counts.size() + static_cast<std::size_t>(times));
    counts.insert(counts.end(), static_cast<std::size_t>(times), count);
  }
  return counts;
}

std::vector<Host> slurm_hosts(const Environment& variables) {
  const auto groups = value_of(variables, "SLURM_HET_SIZE");
  if (!groups) return hosts_of_group(variables, "");
  const std::string where = "$SLURM_HET_SIZE";
  const int count = parse_number({where, 1}, {*groups, 1}, "number of job components", 1, 1024, "");
  HostCollector hosts;
  for (int group = 0; group < count; ++group) {
    const std::string suffix = "_HET_GROUP_" + std::to_string(group);
    const std::string list = "$SLURM_JOB_NODELIST" + suffix;
    for (Host& host : hosts_of_group(variables, suffix)) {
      host.component = group;
      hosts.add({list, 1}, 1, std::move(host));
    }
  }
  return hosts.take();
}

}  // namespace chainmail::launch
