// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is fuzzed: every parser of texts about hosts, options and jobs, and every decoder of frames,
// those between ranks (tests/ops/fuzz) included. A target takes any bytes; it may refuse them by
// the exceptions that its interface names, and aborts when what it accepts breaks a promise.
//
// Run by libFuzzer (tests/soak/launcher/fuzz.sh), and over seeds and mutations of them by
// replay_test.cc.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace chainmail::launch {

struct FuzzTarget {
  std::string name;
  std::function<void(std::string_view bytes)> run;
  std::vector<std::string> seeds;  ///< beside those of the hosts' corpus
  std::string corpus_kind;         ///< of tests/launcher/hosts/corpus.txt, or empty
};

[[nodiscard]] std::vector<FuzzTarget> text_fuzz_targets();
[[nodiscard]] std::vector<FuzzTarget> frame_fuzz_targets();
[[nodiscard]] FuzzTarget job_file_fuzz_target();

/// All, with the seeds of the corpus file added.
[[nodiscard]] std::vector<FuzzTarget> all_fuzz_targets(const std::string& corpus_path);

/// A promise that is broken ends the program, so that libFuzzer keeps the input.
void promise(bool is_kept, const char* what);

}  // namespace chainmail::launch
