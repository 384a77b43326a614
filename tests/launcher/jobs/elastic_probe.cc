// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A member of an elastic job without the library: the machine of base/membership with steps that
// are nothing but a meeting of all ranks in the launcher's store.
//
//   elastic_probe [--steps N] [--ms N] [--crash STEP:CODE] [--trace FOLDER] [--ready-after MS]
//
// Prints "up MEMBER PID ...", "host ID NAME ADDRESSES", "world GENERATION RANK SIZE", "commit
// GENERATION STEP STATE", "saved STEP" and "left".

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/job/job_protocol.h"
#include "base/membership/member/member_machine.h"
#include "base/membership/trace.h"
#include "base/membership/wire.h"

namespace {

using namespace chainmail;
using namespace chainmail::internal;
using namespace chainmail::membership;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Settings {
  StepNumber steps = 20;
  milliseconds step_time{50};
  std::optional<StepNumber> crash_step;  ///< of the last rank, unless it is the only one
  int crash_code = 3;
  std::string trace_folder;
  milliseconds ready_after{0};
};

Settings read_settings(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--steps") settings.steps = std::stoull(value);
    if (name == "--ms") settings.step_time = milliseconds(std::stoi(value));
    if (name == "--trace") settings.trace_folder = value;
    if (name == "--ready-after") settings.ready_after = milliseconds(std::stoi(value));
    if (name == "--crash") {
      settings.crash_step = std::stoull(value);
      settings.crash_code = std::stoi(value.substr(value.find(':') + 1));
    }
  }
  return settings;
}

class Socket {
 public:
  Socket() : fd_(std::stoi(std::getenv("CHAINMAIL_JOB_FD"))) {}

  void send(JobMessage type, std::string body) const {
    const std::string bytes = encode_frame({type, 0, std::move(body)});
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = ::write(fd_, bytes.data() + done, bytes.size() - done);
      if (count <= 0) throw system_error("write to the launcher");
      done += static_cast<std::size_t>(count);
    }
  }

  // The next frame, or nothing within `time`.
  std::optional<Frame> next(milliseconds time) {
    if (auto frame = reader_.next()) return frame;
    pollfd readable{fd_, POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(time.count())) <= 0) return std::nullopt;
    std::array<std::byte, 65536> buffer;
    const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
    if (count <= 0) throw std::runtime_error("the launcher is gone");
    reader_.append(std::span(buffer.data(), static_cast<std::size_t>(count)));
    return reader_.next();
  }

 private:
  int fd_;
  FrameReader reader_;
};

class Member {
 public:
  Member(Socket& socket, const Welcome& welcome, const Settings& settings)
      : socket_(socket),
        settings_(settings),
        machine_(welcome.rank, {1, milliseconds(welcome.grace_ms)}) {
    if (!settings_.trace_folder.empty()) {
      trace_.open(settings_.trace_folder + "/member." + std::to_string(welcome.rank) + ".jsonl");
      trace_ << trace_birth(welcome.rank, MemberOptions{1, milliseconds(welcome.grace_ms)}) << "\n"
             << std::flush;
    }
  }

  int run() {
    const auto ready_at = Clock::now() + settings_.ready_after;
    bool is_ready = false;
    while (!exit_code_) {
      if (!is_ready && Clock::now() >= ready_at) {
        is_ready = true;
        on(ProgramReady{7});
      }
      if (const auto frame = socket_.next(milliseconds(10))) on_frame(*frame);
      if (meets_at_ && Clock::now() >= *meets_at_) meet();
    }
    return *exit_code_;
  }

 private:
  struct Meeting {
    Generation generation = 0;
    StepNumber step = 0;
    bool is_change_wanted = false;
    std::set<std::uint32_t> missing;  // requests
  };

  void on_frame(const Frame& frame) {
    if (frame.type == JobMessage::kToMember) {
      const LauncherWord word = decode_launcher_word(frame.body);
      for (const HostPlace& host : word.hosts) {
        std::cout << "host " << host.id << " " << host.name << " " << host.addresses << std::endl;
      }
      on(Told{word.message});
    } else if (frame.type == JobMessage::kReply) {
      BodyReader body(frame.body);
      const std::uint32_t request = body.u32();
      (void)body.u8();
      on_reply(request, body.text());
    } else if (frame.type == JobMessage::kLauncherGone) {
      on(LauncherGone{});
      on(GraceElapsed{});
    } else if (frame.type == JobMessage::kWriteWill) {
      on(WriteWill{});
    } else if (frame.type == JobMessage::kNewsRankLost) {
      const std::uint32_t lost = BodyReader(frame.body).u32();
      if (world_ && world_->rank_of(lost)) on(PeerFailed{world_->generation, lost});
    }
  }

  void on_reply(std::uint32_t request, const std::string& value) {
    if (request == fetch_) {
      fetch_ = 0;
      state_ = std::stoull(value);
      return fetched();
    }
    if (meeting_.missing.erase(request) == 0) return;
    meeting_.is_change_wanted = meeting_.is_change_wanted || value == "1";
    if (!meeting_.missing.empty()) return;
    on(Exchanged{meeting_.generation, meeting_.step, meeting_.is_change_wanted});
  }

  void fetched() {
    on(StateFetched{fetching_, start_.step, start_.step, start_.step >= settings_.steps, 8});
  }

  // What an action brings about comes after all actions of its event.
  void on(MemberEvent event) {
    waiting_.push_back(std::move(event));
    if (waiting_.size() > 1) return;
    for (; !waiting_.empty(); waiting_.pop_front()) handle(MemberEvent(waiting_.front()));
  }

