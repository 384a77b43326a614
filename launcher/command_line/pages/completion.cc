// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <string_view>

#include "launcher/command_line/pages/pages.h"
#include "launcher/command_line/verbs.h"
#include "launcher/job/options.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

constexpr std::string_view kCompletionHead =
    "# SPDX-License-Identifier: BSD-3-Clause\n"
    "# SPDX-FileCopyrightText: 2026 the Chainmail authors\n"
    "# Made by: launcher --write-completion ";

constexpr std::string_view kBashBegin = R"sh(bash

_chainmail_launcher() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local options='' jobs='' verbs='' verb=''
  COMPREPLY=()
  [ "$COMP_CWORD" -gt 1 ] && verb=${COMP_WORDS[1]}
  case $verb in
)sh";

// What is left empty is completed as a file's name.
constexpr std::string_view kBashEnd = R"sh(  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  elif [ -n "$jobs" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" ps -a -q 2>/dev/null)" -- "$current")
  elif [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$current"; compgen -c -- "$current")
  fi
}
complete -o bashdefault -o default -F _chainmail_launcher launcher chainmailrun
)sh";

constexpr std::string_view kZshBegin = R"sh(zsh

_chainmail_jobs() {
  local -a jobs
  jobs=(${(f)"$($words[1] ps -a -q 2>/dev/null)"})
  compadd -a jobs
}

_chainmail_launcher() {
  local -a verbs options
  local jobs=
)sh";

constexpr std::string_view kZshEnd = R"sh(  esac
  if (( CURRENT == 2 )); then
    _describe -t verbs verb verbs
    _describe -o -t options option options
    _command_names -e
    _files
  elif [[ $words[CURRENT] == -* ]]; then
    _describe -o -t options option options
  else
    [[ -n $jobs ]] && _chainmail_jobs
    _files
  fi
}

_chainmail_launcher "$@"
)sh";

constexpr std::string_view kFishBegin = R"sh(fish

function __chainmail_verb
    set -l words (commandline -opc)
    test (count $words) -gt 1; and contains -- $words[2] $argv
end

)sh";

// Of jobs, which `launcher ps` knows; those of elastic jobs are pids and files.
bool takes_jobs(const JobVerb& verb) {
  return !verb.is_elastic && verb.operands.starts_with("JOB");
}

// In quotes for a shell; `more` are characters that the completion itself would act upon.
std::string quoted_for(std::string_view text, std::string_view quote, std::string_view more) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += quote;
    } else {
      if (more.find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out + "'";
}

template <typename Options>
std::vector<std::string> names_of(const Options& options) {
  std::vector<std::string> names;
  for (const auto& option : options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

// Those behind which another word belongs to them.
template <typename Options>
std::vector<std::string> names_with_value(const Options& options) {
  std::vector<std::string> names;
  for (const auto& option : options) {
    if (option.value.empty()) continue;
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

std::vector<std::string> verb_names() {
  std::vector<std::string> names;
  for (const JobVerb& verb : job_verbs()) names.push_back(verb.name);
  return names;
}

std::string bash_case(const JobVerb& verb) {
  const std::vector<std::string> valued = names_with_value(verb.options);
  std::string text = "    " + verb.name + ")\n";
  if (!valued.empty()) {
    text += "      case $previous in " + joined(valued, "|") + ") return ;; esac\n";
  }
  text += "      options='" + joined(names_of(verb.options), " ") + "'\n";
  if (takes_jobs(verb)) text += "      jobs=yes\n";
  return text + "      ;;\n";
}

std::string bash_completion() {
  std::string text = std::string(kCompletionHead) + std::string(kBashBegin);
  for (const JobVerb& verb : job_verbs()) text += bash_case(verb);
  const std::vector<ShownOption> options = shown_options();
  text += "    *)\n      case $previous in\n        " + joined(names_with_value(options), "|") +
          ") return ;;\n      esac\n      options='" + joined(names_of(options), " ") +
          "'\n      verbs='" + joined(verb_names(), " ") + "'\n      ;;\n  esac\n";
  return text + std::string(kBashEnd);
}

template <typename Options>
std::string zsh_options(const Options& options) {
  std::string text = "      options=(\n";
  for (const auto& option : options) {
    for (const std::string& name : option.names) {
      text += "        " + quoted_for(name, "'\\''", ":") + ":" +
              quoted_for(option.help, "'\\''", ":") + "\n";
    }
  }
  return text + "      )\n";
}

std::string zsh_completion() {
  std::string text = "#compdef launcher chainmailrun\n";
  text += kCompletionHead;
  text += kZshBegin;
  text += "  verbs=(\n";
  for (const JobVerb& verb : job_verbs()) {
    text += "    " + verb.name + ":" + quoted_for(verb.help, "'\\''", ":") + "\n";
  }
  text += "  )\n  case $words[2] in\n";
  for (const JobVerb& verb : job_verbs()) {
    text += "    " + verb.name + ")\n" + zsh_options(verb.options) +
            (takes_jobs(verb) ? "      jobs=yes\n" : "") + "      ;;\n";
  }
  text += "    *)\n" + zsh_options(shown_options()) + "      ;;\n";
  return text + std::string(kZshEnd);
}

// "-l lines", "-o np" and the like.
std::string fish_name(const std::string& name) {
  if (name.starts_with("--")) return " -l " + name.substr(2);
  return (name.size() == 2 ? " -s " : " -o ") + name.substr(1);
}

template <typename Options>
std::string fish_options(const Options& options, const std::string& condition) {
  std::string text;
  for (const auto& option : options) {
    text += "complete -c launcher -n " + quoted_for(condition, "\\'", "\\");
    for (const std::string& name : option.names) text += fish_name(name);
    text += option.value.empty() ? " -d " : " -r -d ";
    text += quoted_for(option.help, "\\'", "\\") + "\n";
  }
  return text;
}

std::string fish_completion() {
  std::string text = std::string(kCompletionHead) + std::string(kFishBegin);
  for (const JobVerb& verb : job_verbs()) {
    const std::string condition = "__chainmail_verb " + verb.name;
    text += "complete -c launcher -n 'test (count (commandline -opc)) -eq 1' -a " + verb.name +
            " -d " + quoted_for(verb.help, "\\'", "\\") + "\n" +
            fish_options(verb.options, condition);
    if (takes_jobs(verb)) {
      text += "complete -c launcher -n '" + condition + "' -a '(launcher ps -a -q 2>/dev/null)'\n";
    }
  }
  text += fish_options(shown_options(), "not __chainmail_verb " + joined(verb_names(), " "));
  return text + "complete -c chainmailrun -w launcher\n";
}

}  // namespace

std::string completion_for(const std::string& shell) {
  if (shell == "bash") return bash_completion();
  if (shell == "zsh") return zsh_completion();
  if (shell == "fish") return fish_completion();
  throw UsageError("--write-completion takes bash, zsh or fish, not '" + shell + "'");
}

}  // namespace chainmail::launch
