// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/rsh_command.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>

#include "launcher/job/options.h"
#include "launcher/remote/bootstrap.h"
#include "launcher/remote/starters.h"

namespace chainmail::launch {
namespace {

// Characters that mean nothing to any shell, at any place of a word.
bool is_plain(std::string_view word, std::string_view also) {
  return std::all_of(word.begin(), word.end(), [also](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           also.find(c) != std::string_view::npos;
  });
}

// Hosts come from files that others may write. '%' is of IPv6 scopes: fe80::1%eth0.
void check_names(const Host& host) {
  if (host.name.empty() || host.name.front() == '-' || !is_plain(host.name, "._:%-")) {
    throw UsageError(
        "'" + host.name +
        "' is not a valid host name: use letters, digits and . _ : % -, and no '-' at the "
        "start");
  }
  if (!host.user.empty() && (host.user.front() == '-' || !is_plain(host.user, "._@+-"))) {
    throw UsageError("'" + host.user + "' is not a valid user name for host " + host.name +
                     ": use letters, digits and . _ @ + -, and no '-' at the start");
  }
}

void add_ssh_options(std::vector<std::string>& words) {
  // No pty (it would change bytes), no questions, no hanging, no forwardings of the user's
  // configuration that a second session could not get, and no connection that outlives the job
  // because this session became the master of others. How long a host may be silent is the lease's
  // to say, not ssh's. Whether host keys are checked is the user's; never is a check switched off
  // here.
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=0", "ClearAllForwardings=yes",
        "ForwardAgent=no", "EscapeChar=none", "ControlMaster=no", "RemoteCommand=none"}) {
    words.insert(words.end(), {"-o", option});
  }
  words.insert(words.end(), {"-T", "-x"});
}

void add_login(const Host& host, std::vector<std::string>& words) {
  if (host.port) words.insert(words.end(), {"-p", std::to_string(*host.port)});
  if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
}

// True when "%h" stood somewhere and was replaced.
bool insert_host(const std::string& name, std::vector<std::string>& words) {
  bool inserted = false;
  for (std::string& word : words) {
    for (std::size_t at = word.find("%h"); at != std::string::npos;
         at = word.find("%h", at + name.size())) {
      word.replace(at, 2, name);
      inserted = true;
    }
  }
  return inserted;
}

bool names_option(std::span<const std::string> words, std::initializer_list<const char*> names) {
  return std::any_of(words.begin(), words.end(), [&names](const std::string& word) {
    return std::any_of(names.begin(), names.end(),
                       [&word](const char* name) { return word.rfind(name, 0) == 0; });
  });
}

// What srun must be told to give the agent a channel, the component that the host belongs to and
// the GPUs that the job has there; also behind other words, such as those of env or timeout.
void add_srun_options(const Host& host, std::vector<std::string>& words) {
  const auto srun = std::find_if(words.begin(), words.end(), is_srun);
  if (srun == words.end()) return;
  // Words before it are those of env or timeout.
  const std::span<const std::string> own(srun, words.end());
  std::vector<std::string> options;
  // As an option too, because it outlives scripts that clear the environment.
  if (!names_option(own, {"--unbuffered", "-u"})) options.push_back("--unbuffered");
  if (host.component && !names_option(own, {"--het-group", "--pack-group"})) {
    options.push_back("--het-group=" + std::to_string(*host.component));
  }
  if (host.gpus && !names_option(own, {"--gpus", "-G", "--gres", "--tres-per"})) {
    options.push_back(*host.gpus == 0 ? "--gres=none" : "--gpus=" + std::to_string(*host.gpus));
  }
  words.insert(srun + 1, options.begin(), options.end());
}

}  // namespace

bool is_ssh(const std::string& program) { return program.substr(program.rfind('/') + 1) == "ssh"; }

std::vector<std::string> remote_shell_command(const std::vector<std::string>& remote_shell,
                                              const Host& host) {
  check_names(host);
  std::vector<std::string> words = remote_shell;
  const bool host_inserted = insert_host(host.name, words);
  add_srun_options(host, words);
  if (is_ssh(remote_shell.front())) {
    add_ssh_options(words);
    add_login(host, words);
  } else if (host.port || !host.user.empty()) {
    throw UsageError("user and port of host " + host.name + " are for ssh; --rsh " +
                     remote_shell.front() + " does not know them");
  }
  if (!host_inserted) {
    if (is_ssh(remote_shell.front())) words.push_back("--");
    words.push_back(host.name);
  }
  words.push_back("/bin/sh");
  return words;
}

std::string login_line(const std::vector<std::string>& remote_shell, const Host& host,
                       const std::string& command) {
  std::vector<std::string> words = remote_shell;
  const bool host_inserted = insert_host(host.name, words);
  add_srun_options(host, words);
  if (is_ssh(remote_shell.front())) add_login(host, words);
  if (!host_inserted) words.push_back(host.name);
  std::string line;
  for (const std::string& word : words) {
    const bool needs_quotes = word.empty() || !is_plain(word, "/._:%@=,+-");
    line += (needs_quotes ? shell_quoted(word) : word) + " ";
  }
  return line + command;
}

}  // namespace chainmail::launch
