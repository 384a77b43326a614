// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The NCCL communicators of a device group, made when first needed: all ranks, the ranks of this
// node, and the ranks of equal local rank. Who shares a node is the launcher's knowledge, never
// NCCL's.
//
// Thread rule: need() and destroy() from one thread at a time, the rest from any.

#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/algorithms/stream/stream_work.h"
#include "ops/comm/nccl/nccl_comm.h"
#include "ops/engine/device/device_group.h"
#include "ops/topology.h"

namespace chainmail::ops {

class DeviceComms {
 public:
  DeviceComms(NcclApi& api, std::shared_ptr<Rendezvous> rendezvous, const Topology& topology,
              int rank, const DeviceGroupOptions& options, std::string name);

  /// The communicators; local and cross ones are there when `is_hierarchical` has been true once.
  /// Collective where something has to be made. Throws as NcclComm does.
  [[nodiscard]] StreamComms need(bool is_hierarchical, const NcclWait& wait);

  /// What NCCL has found meanwhile; null while all is well.
  [[nodiscard]] std::exception_ptr state() noexcept;
  void abort() noexcept;
  void destroy(const NcclWait& wait);
  /// All that are alive.
  [[nodiscard]] std::vector<std::shared_ptr<NcclComm>> all();

 private:
  NcclMember member(const std::string& name, const std::vector<int>& ranks) const;
  NcclConfig config(const std::string& name) const;
  void make_hierarchy(const NcclWait& wait);
  void split_hierarchy(const NcclWait& wait);
  std::shared_ptr<NcclComm> keep(std::unique_ptr<NcclComm> comm);

  NcclApi& api_;
  const std::shared_ptr<Rendezvous> rendezvous_;
  const Topology& topology_;
  const int rank_;
  const DeviceGroupOptions& options_;
  const std::string name_;
  bool has_hierarchy_ = false;
  std::mutex mutex_;  // of the pointers
  bool is_aborted_ = false;
  std::shared_ptr<NcclComm> flat_;
  std::shared_ptr<NcclComm> local_;
  std::shared_ptr<NcclComm> cross_;
  std::vector<std::shared_ptr<NcclComm>> comms_;
};

}  // namespace chainmail::ops
