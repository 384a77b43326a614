// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/host_source.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/unique_fd.h"
#include "launcher/options.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

HostSet read_hostfile(const std::string& path, const HostfileRules& rules) {
  HostSet set;
  set.source = "hostfile " + path;
  set.hosts = parse_hostfile(read_host_text(path, "hostfile"), path, rules);
  return set;
}

bool is_regular_file(const std::string& path) {
  std::error_code error;
  // A pipe counts too: -H <(command) names /dev/fd/63, which the '/' rule already covers.
  return fs::is_regular_file(path, error);
}

// A file "hosts" is what people have; a file "n1:4", or one with the name of a host that is known
// to exist, is a riddle.
bool reads_as_a_list_too(const std::string& value, const std::vector<Host>& known) {
  if (value.find_first_of(",:") != std::string::npos) return true;
  Host host;
  host.name = value;
  return is_this_machine(host) || std::any_of(known.begin(), known.end(), [&](const Host& other) {
           return is_same_name(other.name, value);
         });
}

class CommandLineSource final : public HostSource {
 public:
  CommandLineSource(std::string value, HostfileRules rules, std::vector<Host> known)
      : value_(std::move(value)), rules_(rules), known_(std::move(known)) {}

  std::optional<HostSet> hosts() const override {
    if (value_.find('/') != std::string::npos) return read_hostfile(value_, rules_);
    if (is_regular_file(value_)) {
      if (reads_as_a_list_too(value_, known_)) {
        throw UsageError("-H " + value_ +
                         " names a file here and is a list of hosts as well; write -H ./" + value_ +
                         " for the file, or rename it");
      }
      return read_hostfile(value_, rules_);
    }
    HostSet set;
    set.source = "host list " + value_;
    set.hosts = parse_host_list(value_, "-H");
    return set;
  }

 private:
  std::string value_;
  HostfileRules rules_;
  std::vector<Host> known_;
};

class HostfileSource final : public HostSource {
 public:
  HostfileSource(std::string path, HostfileRules rules) : path_(std::move(path)), rules_(rules) {}
  std::optional<HostSet> hosts() const override { return read_hostfile(path_, rules_); }

 private:
  std::string path_;
  HostfileRules rules_;
};

// Open MPI installs its default hostfile with nothing but comments in it.
bool names_a_host(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first != std::string::npos && line[first] != '#') return true;
  }
  return false;
}

class DefaultHostfileSource final : public HostSource {
 public:
  DefaultHostfileSource(Variables variables, HostfileRules rules)
      : variables_(std::move(variables)), rules_(rules) {}

  std::optional<HostSet> hosts() const override {
    // The Kubernetes MPI operator sets the first and the last two, for the file that it mounts.
    for (const char* name : {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile",
                             "HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"}) {
      const auto path = value_of(variables_, name);
      if (!path) continue;
      HostSet set = read_hostfile(*path, rules_);
      set.source += std::string(" ($") + name + ")";
      return set;
    }
    constexpr std::array<const char*, 2> kDefaults = {"/etc/chainmail/hosts",
                                                      "/etc/openmpi/openmpi-default-hostfile"};
    for (const char* path : kDefaults) {
      if (!is_regular_file(path) || !names_a_host(read_host_text(path, "hostfile"))) continue;
      return read_hostfile(path, rules_);
    }
    return std::nullopt;
  }

 private:
  Variables variables_;
  HostfileRules rules_;
};

class OwnHostfileSource final : public HostSource {
 public:
  OwnHostfileSource(Variables variables, HostfileRules rules)
      : variables_(std::move(variables)), rules_(rules) {}

  std::optional<HostSet> hosts() const override {
    const auto path = value_of(variables_, "CHAINMAIL_HOSTFILE");
    if (!path) return std::nullopt;
    HostSet set = read_hostfile(*path, rules_);
    set.source += " ($CHAINMAIL_HOSTFILE)";
    return set;
  }

 private:
  Variables variables_;
  HostfileRules rules_;
};

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

class LocalhostSource final : public HostSource {
 public:
  std::optional<HostSet> hosts() const override {
    Host host;
    host.name = "localhost";
    host.slots = usable_cores();
    host.has_slots = true;
    HostSet set;
    set.source = "this machine";
    set.hosts = {host};
    return set;
  }
};

