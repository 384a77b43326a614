// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// CIFAR-10: 32 x 32 images of ten classes, from its binary files or made up.

#pragma once

#include <cstdint>
#include <string>

#include <torch/torch.h>

inline constexpr std::int64_t kClasses = 10;

struct Images {
  torch::Tensor x;  ///< uint8 [N, 3, 32, 32]
  torch::Tensor t;  ///< int64 [N]
};

struct Cifar {
  Images train;
  Images test;
};

/// The folder with CIFAR-10's binary files: `folder` when not empty, else $CHAINMAIL_DATA/cifar10,
/// else ~/.cache/chainmail/cifar10. Throws chainmail::InvalidArgument, which lists the places.
std::string find_cifar(const std::string& folder);

/// Reads data_batch_1.bin ... data_batch_5.bin and test_batch.bin of `folder`, or of
/// cifar-10-batches-bin in it. Throws chainmail::SystemError, chainmail::InvalidArgument.
Cifar read_cifar(const std::string& folder);

/// `samples` images to train with and a quarter as many to test with: a pattern per class and
/// noise, the same for the same seed.
Cifar make_synthetic(std::int64_t samples, std::uint64_t seed);

/// The images at `indices` as float, each channel normalized by CIFAR-10's mean and deviation;
/// `augments` moves them by up to four pixels and mirrors half of them (He et al., 2016).
torch::Tensor take_batch(const Images& images, const torch::Tensor& indices, bool augments);
