// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/hosts/host_text.h"
#include "launcher/job/expansion.h"
#include "launcher/job/text.h"
#include "launcher/jobs/file/export/export_targets.h"
#include "launcher/jobs/file/export/shell_job.h"
#include "launcher/jobs/file/text/shell_words.h"

namespace chainmail::launch {
namespace {

using Manifest = nlohmann::ordered_json;

constexpr const char* kMasterPort = "29500";
// Before Kubernetes and its operators put "-launcher-0" and the like behind it.
constexpr std::size_t kLongestKubernetesName = 40;

// A label of RFC 1123.
std::string kubernetes_name(const std::string& name) {
  std::string label;
  for (const char c : name) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    label += is_upper ? static_cast<char>(c - 'A' + 'a') : (is_kept ? c : '-');
  }
  label.erase(0, std::min(label.find_first_not_of('-'), label.size()));
  // Names of services begin with a letter.
  if (!label.empty() && label.front() >= '0' && label.front() <= '9') label.insert(0, "job-");
  label.resize(std::min(label.size(), kLongestKubernetesName));
  while (label.ends_with('-')) label.pop_back();
  return label.empty() ? "job" : label;
}

std::string secret_name(const JobSpec& spec) { return kubernetes_name(spec.name) + "-secrets"; }

// "8g" is "8Gi" there.
std::string quantity(const std::string& size) {
  const std::size_t digits = std::min(size.find_first_not_of("0123456789"), size.size());
  const char unit = digits < size.size() ? size[digits] : 'b';
  if (unit == 'b' || unit == 'B') return size.substr(0, digits);
  const bool is_kilo = unit == 'k' || unit == 'K';
  return size.substr(0, digits) + (is_kilo ? "Ki" : (unit == 'm' || unit == 'M' ? "Mi" : "Gi"));
}

struct Volume {
  std::string folder;  // of the node
  std::string target;  // in the pod
  bool is_read_only = false;
};

// A folder that is the same in all pods; one with variables is for the runtime's author.
void add_folder(const std::string& pattern, std::vector<Volume>& volumes) {
  if (!names_in(pattern).empty() || pattern.empty()) return;
  const std::string folder = expanded(pattern, Environment());
  const auto same = [&](const Volume& volume) { return volume.target == folder; };
  if (std::none_of(volumes.begin(), volumes.end(), same)) volumes.push_back({folder, folder});
}

std::vector<Volume> volumes_of(const JobSpec& spec) {
  std::vector<Volume> volumes;
  for (const std::string& mount : spec.container.mounts) {
    const std::vector<std::string> parts = split(mount, ':');
    volumes.push_back({parts[0], parts[1], parts.size() > 2 && parts[2] == "ro"});
  }
  add_folder(spec.directory, volumes);
  add_folder(spec.logs.path, volumes);
  for (const JobSpec::Mount& mount : spec.mounts) add_folder(as_pattern(mount.folder), volumes);
  for (const JobSpec::Folder& input : spec.inputs) add_folder(input.path, volumes);
  for (const JobSpec::Folder& output : spec.outputs) add_folder(output.path, volumes);
  return volumes;
}

// Kubernetes puts values in the place of "$(NAME)" in arguments; "$$" is its dollar.
std::string escaped_for_kubernetes(const std::string& script) {
  std::string escaped;
  for (std::size_t at = 0; at < script.size(); ++at) {
    escaped += script[at];
    const bool is_special = script[at] == '$' && at + 1 < script.size() &&
                            (script[at + 1] == '(' || script[at + 1] == '$');
    if (is_special) escaped += '$';
  }
  return escaped;
}

Manifest environment_of(const JobSpec& spec) {
  Manifest variables = Manifest::array();
  for (const std::string& name : variables_from_outside(spec)) {
    variables.push_back(
        {{"name", name},
         {"valueFrom", {{"secretKeyRef", {{"name", secret_name(spec)}, {"key", name}}}}}});
  }
  return variables;
}

Manifest variable_of_field(const std::string& name, const std::string& path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

std::size_t gpus_of(const JobSpec& spec, const JobSize& size) {
  if (spec.container.gpus.empty()) return 0;
  return spec.container.gpus == "all" ? size.per_host : split(spec.container.gpus, ',').size();
}

void put_gpus(Manifest& container, std::size_t gpus) {
  if (gpus > 0) container["resources"] = {{"limits", {{"nvidia.com/gpu", gpus}}}};
}

// A container in a pod that has all volumes.
Manifest container_of(const JobSpec& spec, const std::string& name) {
  Manifest container = {{"name", name}, {"image", spec.container.image}};
  Manifest mounts = Manifest::array();
  std::size_t count = 0;
  for (const Volume& volume : volumes_of(spec)) {
    Manifest mount = {{"name", "folder-" + std::to_string(count++)}, {"mountPath", volume.target}};
    if (volume.is_read_only) mount["readOnly"] = true;
    mounts.push_back(std::move(mount));
  }
  if (!spec.container.shm_size.empty()) {
    mounts.push_back({{"name", "shared-memory"}, {"mountPath", "/dev/shm"}});
  }
  if (!mounts.empty()) container["volumeMounts"] = std::move(mounts);
  return container;
}

Manifest pod_of(const JobSpec& spec, Manifest container) {
  Manifest volumes = Manifest::array();
  std::size_t count = 0;
  for (const Volume& volume : volumes_of(spec)) {
    volumes.push_back(
        {{"name", "folder-" + std::to_string(count++)}, {"hostPath", {{"path", volume.folder}}}});
  }
  if (!spec.container.shm_size.empty()) {
    volumes.push_back(
        {{"name", "shared-memory"},
         {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", quantity(spec.container.shm_size)}}}});
  }
  Manifest pod = {{"containers", Manifest::array({std::move(container)})}};
  if (!volumes.empty()) pod["volumes"] = std::move(volumes);
  return pod;
}

// What the preparation leaves in the job's own folder is the ranks'.
void share_temporary_folder(Manifest& pod) {
  const Manifest mount = {{"name", "temporary"}, {"mountPath", "/tmp"}};
  for (const char* containers : {"containers", "initContainers"}) {
    for (Manifest& container : pod[containers]) container["volumeMounts"].push_back(mount);
  }
  pod["volumes"].push_back({{"name", "temporary"}, {"emptyDir", Manifest::object()}});
}

void put_script(Manifest& container, const std::string& script, Manifest variables) {
  container["command"] = {"/bin/sh", "-c"};
  container["args"] = Manifest::array({escaped_for_kubernetes(script)});
  if (!variables.empty()) container["env"] = std::move(variables);
}

std::string head_of(const JobSpec& spec, const std::string& about) {
  std::string head = "# " + about + "\n";
  const std::vector<std::string> outside = variables_from_outside(spec);
  if (!outside.empty()) {
    head +=
        "# Values that are not here come from a Secret, for each of these a file of its name "
        "without "
        "a line's end (printf %s):\n"
        "#   kubectl create secret generic " +
        secret_name(spec);
    for (const std::string& name : outside) head += " --from-file=" + name;
    head += "\n";
  }
  return head;
}

std::string text_of(const std::string& head, const Manifest& manifest) {
  return head + yaml_of_json(manifest.dump(-1, ' ', false, Manifest::error_handler_t::replace));
}

void check_image(const JobSpec& spec, const ShellJobTarget& target) {
  check_export(spec, target);
  if (!spec.container.image.empty()) return;
  throw UsageError("a job for " + target.name +
                   " runs in pods: add 'container.image' to the job "
                   "file, an image with the program" +
                   (target.has_launcher ? " and the launcher" : "") + " in it");
}

std::int64_t seconds_of(std::chrono::milliseconds time) {
  return std::max<std::int64_t>(1, (time.count() + 999) / 1000);
}

// What the launcher sets for its ranks.
Manifest job_set_variables(const JobSpec& spec, const JobSize& size, const std::string& name) {
  Manifest variables = environment_of(spec);
  const std::string index = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
  variables.push_back(
      variable_of_field("JOB_SET_UID", "metadata.labels['jobset.sigs.k8s.io/jobset-uid']"));
  for (const char* rank : {"RANK", "NODE_RANK"})
    variables.push_back(variable_of_field(rank, index));
  // Ranks of an attempt that are still there meet none of the next.
  variables.push_back(variable_of_field("TORCHELASTIC_RESTART_COUNT",
                                        "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"));
  const auto put = [&](const char* variable, const std::string& value) {
    variables.push_back({{"name", variable}, {"value", value}});
  };
  put("WORLD_SIZE", std::to_string(size.ranks));
  put("LOCAL_RANK", "0");
  put("LOCAL_WORLD_SIZE", "1");
  put("MASTER_ADDR", name + "-ranks-0-0." + name);
  put("MASTER_PORT", kMasterPort);
  return variables;
}

// JobSet bounds failures only.
Manifest failure_policy(const JobSpec::Retry& retry) {
  // The name of rank 0's pod stays, so that the old one has to be gone before there is a new one.
  Manifest policy = {{"maxRestarts", retry.failures}, {"restartStrategy", "BlockingRecreate"}};
  if (retry.losses == 0) return policy;
  const Manifest loss = {{"name", "lost"},
                         {"action", "RestartJobSetAndIgnoreMaxRestarts"},
                         {"onJobFailureReasons", Manifest::array({"PodFailurePolicy"})}};
  policy["rules"] = Manifest::array({loss});
  return policy;
}

constexpr const char* kFolders =
    "Folders are hostPath volumes, which every node must have: put claims in their place.";

}  // namespace

std::string mpi_job_manifest(const JobSpec& spec) {
  const ShellJobTarget target{"mpijob", "$HOSTNAME", "$NODE_RANK", true, true, true};
  check_image(spec, target);
  const JobSize size = size_of(spec);
  Manifest launcher = container_of(spec, "launcher");
  put_script(launcher, shell_job(spec, target), environment_of(spec));
  Manifest worker = container_of(spec, "worker");
  put_gpus(worker, gpus_of(spec, size));
  Manifest policy = {{"cleanPodPolicy", "Running"}, {"backoffLimit", spec.retry.failures}};
  if (spec.limits.time) policy["activeDeadlineSeconds"] = seconds_of(*spec.limits.time);
  const auto replicas = [&](std::uint32_t count, Manifest container) -> Manifest {
    return {{"replicas", count},
            {"restartPolicy", "Never"},
            {"template", {{"spec", pod_of(spec, std::move(container))}}}};
  };
  const Manifest manifest = {{"apiVersion", "kubeflow.org/v2beta1"},
                             {"kind", "MPIJob"},
                             {"metadata", {{"name", kubernetes_name(spec.name)}}},
                             {"spec",
                              {{"slotsPerWorker", size.per_host},
                               {"runPolicy", std::move(policy)},
                               {"mpiReplicaSpecs",
                                {{"Launcher", replicas(1, std::move(launcher))},
                                 {"Worker", replicas(size.hosts, std::move(worker))}}}}}};
  return text_of(
      head_of(spec, std::string("The image has the launcher, the program and sshd. ") + kFolders),
      manifest);
}

std::string train_job_manifest(const JobSpec& spec) {
  const ShellJobTarget target{"trainjob", "$HOSTNAME", "$NODE_RANK", true, false, true};
  check_image(spec, target);
  const JobSize size = size_of(spec);
  Manifest trainer = {
      {"image", spec.container.image}, {"numNodes", size.hosts}, {"numProcPerNode", size.per_host}};
  put_script(trainer, shell_job(spec, target), environment_of(spec));
  if (const std::size_t gpus = gpus_of(spec, size); gpus > 0) {
    trainer["resourcesPerNode"] = {{"limits", {{"nvidia.com/gpu", gpus}}}};
  }
  Manifest job = {{"runtimeRef",
                   {{"apiGroup", "trainer.kubeflow.org"},
                    {"kind", "ClusterTrainingRuntime"},
                    {"name", "chainmail"}}},
                  {"trainer", std::move(trainer)}};
  if (spec.limits.time) job["activeDeadlineSeconds"] = seconds_of(*spec.limits.time);
  const Manifest manifest = {{"apiVersion", "trainer.kubeflow.org/v1alpha1"},
                             {"kind", "TrainJob"},
                             {"metadata", {{"name", kubernetes_name(spec.name)}}},
                             {"spec", std::move(job)}};
  std::vector<std::string> folders;
  // A line's end would end the comment.
  for (const Volume& volume : volumes_of(spec)) {
    folders.push_back(shell_word(printable(volume.target)));
  }
  std::string head = head_of(spec, "For a ClusterTrainingRuntime 'chainmail' with mlPolicy.mpi.");
  if (!folders.empty())
    head += "# Its pods must have these folders: " + joined(folders, " ") + "\n";
  return text_of(head, manifest);
}

std::string job_set_manifest(const JobSpec& spec) {
  const ShellJobTarget target{"jobset", "$JOB_SET_UID", "$RANK", false, true};
  check_image(spec, target);
  const JobSize size = size_of(spec);
  const std::string name = kubernetes_name(spec.name);
  const Manifest variables = job_set_variables(spec, size, name);
  Manifest container = container_of(spec, "rank");
  put_script(container, shell_job(spec, target), variables);
  put_gpus(container, spec.container.gpus.empty() ? 0 : 1);
  Manifest pod = pod_of(spec, std::move(container));
  pod["restartPolicy"] = "Never";
  if (!spec.prepare.command.empty()) {
    Manifest prepare = container_of(spec, "prepare");
    put_script(prepare, shell_preparation(spec, target), variables);
    pod["initContainers"] = Manifest::array({std::move(prepare)});
    share_temporary_folder(pod);
  }
  // A pod that its node has lost ends the attempt by another reason than a program that failed.
  const Manifest disruption = {{"type", "DisruptionTarget"}, {"status", "True"}};
  const Manifest lost_pod = {{"action", "FailJob"},
                             {"onPodConditions", Manifest::array({disruption})}};
  Manifest job = {{"completionMode", "Indexed"},
                  {"completions", size.ranks},
                  {"parallelism", size.ranks},
                  {"backoffLimit", 0},
                  {"podFailurePolicy", {{"rules", Manifest::array({lost_pod})}}},
                  {"template", {{"spec", std::move(pod)}}}};
  if (spec.limits.time) job["activeDeadlineSeconds"] = seconds_of(*spec.limits.time);
  const Manifest ranks = {
      {"name", "ranks"}, {"replicas", 1}, {"template", {{"spec", std::move(job)}}}};
  const Manifest manifest = {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
                             {"kind", "JobSet"},
                             {"metadata", {{"name", name}}},
                             {"spec",
                              {{"failurePolicy", failure_policy(spec.retry)},
                               {"replicatedJobs", Manifest::array({ranks})}}}};
  return text_of(head_of(spec, std::string("A rank in each pod. ") + kFolders), manifest);
}

}  // namespace chainmail::launch