bool is_own_address(const std::string& name) {
  std::array<unsigned char, 16> wanted{};
  int family = AF_INET;
  if (inet_pton(AF_INET, name.c_str(), wanted.data()) != 1) {
    family = AF_INET6;
    if (inet_pton(AF_INET6, name.c_str(), wanted.data()) != 1) return false;
  }
  if (family == AF_INET && wanted[0] == 127) return true;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
    if (family == AF_INET) {
      sockaddr_in address{};
      std::memcpy(&address, entry->ifa_addr, sizeof address);
      found = found || std::memcmp(&address.sin_addr, wanted.data(), 4) == 0;
    } else {
      sockaddr_in6 address{};
      std::memcpy(&address, entry->ifa_addr, sizeof address);
      found = found || std::memcmp(&address.sin6_addr, wanted.data(), 16) == 0;
    }
  }
  freeifaddrs(list);
  return found;
}

// A named pipe that nobody writes into would hold up the launcher for ever; -H <(command) is one
// that somebody does. What it says is read by who waited for it: it says it once.
internal::UniqueFd open_host_text(const std::string& path, const std::string& what) {
  constexpr int kMostSeconds = 30;
  std::error_code ignored;
  const bool is_pipe = fs::is_fifo(path, ignored);
  internal::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | (is_pipe ? O_NONBLOCK : 0)));
  if (!file.is_open() || !is_pipe) return file;
  pollfd readable{file.get(), POLLIN, 0};
  if (poll(&readable, 1, kMostSeconds * 1000) == 0) {
    throw UsageError("cannot read " + what + " " + path + ": it is a pipe into which nobody has " +
                     "written for " + std::to_string(kMostSeconds) + " s");
  }
  const int flags = fcntl(file.get(), F_GETFL);
  (void)fcntl(file.get(), F_SETFL, flags & ~O_NONBLOCK);
  return file;
}

}  // namespace

std::string read_host_text(const std::string& path, const std::string& what) {
  const auto refuse = [&](const std::string& verb, const std::string& reason) -> UsageError {
    return UsageError("cannot " + verb + " " + what + " " + path + ": " + reason);
  };
  if (fs::is_directory(path)) throw UsageError(what + " " + path + " is a directory");
  const internal::UniqueFd file = open_host_text(path, what);
  if (!file.is_open()) throw refuse("open", std::strerror(errno));
  std::string text;
  std::string block(65536, '\0');  // not on the stack, which schedulers limit
  while (true) {
    const ssize_t count = read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw refuse("read", std::strerror(errno));
    if (count == 0) break;
    text.append(block.data(), static_cast<std::size_t>(count));
    if (text.size() > kMaxHostTextBytes) {
      throw refuse("use", "it is longer than " + std::to_string(kMaxHostTextBytes >> 20) + " MiB");
    }
  }
  return text;
}

std::unique_ptr<HostSource> command_line_source(std::string value, const HostfileRules& rules,
                                                std::vector<Host> known) {
  return std::make_unique<CommandLineSource>(std::move(value), rules, std::move(known));
}

std::unique_ptr<HostSource> hostfile_source(std::string path, const HostfileRules& rules) {
  return std::make_unique<HostfileSource>(std::move(path), rules);
}

std::unique_ptr<HostSource> own_hostfile_source(Variables variables, const HostfileRules& rules) {
  return std::make_unique<OwnHostfileSource>(std::move(variables), rules);
}

std::unique_ptr<HostSource> default_hostfile_source(Variables variables,
                                                    const HostfileRules& rules) {
  return std::make_unique<DefaultHostfileSource>(std::move(variables), rules);
}

std::unique_ptr<HostSource> localhost_source() { return std::make_unique<LocalhostSource>(); }

HostSet find_hosts(const std::vector<std::unique_ptr<HostSource>>& sources) {
  for (const auto& source : sources) {
    if (auto hosts = source->hosts()) return *std::move(hosts);
  }
  throw std::logic_error("no source of hosts applies");
}

bool is_same_name(const std::string& one, const std::string& other) {
  if (one == other) return true;
  const auto is_short_form = [](const std::string& name, const std::string& full) {
    return name.find_first_of(".:") == std::string::npos && full.size() > name.size() &&
           full.compare(0, name.size(), name) == 0 && full[name.size()] == '.';
  };
  return is_short_form(one, other) || is_short_form(other, one);
}

bool is_this_machine(const Host& host) {
  if (!host.user.empty() || host.port) return false;
  for (const char* name : {"localhost", "ip6-localhost"}) {
    if (strcasecmp(host.name.c_str(), name) == 0) return true;
  }
  std::array<char, 256> own{};
  if (gethostname(own.data(), own.size() - 1) == 0) {
    const std::string name(own.data());
    if (host.name == name || host.name == name.substr(0, name.find('.'))) return true;
  }
  return is_own_address(host.name);
}

}  // namespace chainmail::launch