  void handle(const MemberEvent& event) {
    MemberActions actions;
    machine_.on(event, actions);
    // The state of a step is there before the commit is traced.
    for (const MemberAction& action : actions) {
      if (const auto* commit = std::get_if<Commit>(&action)) state_ = next_state(commit->step);
    }
    if (trace_.is_open()) {
      trace_ << trace_line(machine_.id(), event, actions, state_) << "\n" << std::flush;
    }
    for (const MemberAction& action : actions) {
      std::visit([this](const auto& one) { act(one); }, action);
    }
  }

  [[nodiscard]] std::uint64_t next_state(StepNumber step) const {
    return NumberHash().add(state_).add(step).wide_value();
  }

  void act(const Send& action) { socket_.send(JobMessage::kFromMember, encode(action.message)); }
  void act(const Fence& /*action*/) {
    meets_at_.reset();
    meeting_.missing.clear();
    fetch_ = 0;
  }
  void act(const Connect& action) {
    world_ = action.world;
    std::cout << "world " << world_->generation << " " << *world_->rank_of(machine_.id()) << " "
              << world_->members.size() << std::endl;
  }
  void act(const FetchState& action) {
    fetching_ = action.generation;
    start_ = action.start;
    if (start_.donors.empty()) {
      state_ = 0;
      return on(StateFetched{fetching_, 0, 0, false, 0});
    }
    fetch_ = ++next_request_;
    socket_.send(JobMessage::kStoreGet,
                 BodyWriter().u32(fetch_).text("state " + std::to_string(start_.step)).take());
  }
  void act(const BeginStep& action) {
    meeting_ = {action.generation, action.step, action.is_change_wanted, {}};
    meets_at_ = Clock::now() + settings_.step_time;
    const bool is_last = world_->members.back() == machine_.id() && world_->members.size() > 1;
    if (settings_.crash_step == action.step && is_last) {
      std::cerr << "no more at step " << action.step << std::endl;
      _exit(settings_.crash_code);
    }
  }
  void act(const Commit& action) {
    std::cout << "commit " << action.generation << " " << action.step << " " << to_hex(state_)
              << std::endl;
    socket_.send(JobMessage::kStoreSet, BodyWriter()
                                            .text("state " + std::to_string(action.step))
                                            .text(std::to_string(state_))
                                            .take());
    on(StepReturned{action.step >= settings_.steps});
  }
  void act(const SaveState& action) {
    std::cout << "saved " << action.step << std::endl;
    if (!settings_.trace_folder.empty()) {
      std::ofstream file(settings_.trace_folder + "/saved." + std::to_string(machine_.id()));
      file << action.step << " " << to_hex(state_) << std::endl;
      if (!file) throw std::runtime_error("cannot save");
    }
    on(StateSaved{});
    if (has_reported_) socket_.send(JobMessage::kWill, encode_will({true, action.step, true}));
  }
  void act(const ReportWill& action) {
    has_reported_ = true;
    socket_.send(JobMessage::kWill,
                 encode_will({action.step.has_value(), action.step.value_or(0), false}));
  }
  void act(const StartGrace& /*action*/) {}
  void act(const Exit& action) {
    std::cout << "left" << std::endl;
    exit_code_ = action.code;
  }

  // A step's exchange: each rank says whether it wants a change, and hears all others.
  void meet() {
    meets_at_.reset();
    const std::string place =
        std::to_string(meeting_.generation) + "/" + std::to_string(meeting_.step) + "/";
    const std::string own = std::to_string(*world_->rank_of(machine_.id()));
    socket_.send(JobMessage::kStoreSet,
                 BodyWriter().text(place + own).text(meeting_.is_change_wanted ? "1" : "0").take());
    for (std::size_t rank = 0; rank < world_->members.size(); ++rank) {
      meeting_.missing.insert(++next_request_);
      socket_.send(JobMessage::kStoreGet,
                   BodyWriter().u32(next_request_).text(place + std::to_string(rank)).take());
    }
  }

  Socket& socket_;
  const Settings settings_;
  MemberMachine machine_;
  std::ofstream trace_;
  WorldPtr world_;
  std::uint64_t state_ = 0;
  Meeting meeting_;
  std::optional<Clock::time_point> meets_at_;
  std::uint32_t next_request_ = 0;
  std::uint32_t fetch_ = 0;
  Generation fetching_ = 0;
  Start start_;
  std::deque<MemberEvent> waiting_;
  bool has_reported_ = false;
  std::optional<int> exit_code_;
};

int run(const Settings& settings) {
  Socket socket;
  socket.send(JobMessage::kHello,
              BodyWriter().u32(kJobProtocolVersion).u32(1).text("probe").take());
  std::optional<Frame> frame;
  while (!frame || frame->type != JobMessage::kWelcome) frame = socket.next(milliseconds(1000));
  const Welcome welcome = decode_welcome(frame->body);
  if (!welcome.is_elastic) throw std::runtime_error("the job is not elastic");
  std::cout << "up " << welcome.rank << " " << getpid() << " of " << std::getenv("LOCAL_RANK")
            << "/" << std::getenv("LOCAL_WORLD_SIZE") << " threads "
            << std::getenv("OMP_NUM_THREADS") << std::endl;
  return Member(socket, welcome, settings).run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(read_settings(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "elastic_probe: " << error.what() << "\n";
    return 10;
  }
}
