// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What every example does at its start and at its end.
//
// One thread per rank; collective where nothing else is said.

#pragma once

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

#include "flags.h"

/// Joins the job. What cannot be had is an error of the command line, or of this host's
/// environment: each rank that has it says so.
inline std::shared_ptr<chainmail::Communicator> join(const std::string& communicator,
                                                     const std::string& device = "cpu",
                                                     const std::string& wire_dtype = "",
                                                     const std::string& cross = "tcp") {
  try {
    if (device != "cpu" && device != "cuda") {
      throw flags::UsageError("--device " + device + ": use cpu or cuda");
    }
    if (device == "cuda") chainmail::load_cuda("--device cuda");
    chainmail::CommunicatorOptions options;
    options.allreduce_grad_dtype = chainmail::parse_wire_dtype(wire_dtype);
    options.cross = cross;
    auto comm = chainmail::create_communicator(communicator, options);
    chainmail::choose_threads(*comm);
    return comm;
  } catch (const chainmail::InvalidArgument& error) {
    throw flags::LocalUsageError(error.what());
  }
}

/// GPUs in turn where a node has fewer than ranks. Local.
inline torch::Device choose_device(const std::string& device, const chainmail::Communicator& comm) {
  if (device == "cpu") return torch::kCPU;
  const int index = comm.intra_rank() % static_cast<int>(torch::cuda::device_count());
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
}

/// Chainer's table on standard output, with a progress bar on a terminal, and OUT/log. `plots`:
/// curves of loss and accuracy in OUT. `tensorboard`: a folder for event files; empty: none.
inline void add_reports(chainmail::ReportList& reports, chainmail::Communicator& comm,
                        const std::filesystem::path& out, const std::vector<std::string>& columns,
                        std::int64_t done_epochs = 0, bool plots = false,
                        const std::string& tensorboard = "") {
  const bool draws = chainmail::can_draw_progress();
  chainmail::on_all_ranks(comm, [&] {
    reports.add<chainmail::LogReport>((out / "log").string(), done_epochs);
    for (const std::string name : {"loss", "accuracy"}) {
      if (!plots) break;
      reports.add<chainmail::PlotReport>(
          (out / (name + ".svg")).string(),
          std::vector<std::string>{"main/" + name, "validation/main/" + name});
    }
    if (!tensorboard.empty()) reports.add<chainmail::TensorBoardReport>(tensorboard);
    reports.add<chainmail::PrintReport>(columns, std::cout, draws);
    if (draws) reports.add<chainmail::ProgressBar>(std::cout);
  });
}

/// ChainerMN's, with these lines below those of the communicator. Local.
inline void print_banner(const chainmail::Communicator& comm,
                         const std::vector<std::string>& lines) {
  if (comm.rank() != 0) return;
  const std::string rule(42, '=');
  std::cout << rule << "\nNum process (COMM_WORLD): " << comm.size() << "\nUsing " << comm.name()
            << " communicator\n";
  for (const std::string& line : lines) std::cout << line << '\n';
  std::cout << rule << std::endl;
}

/// Adds loss and accuracy of a batch: logits `y`, classes `t`. Local.
inline void add_batch(chainmail::Metrics& metrics, const std::string& prefix,
                      const torch::Tensor& y, const torch::Tensor& t, const torch::Tensor& loss) {
  const double hits = y.argmax(1).eq(t).sum().item<double>();
  metrics.add(prefix + "main/loss", loss.item<double>(), t.size(0));
  metrics.add(prefix + "main/accuracy", hits / static_cast<double>(t.size(0)), t.size(0));
}

/// Checkpoints in `folder`, which has the name of the run.
inline std::unique_ptr<chainmail::MultiNodeCheckpointer> open_checkpoints(
    const std::shared_ptr<chainmail::Communicator>& comm, const std::filesystem::path& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder / "").parent_path();
  return chainmail::create_multi_node_checkpointer(path.filename().string(), comm,
                                                   {.path = path.parent_path().string()});
}

/// Those of an earlier run, from which this one does not go on, end here.
inline void drop_checkpoints(chainmail::Communicator& comm, const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (comm.intra_rank() == 0 && entry.path().filename().string().starts_with("gen-")) {
      std::filesystem::remove_all(entry.path(), ignored);
    }
  }
  comm.barrier();
}

/// For --verify: prints the digest of the tensors, which must be equal on all ranks.
inline void print_digest(chainmail::Communicator& comm, const std::vector<torch::Tensor>& tensors) {
  const std::uint64_t digest = chainmail::verify_equal(comm, tensors);
  if (comm.rank() != 0) return;
  std::printf("digest %016" PRIx64 " on %d ranks\n", digest, comm.size());
  std::fflush(stdout);
}
