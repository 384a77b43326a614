// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank that speaks the job protocol without the library: what it prints tells the test whether
// store, news and output work through agent and controller.
//
//   probe_rank store | meet | news | group | stall | hoard | printf | nonsense | secret FOLDER... |
//              fixed FOLDER | steps FOLDER

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace {

using namespace chainmail;
using namespace chainmail::internal;
namespace fs = std::filesystem;

int number_of(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error(std::string(name) + " is not set");
  return std::stoi(text);
}

class Job {
 public:
  Job()
      : fd_(number_of("CHAINMAIL_JOB_FD")),
        generation_(static_cast<std::uint32_t>(number_of("CHAINMAIL_GENERATION"))) {
    // A hang shows as a failed read. A thousand hosts on two cores take most of a minute to start.
    timeval limit{90, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    send(JobMessage::kHello, BodyWriter().u32(kJobProtocolVersion).u32(1).text("probe").take());
    const Frame frame = wait_for(JobMessage::kWelcome);
    welcome_ = decode_welcome(frame.body);
  }
  const Welcome& welcome() const { return welcome_; }
  int fd() const { return fd_; }

  void send(JobMessage type, std::string body) {
    const std::string bytes = encode_frame({type, generation_, std::move(body)});
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = ::write(fd_, bytes.data() + done, bytes.size() - done);
      if (count <= 0) throw system_error("write to the launcher");
      done += static_cast<std::size_t>(count);
    }
  }

  // The next frame of this type; others, such as news before a reply, are kept for later.
  Frame wait_for(JobMessage type) {
    std::array<std::byte, 65536> buffer;
    while (true) {
      while (auto frame = reader_.next()) {
        if (frame->generation == generation_) kept_.push_back(*std::move(frame));
      }
      const auto found = std::find_if(kept_.begin(), kept_.end(),
                                      [type](const Frame& frame) { return frame.type == type; });
      if (found != kept_.end()) {
        Frame frame = std::move(*found);
        kept_.erase(found);
        return frame;
      }
      const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
      if (count <= 0) throw system_error("read from the launcher");
      reader_.append(std::span(buffer.data(), static_cast<std::size_t>(count)));
    }
  }

  std::string reply() {
    const Frame frame = wait_for(JobMessage::kReply);
    BodyReader body(frame.body);
    (void)body.u32();
    (void)body.u8();
    return body.text();
  }

 private:
  int fd_;
  std::uint32_t generation_;
  FrameReader reader_;
  std::deque<Frame> kept_;
  Welcome welcome_;
};

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not true: " + what);
}

// All ranks are here when the counter has reached the world's size.
void meet(Job& job, const std::string& name) {
  const auto size = job.welcome().node_of_rank.size();
  job.send(JobMessage::kStoreAdd, BodyWriter().u32(1).text(name).i64(1).take());
  if (job.reply() == std::to_string(size)) {
    job.send(JobMessage::kStoreSet, BodyWriter().text(name + "-all").text("1").take());
  }
  job.send(JobMessage::kStoreGet, BodyWriter().u32(2).text(name + "-all").take());
  expect(job.reply() == "1", "all ranks met");
}

void probe_store(Job& job) {
  const Welcome& welcome = job.welcome();
  const auto size = static_cast<std::uint32_t>(number_of("WORLD_SIZE"));
  expect(welcome.rank == static_cast<std::uint32_t>(number_of("RANK")), "rank of the welcome");
  expect(welcome.node_of_rank.size() == size, "size of the welcome");
  expect(welcome.secret.size() == 32, "secret has 32 bytes");
  expect(!welcome.job_id.empty(), "job id");
  for (const std::string& address : welcome.addresses) expect(!address.empty(), "address");
  // Near the largest frame, so that it is relayed in pieces.
  const auto value_of = [](std::uint32_t rank) {
    return std::string(1000000 + rank, static_cast<char>('a' + rank));
  };
  const std::string own = "value of " + std::to_string(welcome.rank);
  job.send(JobMessage::kStoreSet, BodyWriter().text(own).text(value_of(welcome.rank)).take());
  const std::uint32_t next = (welcome.rank + 1) % size;
  job.send(JobMessage::kStoreGet,
           BodyWriter().u32(1).text("value of " + std::to_string(next)).take());
  expect(job.reply() == value_of(next), "value of the next rank");
  meet(job, "end");
  std::cout << "secret " << std::hash<std::string>{}(welcome.secret + welcome.job_id) << std::endl;
}

void probe_news(Job& job) {
  meet(job, "start");
  if (job.welcome().rank == 1) _exit(3);
  const Frame news = job.wait_for(JobMessage::kNewsRankLost);
  BodyReader body(news.body);
  const std::uint32_t rank = body.u32();
  const std::string host = body.text();
  std::cout << "lost " << rank << " on " << host << ": " << body.text() << std::endl;
  _exit(1);
}

