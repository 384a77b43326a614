// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// write_seeds DIR: a folder per fuzz target with its seeds; prints the targets' names.

#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/launcher/fuzz/fuzz_targets.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_seeds DIR\n";
    return 2;
  }
  for (const auto& target : chainmail::launch::all_fuzz_targets(CHAINMAIL_HOSTS_CORPUS)) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / target.name;
    std::filesystem::create_directories(folder);
    for (std::size_t i = 0; i < target.seeds.size(); ++i) {
      std::ofstream(folder / ("seed" + std::to_string(i)), std::ios::binary) << target.seeds[i];
    }
    std::cout << target.name << "\n";
  }
}
