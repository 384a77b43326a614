// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/environment/node_id.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <fstream>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/core/liveness.h"

namespace chainmail::internal {
namespace {

std::string read_link(const char* path) {
  std::array<char, 256> target{};
  const ssize_t length = ::readlink(path, target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : std::string();
}

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  const std::string full = name.data();
  return full.substr(0, full.find('.'));
}

std::string node_id(const Environment& environment) {
  if (const auto given = environment("CHAINMAIL_NODE_ID")) return *given;
  return host_name() + " " + boot_id() + " " + read_link("/proc/self/ns/pid");
}

std::string network_id() {
  const std::string boot = boot_id();
  const std::string network = read_link("/proc/self/ns/net");
  return boot.empty() || network.empty() ? std::string() : boot + " " + network;
}

std::string did_not_join(int missing, int rank, int size) {
  return did_not_join("rank " + std::to_string(missing) + " of " + std::to_string(size), rank);
}

std::string did_not_join(const std::string& missing, int rank) {
  return missing + " did not join; rank " + std::to_string(rank) + " on " + host_name() +
         " waited for it in vain. Was it started, and did it fail before?";
}

std::vector<std::string> exchange(ops::Rendezvous& rendezvous, const std::string& key, int rank,
                                  int size, const std::string& mine, Deadline deadline) {
  const auto key_of = [&key](int other) { return key + "/" + std::to_string(other); };
  rendezvous.set(key_of(rank), mine);
  std::vector<std::string> all;
  for (int other = 0; other < size; ++other) {
    try {
      all.push_back(other == rank ? mine
                                  : ops::get_from(rendezvous, other, size, key_of, deadline,
                                                  "joined its group of " + std::to_string(size)));
    } catch (const TimeoutError&) {
      throw TimeoutError(did_not_join(other, rank, size), {other});
    }
  }
  return all;
}

std::string share_secret(ops::Rendezvous& rendezvous, int rank, Deadline deadline) {
  const std::string key = "secret";
  const auto key_of = [&key](int /*rank*/) { return key; };
  if (rank != 0) {
    try {
      return ops::get_from(rendezvous, 0, 1, key_of, deadline, "shared the group's secret");
    } catch (const TimeoutError&) {
      if (rendezvous.is_silent()) throw;
      throw TimeoutError(did_not_join("rank 0", rank), {0});
    }
  }
  const std::string secret = random_bytes(32);
  rendezvous.set(key, secret);
  return secret;
}

}  // namespace chainmail::internal
