// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/remote/kubectl_failure.h"

#include <algorithm>
#include <cctype>
#include <string_view>
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
constexpr const char* kNoConfiguration =
    "kubectl cannot be used as it is called or set up, so neither is pod %h reached: it says why "
    "below; try: %t";
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
      {{"localhost:8080 was refused"},
       "kubectl does not know the cluster, and asks this machine: where is its configuration "
       "(KUBECONFIG, ~/.kube/config), or in a pod its service account's token? Try: %t",
       false},
      {{"no configuration has been provided"}, kNoConfiguration, false},
      {{"error: context \"", "\" does not exist"}, kNoConfiguration, false},
      {{"error: unknown flag: "}, kNoConfiguration, false},
      {{"error: unknown shorthand flag: "}, kNoConfiguration, false},
      {{"error: flag needs an argument: "}, kNoConfiguration, false},
      {{"getting credentials: exec: executable ", " not found"}, kNoConfiguration, false},
      {{"Unable to connect to the server", "x509: "}, kNoConfiguration, false},
      {{"container ", " is not valid for pod "},
       "pod %h has no container of the name that -c of kubectl gives; try: kubectl describe pod %h",
       false},
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

// kubectl or OpenShift's oc, as they are installed: "kubectl-1.30", "kubectl.exe".
bool is_kubectl(const std::string& word) {
  const std::string name = base_name(word);
  constexpr std::string_view kName = "kubectl";
  const bool is_own = name.starts_with(kName) &&
                      (name.size() == kName.size() || std::islower(name[kName.size()]) == 0);
  return is_own || name == "oc" || name == "oc.exe";
}

bool says_server(const StartFailure& failure) {
  return failure.error_output.find("Error from server") != std::string::npos;
}

// Also behind words of env or timeout. What has another name, such as a script of the user's, is
// known by what it says.
std::vector<std::string> words_of_kubectl(const StartFailure& failure) {
  const std::vector<std::string>& shell = failure.remote_shell;
  // A user of ssh's may be called oc.
  for (auto word = shell.begin(); word != shell.end(); ++word) {
    const bool is_login = word != shell.begin() && word[-1] == "-l";
    if (is_kubectl(*word) && !is_login) return {word, shell.end()};
  }
  return says_server(failure) ? shell : std::vector<std::string>();
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
  const std::vector<std::string> words = words_of_kubectl(failure);
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
  if (failure.exit_code == 1 && says_server(failure)) {
    return KubectlFailure{
        // it is too busy, or without its store
        "the API server could not start the agent in pod %h, and says why below; try: %t", true};
  }
  if (failure.exit_code == -1) {
    return KubectlFailure{"pod %h %e: do the API server and the pod's node answer? Try: time %t",
                          true};
  }
  return std::nullopt;
}

}  // namespace chainmail::launch
