// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The smallest way in: opens the library at run time and calls its operators by name. Needs no
// header of Chainmail; the same calls work from TorchScript and Python (torch.ops.chainmail.*).
//
//   launcher -H localhost:2 -n 2 build/bin/ops_example build/lib/libchainmail.so

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <torch/torch.h>

#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

/// Calls an operator with these arguments and gives its results.
std::vector<c10::IValue> call(const char* name, std::vector<c10::IValue> stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
  return stack;
}

void run(const char* library) {
  if (dlopen(library, RTLD_NOW) == nullptr) throw std::runtime_error(dlerror());
  // All ranks of the job; the name finds the group as long as somebody keeps it.
  const c10::IValue group = call("chainmail::make_group", {"everybody", "algorithm=auto"}).at(0);

  torch::Tensor ones = torch::ones({1000});
  call("chainmail::all_reduce_", {ones, "sum", "everybody"});
  const torch::Tensor mean =
      call("chainmail::hierarchical_all_reduce", {ones, "avg", "everybody"}).at(0).toTensor();
  std::cout << "sum of ones " << ones[0].item<float>() << ", mean of the sums "
            << mean[999].item<float>() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string argument = argc == 2 ? argv[1] : "";
  if (argument.empty() || argument[0] == '-') {
    const bool is_help = argument == "--help" || argument == "-h";
    if (!is_help && !argument.empty()) std::cerr << "unknown option '" << argument << "'\n";
    (is_help ? std::cout : std::cerr) << "usage: ops_example /path/to/libchainmail.so\n";
    return !is_help ? 2 : std::cout.flush() ? 0 : 1;
  }
  try {
    run(argv[1]);
    if (!std::cout) throw std::runtime_error("cannot write standard output");
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
