// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// chainmail-info: what a bug report or a puzzled user needs to know of this build, this machine and
// the job that this process belongs to; and what a folder of checkpoints holds. Loads neither
// LibTorch nor CUDA.

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <torch/version.h>

#include "base/error.h"
#include "ops/comm/shm/shm_comm.h"
#include "ops/core/rendezvous.h"
#include "ops/kernels/cpu/kernels.h"
#include "plugin/job/environment/env.h"
#include "plugin/job/environment/job_info.h"
#include "plugin/job/environment/node_id.h"
#include "tools/info/checkpoint.h"
#include "tools/info/interfaces.h"

namespace chainmail::info {
namespace {

void print(const std::string& name, const std::string& value) {
  std::cout << name << std::string(name.size() < 16 ? 16 - name.size() : 1, ' ') << value << "\n";
}

// What a part of the answer says, or why it cannot be had.
void print_or_reason(const std::string& name, const std::function<std::string()>& value) {
  try {
    print(name, value());
  } catch (const std::exception& error) {
    print(name, std::string("no: ") + error.what());
  }
}

// Libraries that are opened on demand lie beside libchainmail.so: in the prefix of this program, or
// in the Python environment that it was installed in, once for each minor version of torch.
std::vector<std::filesystem::path> library_folders() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  std::vector<fs::path> folders;
  for (const char* libraries : {"lib", "lib64"}) {
    folders.push_back(prefix / libraries);
    for (const auto& python : fs::directory_iterator(prefix / libraries, error)) {
      if (!python.path().filename().string().starts_with("python3")) continue;
      for (const char* packages :
           {"site-packages", "dist-packages"}) {  // the second one is Debian's
        for (const auto& torch :
             fs::directory_iterator(python.path() / packages / "chainmail", error)) {
          if (torch.path().filename().string().starts_with("torch"))
            folders.push_back(torch.path());
        }
      }
    }
  }
  // An environment's lib64 may be a link to its lib.
  for (fs::path& folder : folders) folder = fs::weakly_canonical(folder, error);
  std::sort(folders.begin(), folders.end());
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  return folders;
}

// A Python environment has a library for each of several.
std::string torch_versions() {
  std::string minors;
  for (const auto& folder : library_folders()) {
    const std::string name = folder.filename().string();
    if (!name.starts_with("torch")) continue;
    minors += (minors.empty() ? "" : " and ") + name.substr(std::string_view("torch").size());
  }
  return minors.empty() ? TORCH_VERSION : minors;
}

std::string optional_library(const std::string& file) {
  std::string found;
  std::error_code error;
  for (const auto& folder : library_folders()) {
    if (std::filesystem::exists(folder / file, error)) found += ", " + (folder / file).string();
  }
  return found.empty() ? "not built (no " + file + ")" : "yes" + found;
}

std::string cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) throw system_error("affinity");
  return std::to_string(CPU_COUNT(&allowed)) + " of " +
         std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + ", kernels use " +
         ops::instruction_set();
}

// By making a group of one rank, which needs all that a larger one does.
std::string shared_memory() {
  ops::LocalRendezvous rendezvous;
  ops::ShmCommOptions options;
  options.host = internal::host_name();
  options.key_prefix = "info";
  const auto comm =
      ops::create_shm_comm(options, rendezvous, internal::Deadline::after(std::chrono::seconds{5}));
  return "works";
}

std::string job() {
  const internal::JobInfo info = internal::read_job_info(internal::process_environment());
  std::string text = "started by " + std::string(internal::to_string(info.starter));
  if (info.starter == internal::Starter::kAlone) return "none: this process is alone";
  text += ", rank " + std::to_string(info.rank) + " of " + std::to_string(info.size);
  if (info.generation != 0) text += ", generation " + std::to_string(info.generation);
  return text;
}

void print_settings() {
  for (const auto& variable : internal::known_variables()) {
    if (variable.set_by.find("user") == std::string_view::npos) continue;
    const std::string name(variable.name);
    if (const auto value = internal::process_environment()(name)) print("  " + name, *value);
  }
}

int run() {
  print("chainmail", CHAINMAIL_VERSION);
  print("built with", "torch " + torch_versions() + ", GCC " + __VERSION__);
  print("CUDA", optional_library("libchainmail_cuda.so"));
  print("MPI", optional_library("libchainmail_mpi.so"));
  print_or_reason("host", internal::host_name);
  print_or_reason("node label", [] { return internal::node_id(internal::process_environment()); });
  print_or_reason("cores", cores);
  print_or_reason("shared memory", shared_memory);
  print_or_reason("interfaces", list_interfaces);
  print_or_reason("job", job);
  print_settings();
  return 0;
}

// The exit code.
int answer(int argc, char** argv) {
  const std::string argument = argc > 1 ? argv[1] : "";
  try {
    if (argc == 1) return run();
    if (argument == "checkpoint" && argc == 3) return check_checkpoints(argv[2], std::cout);
  } catch (const std::exception& error) {
    std::cerr << "chainmail-info: " << error.what() << "\n";
    return 1;
  }
  const bool is_help = argument == "--help" || argument == "-h";
  if (argument == "--version") {
    std::cout << CHAINMAIL_VERSION << "\n";
    return 0;
  }
  if (!is_help && argument.starts_with('-')) {
    std::cerr << "chainmail-info: unknown option '" << argument << "'\n";
  }
  (is_help ? std::cout : std::cerr)
      << "usage: chainmail-info [--version]\n"
         "       chainmail-info checkpoint DIR\n"
         "Prints what this build contains, what this machine offers and which job this process\n"
         "belongs to; under a launcher, what a rank sees: launcher -n 2 chainmail-info\n"
         "Or lists the checkpoints in DIR, reads them all and says which are damaged and where;\n"
         "ends with 1 when a run has no whole one.\n";
  return is_help ? 0 : 2;
}

}  // namespace
}  // namespace chainmail::info

int main(int argc, char** argv) {
  const int code = chainmail::info::answer(argc, argv);
  if (std::cout.flush()) return code;
  std::cerr << "chainmail-info: cannot write standard output\n";
  return 1;
}
