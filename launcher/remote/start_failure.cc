// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/start_failure.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>

#include "launcher/remote/bootstrap.h"
#include "launcher/remote/kubectl_failure.h"
#include "launcher/remote/rsh_command.h"

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
// What a host says that is there, and will say again.
constexpr const char* kRefusals[] = {"Permission denied (", "Host key verification failed",
                                     "Too many authentication failures"};

bool says_any(const std::string& text, std::span<const char* const> phrases) {
  return std::any_of(phrases.begin(), phrases.end(), [&text](const char* phrase) {
    return text.find(phrase) != std::string::npos;
  });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    // Whatever a machine sends must not act on the user's terminal.
    line.erase(std::remove_if(line.begin(), line.end(),
                              [](char c) { return static_cast<unsigned char>(c) < 32; }),
               line.end());
    const bool is_request = line.starts_with("<shell-for-") || line.starts_with("<image-for-");
    if (!line.empty() && !is_request) lines.push_back(line);
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

// What one of these phrases, or this exit code, means. In `advice` %h stands for the host, %u for
// "user@" where one is given, %p for the port, %l for the launcher's path, %s for the remote shell,
// %e for how that ended and %t for a login that the user can try.
struct Meaning {
  std::vector<const char*> phrases;
  std::string advice;
  std::optional<int> exit_code = std::nullopt;
};

// The first that applies.
const std::vector<Meaning>& meanings() {
  static const std::vector<Meaning> all = {
      {{kNameService},
       "the name service does not answer for host %h: give it an address in /etc/hosts or a "
       "HostName "
       "in ~/.ssh/config, or try later"},
      {{"Could not resolve hostname", "Name or service not known", "unknown host"},
       "unknown host %h: check its spelling, or give it an address in /etc/hosts "
       "or a "
       "HostName in ~/.ssh/config"},
      {{"REMOTE HOST IDENTIFICATION HAS CHANGED"},
       "the key of host %h is not the one that is known: it was installed anew, or somebody stands "
       "in "
       "its place; ask its administrator, remove the old key as ssh says below, then run this once "
       "and compare the fingerprint: %t"},
      {{"Host key verification failed", "host key is known for"},
       "the key of host %h is not known here; run this once, compare the fingerprint that it shows "
       "and say yes: %t"},
      {{"This account is", "account is currently not available", "nologin"},
       "host %h lets this user in but gives no shell: another user? (user= in the hostfile)"},
      {{"Permission denied (", "Too many authentication failures",
        "Permission denied, please try again"},
       "permission denied on host %h: ssh must work without a password; try: ssh-copy-id %u%h, "
       "then: "
       "%t"},
      {{"Connection refused"},
       "host %h is up but refuses connections to %p: does sshd run there, and on that port? (port= "
       "in "
       "the hostfile)"},
      {{"No route to host", "Network is unreachable"},
       "there is no route to host %h: is its address right, and is it up?"},
      {{"kex_exchange_identification", "Connection reset by", "Connection closed by",
        "banner exchange", "Exceeded MaxStartups", "Not allowed at this time"},
       "host %h closed the connection before the login, also when asked again: are too many logins "
       "open there (MaxStartups of sshd), or is this host shut out?"},
      {{"timed out", "Timeout, server"},
       "host %h does not answer: is it up, and does a firewall drop %p?"},
      {{"version `GLIBC_"},
       "the C library on host %h is older than the one that this launcher was built with: install "
       "Chainmail built there at %l"},
      {{"cannot execute", "Exec format error"},
       "the agent cannot be run on host %h: is it built for that machine?",
       126},
      {{"command not found", "No such file or directory", "not found"},
       "a command was not found on host %h: the agent needs /bin/sh and its usual commands there "
       "(head, mktemp, cksum)",
       127},
      {{},
       "on host %h the shell ended at once: %s must pass standard input on (kubectl exec needs -i, "
       "qrsh no -nostdin; pbsdsh cannot)",
       0},
      {{}, "host %h %e: what do its login shell's start-up files wait for? Try: time %t", -1},
  };
  return all;
}

bool applies(const Meaning& meaning, const StartFailure& failure) {
  return failure.exit_code == meaning.exit_code ||
         std::any_of(meaning.phrases.begin(), meaning.phrases.end(), [&](const char* phrase) {
           return failure.error_output.find(phrase) != std::string::npos;
         });
}

std::string filled_in(const std::string& advice, const StartFailure& failure) {
  const Host& host = failure.host;
  std::string text;
  for (std::size_t i = 0; i < advice.size(); ++i) {
    if (advice[i] != '%') {
      text += advice[i];
      continue;
    }
    switch (advice[++i]) {
      case 'h':
        text += host.name;
        break;
      case 'u':
        text += host.user.empty() ? "" : host.user + "@";
        break;
      case 'p':
        text += host.port ? "port " + std::to_string(*host.port) : "its port";
        break;
      case 'l':
        text += failure.launcher_path;
        break;
      case 's':
        text += failure.remote_shell.front();
        break;
      case 'e':
        text += failure.exit;
        break;
      default:
        text += login_line(failure.remote_shell, host, "true");
    }
  }
  return text;
}

// What to do about what our own script says.
std::string advice_on(const std::string& message, const std::string& path) {
  if (message.starts_with("machine ")) {
    return "; install Chainmail built for that machine at " + path +
           " there, of this launcher's version";
  }
  if (message.starts_with("no folder")) {
    return " set TMPDIR there to a folder that programs can be run from, or install this version "
           "of Chainmail at " +
           path + " there";
  }
  if (message.starts_with("container:")) return "";
  if (message.starts_with("commands are missing:")) {
    return "; the agent needs them there (coreutils, grep and sed, or busybox)";
  }
  if (message.starts_with("another C library:")) {
    return ", which this launcher is loaded by; it needs the GNU C library there, as Debian, "
           "Ubuntu and Red Hat have it, and not musl";
  }
  return "; try again, and look at the disk of that folder";
}

// What our own script found out there; empty where it did not run.
std::string words_of_script(const StartFailure& failure) {
  for (const std::string& line : lines_of(failure.error_output)) {
    if (!line.starts_with(kBootstrapSays)) continue;
    const std::string message = line.substr(std::string_view(kBootstrapSays).size());
    const std::string where =
        failure.container == nullptr ? "" : "in a container of " + failure.container->image + ": ";
    return "host " + failure.host.name + ": " + where + message +
           advice_on(message, failure.launcher_path);
  }
  return {};
}

// What our own scripts ask for is in it as well.
bool says_nothing(const StartFailure& failure) { return lines_of(failure.error_output).empty(); }

// The engine's client has run there.
std::string advice_for_container(const StartFailure& failure) {
  constexpr int kOfEngine = 125;
  const std::string& engine = failure.container->engine;
  const std::string on_host = " on host " + failure.host.name;
  if (failure.error_output.find("version `GLIBC_") != std::string::npos) {
    return "the C library in image " + failure.container->image + on_host +
           " is older than the one that this launcher was built with: use an image with a newer "
           "one, or a launcher that was built with that one";
  }
  const bool is_of_init = failure.error_output.find("failed to exec pid1") != std::string::npos;
  // Engines exit so as well where the host allows no container; they name the shell if it is that.
  constexpr int kNotAllowed = 126;
  const bool names_shell =
      says_nothing(failure) || failure.error_output.find("/bin/sh") != std::string::npos;
  const bool is_of_shell =
      failure.exit_code == 127 || (failure.exit_code == kNotAllowed && names_shell);
  if (is_of_shell || is_of_init) {
    return "image " + failure.container->image + on_host +
           " has no /bin/sh that can be run: the agent needs a shell and its usual commands there";
  }
  if (failure.exit_code == kOfEngine || failure.exit_code == kNotAllowed || engine == "apptainer") {
    return engine + on_host + " cannot start a container of image " + failure.container->image +
           ": is the image there, and may this user use " + engine + "?";
  }
  return "the agent in a container of image " + failure.container->image + on_host +
         " did not start: " + engine + " " + failure.exit +
         // The last words of a container that ends at once may get lost in the engine.
         (says_nothing(failure) ? "; has the image a /bin/sh that can be run?" : "");
}

std::string advice_for(const StartFailure& failure) {
  if (failure.remote_shell.empty()) {
    return "the agent on this machine did not start: " + failure.launcher_path + " " + failure.exit;
  }
  if (std::string words = words_of_script(failure); !words.empty()) return words;
  if (failure.container != nullptr) return advice_for_container(failure);
  if (const auto kubectl = kubectl_failure(failure)) return filled_in(kubectl->advice, failure);
  for (const Meaning& meaning : meanings()) {
    if (applies(meaning, failure)) return filled_in(meaning.advice, failure);
  }
  return filled_in("the agent on host %h did not start: %s %e; try: %t", failure) +
         (is_scheduler_starter(failure.remote_shell.front())
              ? "; where ssh gets there, --rsh ssh does without it"
              : "");
}

}  // namespace

std::string explain(const StartFailure& failure) {
  const std::string hint = failure.hint.empty() ? "" : "; " + failure.hint;
  return advice_for(failure) + hint + last_lines(failure.error_output, 10);
}

bool is_out_of_reach(const StartFailure& failure) {
  if (failure.container == nullptr && words_of_script(failure).empty()) {
    if (const auto kubectl = kubectl_failure(failure)) return kubectl->may_pass;
  }
  // Of a shell there: it could not run something, or has ended well.
  constexpr int kOfShell[] = {0, 126, 127};
  const bool was_reached = failure.container != nullptr || failure.remote_shell.empty() ||
                           std::ranges::count(kOfShell, failure.exit_code) > 0;
  if (was_reached) return false;
  return !says_any(failure.error_output, kRefusals) && words_of_script(failure).empty();
}

int worthwhile_tries(const std::string& error_output) {
  constexpr int kOfBusyHost = 10;
  // Where there is no name server at all, every mistyped name looks like this.
  constexpr int kOfNameService = 3;
  if (says_any(error_output, kFinal)) return 1;
  if (error_output.find(kNameService) != std::string::npos) return kOfNameService;
  return says_any(error_output, kBusy) ? kOfBusyHost : 1;
}

}  // namespace chainmail::launch
