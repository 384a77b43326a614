// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job as whoever runs job files starts it: with what no option of the launcher's says.
//
//   job_probe LAUNCHER [WORD...] -- [OPTION...] PROGRAM [ARGUMENT...]
//
//   expands            the program's words and variables are patterns
//   temp               CHAINMAIL_JOB_TEMP
//   copies=DIR         stdout.txt, stderr.txt and launcher.log there, behind what they hold
//   silent             nothing else is written
//   first=COMMAND      is run on the first host before the preparation, by sh
//   prepared=DIR       prepare.HOST.txt there
//   stop=FILE          the job is asked to stop when there is this file, at once when it says now
//   told=FILE          phases and the end are written there
//   engine=, image=, mount=, shm=, gpus=, prefix=, label=   of a container
//   generation=N       the world's number

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/allocation/job_hosts.h"
#include "launcher/command_line/parse.h"
#include "launcher/controller/controller.h"
#include "launcher/job/text.h"
#include "launcher/process/signals.h"

namespace {

using namespace chainmail::launch;

struct Request {
  Options options;
  std::string stop;
  std::string told;
  std::uint32_t generation = 0;
};

int opened(const std::string& folder, const char* name) {
  const std::string path = folder + "/" + name;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) throw chainmail::system_error("cannot open " + path);
  return fd;
}

void apply(const std::string& word, Request& request) {
  const std::size_t equals = std::min(word.find('='), word.size());
  const std::string name = word.substr(0, equals);
  const std::string value = word.substr(std::min(equals + 1, word.size()));
  Options& options = request.options;
  Container& container = options.container;
  if (name == "expands") options.expands = true;
  if (name == "temp") options.has_job_temp = true;
  if (name == "silent") options.is_silent = true;
  if (name == "copies") {
    options.copies = {opened(value, "stdout.txt"), opened(value, "stderr.txt"),
                      opened(value, "launcher.log")};
  }
  if (name == "first") options.preparation.first_words = {"sh", "-c", value};
  if (name == "prepared") options.preparation.output_folder = value;
  if (name == "stop") request.stop = value;
  if (name == "told") request.told = value;
  if (name == "engine") container.engine = value;
  if (name == "image") container.image = value;
  if (name == "mount") container.mounts.push_back(value);
  if (name == "shm") container.shm_size = value;
  if (name == "gpus") container.gpus = value;
  if (name == "prefix") container.name_prefix = value;
  if (name == "label") container.label = value;
  if (name == "generation") request.generation = static_cast<std::uint32_t>(std::stoul(value));
}

StopRequest asked_in(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) return StopRequest::kNone;
  std::string text;
  std::getline(stream, text);
  return text == "now" ? StopRequest::kNow : StopRequest::kStop;
}

void tell_end(const JobEnd& end, std::ostream& told) {
  told << "end kind " << static_cast<int>(end.kind) << " code " << end.exit_code << " steps "
       << end.steps << " operations " << end.operations << " ran " << end.ran_for.has_value()
       << " lost [" << joined(end.lost_hosts, ",") << "] reason [" << end.reason << "] output ["
       << end.lost_output << "]" << std::endl;
}

int run(const std::string& launcher, Request request, const std::vector<int>& ignored) {
  Options& options = request.options;
  HostRequest hosts;
  hosts.list_or_file = options.hosts;
  hosts.remote_shell = remote_shell_of(options);
  const HostSet found = find_job_hosts(hosts, {});
  const Placement placement = place_applications({{found.hosts, options.ranks, options.per_node}},
                                                 PlacementOptions{{}, {}, true, MapBy::kSlot, {}});
  std::ofstream told(request.told, std::ios::app);
  JobObserver observer;
  observer.on_phase = [&told](JobPhase phase, const std::string& reason) {
    told << "phase " << static_cast<int>(phase) << " [" << reason << "]" << std::endl;
  };
  const RequestWatch watch([file = request.stop] { return asked_in(file); },
                           std::chrono::milliseconds(100));
  observer.on_beat = [&watch] { return watch.latest(); };
  JobDirectory directory;
  Controller controller(options, placement, launcher, directory, ignored, request.generation, {},
                        observer);
  const int code = controller.run();
  tell_end(controller.end(), told);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<int> ignored = signals_ignored_by_caller();
  ignore_passed_signals();
  try {
    if (argc == 2 && std::string(argv[1]) == "--outlive") {
      outlive_launcher();
      return 0;
    }
    const std::vector<std::string> words(argv + 2, argv + argc);
    const auto divider = std::find(words.begin(), words.end(), "--");
    Request request;
    request.options = parse_options(std::vector<std::string>(divider + 1, words.end()));
    std::for_each(words.begin(), divider, [&](const auto& word) { apply(word, request); });
    return run(argv[1], std::move(request), ignored);
  } catch (const std::exception& error) {
    std::cerr << "job_probe: " << error.what() << std::endl;
    return 2;
  }
}
