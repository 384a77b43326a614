// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/start_failure.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <sstream>

#include "launcher/remote/bootstrap.h"
#include "launcher/remote/rsh_command.h"
#include "launcher/remote/starters.h"

namespace chainmail::launch {
namespace {

// An sshd, or a host, that has too much to do at the moment.
constexpr const char* kBusy[] = {
    "kex_exchange_identification",
    "ssh_exchange_identification",
    "Connection reset by",
    "Connection closed by",
    "banner exchange",
    "Exceeded MaxStartups",
    "Not allowed at this time",  // PerSourcePenalties of sshd
    "Resource temporarily unavailable",
    "Cannot allocate memory",
    "System is booting up",
};
// What stays as it is; behind a jump host also where the connection through it was closed.
constexpr const char* kFinal[] = {"Permission denied (", "Host key verification failed",
                                  "Connection refused", "No route to host",
                                  "Name or service not known"};
constexpr const char* kNameService = "Temporary failure in name resolution";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    // Whatever a machine sends must not act on the user's terminal.
    line.erase(std::remove_if(line.begin(), line.end(),
                              [](char c) { return static_cast<unsigned char>(c) < 32; }),
               line.end());
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::string last_lines(const std::string& text, std::size_t count) {
  const std::vector<std::string> lines = lines_of(text);
  std::string out;
  const std::size_t begin = lines.size() > count ? lines.size() - count : 0;
  for (std::size_t i = begin; i < lines.size(); ++i) out += "\n  | " + lines[i];
  return out;
}

// Reads one failure, question by question.
class Diagnosis {
 public:
  explicit Diagnosis(const StartFailure& failure)
      : failure_(failure), host_(failure.host.name), text_(failure.error_output) {}

  std::string advice() const {
    if (failure_.remote_shell.empty()) return about_this_machine();
    for (const auto& question :
         {&Diagnosis::about_script, &Diagnosis::about_name, &Diagnosis::about_host_key,
          &Diagnosis::about_login, &Diagnosis::about_connection, &Diagnosis::about_program}) {
      if (std::string answer = (this->*question)(); !answer.empty()) return answer;
    }
    return "the agent on host " + host_ + " did not start: " + failure_.remote_shell.front() + " " +
           failure_.exit + "; try: " + login("true") +
           (is_scheduler_starter(failure_.remote_shell.front())
                ? "; where ssh gets there, --rsh ssh does without it"
                : "");
  }

 private:
  bool says(std::initializer_list<const char*> phrases) const {
    return std::any_of(phrases.begin(), phrases.end(), [this](const char* phrase) {
      return text_.find(phrase) != std::string::npos;
    });
  }

  std::string login(const std::string& command) const {
    return login_line(failure_.remote_shell, failure_.host, command);
  }

  std::string port() const {
    return failure_.host.port ? "port " + std::to_string(*failure_.host.port) : "its port";
  }

  std::string about_this_machine() const {
    return "the agent on this machine did not start: " + failure_.launcher_path + " " +
           failure_.exit;
  }

  // What our own script found out there.
  std::string about_script() const {
    for (const std::string& line : lines_of(text_)) {
      if (line.rfind(kBootstrapSays, 0) != 0) continue;
      const std::string message = line.substr(std::string_view(kBootstrapSays).size());
      std::string advice;
      if (message.rfind("machine ", 0) == 0) {
        advice = "; install Chainmail built for that machine at " + failure_.launcher_path +
                 " there, of this launcher's version";
      } else if (message.rfind("no folder", 0) == 0) {
        advice =
            " set TMPDIR there to a folder that programs can be run from, or install this "
            "version of Chainmail at " +
            failure_.launcher_path + " there";
      } else {
        advice = "; try again, and look at the disk of that folder";
      }
      return "host " + host_ + ": " + message + advice;
    }
    return {};
  }

  std::string about_name() const {
    if (says({kNameService})) {
      return "the name service does not answer for host " + host_ +
             ": give it an address in /etc/hosts or a HostName in ~/.ssh/config, or try later";
    }
    if (!says({"Could not resolve hostname", "Name or service not known", "unknown host"})) {
      return {};
    }
    return "unknown host " + host_ +
           ": check its spelling in the hostfile, or give it an address in /etc/hosts or a "
           "HostName in ~/.ssh/config";
  }

