// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// ChainerMN's MNIST example: a multi-layer perceptron trained by any number of ranks.
//
// Exit code: 0; 1 when training fails; 2 for a command line that cannot be carried out.

#include <gflags/gflags.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <chainmail/cuda.h>
#include <chainmail/error.h>

#include "options.h"
#include "trainer.h"

DEFINE_string(communicator, "hierarchical",
              "naive, flat, hierarchical, two_dimensional, single_node or auto; on GPUs also "
              "pure_nccl and non_cuda_aware; torch's own to compare with: gloo, on GPUs nccl");
DEFINE_string(allreduce_grad_dtype, "",
              "what gradients are rounded to between nodes: float16, bfloat16, float32");
DEFINE_string(cross, "tcp", "what joins the nodes: tcp, or mpi (under mpiexec)");
DEFINE_bool(double_buffering, false, "exchange gradients while the next step computes");
DEFINE_int64(batchsize, 100, "samples per rank and step (-b)");
DEFINE_int64(epoch, 20, "times through the training data (-e)");
DEFINE_int64(unit, 1000, "units of each hidden layer (-u)");
DEFINE_string(device, "cpu", "cpu, or cuda: the ranks of a node take its GPUs in turn");
DEFINE_string(autocast, "",
              "bfloat16: layers compute in it, which processors with such instructions do several "
              "times as fast; parameters, gradients and sums stay float32");
DEFINE_string(dataset, "mnist", "mnist or fashion_mnist");
DEFINE_string(data, "", "folder of the IDX files; otherwise looked for");
DEFINE_string(out, "result", "folder for log and snapshot (-o)");
DEFINE_bool(plot, false, "draw OUT/loss.svg and OUT/accuracy.svg");
DEFINE_string(tensorboard, "", "folder for TensorBoard's event files; one folder per run");
DEFINE_bool(timing, false, "say after each epoch how long steps take and which rank is slowest");
DEFINE_string(resume, "", "snapshot to go on from (-r)");
DEFINE_uint64(seed, 0, "of the initial weights and of the order of samples");
DEFINE_bool(verify, false, "end with a digest of the parameters; fail when ranks differ");

namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Chainer's one-letter forms.
std::string long_name(std::string_view name) {
  constexpr std::array<std::array<std::string_view, 2>, 5> kShort = {
      {{"b", "batchsize"}, {"e", "epoch"}, {"u", "unit"}, {"o", "out"}, {"r", "resume"}}};
  for (const auto& [letter, word] : kShort) {
    if (name == letter) {
      return std::string(word);
    }
  }
  return std::string(name);
}

void set_flag(const std::string& name, const std::string& value) {
  if (gflags::SetCommandLineOption(name.c_str(), value.c_str()).empty()) {
    throw UsageError("--" + name + "=" + value + ": not a valid value");
  }
}

// gflags' own parser ends the process, and with 1; set-up errors here end with 2 and one message.
void parse_flags(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.size() < 2 || argument[0] != '-') {
      throw UsageError("'" + argument + "' is no flag; see --help");
    }
    std::string name = argument.substr(argument[1] == '-' ? 2 : 1);
    const std::size_t equals = name.find('=');
    const bool has_value = equals != std::string::npos;
    std::string value = has_value ? name.substr(equals + 1) : "";
    name = long_name(name.substr(0, equals));
    gflags::CommandLineFlagInfo info;
    if (!gflags::GetCommandLineFlagInfo(name.c_str(), &info)) {
      throw UsageError("unknown flag '" + argument + "'; see --help");
    }
    if (!has_value && info.type == "bool") {
      value = "true";
    } else if (!has_value) {
      if (++i == argc) {
        throw UsageError("flag '" + argument + "' needs a value");
      }
      value = argv[i];
    }
    set_flag(name, value);
  }
}

bool wants_help(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h" || argument == "-help") {
      return true;
    }
  }
  return false;
}

