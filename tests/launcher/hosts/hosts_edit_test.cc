// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/hosts_edit.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::string& text, const std::vector<HostsEdit>& edits) {
  try {
    return edited_text(text, edits, "hosts");
  } catch (const HostsError& error) {
    return error.what();
  }
}

TEST(HostsEdit, PutsANewHostAtTheEnd) {
  EXPECT_EQ(edited_text("# ours\nn1\n", {addition_of("n2 slots=2")}, "hosts"),
            "# ours\nn1\nn2 slots=2\n");
}

TEST(HostsEdit, ReplacesTheLineOfAHostThatIsThere) {
  EXPECT_EQ(edited_text("n1\nn2 slots=2 # fast\nn3\n", {addition_of("n2:4")}, "hosts"),
            "n1\nn2:4\nn3\n");
}

TEST(HostsEdit, TakesOutOneLineAndLeavesTheRest) {
  const std::string text = "/* n3\nn2 */\nn1\n# n3\nn3 slots=2\n\nn30\n";
  EXPECT_EQ(edited_text(text, {removal_of("n3")}, "hosts"), "/* n3\nn2 */\nn1\n# n3\n\nn30\n");
}

TEST(HostsEdit, TakesSeveralInTurn) {
  EXPECT_EQ(
      edited_text("n1\nn2\n", {removal_of("n2"), addition_of("n3"), addition_of("n2:3")}, "hosts"),
      "n1\nn3\nn2:3\n");
}

TEST(HostsEdit, RefusesWhatChangesNothing) {
  EXPECT_THAT(refusal_of("n1\n", {removal_of("n2")}), HasSubstr("there is no host n2 in hosts"));
  EXPECT_THAT(refusal_of("n1 slots=2\n", {addition_of("n1:2")}),
              HasSubstr("host n1 is in hosts already, with 2 slots"));
}

TEST(HostsEdit, RefusesAFileThatCannotBeReadWithCertainty) {
  EXPECT_THAT(refusal_of("n1\nn", {addition_of("n2")}), HasSubstr("hosts:2:2: the last line"));
}

TEST(HostsEdit, RefusesWhatIsNotOneHost) {
  for (const char* const line : {"", "# n1", "n1\nn2", "n1 n2", "n1:*", "-n1", "n1 slots=x"}) {
    EXPECT_THROW((void)addition_of(line), HostsError) << line;
  }
  for (const char* const name : {"", "n1:2", "n1 slots=2", "u@n1", "n1\n"}) {
    EXPECT_THROW((void)removal_of(name), HostsError) << name;
  }
}

TEST(HostsEdit, EditsHostsThatStandInNoFile) {
  const std::vector<Host> hosts = edited_hosts({addition_of("n1").host, addition_of("n2:2").host},
                                               {removal_of("n1"), addition_of("n2:3")}, "the list");
  ASSERT_EQ(hosts.size(), 1U);
  EXPECT_EQ(hosts[0].name, "n2");
  EXPECT_EQ(hosts[0].slots, 3);
}

}  // namespace
}  // namespace chainmail::launch
