// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <array>
#include <string_view>

#include "launcher/command_line/flags.h"

namespace chainmail::launch {
namespace {

struct Advice {
  std::string_view names;  // with spaces around each
  std::string_view text;   // follows the option's name
};

constexpr std::string_view kRendezvous =
    "is not needed: the launcher brings the ranks together itself; leave it out";
constexpr std::string_view kElastic =
    "belongs to elastic jobs of another launcher; here say --elastic MIN:MAX and --hostfile FILE";
constexpr std::string_view kScheduler =
    "belongs to sbatch, salloc or qsub; the launcher takes the hosts of the job it runs in";

constexpr std::array kAdvice = {
    // mpirun
    Advice{" am tune ", "is a set of Open MPI's parameters; give each as -x OMPI_MCA_name=value"},
    Advice{" prefix path ",
           "is not needed: programs are looked up in the PATH of the rank; use -x PATH or the "
           "program's full path"},
    Advice{" c ",
           "is the number of ranks for mpirun and of cores per rank for srun; say -n N, or "
           "--map-by slot:pe=N"},
    Advice{" cpus-per-proc cpus-per-rank cpus-per-task cpus-per-gpu ",
           "is spelled --map-by slot:pe=N here"},
    Advice{" default-hostfile ", "is spelled --hostfile here, or $CHAINMAIL_HOSTFILE"},
    Advice{" nolocal ", "is not known here; leave this machine out of -H or the hostfile"},
    Advice{" npersocket ",
           "is not known here; say --per-node N for the whole node and --bind-to socket"},
    Advice{" rankfile rf ",
           "is not known here; order the hosts in the hostfile, and use --map-by and --bind-to"},
    Advice{" app configfile multi-prog ",
           "is not known here; put ':' between the programs: -n 1 ./a : -n 3 ./b"},
    Advice{" merge-stderr-to-stdout ", "is not known here; the shell does it: 2>&1"},
    Advice{" xterm debug tv ",
           "is not known here; a debugger is a program like others: launcher -n 1 gdb ./program"},
    Advice{" enable-recovery continuous disable-recovery disable-auto-cleanup cleanup ",
           "is not known here; when one rank fails, all are ended"},
    Advice{" personality ", "is not needed; leave it out"},
    Advice{" display-devel-map display-topo display-topology ",
           "is not known here; --dry-run prints the plan, --report-bindings what runs where"},
    // Hydra
    Advice{" genvall envall ",
           "is not known here; name the variables: -x NAME, or -genvlist A,B,C"},
    Advice{" genvnone envnone ",
           "is not known here; ranks on other hosts get only what -x names, and CHAINMAIL_*, "
           "OMP_*, NCCL_*"},
    Advice{" launcher bootstrap rmk bootstrap-exec ",
           "is not known here; --rsh names the remote shell, and a scheduler is recognised by its "
           "variables"},
    Advice{" iface network-interface nics network-interfaces ",
           "is not known here; set the interface by -x CHAINMAIL_INTERFACE=eth0"},
    Advice{" membind ", "is not known here; --bind-to numa keeps memory near the rank"},
    Advice{" outfile-pattern errfile-pattern redirects r tee t enable-each-rank-log ",
           "is not known here; --output DIR writes a file for each rank and stream"},
    Advice{" prepend-pattern local-ranks-filter role ",
           "is not known here; --tag-output begins each line with [host/rank]"},
    Advice{" info ", "is not known here; --version and --dry-run tell what there is to tell"},
    // horovodrun
    Advice{" p ssh-port ",
           "is not known here; write 'port=N' in the hostfile, or --rsh-args '-p N'"},
    Advice{" ssh-identity-file ", "is not known here; say --rsh-args '-i FILE'"},
    Advice{" slots-per-host elastic-training min-elastic-nodes max-elastic-nodes ", kElastic},
    Advice{" gloo use-gloo use-mpi use-jsrun ",
           "is not needed: what carries the data is the program's choice (--communicator, "
           "--cross mpi)"},
    Advice{" fusion-threshold-mb cycle-time-ms cache-capacity hierarchical-allreduce autotune "
           "timeline-filename check-build ",
           "belongs to Horovod; the program's own options and docs/env.md say what can be set"},
    Advice{" log-level verbose v ",
           "is not known here; -x CHAINMAIL_LOG=info makes the ranks say more"},
    Advice{" quiet q ",
           "is not known here; the launcher prints nothing of its own unless something is wrong, "
           "and -x CHAINMAIL_LOG=error makes the ranks say less"},
    // torchrun, deepspeed
    Advice{
        " nnodes num-nodes ",
        "is not needed: name the hosts by -H or --hostfile, and -n or --per-node; ranks that may "
        "come and go are --elastic MIN:MAX"},
    Advice{" rdzv-endpoint rdzv-backend rdzv-id rdzv-conf master-addr master-port node-rank "
           "local-addr standalone ",
           kRendezvous},
    Advice{" no-python run-path start-method monitor-interval ",
           "is not needed: the program is started as it stands; leave it out"},
    Advice{" m module ", "is not known here; say: launcher ... python3 -m MODULE"},
    Advice{" numa-binding ", "is spelled --bind-to numa here"},
    Advice{" force-multi no-ssh ssh-check ", "is not needed; leave it out"},
    // srun
    Advice{" nodes ", "is not known here; name the hosts by -H, or say -n and --per-node"},
    Advice{" w nodelist ", "is spelled -H here"},
    Advice{" export ", "is spelled -x here, once for each variable"},
    Advice{" cpu-bind mem-bind hint ", "is spelled --bind-to here"},
    Advice{" input ", "is spelled --stdin here"},
    Advice{" error ", "is not known here; --output DIR writes stdout and stderr of each rank"},
    Advice{" time ", "is spelled --timeout here"},
    Advice{" partition account qos constraint gres gpus gpus-per-task gpus-per-node exclusive ",
           kScheduler},
};

// "--mca btl ^openib" is a variable for the ranks.
std::string mca_advice(std::span<const std::string> arguments) {
  const std::string name = arguments.size() > 1 ? arguments[1] : "";
  if (name == "plm_rsh_no_tree_spawn" || name == "routed_radix") {
    return arguments.front() + " " + name + " is spelled --tree " +
           (name == "routed_radix" ? "WIDTH" : "no") + " here";
  }
  std::string example = "-x OMPI_MCA_name=value";
  if (arguments.size() > 2 && arguments[1].find('=') == std::string::npos) {
    const bool is_plain = arguments[2].find_first_of(" '\"$`\\;&|<>()*?") == std::string::npos;
    const std::string setting = "OMPI_MCA_" + arguments[1] + "=" + arguments[2];
    example = is_plain ? "-x " + setting : "-x '" + setting + "'";
  }
  return arguments.front() +
         " sets a parameter of Open MPI, which its programs also read from the environment: say " +
         example;
}

}  // namespace

std::optional<std::string> foreign_option(const std::string& name,
                                          std::span<const std::string> arguments) {
  if (name == "mca" || name == "gmca" || name == "omca" || name == "pmixmca") {
    return mca_advice(arguments);
  }
  const std::string flag = arguments.front().substr(0, arguments.front().find('='));
  const std::string word = " " + name + " ";
  const auto found = std::find_if(kAdvice.begin(), kAdvice.end(), [&word](const Advice& advice) {
    return advice.names.find(word) != std::string_view::npos;
  });
  if (found == kAdvice.end()) return std::nullopt;
  return flag + " " + std::string(found->text);
}

}  // namespace chainmail::launch
