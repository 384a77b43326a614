// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/allocation/host_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "launcher/hosts/hostfile.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/options.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// In a folder of its own, because what -H means depends on the files there.
class HostSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "chainmail-hosts-test.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    before_ = fs::current_path();
    directory_ = name;
    fs::current_path(directory_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(directory_);
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static std::string refusal(const std::string& value) {
    try {
      return "accepted: " + hosts_of_argument(value).source;
    } catch (const UsageError& error) {
      return error.what();
    }
  }

  fs::path before_;
  fs::path directory_;
};

TEST_F(HostSourceTest, NameOfAFileIsTheFile) {
  write("hosts", "n1 slots=2\n");
  const HostSet hosts = hosts_of_argument("hosts");
  EXPECT_EQ(hosts.source, "hostfile hosts");
  EXPECT_EQ(hosts.hosts.at(0).name, "n1");
}

TEST_F(HostSourceTest, OtherwiseItIsAList) {
  const HostSet hosts = hosts_of_argument("hosts");
  EXPECT_EQ(hosts.source, "host list hosts");
  EXPECT_EQ(hosts.hosts.at(0).name, "hosts");
}

TEST_F(HostSourceTest, SlashMeansAFile) {
  EXPECT_THAT(refusal("./hosts"), HasSubstr("cannot open hostfile ./hosts: No such file"));
  EXPECT_THAT(refusal("./"), HasSubstr("is a directory"));
}

TEST_F(HostSourceTest, WhatCanBeBothIsRefused) {
  write("n1:2", "n3\n");
  write("localhost", "n3\n");
  EXPECT_THAT(refusal("n1:2"), HasSubstr("-H ./n1:2"));
  EXPECT_THAT(refusal("localhost"), HasSubstr("-H ./localhost"));
  EXPECT_EQ(hosts_of_argument("./n1:2").hosts.at(0).name, "n3");
}

TEST_F(HostSourceTest, ErrorsNameTheFile) {
  write("hosts", "n1\nn2 slots=x\n");
  try {
    (void)hosts_of_argument("hosts");
    FAIL() << "accepted";
  } catch (const HostfileError& error) {
    EXPECT_THAT(error.what(), HasSubstr("hosts:2:10: slots"));
  }
}

TEST_F(HostSourceTest, DefaultHostfileOfTheEnvironment) {
  write("mine", "n7\n");
  const auto hosts = hosts_of_variable({{"CHAINMAIL_HOSTFILE", "mine"}}, "CHAINMAIL_HOSTFILE");
  ASSERT_TRUE(hosts.has_value());
  EXPECT_EQ(hosts->hosts.at(0).name, "n7");
  EXPECT_EQ(hosts->source, "hostfile mine ($CHAINMAIL_HOSTFILE)");
  EXPECT_THROW((void)hosts_of_variable({{"CHAINMAIL_HOSTFILE", "missing"}}, "CHAINMAIL_HOSTFILE"),
               UsageError);
  EXPECT_FALSE(hosts_of_variable({{"CHAINMAIL_HOSTFILE", ""}}, "CHAINMAIL_HOSTFILE").has_value());
}

TEST_F(HostSourceTest, ThisMachineHasASlotForEachProcessor) {
  EXPECT_GE(this_machine().hosts.at(0).slots, 1);
}

TEST_F(HostSourceTest, ThisMachineIsKnownByNameAndAddress) {
  const auto is_here = [](const std::string& name) {
    Host host;
    host.name = name;
    return is_this_machine(host);
  };
  std::array<char, 256> own{};
  ASSERT_EQ(gethostname(own.data(), own.size() - 1), 0);
  EXPECT_TRUE(is_here("localhost"));
  EXPECT_TRUE(is_here(own.data()));
  EXPECT_TRUE(is_here("127.0.0.1"));
  EXPECT_TRUE(is_here("127.8.9.10"));
  EXPECT_FALSE(is_here("192.0.2.1")) << "an address for documentation";
  EXPECT_FALSE(is_here("no-such-host.invalid"));
  Host with_port;
  with_port.name = "localhost";
  with_port.port = 2222;
  EXPECT_FALSE(is_this_machine(with_port)) << "that is somebody's sshd";
}

TEST(ThisMachine, IsWhatItsHostsFileSays) {
  const std::string hosts =
      "# made by the kubelet\n127.0.0.1\tlocalhost\n"
      "10.1.2.3\tmnist-launcher.mnist.default.svc.cluster.local\tmnist-launcher # pod\n"
      "10.9.9.9\tmnist-launcher.other.default.svc.cluster.local\n";
  const auto is_own = [](const std::string& address) { return address == "10.1.2.3"; };
  const auto names = [&](const std::string& name) {
    return names_itself(name, "mnist-launcher", hosts, is_own);
  };
  EXPECT_TRUE(names("mnist-launcher.mnist"));
  EXPECT_TRUE(names("mnist-launcher.mnist.default.svc"));
  EXPECT_TRUE(names("mnist-launcher.mnist.default.svc.cluster.local"));
  EXPECT_FALSE(names("mnist-launcher.mn")) << "another service";
  EXPECT_FALSE(names("mnist-launcher.other.default.svc")) << "of another address";
  EXPECT_FALSE(names("mnist-worker-0.mnist"));
  EXPECT_FALSE(names("localhost"));
}

}  // namespace
}  // namespace chainmail::launch
