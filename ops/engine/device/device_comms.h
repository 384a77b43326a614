// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The NCCL communicators of a device group, made when first needed: all ranks, the ranks of this
// node, the ranks of equal local rank, and two ranks for transfers from one to the other. Who
// shares a node is the launcher's knowledge, never NCCL's.
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

  /// For transfers from rank `from` to rank `to`, one of which is this one. Collective over the
  /// two.
  [[nodiscard]] std::shared_ptr<NcclComm> make_pair(int from, int to, const NcclWait& wait);

  /// What NCCL has found meanwhile; null while all is well.
  [[nodiscard]] std::exception_ptr state() noexcept;
  void abort() noexcept;
  void destroy(const NcclWait& wait);
  /// Those of need().
  [[nodiscard]] std::vector<std::shared_ptr<NcclComm>> of_collectives();

 private:
  NcclMember member(const std::string& name, const std::vector<int>& ranks) const;
  NcclConfig config(const std::string& name) const;
  void make_hierarchy(const NcclWait& wait);
  using List = std::vector<std::shared_ptr<NcclComm>>;
  std::shared_ptr<NcclComm> keep(std::unique_ptr<NcclComm> comm,
                                 List DeviceComms::*list = &DeviceComms::comms_);
  List all();

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
  List comms_;
  List pairs_;
};

}  // namespace chainmail::ops
