// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A supervisor of a job without ranks, which does what it is told, a line each on standard input:
//
//   fake_supervisor ROOT NAME [LOGS]
//
// LOGS is a folder below which its output is, as --job has it. It prints the job's id, then an
// answer to each line.
//
//   append FILE TEXT     TEXT and a line's end to a file of the output's folder
//   bulk FILE BYTES      so many bytes of numbered lines
//   phase NAME           running, stopping, ...
//   attempt N | grace MS | output ID PREFIX
//   end CODE             the final state, as supervisors do it
//   await                until it is asked to end: by "stop" or "now" in the file, or a "signal"
//   signals              how many SIGTERM have come
//   many N               so many jobs, one after the other, that have ended
//
// At the end of its input it ends, whatever the state says. An answer is "ok", or what went wrong.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "launcher/jobs/folder/job_folder.h"

namespace {

using namespace chainmail::launch;
namespace fs = std::filesystem;

volatile sig_atomic_t signals = 0;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

JobPhase phase_of(const std::string& name) {
  for (int number = 0; number <= static_cast<int>(JobPhase::kLost); ++number) {
    if (to_string(static_cast<JobPhase>(number)) == name) return static_cast<JobPhase>(number);
  }
  std::cerr << "no phase " << name << "\n";
  std::exit(2);
}

class FakeSupervisor {
 public:
  FakeSupervisor(std::string root, const std::string& name, const std::string& logs)
      : root_(std::move(root)) {
    JobRecord record;
    record.name = name;
    record.phase = JobPhase::kRunning;
    record.attempt = 1;
    record.ranks = 2;
    record.hosts = {{"localhost", 2, "used"}};
    record.started_ms = now_ms();
    folder_ = std::make_unique<JobFolder>(root_, record);
    if (logs.empty()) return;
    record = folder_->record();
    record.stdouterr = logs + "/jobs/" + name + "/" + record.uuid;
    fs::create_directories(record.stdouterr);
    (void)folder_->write(record);
  }

  const JobFolder& folder() const { return *folder_; }

  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "append") return append(words);
    if (verb == "bulk") return bulk(words);
    if (verb == "await") return await();
    if (verb == "signals") return std::to_string(signals);
    if (verb == "many") return make_many(words);
    return write_state(verb, words);
  }

 private:
  std::string write_state(const std::string& verb, std::istringstream& words) {
    JobRecord record = folder_->record();
    std::string text;
    words >> text;
    if (verb == "phase") {
      record.phase = phase_of(text);
    } else if (verb == "attempt") {
      record.attempt = static_cast<std::uint32_t>(std::stoul(text));
    } else if (verb == "grace") {
      record.grace_ms = std::stoll(text);
    } else if (verb == "output") {
      std::string prefix;
      words >> prefix;
      record.outputs.push_back({text, prefix + "/jobs/" + record.name + "/" + record.uuid});
      fs::create_directories(record.outputs.back().path);
    } else if (verb == "end") {
      record.exit_code = std::stoi(text);
      record.phase = *record.exit_code == 0 ? JobPhase::kSucceeded : JobPhase::kFailed;
      record.ended_ms = now_ms();
    } else {
      return "what is " + verb + "?";
    }
    const std::string failure = folder_->write(record);
    return failure.empty() ? folder_->is_behind() ? "behind" : "ok" : failure;
  }

  chainmail::internal::UniqueFd open_output(const std::string& name) const {
    const fs::path path = fs::path(folder_->record().stdouterr) / name;
    fs::create_directories(path.parent_path());
    return chainmail::internal::UniqueFd(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }

  std::string append(std::istringstream& words) const {
    std::string name;
    std::string text;
    words >> name >> std::ws;
    std::getline(words, text);
    text += '\n';
    const auto file = open_output(name);
    return ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())
               ? "ok"
               : "cannot write";
  }

  // "0000000000", "0000000001", ...: a line that is missing, twice there or torn shows.
  std::string bulk(std::istringstream& words) {
    std::string name;
    std::uint64_t bytes = 0;
    words >> name >> bytes;
    const auto file = open_output(name);
    std::string block;
    while (bytes > 0) {
      block.clear();
      while (block.size() < 65536) {
        std::string number = std::to_string(next_line_++);
        block += std::string(15 - number.size(), '0') + number + "\n";
      }
      block.resize(std::min<std::uint64_t>(block.size(), bytes));
      if (::write(file.get(), block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
        return "cannot write";
      }
      bytes -= block.size();
    }
    return "ok";
  }

  std::string await() const {
    while (true) {
      if (folder_->stop_asked() == StopRequest::kNow) return "now";
      if (signals > 0) return "signal";
      if (folder_->stop_asked() == StopRequest::kStop) return "stop";
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  std::string make_many(std::istringstream& words) const {
    int count = 0;
    words >> count;
    for (int i = 0; i < count; ++i) {
      JobRecord record;
      record.name = "many" + std::to_string(i % 7);
      JobFolder folder(root_, record);
      record = folder.record();
      record.phase = JobPhase::kSucceeded;
      record.exit_code = 0;
      record.ended_ms = now_ms();
      const std::string failure = folder.write(record);
      if (!failure.empty()) return failure;
    }
    return "ok";
  }

  std::string root_;
  std::unique_ptr<JobFolder> folder_;
  std::uint64_t next_line_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  signal(SIGTERM, [](int) { signals = signals + 1; });
  try {
    FakeSupervisor supervisor(argv[1], argv[2], argc > 3 ? argv[3] : "");
    std::cout << supervisor.folder().record().id << std::endl;
    for (std::string line;;) {
      if (!std::getline(std::cin, line)) {
        if (std::feof(stdin) != 0 || errno != EINTR) break;
        // The thread sanitizer has a signal interrupt a read that would go on otherwise.
        std::clearerr(stdin);
        std::cin.clear();
        continue;
      }
      std::cout << supervisor.obey(line) << std::endl;
    }
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
    return 1;
  }
  return 0;
}
