// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/environment/job_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/error.h"
#include "tests/plugin/job/recorded.h"

namespace chainmail::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JobInfo read(const Recorded& recorded) { return read_job_info(environment_of(recorded)); }

std::string error_of(const Recorded& recorded) {
  try {
    (void)read(recorded);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

// mpiexec of Open MPI 4.1.4, the second of two ranks on one node.
const Recorded kMpirun{
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_NODE_RANK", "1"},
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_MCA_ess_base_jobid", "540409857"},
    {"OMPI_MCA_orte_hnp_uri", "540409856.0;tcp://192.0.2.2:49315;tcp6://[fd00::2]:54505"},
    {"OMPI_MCA_orte_local_daemon_uri", "540409856.0;tcp://192.0.2.2:49315;tcp6://[fd00::2]:54505"},
    {"OMPI_MCA_orte_num_nodes", "1"},
    {"PMIX_NAMESPACE", "540409857"},
    {"PMIX_RANK", "1"},
};

// torchrun --nproc-per-node 2 of torch 2.11.
const Recorded kTorchrun{
    {"GROUP_RANK", "0"},
    {"LOCAL_RANK", "1"},
    {"LOCAL_WORLD_SIZE", "2"},
    {"MASTER_ADDR", "127.0.0.1"},
    {"MASTER_PORT", "29500"},
    {"RANK", "1"},
    {"TORCHELASTIC_MAX_RESTARTS", "0"},
    {"TORCHELASTIC_RESTART_COUNT", "0"},
    {"TORCHELASTIC_RUN_ID", "none"},
    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
    {"WORLD_SIZE", "2"},
};

// srun of Slurm 22.05: five tasks over two nodes.
const Recorded kSrun{
    {"SLURM_JOB_ID", "17"},
    {"SLURM_LOCALID", "0"},
    {"SLURM_NODEID", "1"},
    {"SLURM_NTASKS", "5"},
    {"SLURM_PROCID", "4"},
    {"SLURM_STEP_ID", "0"},
    {"SLURM_STEP_NODELIST", "n[1-2]"},
    {"SLURM_STEP_NUM_NODES", "2"},
    {"SLURM_STEP_NUM_TASKS", "5"},
};

// mpiexec of MPICH 4.0.2, the second of two ranks on one node.
const Recorded kMpiexec{
    {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "1"}, {"PMI_FD", "9"},
    {"PMI_RANK", "1"},        {"PMI_SIZE", "2"},
};

// The second of two containers of SageMaker.
const Recorded kSageMaker{
    {"SM_CURRENT_HOST", "algo-2"},
    {"SM_HOSTS", "[\"algo-1\",\"algo-2\"]"},
    {"SM_NETWORK_INTERFACE_NAME", "eth0"},
    {"SM_NUM_GPUS", "1"},
    {"TRAINING_JOB_NAME", "mnist-2026-11-01"},
};

// A worker of Kubernetes' PyTorchJob, and a pod of an indexed job.
const Recorded kPyTorchJob{
    {"MASTER_ADDR", "mnist-master-0"},
    {"MASTER_PORT", "23456"},
    {"PET_NNODES", "2"},
    {"PYTHONUNBUFFERED", "1"},
    {"RANK", "1"},
    {"WORLD_SIZE", "2"},
};
const Recorded kIndexedJob{
    {"JOB_COMPLETION_INDEX", "1"},
    {"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
    {"MASTER_ADDR", "mnist-0.mnist"},
    {"MASTER_PORT", "23456"},
    {"WORLD_SIZE", "2"},
};

// What Grid Engine adds around mpiexec -npernode in a job script, as TSUBAME has it.
const Recorded kGridEngine{
    {"JOB_ID", "12"},
    {"NHOSTS", "2"},
    {"NSLOTS", "8"},
    {"PE_HOSTFILE", "/var/spool/gridengine/execd/r5i2n1/active_jobs/12.1/pe_hostfile"},
    {"QUEUE", "all.q"},
    {"SGE_TASK_ID", "undefined"},
};

Recorded with(Recorded recorded, const std::string& name, const std::string& value) {
  recorded[name] = value;
  return recorded;
}

Recorded without(Recorded recorded, const std::string& name) {
  recorded.erase(name);
  return recorded;
}

TEST(JobInfo, IsAloneWithoutAnyVariable) {
  const JobInfo job = read({{"HOME", "/root"}});
  EXPECT_EQ(job.starter, Starter::kAlone);
  EXPECT_EQ(job.rank, 0);
  EXPECT_EQ(job.size, 1);
  EXPECT_EQ(job.store, StoreLocation::kInProcess);
}

TEST(JobInfo, ReadsTheLauncher) {
  const JobInfo job = read({{"CHAINMAIL_JOB_FD", "5"},
                            {"CHAINMAIL_GENERATION", "3"},
                            {"RANK", "2"},
                            {"WORLD_SIZE", "4"}});
  EXPECT_EQ(job.starter, Starter::kLauncher);
  EXPECT_EQ(job.rank, 2);
  EXPECT_EQ(job.size, 4);
  EXPECT_EQ(job.generation, 3U);
  EXPECT_EQ(job.job_fd, 5);
  EXPECT_EQ(job.store, StoreLocation::kLauncher);
}

TEST(JobInfo, ReadsTorchrun) {
  const JobInfo job = read(with(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "2"));
  EXPECT_EQ(job.starter, Starter::kTorchrun);
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.generation, 2U);
  EXPECT_EQ(job.host, "127.0.0.1");
  EXPECT_EQ(job.port, 29500);
  EXPECT_FALSE(job.rank_0_serves);
  EXPECT_TRUE(read(without(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE")).rank_0_serves);
}

TEST(JobInfo, ReadsMpirunOnOneNode) {
  const JobInfo job = read(kMpirun);
  EXPECT_EQ(job.starter, Starter::kMpirun);
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.size, 2);
  EXPECT_EQ(job.store, StoreLocation::kLocalSocket);
  EXPECT_EQ(job.id, "mpirun-540409857");
}

TEST(JobInfo, ReadsMpirunOverSeveralNodes) {
  Recorded recorded = with(kMpirun, "OMPI_COMM_WORLD_LOCAL_SIZE", "1");
  const JobInfo job = read(recorded);
  EXPECT_EQ(job.store, StoreLocation::kTcp);
  EXPECT_EQ(job.host, "192.0.2.2");
  EXPECT_GE(job.port, 20000);
  EXPECT_LT(job.port, 32000);
  // Another job, another port; the same job, the same port on all ranks.
  EXPECT_NE(read(with(recorded, "OMPI_MCA_ess_base_jobid", "540475393")).port, job.port);
  recorded["OMPI_COMM_WORLD_RANK"] = "0";
  EXPECT_EQ(read(recorded).port, job.port);
  recorded["OMPI_MCA_orte_local_daemon_uri"] = "540409856.1;tcp://192.0.2.3:50000";
  EXPECT_THAT(error_of(recorded), AllOf(HasSubstr("rank 0"), HasSubstr("MASTER_ADDR")));
}

TEST(JobInfo, MasterAddressDecidesUnderMpirun) {
  const JobInfo job = read(with(with(kMpirun, "MASTER_ADDR", "n7"), "MASTER_PORT", "1234"));
  EXPECT_EQ(job.starter, Starter::kMpirun);
  EXPECT_EQ(job.store, StoreLocation::kTcp);
  EXPECT_EQ(job.host, "n7");
  EXPECT_EQ(job.port, 1234);
}

TEST(JobInfo, ReadsSrun) {
  const JobInfo job = read(kSrun);
  EXPECT_EQ(job.starter, Starter::kSrun);
  EXPECT_EQ(job.rank, 4);
  EXPECT_EQ(job.size, 5);
  EXPECT_EQ(job.store, StoreLocation::kTcp);
  EXPECT_EQ(job.host, "n1");
  EXPECT_EQ(job.id, "srun-17.0");
  EXPECT_EQ(read(with(kSrun, "SLURM_STEP_NUM_NODES", "1")).store, StoreLocation::kLocalSocket);
}

struct Step {
  const char* tasks;
  const char* nodes;
  const char* node_list;
  const char* first_host;
};

TEST(JobInfo, ReadsTheStepsOfEveryKindOfSlurmJob) {
  // Slurm 22.05: sbatch -n 6, -N 3 --ntasks-per-node 2, -N 2, mixed nodes, -w n1,n3.
  const Step steps[] = {{"6", "2", "n[1-2]", "n1"}, {"6", "3", "n[1-3]", "n1"},
                        {"2", "2", "n[1-2]", "n1"}, {"20", "4", "n[1-4]", "n1"},
                        {"4", "2", "n[1,3]", "n1"}, {"2", "2", "rack[2,4]-n07", "rack2-n07"}};
  for (const Step& step : steps) {
    Recorded recorded = with(kSrun, "SLURM_STEP_NUM_TASKS", step.tasks);
    recorded["SLURM_PROCID"] = "1";
    recorded["SLURM_STEP_NUM_NODES"] = step.nodes;
    recorded["SLURM_STEP_NODELIST"] = step.node_list;
    recorded.erase("SLURM_NTASKS");  // absent without --ntasks
    const JobInfo job = read(recorded);
    EXPECT_EQ(job.starter, Starter::kSrun);
    EXPECT_EQ(job.rank, 1);
    EXPECT_EQ(std::to_string(job.size), step.tasks);
    EXPECT_EQ(job.host, step.first_host);
  }
}

TEST(JobInfo, ReadsMpiexecOfMpich) {
  const JobInfo job = read(kMpiexec);
  EXPECT_EQ(job.starter, Starter::kMpiexec);
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.size, 2);
  EXPECT_EQ(job.store, StoreLocation::kLocalSocket);
  EXPECT_EQ(job.id, "mpiexec-" + std::to_string(getppid()));
  const Recorded several = with(kMpiexec, "MPI_LOCALNRANKS", "1");
  EXPECT_THAT(error_of(several),
              AllOf(HasSubstr("MPI_LOCALNRANKS=1"), HasSubstr("MASTER_ADDR"), HasSubstr("-genv")));
  const JobInfo told = read(with(with(several, "MASTER_ADDR", "n1"), "MASTER_PORT", "4000"));
  EXPECT_EQ(told.starter, Starter::kMpiexec);
  EXPECT_EQ(told.host, "n1");
  EXPECT_EQ(told.port, 4000);
}

TEST(JobInfo, MpiexecInsideASlurmStepIsMpiexec) {
  // Hydra starts its proxies by srun: their SLURM_PROCID is not the rank.
  Recorded both = kSrun;
  both.insert(kMpiexec.begin(), kMpiexec.end());
  EXPECT_EQ(read(both).starter, Starter::kMpiexec);
  EXPECT_EQ(read(both).rank, 1);
  // srun --mpi=pmi2 leaves PMI_RANK, too.
  EXPECT_EQ(read(with(kSrun, "PMI_RANK", "4")).starter, Starter::kSrun);
}

TEST(JobInfo, ReadsSageMaker) {
  const JobInfo job = read(kSageMaker);
  EXPECT_EQ(job.starter, Starter::kSageMaker);
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.size, 2);
  EXPECT_EQ(job.store, StoreLocation::kTcp);
  EXPECT_EQ(job.host, "algo-1");
  EXPECT_EQ(read(with(kSageMaker, "SM_CURRENT_HOST", "algo-1")).port, job.port);
  EXPECT_EQ(read(with(kSageMaker, "SM_HOSTS", "[ \"algo-2\" ]")).size, 1);
  EXPECT_THAT(error_of(with(kSageMaker, "SM_CURRENT_HOST", "algo-3")),
              AllOf(HasSubstr("algo-3"), HasSubstr("algo-1")));
  EXPECT_THAT(error_of(without(kSageMaker, "SM_CURRENT_HOST")), HasSubstr("SM_CURRENT_HOST"));
  // mpirun in a container of SageMaker has numbered the ranks already.
  Recorded both = kSageMaker;
  both.insert(kMpirun.begin(), kMpirun.end());
  EXPECT_EQ(read(both).starter, Starter::kMpirun);
}

TEST(JobInfo, ReadsTheListOfSageMaker) {
  EXPECT_EQ(sagemaker_hosts("[\"a\", \"b\"]"), (std::vector<std::string>{"a", "b"}));
  for (const char* bad : {"", "a", "[", "[]", "[\"a\"", "[\"a\",]", "[\"a\"]x", "[\"\"]", "[1]",
                          "[\"a\\u0062\"]", "[\"a]"}) {
    EXPECT_THROW((void)sagemaker_hosts(bad), InvalidArgument) << bad;
  }
}

TEST(JobInfo, ReadsKubernetes) {
  const JobInfo pytorch = read(kPyTorchJob);
  EXPECT_EQ(pytorch.starter, Starter::kTorchrun);
  EXPECT_EQ(pytorch.rank, 1);
  EXPECT_EQ(pytorch.host, "mnist-master-0");
  EXPECT_TRUE(pytorch.rank_0_serves);
  const JobInfo indexed = read(kIndexedJob);
  EXPECT_EQ(indexed.starter, Starter::kKubernetes);
  EXPECT_EQ(indexed.rank, 1);
  EXPECT_EQ(indexed.size, 2);
  EXPECT_EQ(indexed.host, "mnist-0.mnist");
  EXPECT_EQ(indexed.port, 23456);
  EXPECT_THAT(error_of(without(without(kIndexedJob, "MASTER_ADDR"), "MASTER_PORT")),
              AllOf(HasSubstr("JOB_COMPLETION_INDEX=1"), HasSubstr("MASTER_ADDR")));
  // Any other indexed job is no job of ours.
  EXPECT_EQ(read({{"JOB_COMPLETION_INDEX", "1"}}).starter, Starter::kAlone);
}

TEST(JobInfo, ReadsMpiexecInAJobScriptOfGridEngine) {
  Recorded recorded = kGridEngine;
  EXPECT_EQ(read(recorded).starter, Starter::kAlone) << "the script itself is no rank";
  recorded.insert(kMpirun.begin(), kMpirun.end());
  recorded["OMPI_COMM_WORLD_SIZE"] = "8";
  recorded["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  const JobInfo job = read(recorded);
  EXPECT_EQ(job.starter, Starter::kMpirun);
  EXPECT_EQ(job.size, 8);
  EXPECT_EQ(job.store, StoreLocation::kTcp);
  EXPECT_EQ(job.host, "192.0.2.2");
}

TEST(JobInfo, ABatchScriptIsNoRank) {
  // sbatch gives the script SLURM_PROCID=0; only srun's tasks have a step.
  const JobInfo job = read(without(kSrun, "SLURM_STEP_ID"));
  EXPECT_EQ(job.starter, Starter::kAlone);
  EXPECT_EQ(job.size, 1);
}

TEST(JobInfo, TheFirstStarterOfTheListWins) {
  Recorded all = kSrun;
  all.insert(kMpirun.begin(), kMpirun.end());
  EXPECT_EQ(read(all).starter, Starter::kMpirun);
  all.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(read(all).starter, Starter::kTorchrun);
  all["CHAINMAIL_JOB_FD"] = "4";
  EXPECT_EQ(read(all).starter, Starter::kLauncher);
}

// What the launcher sets for MPI libraries, for the first of two ranks.
const Recorded kLaunchersMpi{
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_RANK", "0"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"PMIX_NAMESPACE", "chainmail-2ec114fb47442751ac5e283c8732c8fe"},
    {"PMIX_RANK", "0"},
    {"PMI_FD", "61"},
    {"PMI_RANK", "0"},
    {"PMI_SIZE", "2"},
};

// The variables of `inner` over those of `outer`, as an environment inherits them.
Recorded inside(const Recorded& outer, Recorded inner) {
  inner.insert(outer.begin(), outer.end());
  return inner;
}

TEST(JobInfo, AStarterInsideARankOfTheLauncherWins) {
  const JobInfo mpich = read(inside(kLaunchersMpi, kMpiexec));
  EXPECT_EQ(mpich.starter, Starter::kMpiexec);
  EXPECT_EQ(mpich.rank, 1);
  EXPECT_EQ(mpich.size, 2);
  EXPECT_EQ(mpich.store, StoreLocation::kLocalSocket);
  const JobInfo open_mpi = read(inside(kLaunchersMpi, kMpirun));
  EXPECT_EQ(open_mpi.starter, Starter::kMpirun);
  EXPECT_EQ(open_mpi.rank, 1);
  EXPECT_EQ(open_mpi.id, "mpirun-540409857");
  EXPECT_EQ(read(inside(kLaunchersMpi, kTorchrun)).starter, Starter::kTorchrun);
  Recorded own_variables{
      {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "9"}};
  EXPECT_EQ(read(inside(kLaunchersMpi, own_variables)).rank, 3);
  EXPECT_EQ(read(inside(kLaunchersMpi, kSrun)).starter, Starter::kSrun);
  EXPECT_EQ(read(kLaunchersMpi).starter, Starter::kAlone);
}

TEST(JobInfo, AStarterInsideARankOfTheLauncherMustNotFindItsVariables) {
  Recorded launcher = kLaunchersMpi;
  launcher.insert({{"CHAINMAIL_JOB_FD", "60"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(read(launcher).starter, Starter::kLauncher);
  EXPECT_THAT(error_of(inside(launcher, kMpiexec)),
              AllOf(HasSubstr("RANK=0 WORLD_SIZE=2"), HasSubstr("PMI_RANK=1 PMI_SIZE=2"),
                    HasSubstr("env -u CHAINMAIL_JOB_FD")));
  EXPECT_THAT(error_of(inside(launcher, kMpirun)),
              AllOf(HasSubstr("RANK=0"), HasSubstr("OMPI_COMM_WORLD_RANK=1")));
  // The first process of a larger or smaller job.
  EXPECT_THAT(error_of(inside(launcher, with(with(kMpiexec, "PMI_RANK", "0"), "PMI_SIZE", "3"))),
              AllOf(HasSubstr("WORLD_SIZE=2"), HasSubstr("PMI_SIZE=3")));
}

TEST(JobInfo, StartersOfMpiInEachOtherAreAnErrorWhereTheyDisagree) {
  const Recorded outer =
      with(with(kMpirun, "OMPI_COMM_WORLD_RANK", "0"), "OMPI_COMM_WORLD_SIZE", "1");
  EXPECT_THAT(error_of(inside(outer, kMpiexec)),
              AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1"),
                    HasSubstr("PMI_RANK=1 PMI_SIZE=2"), HasSubstr("env -u")));
  // As the message advises.
  EXPECT_EQ(read(inside(without(without(outer, "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_SIZE"),
                        kMpiexec))
                .starter,
            Starter::kMpiexec);
  EXPECT_EQ(read(inside(without(without(kMpiexec, "PMI_RANK"), "PMI_SIZE"), kMpirun)).starter,
            Starter::kMpirun);
  EXPECT_THAT(error_of(inside(kMpiexec, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})),
              AllOf(HasSubstr("RANK=0"), HasSubstr("PMI_RANK=1")));
}

TEST(JobInfo, NamesWhatIsMissing) {
  EXPECT_THAT(error_of({{"CHAINMAIL_JOB_FD", "77"}}),
              AllOf(HasSubstr("CHAINMAIL_JOB_FD=77 but RANK (not set)"),
                    HasSubstr("unset CHAINMAIL_JOB_FD")));
  EXPECT_THAT(error_of({{"CHAINMAIL_JOB_FD", "5"}, {"RANK", "0"}}), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(error_of(without(kTorchrun, "WORLD_SIZE")),
              AllOf(HasSubstr("RANK=1"), HasSubstr("WORLD_SIZE (not set)")));
  EXPECT_THAT(error_of(without(kTorchrun, "RANK")), HasSubstr("RANK (not set)"));
  EXPECT_THAT(error_of(without(kTorchrun, "MASTER_PORT")), HasSubstr("MASTER_PORT (not set)"));
  EXPECT_THAT(error_of(without(without(kTorchrun, "MASTER_PORT"), "MASTER_ADDR")),
              HasSubstr("MASTER_ADDR and MASTER_PORT"));
  EXPECT_THAT(error_of(without(kMpirun, "OMPI_COMM_WORLD_SIZE")),
              HasSubstr("OMPI_COMM_WORLD_SIZE (not set)"));
  EXPECT_THAT(error_of(without(without(kMpirun, "PMIX_NAMESPACE"), "OMPI_MCA_ess_base_jobid")),
              HasSubstr("PMIX_NAMESPACE"));
  EXPECT_THAT(error_of(without(kSrun, "SLURM_PROCID")), HasSubstr("SLURM_PROCID (not set)"));
  EXPECT_THAT(error_of(without(kSrun, "SLURM_STEP_NODELIST")), HasSubstr("SLURM_STEP_NODELIST"));
}

TEST(JobInfo, NamesWhatIsWrong) {
  EXPECT_THAT(error_of(with(kTorchrun, "RANK", "2")),
              AllOf(HasSubstr("RANK=2"), HasSubstr("WORLD_SIZE=2")));
  EXPECT_THAT(error_of(with(kTorchrun, "RANK", "-1")), HasSubstr("RANK=\"-1\""));
  EXPECT_THAT(error_of(with(kTorchrun, "WORLD_SIZE", "two")), HasSubstr("\"two\""));
  EXPECT_THAT(error_of(with(kTorchrun, "MASTER_PORT", "70000")), HasSubstr("70000"));
  EXPECT_THAT(error_of(with(kMpirun, "OMPI_COMM_WORLD_SIZE", "2x")), HasSubstr("2x"));
}

TEST(JobInfo, LeakedVariablesOfAnotherStarterAreAnError) {
  Recorded recorded = kMpirun;
  recorded["RANK"] = "0";
  recorded["WORLD_SIZE"] = "1";
  EXPECT_THAT(error_of(recorded), AllOf(HasSubstr("RANK=0"), HasSubstr("OMPI_COMM_WORLD_RANK=1")));
}

TEST(JobInfo, FindsTheFirstSlurmHost) {
  EXPECT_EQ(first_slurm_host("n1"), "n1");
  EXPECT_EQ(first_slurm_host("n[1-2]"), "n1");
  EXPECT_EQ(first_slurm_host("n[03-05,9],m1"), "n03");
  EXPECT_EQ(first_slurm_host("rack[2,4]-n[7-9]"), "rack2-n7");
  EXPECT_EQ(first_slurm_host("a.example.org,b"), "a.example.org");
  EXPECT_THROW((void)first_slurm_host(""), InvalidArgument);
  EXPECT_THROW((void)first_slurm_host("n[1-2"), InvalidArgument);
  EXPECT_THROW((void)first_slurm_host("n[]"), InvalidArgument);
}

TEST(JobInfo, FindsTheFirstAddressOfAUri) {
  EXPECT_EQ(first_uri_address("1.0;tcp://10.0.0.1,10.1.0.1:4567"), "10.0.0.1");
  EXPECT_EQ(first_uri_address("1.0;usock;tcp://10.0.0.9:1"), "10.0.0.9");
  EXPECT_EQ(first_uri_address("1.0"), std::nullopt);
  EXPECT_EQ(first_uri_address("tcp://"), std::nullopt);
}

TEST(JobEnvironment, NamesEveryVariableOnce) {
  std::set<std::string_view> names;
  for (const EnvVariable& variable : known_variables()) {
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name;
  }
  // Whatever the reader asks for must be on the list, so that docs/env.md has it.
  for (const Recorded& recorded :
       {kTorchrun, kMpirun, kSrun, kMpiexec, kSageMaker, kIndexedJob, Recorded{}}) {
    const Environment inner = environment_of(recorded);
    (void)read_job_info([&](std::string_view name) {
      EXPECT_TRUE(names.contains(name)) << name;
      return inner(name);
    });
  }
}

}  // namespace
}  // namespace chainmail::internal
