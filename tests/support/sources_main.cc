// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// main() of a program that has the tests of several sources. `--source=NAME` runs those of NAME.cc
// alone.

#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <string_view>

namespace {

// For --gtest_filter; empty where there is no such source.
std::string tests_of(std::string_view source) {
  const std::string ending = "/" + std::string(source) + ".cc";
  std::string filter;
  const auto& all = *testing::UnitTest::GetInstance();
  for (int suite = 0; suite < all.total_test_suite_count(); ++suite) {
    const testing::TestSuite& tests = *all.GetTestSuite(suite);
    for (int place = 0; place < tests.total_test_count(); ++place) {
      const testing::TestInfo& test = *tests.GetTestInfo(place);
      if (!std::string_view(test.file()).ends_with(ending)) continue;
      filter += filter.empty() ? "" : ":";
      filter += std::string(tests.name()) + "." + test.name();
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kOption = "--source=";
  for (int place = 1; place < argc; ++place) {
    const std::string_view argument = argv[place];
    const std::string filter =
        argument.starts_with(kOption) ? tests_of(argument.substr(kOption.size())) : std::string();
    if (filter.empty()) {
      std::cerr << argv[0] << ": '" << argument
                << "' names no source of these tests (--source=NAME)\n";
      return 2;
    }
    testing::GTEST_FLAG(filter) = filter;
  }
  return RUN_ALL_TESTS();
}
