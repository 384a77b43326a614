// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One step of data parallelism; prints "sum 2 on 2 ranks" on rank 0.

#ifdef WITH_GLOG
#include <gflags/gflags.h>
// torch defines LOG and CHECK as well, which programs with a glog of their own live with.
#include <glog/logging.h>
#undef LOG
#undef CHECK
DEFINE_int32(width, 3, "of the layer");
#endif

#include <chainmail/communicator.h>

#include <ATen/ATen.h>

#include <iostream>
#include <utility>

int main(int argc, char** argv) {
  std::int64_t width = 3;
#ifdef WITH_GLOG
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  google::LogMessage(__FILE__, __LINE__).stream() << "my own log";
  width = FLAGS_width;
#else
  static_cast<void>(argc), static_cast<void>(argv);
#endif
  auto comm = chainmail::create_communicator();
  at::Tensor ones = at::ones({width});
  comm->allreduce(ones);
  if (comm->rank() == 0) {
    std::cout << "sum " << ones[0].item<float>() << " on " << comm->size() << " ranks\n";
  }
}
