// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/rsh_command.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <sstream>
#include <string_view>

#include "launcher/options.h"

namespace chainmail::launch {
namespace {

// Remote shells hand the words to a shell of the user's choice; these characters mean nothing to
// any of them.
bool is_safe_word(std::string_view word) {
  return std::all_of(word.begin(), word.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+:@").find(c) != std::string_view::npos;
  });
}

bool is_ssh(const std::string& program) { return program.substr(program.rfind('/') + 1) == "ssh"; }

void add_ssh_options(const Host& host, std::vector<std::string>& words) {
  // No pty (it would change bytes), no questions, no hanging, no forwardings of the user's
  // configuration that a second session could not get, and no connection that outlives the job
  // because this session became the master of others.
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=2", "ServerAliveCountMax=3",
        "ClearAllForwardings=yes", "EscapeChar=none", "ControlMaster=no"}) {
    words.insert(words.end(), {"-o", option});
  }
  words.insert(words.end(), {"-T", "-a", "-x"});
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

std::string last_lines(const std::string& text, std::size_t count) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  std::string out;
  const std::size_t begin = lines.size() > count ? lines.size() - count : 0;
  for (std::size_t i = begin; i < lines.size(); ++i) out += "\n  | " + lines[i];
  return out;
}

std::string advice(const StartFailure& failure) {
  const std::string& text = failure.error_output;
  const auto says = [&text](std::initializer_list<const char*> phrases) {
    return std::any_of(phrases.begin(), phrases.end(), [&text](const char* phrase) {
      return text.find(phrase) != std::string::npos;
    });
  };
  const std::string& host = failure.host;
  if (says({"Could not resolve hostname", "Name or service not known", "unknown host"})) {
    return "unknown host " + host +
           ": check its spelling in the hostfile, or give it an address in /etc/hosts or a "
           "HostName in ~/.ssh/config";
  }
  if (says({"Host key verification failed", "No ED25519 host key is known",
            "REMOTE HOST IDENTIFICATION HAS CHANGED"})) {
    return "the key of host " + host + " is not known or has changed: log in once by hand (ssh " +
           host + " true) and check the fingerprint";
  }
  if (says({"Permission denied", "Too many authentication failures"})) {
    return "permission denied on host " + host +
           ": ssh must work without a password; try: ssh-copy-id " + host +
           ", then: ssh -o BatchMode=yes " + host + " true";
  }
  if (says({"Connection refused", "Connection timed out", "No route to host",
            "Network is unreachable", "timed out"})) {
    return "host " + host + " does not accept connections: is it up, and does sshd run there?";
  }
  if (says({"command not found", "No such file or directory", "not found"}) ||
      failure.exit_code == 127) {
    return "command not found on host " + host + ": " + failure.launcher_path +
           " must exist there too; install Chainmail at the same path on every host, or share "
           "the folder";
  }
  if (says({"cannot execute", "Exec format error"}) || failure.exit_code == 126) {
    return failure.launcher_path + " cannot be run on host " + host +
           ": is it built for that machine?";
  }
  return "the agent on host " + host + " did not start: " + failure.command.front() + " " +
         failure.exit + "; try: " + failure.command.front() + " " + host + " " +
         failure.launcher_path + " --version";
}

}  // namespace

std::vector<std::string> local_agent_command(const std::string& launcher_path,
                                             const std::string& marker) {
  return {launcher_path, "--agent", marker};
}

std::vector<std::string> remote_agent_command(const std::vector<std::string>& remote_shell,
                                              const Host& host, const std::string& launcher_path,
                                              const std::string& marker) {
  if (!is_safe_word(launcher_path)) {
    throw UsageError("the path of this launcher, " + launcher_path +
                     ", cannot pass through a remote shell; install it under a path without "
                     "blanks and special characters");
  }
  std::vector<std::string> words = remote_shell;
  const bool host_inserted = insert_host(host.name, words);
  if (is_ssh(remote_shell.front())) {
    add_ssh_options(host, words);
  } else if (host.port || !host.user.empty()) {
    throw UsageError("user and port of host " + host.name + " are for ssh; --rsh " +
                     remote_shell.front() + " does not know them");
  }
  if (!host_inserted) {
    if (is_ssh(remote_shell.front())) words.push_back("--");
    words.push_back(host.name);
  }
  words.insert(words.end(), {launcher_path, "--agent", marker});
  return words;
}

std::string explain(const StartFailure& failure) {
  const std::string hint = failure.hint.empty() ? "" : "; " + failure.hint;
  return advice(failure) + hint + last_lines(failure.error_output, 10);
}

bool is_worth_another_try(const std::string& error_output) {
  return error_output.find("kex_exchange_identification") != std::string::npos ||
         error_output.find("Connection reset by peer") != std::string::npos;
}

}  // namespace chainmail::launch
