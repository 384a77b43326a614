// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/kubectl_failure.h"

#include <algorithm>
#include <vector>

namespace chainmail::launch {
namespace {

// All of these phrases in what was printed.
struct KubectlMeaning {
  std::vector<const char*> phrases;
  const char* advice;
  bool may_pass;
};

constexpr const char* kNoRight =
    "kubectl may not exec in pod %h: the Role of whoever runs the launcher needs get on pods, and "
    "get and create on pods/exec, for that pod";
constexpr const char* kNoLogin =
    "the API server does not know who runs kubectl: is the service account's token there, or has "
    "the login expired? Try: %t";
constexpr const char* kNotRunning =
    "the container of pod %h does not run: is it still being started, or has it ended? Try: "
    "kubectl "
    "describe pod %h";
constexpr const char* kNoServer =
    "kubectl does not reach the API server, so neither pod %h; try: %t";

// The first that applies. What is refused stays so.
const std::vector<KubectlMeaning>& kubectl_meanings() {
  static const std::vector<KubectlMeaning> all = {
      {{"is forbidden: "}, kNoRight, false},
      {{"(Forbidden)"}, kNoRight, false},
      {{"(Unauthorized)"}, kNoLogin, false},
      {{"You must be logged in to the server"}, kNoLogin, false},
      {{"namespaces \"", "\" not found"},
       "there is no such namespace for pod %h: check kubectl's -n, and its context",
       false},
      {{"pods \"", "\" not found"},
       "there is no pod %h: is it still being created, and is that its name and namespace? Try: "
       "kubectl get pods",
       true},
      {{"container not found (\""}, kNotRunning, true},
      {{"does not have a host assigned"}, kNotRunning, true},
      {{"cannot exec in a stopped"}, kNotRunning, true},
      {{"cannot exec into a container in a completed pod"}, kNotRunning, true},
      {{"container", "is not running"}, kNotRunning, true},
      {{"container", "not created"}, kNotRunning, true},
      {{"error dialing backend"},
       "the node of pod %h does not answer the API server: is it up? Try: kubectl get nodes",
       true},
      {{"The connection to the server "}, kNoServer, true},
      {{"Unable to connect to the server"}, kNoServer, true},
  };
  return all;
}

std::string base_name(const std::string& program) { return program.substr(program.rfind('/') + 1); }

// kubectl, or OpenShift's program for the same, also behind words of env or timeout.
std::vector<std::string> words_of_kubectl(const std::vector<std::string>& shell) {
  const auto found = std::find_if(shell.begin(), shell.end(), [](const std::string& word) {
    return base_name(word) == "kubectl" || base_name(word) == "oc";
  });
  return {found, shell.end()};
}

bool passes_input_on(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    const bool is_short = word.size() > 1 && word[0] == '-' && word[1] != '-';
    return word == "--stdin" || word == "--stdin=true" ||
           (is_short && word.find('i') != std::string::npos);
  });
}

}  // namespace

std::optional<KubectlFailure> kubectl_failure(const StartFailure& failure) {
  const std::vector<std::string> words = words_of_kubectl(failure.remote_shell);
  if (words.empty()) return std::nullopt;
  for (const KubectlMeaning& meaning : kubectl_meanings()) {
    const bool applies = std::all_of(
        meaning.phrases.begin(), meaning.phrases.end(),
        [&](const char* phrase) { return failure.error_output.find(phrase) != std::string::npos; });
    if (applies) return KubectlFailure{meaning.advice, meaning.may_pass};
  }
  // Kubernetes issue 73056: a stream that was cut looks like a command that has ended well.
  if (failure.exit_code == 0 && passes_input_on(words)) {
    return KubectlFailure{
        "the connection to pod %h was cut before the agent spoke: did its node, or the pod, "
        "restart? (kubectl %e, as it does then)",
        true};
  }
  if (failure.exit_code == -1) {
    return KubectlFailure{"pod %h %e: do the API server and the pod's node answer? Try: time %t",
                          true};
  }
  return std::nullopt;
}

}  // namespace chainmail::launch
