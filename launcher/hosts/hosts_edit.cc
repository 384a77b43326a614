// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/hosts_edit.h"

#include <algorithm>
#include <optional>

#include "launcher/hosts/hostfile.h"
#include "launcher/hosts/watched_hosts.h"

namespace chainmail::launch {
namespace {

Host only_host(const std::string& line, const std::string& what) {
  const std::vector<Host> hosts = parse_hostfile(line, what);
  const bool is_one_line = line.find_first_of("\r\n") == std::string::npos;
  if (hosts.size() == 1 && is_one_line) return hosts.front();
  throw HostsError(what + " " + in_quotes(line) + " is not one host; write it as in a hosts file");
}

std::vector<Host>::const_iterator find_host(const std::vector<Host>& hosts,
                                            const std::string& name) {
  return std::find_if(hosts.begin(), hosts.end(),
                      [&](const Host& host) { return host.name == name; });
}

/// The hosts that the first lines of a file name, which may end in the middle of a comment.
std::vector<Host> hosts_before(const std::string& text, std::size_t bytes) {
  for (const char* const end : {"", "*/"}) {
    try {
      return parse_hostfile(text.substr(0, bytes) + end, "");
    } catch (const HostsError&) {
      continue;
    }
  }
  return {};
}

struct Line {
  std::size_t begin = 0;
  std::size_t end = 0;  ///< behind its "\n"
};

/// Where the host stands, which is named once.
Line line_of(const std::string& text, const std::string& name) {
  std::vector<Line> lines;
  for (std::size_t at = 0; at < text.size(); at = lines.back().end) {
    const std::size_t end = text.find('\n', at);
    lines.push_back({at, end == std::string::npos ? text.size() : end + 1});
  }
  return *std::partition_point(lines.begin(), lines.end(), [&](const Line& line) {
    const std::vector<Host> hosts = hosts_before(text, line.end);
    return find_host(hosts, name) == hosts.end();
  });
}

bool is_alike(const Host& one, const Host& other) {
  return one.slots == other.slots && one.user == other.user && one.port == other.port;
}

/// Where the host stands; nothing where it comes in addition.
std::optional<std::size_t> place_for(const HostsEdit& edit, const std::vector<Host>& hosts,
                                     const std::string& where) {
  const auto found = find_host(hosts, edit.host.name);
  const bool is_there = found != hosts.end();
  if (edit.removes && !is_there) {
    throw HostsError("there is no host " + edit.host.name + " in " + where);
  }
  if (!edit.removes && is_there && is_alike(*found, edit.host)) {
    throw HostsError("host " + edit.host.name + " is in " + where + " already, with " +
                     std::to_string(found->slots) + (found->slots == 1 ? " slot" : " slots"));
  }
  if (!is_there) return std::nullopt;
  return static_cast<std::size_t>(found - hosts.begin());
}

}  // namespace

HostsEdit addition_of(const std::string& line) {
  Host host = only_host(line, "the host to add");
  if (host.all_cores) throw HostsError("the host to add: " + why_it_needs_a_number(host));
  return {false, line, std::move(host)};
}

HostsEdit removal_of(const std::string& name) {
  Host host = only_host(name, "the host to drain");
  if (host.name != name) {
    throw HostsError("the host to drain is its name alone, not " + in_quotes(name) +
                     "; to take away some of its slots, add it with as many as are to stay");
  }
  return {true, name, std::move(host)};
}

std::string edited_text(std::string text, const std::vector<HostsEdit>& edits,
                        const std::string& where) {
  for (const HostsEdit& edit : edits) {
    const std::vector<Host> hosts = parse_watched_hosts(text, where);
    if (!place_for(edit, hosts, where)) {
      text += edit.line + "\n";
      continue;
    }
    const Line line = line_of(text, edit.host.name);
    text.replace(line.begin, line.end - line.begin, edit.removes ? "" : edit.line + "\n");
  }
  (void)parse_watched_hosts(text, where);
  return text;
}

std::vector<Host> edited_hosts(std::vector<Host> hosts, const std::vector<HostsEdit>& edits,
                               const std::string& where) {
  for (const HostsEdit& edit : edits) {
    const auto place = place_for(edit, hosts, where);
    if (!place) {
      hosts.push_back(edit.host);
    } else if (edit.removes) {
      hosts.erase(hosts.begin() + static_cast<std::ptrdiff_t>(*place));
    } else {
      hosts[*place] = edit.host;
    }
  }
  return hosts;
}

}  // namespace chainmail::launch
