// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What --help and --help-all print.

#include "launcher/command_line/flags.h"
#include "launcher/command_line/parse.h"
#include "launcher/command_line/verbs.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kColumn = 22;

// "  -n, -np N           number of ranks": the synopsis, then the help in a column of its own.
std::string entry(const std::string& synopsis, const std::string& help) {
  std::string text = "  " + synopsis;
  if (text.size() + 1 > kColumn) {
    text += "\n" + std::string(kColumn, ' ');
  } else {
    text.append(kColumn - text.size(), ' ');
  }
  for (const char c : help) {
    text += c;
    if (c == '\n') text.append(kColumn, ' ');
  }
  return text + "\n";
}

std::string entries(HelpLevel up_to) {
  std::string text;
  for (const Flag& flag : known_flags()) {
    const bool is_shown = flag.level == HelpLevel::kCommon ||
                          (flag.level == HelpLevel::kMore && up_to == HelpLevel::kMore);
    if (is_shown) text += entry(flag.synopsis, flag.help);
  }
  return text;
}

std::string verb_entries() {
  std::string text;
  for (const JobVerb& verb : job_verbs()) text += entry(synopsis_of(verb), verb.help);
  return text;
}

constexpr const char* kHead =
    "launcher [options] program [arguments]   starts a program, one process per rank\n\n";

}  // namespace

std::string usage_text() {
  return kHead + entries(HelpLevel::kCommon) +
         "\n"
         "Exit code: 0 if all ranks ended with 0, else that of the first rank that failed.\n";
}

std::string full_usage_text() {
  return std::string(kHead) +
         "launcher [options] program ... : [options] program ...   several programs in a job\n"
         "launcher VERB ...                                        jobs that there are\n\n" +
         entries(HelpLevel::kMore) + "\nVerbs, which count as such in the first place alone:\n" +
         verb_entries() + R"(
JOB is an id, its unique beginning, a name (the latest job of it) or a folder; for status, add and
drain the pid of a launcher on this machine, or a hosts file. A program that has a verb's name is
./ls, or stands behind '--'.

'-' and '_' are the same in names, one dash or two too, and a value may follow after '='. All from
the program's name on belongs to the program, but a word ':' begins another program with its own
-n, -N, -H, --hostfile, -x and --wdir; behind '--' a ':' is an argument like any other.

Exit code: 0 if every rank ended with 0, else the code of the first rank that failed (128 + signal
for a signal); 2 bad usage, 124 time limit, 125 launcher's own error, 126 program cannot be run,
127 program not found. docs/launcher.md has the details.
)";
}

}  // namespace chainmail::launch