void print_help() {
  std::printf("train_mnist [flags]: trains an MLP on MNIST with all ranks of the job\n\n");
  std::vector<gflags::CommandLineFlagInfo> flags;
  gflags::GetAllFlags(&flags);
  for (const gflags::CommandLineFlagInfo& flag : flags) {
    if (flag.filename.find("main.cc") != std::string::npos) {
      std::printf("  --%-22s %s [%s]\n", flag.name.c_str(), flag.description.c_str(),
                  flag.default_value.c_str());
    }
  }
}

Options checked_options() {
  if (FLAGS_device != "cpu" && FLAGS_device != "cuda") {
    throw UsageError("--device " + FLAGS_device + ": use cpu or cuda");
  }
  if (FLAGS_device == "cuda") {
    chainmail::load_cuda("--device cuda");
  }
  if (FLAGS_double_buffering && FLAGS_communicator == "naive") {
    throw UsageError(
        "--double_buffering: communicator 'naive' exchanges gradients one by one and cannot; use "
        "hierarchical or another");
  }
  if (FLAGS_dataset != "mnist" && FLAGS_dataset != "fashion_mnist") {
    throw UsageError("--dataset " + FLAGS_dataset + ": use mnist or fashion_mnist");
  }
  if (FLAGS_batchsize < 1 || FLAGS_epoch < 0 || FLAGS_unit < 1) {
    throw UsageError("--batchsize and --unit must be at least 1, --epoch at least 0");
  }
  if (!FLAGS_autocast.empty() && FLAGS_autocast != "bfloat16") {
    throw UsageError("--autocast " + FLAGS_autocast + ": use bfloat16, or nothing for float32");
  }
  Options options;
  options.device = FLAGS_device;
  options.autocast = !FLAGS_autocast.empty();
  options.communicator = FLAGS_communicator;
  options.allreduce_grad_dtype = FLAGS_allreduce_grad_dtype;
  options.cross = FLAGS_cross;
  options.double_buffering = FLAGS_double_buffering;
  options.batchsize = FLAGS_batchsize;
  options.epochs = FLAGS_epoch;
  options.units = FLAGS_unit;
  options.dataset = FLAGS_dataset;
  options.data = FLAGS_data;
  options.out = FLAGS_out;
  options.plot = FLAGS_plot;
  options.tensorboard = FLAGS_tensorboard;
  options.timing = FLAGS_timing;
  options.resume = FLAGS_resume;
  options.seed = FLAGS_seed;
  options.verify = FLAGS_verify;
  return options;
}

// Our launcher and torchrun, Open MPI, Slurm; 0 when alone.
bool is_rank_zero() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (const char* const rank = std::getenv(name)) {
      return std::string_view(rank) == "0";
    }
  }
  return true;
}

// For errors that all ranks find alike: rank 0 speaks. Starters end a job when its first rank
// leaves, so the others give rank 0 a moment.
int fail_alike(const char* message, int exit_code) {
  if (is_rank_zero()) {
    std::fprintf(stderr, "train_mnist: %s\n", message);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds{2});
  }
  return exit_code;
}

int run(int argc, char** argv) {
  std::shared_ptr<chainmail::Communicator> comm;
  Options options;
  try {
    parse_flags(argc, argv);
    options = checked_options();
    comm = join(options);
  } catch (const UsageError& error) {
    return fail_alike(error.what(), kBadUsage);
  } catch (const chainmail::InvalidArgument& error) {
    return fail_alike(error.what(), kBadUsage);
  }
  try {
    train(options, comm);
  } catch (const chainmail::InvalidArgument& error) {
    return fail_alike(error.what(), kFailed);
  } catch (const chainmail::MismatchError& error) {
    return fail_alike(error.what(), kFailed);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (wants_help(argc, argv)) {
    print_help();
    return 0;
  }
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_mnist: %s\n", error.what());
    return kFailed;
  }
}
