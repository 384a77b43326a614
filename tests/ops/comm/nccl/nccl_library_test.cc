// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// NcclApi over functions with NCCL's own types that note what they get: what reaches NCCL, and what
// NCCL may do with it afterwards. Needs nccl.h, but neither a GPU nor NCCL.

#include "ops/comm/nccl/nccl_symbols.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace chainmail::ops {
namespace {

struct Noted {
  std::optional<ncclConfig_t> config;
  int color = 0;
  ncclComm_t* slot = nullptr;  ///< where NCCL puts the child's pointer
};
Noted noted;

ncclComm_t some_comm() {
  static int memory = 0;
  return reinterpret_cast<ncclComm_t>(&memory);
}

ncclResult_t split(ncclComm_t /*parent*/, int color, int /*key*/, ncclComm_t* child,
                   ncclConfig_t* config) {
  noted = {*config, color, child};
  *child = nullptr;
  return ncclSuccess;  // as 2.28.9, which has only begun
}

ncclResult_t init(ncclComm_t* comm, int /*size*/, ncclUniqueId /*id*/, int /*rank*/,
                  ncclConfig_t* config) {
  noted = {*config, 0, nullptr};
  *comm = some_comm();
  return ncclInProgress;
}

NcclSymbols symbols() {
  NcclSymbols found;
  found.split = &split;
  found.init = &init;
  return found;
}

TEST(NcclLibrary, ASplitIsOverWhenTheParentHasSettled) {
  const NcclSymbols found = symbols();
  const std::unique_ptr<NcclApi> library = make_nccl(found);
  NcclApi& nccl = *library;
  NcclHandle child;
  EXPECT_EQ(nccl.split({}, 3, 0, child, {}), NcclCode::kInProgress)
      << "the parent cannot be used yet";
  EXPECT_EQ(noted.color, 3);
  EXPECT_EQ(child.comm, nullptr);
  *noted.slot = some_comm();  // what a thread of NCCL's does later
  EXPECT_EQ(child.comm, some_comm());
}

TEST(NcclLibrary, ABlockingSplitIsOverAtOnce) {
  const NcclSymbols found = symbols();
  const std::unique_ptr<NcclApi> library = make_nccl(found);
  NcclApi& nccl = *library;
  NcclHandle child;
  NcclConfig config;
  config.is_blocking = true;
  EXPECT_EQ(nccl.split({}, -1, 0, child, config), NcclCode::kSuccess);
  EXPECT_EQ(noted.color, NCCL_SPLIT_NOCOLOR);
}

TEST(NcclLibrary, TheConfigurationReachesNccl) {
  const NcclSymbols found = symbols();
  const std::unique_ptr<NcclApi> library = make_nccl(found);
  NcclApi& nccl = *library;
  NcclHandle comm;
  NcclConfig config;
  config.max_ctas = 4;
  config.shares_resources = false;
  config.name = "flat";
  EXPECT_EQ(nccl.init(comm, 2, {}, 1, config), NcclCode::kInProgress);
  EXPECT_EQ(comm.comm, some_comm());
  ASSERT_TRUE(noted.config.has_value());
  EXPECT_EQ(noted.config->blocking, 0);
  EXPECT_EQ(noted.config->maxCTAs, 4);
  EXPECT_EQ(noted.config->minCTAs, NCCL_CONFIG_UNDEF_INT);
  EXPECT_STREQ(noted.config->commName, "flat");
  EXPECT_EQ(noted.config->splitShare, 0);
}

TEST(NcclLibrary, WhatAVersionLacksIsSaid) {
  const NcclSymbols found;
  const std::unique_ptr<NcclApi> library = make_nccl(found);
  NcclApi& nccl = *library;
  NcclHandle child;
  EXPECT_EQ(nccl.split({}, 0, 0, child, {}), NcclCode::kInvalidUsage);
  void* registration = &child;
  EXPECT_EQ(nccl.register_memory({}, &child, 1, registration), NcclCode::kSuccess);
  EXPECT_EQ(registration, nullptr);
  EXPECT_EQ(nccl.deregister_memory({}, registration), NcclCode::kSuccess);
}

}  // namespace
}  // namespace chainmail::ops
