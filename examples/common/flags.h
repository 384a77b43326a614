// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The frame of a program whose options are gflags (DEFINE_...): --help shows the program's own ones
// and ends with 0, a command line that cannot be carried out ends with 2 and one message, and of an
// error that all ranks of a job have agreed on rank 0 alone speaks; every other one is told by the
// rank that has it, and so is every one of an elastic job, where no rank is sure to be there.
// gflags' own parser prints the flags of every library and ends with 1.
//
// One thread, before others are started.

#pragma once

#include <gflags/gflags.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <chainmail/train/agreed_error.h>

namespace flags {

struct Program {
  std::string name;
  std::string what;                                            ///< it does, for --help
  std::vector<std::pair<char, std::string>> short_names = {};  ///< such as {'b', "batchsize"}
  std::string arguments = "";  ///< what it takes beside flags, such as "[MIB...]"; nothing
  std::string version = "";
};

/// A command line that cannot be carried out, on no rank of the job.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// One that cannot be carried out here: other hosts may have what it needs.
struct LocalUsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace internal {

/// As few digits as give `value` back.
inline std::string shortest(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general).ptr;
  return {text, end};
}

/// Without the frames that LibTorch's errors have in their texts, ours that quote them too.
inline std::string without_frames(std::string_view text) {
  std::string kept;
  bool follows_frame = true;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const bool is_frame = line.starts_with("Exception raised from ") || line.starts_with("frame #");
    if (!is_frame) kept += (follows_frame ? "" : "\n") + std::string(line);
    follows_frame = is_frame;
  }
  return kept.substr(0, kept.find_last_not_of('\n') + 1);
}

/// `code`, unless some of what the program has printed was lost.
inline int after_output(int code) {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  throw std::runtime_error("cannot write standard output");
}

inline std::vector<gflags::CommandLineFlagInfo> flags_of(std::string_view file) {
  std::vector<gflags::CommandLineFlagInfo> all;
  gflags::GetAllFlags(&all);
  std::erase_if(all, [&](const auto& flag) { return flag.filename != file; });
  return all;
}

/// How many letters have to change to make `b` of `a`; 1 when `b` only goes on where `a` ends.
inline std::size_t distance(std::string_view a, std::string_view b) {
  if (b.starts_with(a)) return 1;
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = std::exchange(row[j + 1], std::min({changed, row[j] + 1, row[j + 1] + 1}));
    }
  }
  return row.back();
}

inline UsageError unknown_flag(const std::string& word, const std::string& name,
                               std::string_view file) {
  std::string nearest;
  std::size_t best = name.size() / 3 + 2;
  for (const auto& flag : flags_of(file)) {
    const std::size_t changes = name.size() < 3 ? best : distance(name, flag.name);
    if (changes < best) {
      best = changes;
      nearest = ", did you mean --" + flag.name + "?";
    }
  }
  return UsageError("unknown flag '" + word + "'" + (nearest.empty() ? ";" : nearest) +
                    " see --help");
}

inline void print_help(const Program& program, std::string_view file) {
  std::printf("usage: %s [FLAGS]%s%s\n%s\n\n", program.name.c_str(),
              program.arguments.empty() ? "" : " ", program.arguments.c_str(),
              program.what.c_str());
  for (const auto& flag : flags_of(file)) {
    std::string name = "--" + flag.name;
    for (const auto& [letter, word] : program.short_names) {
      if (word == flag.name) name += std::string(", -") + letter;
    }
    std::string value = flag.default_value;
    if (flag.type == "double") value = shortest(std::stod(value));
    if (!value.empty()) value = " [" + value + "]";
    std::printf("  %-22s %s%s\n", name.c_str(), flag.description.c_str(), value.c_str());
  }
}

