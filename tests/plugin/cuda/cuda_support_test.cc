// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What keeps CUDA from being used becomes one sentence; with a driver that pretends and folders
// that lack what they should have.

#include "plugin/cuda/cuda_support.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace chainmail::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CudaSupportTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = std::filesystem::temp_directory_path() / "chainmail_cuda_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    std::ofstream(folder_ / "libtorch_cuda.so") << "no library";
    places_.torch_folder = folder_;
    places_.driver_library = FAKE_DRIVER;
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    for (const char* name :
         {"FAKE_CUDA_INIT", "FAKE_CUDA_VERSION", "FAKE_CUDA_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
      ::unsetenv(name);
    }
  }

  /// What is said of places_; one sentence always.
  std::string reason() const {
    const std::string text = why_no_cuda(open_cuda(places_));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 0) << text;
    return text;
  }

  std::filesystem::path folder_;
  CudaPlaces places_;
};

TEST_F(CudaSupportTest, ALibTorchForCpusHasNone) {
  std::filesystem::remove(folder_ / "libtorch_cuda.so");
  EXPECT_THAT(reason(), AllOf(HasSubstr(folder_.string()), HasSubstr("build for CPUs")));
}

TEST_F(CudaSupportTest, NoDriver) {
  places_.driver_library = "libchainmail_no_such_driver.so.1";
  EXPECT_THAT(reason(),
              AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("libchainmail_no_such_driver.so.1")));
  places_.driver_library = "libc.so.6";
  EXPECT_THAT(reason(), HasSubstr("libc.so.6 is no CUDA driver"));
}

TEST_F(CudaSupportTest, NoDevice) {
  ::setenv("FAKE_CUDA_INIT", "100", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  EXPECT_EQ(reason(), "the NVIDIA driver sees no GPU; CUDA_VISIBLE_DEVICES=\"7\"");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  ::unsetenv("FAKE_CUDA_INIT");
  ::setenv("FAKE_CUDA_DEVICES", "0", 1);
  EXPECT_EQ(reason(), "the NVIDIA driver sees no GPU");
}

TEST_F(CudaSupportTest, ADriverThatFails) {
  ::setenv("FAKE_CUDA_INIT", "999", 1);
  EXPECT_THAT(reason(), HasSubstr("does not start: error 999, unknown error"));
}

TEST_F(CudaSupportTest, ADriverThatIsTooOld) {
  CudaFindings findings;
  findings.has_torch_library = true;
  findings.driver_version = 12040;
  findings.runtime_version = 13000;
  findings.driver_code = 3;  // what such a driver says, too
  EXPECT_EQ(
      why_no_cuda(findings),
      "the NVIDIA driver is for CUDA 12.4 and LibTorch for CUDA 13.0; install a newer driver");
  findings.driver_version = 13010;
  findings.driver_code = 0;
  findings.devices = 1;
  EXPECT_THAT(why_no_cuda(findings), IsEmpty()) << "a newer driver serves older runtimes";
}

TEST_F(CudaSupportTest, LibrariesThatCannotBeOpened) {
  // In a LibTorch for CPUs no runtime is loaded, and the driver's version is never too low.
  ::setenv("FAKE_CUDA_VERSION", "99000", 1);
  EXPECT_THAT(reason(), AllOf(HasSubstr("LibTorch's CUDA library"), HasSubstr("libtorch_cuda.so"),
                              HasSubstr("nvidia-*")));
  CudaFindings findings = open_cuda(places_);
  findings.torch_problem.clear();
  findings.own_problem = "libchainmail_cuda.so cannot be opened";
  EXPECT_EQ(why_no_cuda(findings), findings.own_problem);
  findings.torch_sees_cuda = false;
  EXPECT_THAT(why_no_cuda(findings), HasSubstr("call chainmail::load_cuda() first"));
}

TEST_F(CudaSupportTest, SaysWhoAsked) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // so that this fails on machines with a GPU, too
  try {
    require_cuda("communicator 'pure_nccl'");
    FAIL() << "there is CUDA without a device";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("communicator 'pure_nccl' needs CUDA: "));
  }
}

}  // namespace
}  // namespace chainmail::internal
