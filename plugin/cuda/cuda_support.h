// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// CUDA, when somebody asks for it: a CPU program never loads libtorch_cuda (0.3 s against 0.95 s),
// so what CUDA tensors need is opened here, and what is missing becomes one sentence.
//
// Thread-safe.

#pragma once

#include <string>

namespace chainmail::internal {

/// Where to look; the defaults are what a program uses, tests put others in.
struct CudaPlaces {
  std::string torch_folder;                          ///< empty: that of the loaded libtorch_cpu
  std::string torch_library = "libtorch_cuda.so";    ///< in torch_folder
  std::string driver_library = "libcuda.so.1";       ///< where the system looks
  std::string own_library = "libchainmail_cuda.so";  ///< beside libchainmail
};

/// What was found, in the order in which it is asked for; the first problem ends the search.
struct CudaFindings {
  bool has_torch_library = false;  ///< LibTorch was built with CUDA
  std::string torch_folder;
  std::string driver_problem;  ///< why the driver cannot be opened
  int driver_code = 0;         ///< what cuInit said; 100: no device
  std::string driver_text;     ///< the same in the driver's words
  int driver_version = 0;      ///< 13000 for CUDA 13.0
  int runtime_version = 0;     ///< of the CUDA runtime that LibTorch was built for; 0: unknown
  int devices = 0;
  std::string torch_problem;    ///< why libtorch_cuda cannot be opened
  bool torch_sees_cuda = true;  ///< false: LibTorch was asked about CUDA before, and remembers "no"
  std::string own_problem;      ///< why libchainmail_cuda cannot be opened, as a sentence
};

/// Opens the libraries as far as it can.
[[nodiscard]] CudaFindings open_cuda(const CudaPlaces& places = {});

/// One sentence that says what is missing and what to do; empty when CUDA can be used.
[[nodiscard]] std::string why_no_cuda(const CudaFindings& findings);

/// open_cuda() of this process, once it has succeeded not again. Throws InvalidArgument
/// "<who> needs CUDA: <sentence>".
void require_cuda(const std::string& who);

}  // namespace chainmail::internal