/// Sets the flags and returns the other words.
inline std::vector<std::string> parse(const Program& program, std::vector<std::string> words,
                                      std::string_view file) {
  std::vector<std::string> others;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 2 || word[0] != '-') {
      if (program.arguments.empty()) throw UsageError("'" + word + "' is not a flag; see --help");
      others.push_back(word);
      continue;
    }
    std::string name = word.substr(word[1] == '-' ? 2 : 1);
    const std::size_t equals = name.find('=');
    const bool has_value = equals != std::string::npos;
    std::string value = has_value ? name.substr(equals + 1) : "";
    name.resize(std::min(equals, name.size()));
    std::replace(name.begin(), name.end(), '-', '_');
    for (const auto& [letter, long_name] : program.short_names) {
      if (name == std::string(1, letter)) name = long_name;
    }
    gflags::CommandLineFlagInfo flag;
    const auto is_flag = [&](const std::string& text) {
      return gflags::GetCommandLineFlagInfo(text.c_str(), &flag);
    };
    if (!is_flag(name)) {
      const bool is_negation = name.starts_with("no") && is_flag(name.substr(2));
      if (!is_negation || flag.type != "bool" || has_value) throw unknown_flag(word, name, file);
      name = flag.name;
      value = "false";
    } else if (!has_value && flag.type == "bool") {
      value = "true";
    } else if (!has_value) {
      if (++i == words.size()) throw UsageError("flag '" + word + "' needs a value");
      value = words[i];
    }
    if (gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) {
      throw UsageError("--" + name + "=" + value + ": not a valid value");
    }
  }
  return others;
}

/// By what our launcher and torchrun, Open MPI, MPICH and Slurm set; "0" when alone.
inline std::string own_rank() {
  for (const char* name :
       {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* const rank = std::getenv(name)) return rank;
  }
  return "0";
}

/// Whether the launcher has started this process as a member of an elastic job.
inline bool is_member() {
  return std::getenv("CHAINMAIL_ELASTIC") != nullptr && std::getenv("CHAINMAIL_JOB_FD") != nullptr;
}

}  // namespace internal

/// @throws UsageError  `value` of flag `name` is less, infinite or not a number
inline void check_at_least(double least, const std::string& name, double value) {
  if (value >= least && std::isfinite(value)) return;
  throw UsageError("--" + name + " " + internal::shortest(value) + ": must be at least " +
                   internal::shortest(least) + (value > least ? ", and finite" : ""));
}

/// @throws UsageError  flag `name` has no value
inline void check_given(const std::string& name, const std::string& value) {
  if (value.empty()) throw UsageError("--" + name + " must not be empty");
}

/// Parses the command line and returns what `body` returns, or the exit code of its failure. Of the
/// errors that all ranks throw alike (UsageError, chainmail::AgreedError) rank 0 speaks and gives
/// the job its exit code; the others leave without one, since starters end a job, rank 0 with it,
/// when its first rank fails. A member of an elastic job speaks of all its errors: the others go on
/// without it.
inline int run(const Program& program, int argc, char** argv,
               const std::function<int(const std::vector<std::string>& arguments)>& body,
               const char* file = __builtin_FILE()) {
  constexpr int kFailed = 1;
  constexpr int kBadUsage = 2;
  const std::string rank = internal::own_rank();
  const bool is_member = internal::is_member();
  const bool speaks_for_all = rank == "0" || is_member;
  const auto fail = [&](const std::exception& error, int code) {
    const std::string where = is_member     ? "member " + rank + ": "
                              : rank == "0" ? ""
                                            : "rank " + rank + ": ";
    std::fprintf(stderr, "%s: %s%s\n", program.name.c_str(), where.c_str(),
                 internal::without_frames(error.what()).c_str());
    return code;
  };
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    for (const std::string& word : words) {
      const bool is_help = word == "--help" || word == "-help" || word == "-h";
      if (!is_help && (word != "--version" || program.version.empty())) continue;
      if (rank == "0") {
        is_help ? internal::print_help(program, file)
                : static_cast<void>(std::puts(program.version.c_str()));
      }
      return internal::after_output(0);
    }
    return internal::after_output(body(internal::parse(program, words, file)));
  } catch (const UsageError& error) {
    return speaks_for_all ? fail(error, kBadUsage) : 0;
  } catch (const LocalUsageError& error) {
    return fail(error, kBadUsage);
  } catch (const std::exception& error) {
    const bool is_agreed = dynamic_cast<const chainmail::AgreedError*>(&error) != nullptr;
    return is_agreed && !speaks_for_all ? 0 : fail(error, kFailed);
  }
}

}  // namespace flags
