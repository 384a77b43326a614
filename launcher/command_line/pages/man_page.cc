// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <string_view>
#include <utility>

#include "launcher/command_line/pages/pages.h"
#include "launcher/command_line/verbs.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

constexpr std::string_view kManSynopsis = R"man(.SH SYNOPSIS
.B launcher
[\fIoptions\fR] \fIprogram\fR [\fIarguments\fR]
.br
.B launcher
[\fIoptions\fR] \fIprogram\fR ... \fB:\fR [\fIoptions\fR] \fIprogram\fR ...
.br
.B launcher
\fIverb\fR ...
.SH DESCRIPTION
.B launcher
starts a program on one or more hosts, one process per rank, and ends all of them when one fails.
.B chainmailrun
is the same program.
.PP
In the names of options \(aq\-\(aq and \(aq_\(aq are the same, one dash or two too, and a value may
follow after \(aq=\(aq.
All from the program\(aqs name on belongs to the program.
A word \(aq:\(aq begins another program with its own
.BR \-n ,
.BR \-N ,
.BR \-H ,
.BR \-\-hostfile ,
.B \-x
and
.BR \-\-wdir ;
behind \(aq\-\-\(aq a \(aq:\(aq is an argument like any other.
)man";

constexpr std::string_view kManRest = R"man(.SH EXIT STATUS
0 if every rank ended with 0, else the code of the first rank that failed (128 + signal for a
signal).
.TP
.B 2
bad usage
.TP
.B 124
a time limit has passed
.TP
.B 125
an error of the launcher\(aqs own, and of verbs, a job that was lost
.TP
.B 126
the program cannot be run
.TP
.B 127
the program was not found
.TP
.B 130
Ctrl\-C, which ends a verb and leaves its job alone
.SH FILES
.TP
.I ~/.local/state/chainmail
the state of jobs;
.B CHAINMAIL_STATE
or
.B XDG_STATE_HOME
name another place
)man";

// What groff would take for something else.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '.' && out.empty()) {
      out += "\\&.";
    } else {
      out += c;
    }
  }
  return out;
}

std::string option_entry(const std::vector<std::string>& names, const std::string& value,
                         const std::string& help) {
  std::string text = ".TP\n";
  for (const char* between = ""; const std::string& name : names) {
    text += std::exchange(between, ", ") + ("\\fB" + escaped(name) + "\\fR");
  }
  if (!value.empty()) text += " \\fI" + escaped(value) + "\\fR";
  return text + "\n" + escaped(help) + "\n";
}

std::string verb_entry(const JobVerb& verb) {
  std::string text = ".SS \"" + escaped(synopsis_of(verb)) + "\"\n" + escaped(verb.help) + "\n";
  for (const VerbOption& option : verb.options) {
    text += option_entry(option.names, option.value, option.help);
  }
  return text;
}

}  // namespace

ShownOption shown_option(const Flag& flag) {
  ShownOption option;
  std::string text = flag.synopsis;
  std::replace(text.begin(), text.end(), ',', ' ');
  // Behind the last name a comma belongs to the value: "-genvlist A,B".
  std::size_t end_of_names = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (text[at] == '-') {
      option.names.push_back(text.substr(at, end - at));
      end_of_names = end;
    }
    at = end + 1;
  }
  option.value = flag.synopsis.substr(std::min(end_of_names + 1, flag.synopsis.size()));
  option.help = flag.help;
  std::replace(option.help.begin(), option.help.end(), '\n', ' ');
  return option;
}

std::vector<ShownOption> shown_options() {
  std::vector<ShownOption> options;
  for (const Flag& flag : known_flags()) {
    if (flag.level != HelpLevel::kAlias) options.push_back(shown_option(flag));
  }
  return options;
}

std::string man_page(const std::string& version) {
  std::string text = ".TH LAUNCHER 1 \"\" \"chainmail " + escaped(version) +
                     "\" \"User Commands\"\n"
                     ".SH NAME\n"
                     "launcher, chainmailrun \\- start a program on many hosts, one process per "
                     "rank\n";
  text += kManSynopsis;
  text += ".SH OPTIONS\n";
  for (const ShownOption& option : shown_options()) {
    text += option_entry(option.names, option.value, option.help);
  }
  text +=
      ".SH VERBS\n"
      "They count as such in the first place alone: a program of such a name is ./ls, or\n"
      "stands behind \\(aq\\-\\-\\(aq.\n"
      ".I JOB\n"
      "is ";
  text += escaped(kWhatJobIs);
  text +=
      "; for status, add and drain it is the pid of a launcher on this machine, or a hosts file.\n";
  for (const JobVerb& verb : job_verbs()) text += verb_entry(verb);
  return text + std::string(kManRest);
}

}  // namespace chainmail::launch
