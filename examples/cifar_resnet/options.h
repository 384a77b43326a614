// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the command line asks for.

#pragma once

#include <cstdint>
#include <string>

struct Options {
  std::string model;  ///< as make_resnet() has it
  std::string data;   ///< folder of CIFAR-10's binary files; empty: synthetic images
  std::string out;
  std::string communicator;
  std::string allreduce_grad_dtype;
  bool double_buffering = false;
  bool mnbn = false;
  bool verify = false;
  std::int64_t batchsize = 0;  ///< per rank
  std::int64_t epochs = 0;
  std::int64_t samples = 0;  ///< of synthetic data
  double lr = 0;             ///< of one rank
  double warmup_epochs = 0;
  double weight_decay = 0;
  std::uint64_t seed = 0;
};