void probe_group(Job& job) {
  meet(job, "start");
  if (job.welcome().rank == 0) {
    job.send(JobMessage::kGroupFailed, BodyWriter()
                                           .text("world")
                                           .u32(static_cast<std::uint32_t>(ErrorCode::kPeer))
                                           .text("rank 2 is gone")
                                           .i64(2)
                                           .take());
  } else {
    const Frame news = job.wait_for(JobMessage::kNewsGroupFailed);
    BodyReader body(news.body);
    const std::uint32_t from = body.u32();
    const std::string group = body.text();
    (void)body.u32();
    const std::string message = body.text();
    std::cout << from << " " << group << " " << message << " " << body.i64() << std::endl;
  }
  meet(job, "end");
}

bool holds(const fs::path& file, const std::string& secret, const std::string& hex) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  const std::string bytes = text.str();
  return bytes.find(secret) != std::string::npos || bytes.find(hex) != std::string::npos;
}

// Looks for the job's secret, as bytes and in hexadecimal, where others could read it: command
// lines and environments of all processes, files below the folders.
void probe_secret(Job& job, const std::vector<std::string>& folders) {
  const std::string& secret = job.welcome().secret;
  expect(secret.size() == 32, "secret has 32 bytes");
  std::string hex;
  for (const char c : secret) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4U];
    hex += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  std::vector<fs::path> files;
  for (const auto& process : fs::directory_iterator("/proc")) {
    const std::string name = process.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    for (const char* file : {"cmdline", "environ", "comm"}) files.push_back(process.path() / file);
  }
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(folder, kSkip)) {
      if (entry.is_regular_file() && entry.file_size() < (1U << 26U)) files.push_back(entry.path());
    }
  }
  for (const fs::path& file : files) {
    expect(!holds(file, secret, hex), "the secret is not in " + file.string());
  }
  std::cout << "secret in none of " << files.size() << " files" << std::endl;
  meet(job, "end");
}

// As a program does that knows nothing of elastic jobs: it needs all others, and goes on until
// FOLDER has a file "done".
void probe_fixed(Job& job, const std::string& folder) {
  const Welcome& welcome = job.welcome();
  if (welcome.is_elastic) {
    job.send(JobMessage::kFixedSize, {});
    sleep(300);
    throw std::runtime_error("the launcher has not started this program anew");
  }
  expect(welcome.rank == static_cast<std::uint32_t>(number_of("RANK")), "rank of the welcome");
  expect(welcome.node_of_rank.size() == static_cast<std::uint32_t>(number_of("WORLD_SIZE")),
         "size of the welcome");
  for (const std::uint32_t node : welcome.node_of_rank) {
    expect(!welcome.addresses.at(node).empty(), "address of a rank's host");
  }
  meet(job, "fixed");
  std::ostringstream line;
  line << "generation " << std::getenv("CHAINMAIL_GENERATION") << " rank " << number_of("RANK")
       << " of " << number_of("WORLD_SIZE") << " local " << number_of("LOCAL_RANK") << " of "
       << number_of("LOCAL_WORLD_SIZE") << " node " << number_of("NODE_RANK") << " pid " << getpid()
       << "\n";
  std::cout << line.str() << std::flush;
  while (!fs::exists(folder + "/done")) usleep(20'000);
}

// As training does: tells of a step every 20 ms, until FOLDER has a file "done".
void probe_steps(Job& job, const std::string& folder) {
  std::ostringstream line;
  line << "generation " << std::getenv("CHAINMAIL_GENERATION") << " rank " << job.welcome().rank
       << " pid " << getpid() << "\n";
  std::cout << line.str() << std::flush;
  for (std::uint64_t step = 1; !fs::exists(folder + "/done"); ++step) {
    job.send(JobMessage::kStep, BodyWriter().u32(0).u64(step).u64(step).u64(0).take());
    usleep(20'000);
  }
}

void run(const std::string& mode, const std::vector<std::string>& arguments) {
  if (mode == "printf") {
    std::printf("one\ntwo\nthree\n");
    _exit(9);
  }
  Job job;
  if (mode == "store") probe_store(job);
  if (mode == "meet") meet(job, "start");
  if (mode == "news") probe_news(job);
  if (mode == "group") probe_group(job);
  if (mode == "secret") probe_secret(job, arguments);
  if (mode == "fixed") probe_fixed(job, arguments.at(0));
  if (mode == "steps") probe_steps(job, arguments.at(0));
  if (mode == "stall") {
    job.send(JobMessage::kStep,
             BodyWriter().u32(0).u64(3).u64(5 - job.welcome().rank).u64(0).take());
    pause();
  }
  if (mode == "leave") {
    if (job.welcome().rank == 1) return;
    job.send(JobMessage::kStep, BodyWriter().u32(0).u64(3).u64(5).u64(0).take());
    pause();
  }
  if (mode == "hoard") {
    const std::string value(1000000, 'x');
    for (int i = 0; i < 300; ++i) {
      job.send(JobMessage::kStoreSet, BodyWriter().text(std::to_string(i)).text(value).take());
    }
    pause();
  }
  if (mode == "nonsense") {
    expect(::write(job.fd(), std::string(64, '\xff').data(), 64) == 64, "write");
    pause();
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "", {argv + std::min(argc, 2), argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "probe_rank: " << error.what() << "\n";
    return 10;
  }
}
