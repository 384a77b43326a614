// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the command line asks for, checked.

#pragma once

#include <cstdint>
#include <string>

struct Options {
  std::string device;     ///< cpu, cuda
  bool autocast = false;  ///< layers compute in bfloat16
  std::string communicator;
  std::string allreduce_grad_dtype;  ///< "", float16, bfloat16, float32
  std::string cross;                 ///< tcp, mpi
  bool double_buffering = false;
  std::int64_t batchsize = 0;  ///< per rank
  std::int64_t epochs = 0;
  std::int64_t units = 0;
  std::string dataset;
  std::string data;  ///< folder; empty: looked for
  std::string out;
  bool plot = false;
  std::string tensorboard;  ///< folder; empty: no event files
  bool timing = false;
  std::string resume;
  std::uint64_t seed = 0;
  bool verify = false;
};