  std::string about_host_key() const {
    if (says({"REMOTE HOST IDENTIFICATION HAS CHANGED"})) {
      return "the key of host " + host_ +
             " is not the one that is known: it was installed anew, or somebody stands in its "
             "place; ask its administrator, remove the old key as ssh says below, then run this "
             "once and compare the fingerprint: " +
             login("true");
    }
    if (!says({"Host key verification failed", "host key is known for"})) return {};
    return "the key of host " + host_ +
           " is not known here; run this once, compare the fingerprint that it shows and say "
           "yes: " +
           login("true");
  }

  std::string about_login() const {
    if (says({"This account is", "account is currently not available", "nologin"})) {
      return "host " + host_ +
             " lets this user in but gives no shell: another user? (user= in the "
             "hostfile)";
    }
    if (!says({"Permission denied (", "Too many authentication failures",
               "Permission denied, please try again"})) {
      return {};
    }
    const std::string user = failure_.host.user.empty() ? "" : failure_.host.user + "@";
    return "permission denied on host " + host_ +
           ": ssh must work without a password; try: ssh-copy-id " + user + host_ +
           ", then: " + login("true");
  }

  std::string about_connection() const {
    if (says({"Connection refused"})) {
      return "host " + host_ + " is up but refuses connections to " + port() +
             ": does sshd run there, and on that port? (port= in the hostfile)";
    }
    if (says({"No route to host", "Network is unreachable"})) {
      return "there is no route to host " + host_ + ": is its address right, and is it up?";
    }
    if (says({"kex_exchange_identification", "Connection reset by", "Connection closed by",
              "banner exchange", "Exceeded MaxStartups", "Not allowed at this time"})) {
      return "host " + host_ +
             " closed the connection before the login, also when asked again: "
             "are too many logins open there (MaxStartups of sshd), or is this host shut out?";
    }
    if (says({"timed out", "Timeout, server"})) {
      return "host " + host_ + " does not answer: is it up, and does a firewall drop " + port() +
             "?";
    }
    return {};
  }

  std::string about_program() const {
    if (says({"version `GLIBC_"})) {
      return "the C library on host " + host_ +
             " is older than the one that this launcher was "
             "built with: install Chainmail built there at " +
             failure_.launcher_path;
    }
    if (says({"cannot execute", "Exec format error"}) || failure_.exit_code == 126) {
      return "the agent cannot be run on host " + host_ + ": is it built for that machine?";
    }
    if (says({"command not found", "No such file or directory", "not found"}) ||
        failure_.exit_code == 127) {
      return "a command was not found on host " + host_ +
             ": the agent needs /bin/sh and its usual commands there (head, mktemp, cksum)";
    }
    if (failure_.exit_code == 0) {
      return "on host " + host_ + " the shell ended at once: " + failure_.remote_shell.front() +
             " must pass standard input on (kubectl exec needs -i, qrsh no -nostdin; pbsdsh "
             "cannot)";
    }
    if (failure_.exit_code < 0) {
      return "host " + host_ + " " + failure_.exit +
             ": what do its login shell's start-up files wait for? Try: time " + login("true");
    }
    return {};
  }

  const StartFailure& failure_;
  const std::string& host_;
  const std::string& text_;
};

}  // namespace

std::string explain(const StartFailure& failure) {
  const std::string hint = failure.hint.empty() ? "" : "; " + failure.hint;
  return Diagnosis(failure).advice() + hint + last_lines(failure.error_output, 10);
}

bool may_pass(const std::string& error_output) {
  return error_output.find("Permission denied (") == std::string::npos &&
         error_output.find("Host key verification failed") == std::string::npos;
}

int worthwhile_tries(const std::string& error_output) {
  constexpr int kOfBusyHost = 10;
  // Where there is no name server at all, every mistyped name looks like this.
  constexpr int kOfNameService = 3;
  const auto says_any = [&error_output](const auto& phrases) {
    return std::any_of(std::begin(phrases), std::end(phrases), [&](const char* phrase) {
      return error_output.find(phrase) != std::string::npos;
    });
  };
  if (says_any(kFinal)) return 1;
  if (error_output.find(kNameService) != std::string::npos) return kOfNameService;
  return says_any(kBusy) ? kOfBusyHost : 1;
}

}  // namespace chainmail::launch
