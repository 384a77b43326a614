// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/contestants/mpi.h"

#include <sched.h>

#include <limits>
#include <set>

#include "base/error.h"
#include "tools/bench/mpi/job.h"

namespace chainmail::bench {
namespace {

template <std::size_t N>
void copy_name(const std::string& name, char (&to)[N]) {
  name.copy(to, N - 1);
}

class MpiContestant final : public Contestant {
 public:
  MpiContestant(Control& control, const MpiFlavor& flavor, const std::string& remote_shell)
      : name_(flavor.name), is_in_place_(flavor.is_in_place), job_(control, flavor, remote_shell) {}

  const std::string& name() const noexcept override { return name_; }
  std::string description() const override { return job_.version(); }
  void prepare(const Case& what) override {
    const std::set<std::string> types = {"float32", "float64", "int8", "uint8", "int32", "int64"};
    const std::set<std::string> redops = {"sum", "min", "max"};
    if (what.op != "all_reduce" || !types.contains(what.dtype) || !redops.contains(what.redop) ||
        what.count() > std::numeric_limits<int>::max()) {
      throw InvalidArgument(name_ + " is measured for all_reduce with sum, min or max of " +
                            "float32, float64, int8, uint8, int32 and int64, not for " + what.op +
                            " " + what.redop + " of " + what.dtype);
    }
  }
  std::int64_t count_wrong(const Case& what) override {
    std::int64_t wrong = 0;
    job_.run(command(what, MpiTask::kCheck), &wrong);
    return wrong;
  }
  Sample time(const Case& what) override {
    return job_.run(command(what, MpiTask::kTime), nullptr);
  }

 private:
  MpiCommand command(const Case& what, MpiTask task) const {
    MpiCommand command;
    command.task = task;
    command.is_in_place = is_in_place_ ? 1 : 0;
    copy_name(what.op, command.op);
    copy_name(what.dtype, command.dtype);
    copy_name(what.redop, command.redop);
    command.count = what.count();
    command.repeats = what.repeats;
    ::sched_getaffinity(0, sizeof(command.cores), &command.cores);
    return command;
  }

  const std::string name_;
  const bool is_in_place_;
  MpiJob job_;
};

}  // namespace

std::unique_ptr<Contestant> make_mpi_contestant(Control& control, const std::string& name,
                                                const std::string& remote_shell) {
  return std::make_unique<MpiContestant>(control, mpi_flavor(name), remote_shell);
}

}  // namespace chainmail::bench
