// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/host_source.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "launcher/hosts/hostfile.h"
#include "launcher/options.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

std::string read_file(const std::string& path) {
  if (fs::is_directory(path)) throw UsageError("hostfile " + path + " is a directory");
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int error = errno;
    throw UsageError("cannot open hostfile " + path + ": " + std::strerror(error));
  }
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) throw UsageError("cannot read hostfile " + path);
  return text.str();
}

HostSet read_hostfile(const std::string& path) {
  return {"hostfile " + path, parse_hostfile(read_file(path), path)};
}

bool is_regular_file(const std::string& path) {
  std::error_code error;
  // A pipe counts too: -H <(command) names /dev/fd/63, which the '/' rule already covers.
  return fs::is_regular_file(path, error);
}

class CommandLineSource final : public HostSource {
 public:
  explicit CommandLineSource(std::string value) : value_(std::move(value)) {}

  std::optional<HostSet> hosts() const override {
    if (value_.find('/') != std::string::npos) return read_hostfile(value_);
    if (is_regular_file(value_)) {
      // A file "hosts" is what people have; a file "n1:4" beside a host n1 is a riddle.
      if (value_ == "localhost" || value_.find_first_of(",:") != std::string::npos) {
        throw UsageError("-H " + value_ +
                         " names a file here and is a list of hosts as well; write -H ./" + value_ +
                         " for the file, or rename it");
      }
      return read_hostfile(value_);
    }
    return HostSet{"host list " + value_, parse_host_list(value_, "-H")};
  }

 private:
  std::string value_;
};

class HostfileSource final : public HostSource {
 public:
  explicit HostfileSource(std::string path) : path_(std::move(path)) {}
  std::optional<HostSet> hosts() const override { return read_hostfile(path_); }

 private:
  std::string path_;
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
  std::optional<HostSet> hosts() const override {
    const char* named = std::getenv("CHAINMAIL_HOSTFILE");
    if (named != nullptr && *named != '\0') return read_hostfile(named);
    constexpr std::array<const char*, 2> kDefaults = {"/etc/chainmail/hosts",
                                                      "/etc/openmpi/openmpi-default-hostfile"};
    for (const char* path : kDefaults) {
      if (!is_regular_file(path) || !names_a_host(read_file(path))) continue;
      return read_hostfile(path);
    }
    return std::nullopt;
  }
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
    return HostSet{"this machine", {host}};
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

}  // namespace

std::unique_ptr<HostSource> command_line_source(std::string value) {
  return std::make_unique<CommandLineSource>(std::move(value));
}

std::unique_ptr<HostSource> hostfile_source(std::string path) {
  return std::make_unique<HostfileSource>(std::move(path));
}

std::unique_ptr<HostSource> default_hostfile_source() {
  return std::make_unique<DefaultHostfileSource>();
}

std::unique_ptr<HostSource> localhost_source() { return std::make_unique<LocalhostSource>(); }

HostSet find_hosts(const std::vector<std::unique_ptr<HostSource>>& sources) {
  for (const auto& source : sources) {
    if (auto hosts = source->hosts()) return *std::move(hosts);
  }
  throw std::logic_error("no source of hosts applies");
}

bool is_this_machine(const Host& host) {
  if (!host.user.empty() || host.port) return false;
  if (host.name == "localhost" || host.name == "ip6-localhost") return true;
  std::array<char, 256> own{};
  if (gethostname(own.data(), own.size() - 1) == 0) {
    const std::string name(own.data());
    if (host.name == name || host.name == name.substr(0, name.find('.'))) return true;
  }
  return is_own_address(host.name);
}

}  // namespace chainmail::launch
