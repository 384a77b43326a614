// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// World after world under the same agents, as a controller would start them: every other one ends
// by a rank that is killed in the middle. Says what the agents' memory and descriptors came to.
//   mpi_restarts LAUNCHER WORLDS PROBE [SSH_CONFIG HOST...]

#include <signal.h>
#include <sys/resource.h>

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "launcher/controller/state/agent_link.h"
#include "launcher/mpi/mpi_exchange.h"
#include "launcher/tree/agent_process.h"

namespace {

using namespace chainmail;
using namespace chainmail::launch;
using internal::BodyReader;
using internal::BodyWriter;

constexpr std::uint32_t kRanksPerNode = 2;
constexpr std::uint32_t kOutputWindow = 256 << 10;  // far more than is printed
constexpr long kMayGrowKiB = 256;
constexpr AgentLimits kLimits{kDefaultLease, std::chrono::seconds(30)};

struct Node {
  std::vector<std::string> command;
  std::unique_ptr<AgentLink> link;
  MpiPieces pieces;
  bool is_over = false;
  long first_kib = 0;
  long first_files = 0;
};

[[noreturn]] void wrong(const std::string& what) {
  std::fprintf(stderr, "mpi_restarts: %s\n", what.c_str());
  std::exit(1);
}

class Restarts {
 public:
  Restarts(std::string probe, int worlds, std::vector<Node> nodes)
      : probe_(std::move(probe)),
        worlds_(worlds),
        nodes_(std::move(nodes)),
        limit_(io_),
        beat_(io_) {}

  void run() {
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) start_agent(node);
    beat();
    io_.run();
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) judge(node);
    for (Node& node : nodes_) node.link->leave();
    io_.restart();
    io_.run_for(std::chrono::milliseconds(200));
    std::printf("ok %d worlds under %zu agents\n", worlds_, nodes_.size());
  }

 private:
  bool ends_badly() const { return world_ % 2 == 0; }

  void start_agent(std::uint32_t index) {
    AgentLink::Callbacks callbacks;
    callbacks.on_hello = [this](const AgentHello&) {
      if (++hellos_ == nodes_.size()) start_world();
    };
    callbacks.on_frame = [this, index](const internal::Frame& frame) { on_frame(index, frame); };
    callbacks.on_lost = [](const std::string& reason) { wrong("an agent is lost: " + reason); };
    callbacks.on_error_line = [](const std::string& line) { wrong("an agent says: " + line); };
    const std::string marker = "chainmail-restarts-" + std::to_string(index);
    std::vector<std::string> command = nodes_[index].command;
    command.insert(command.end(), {"--agent", marker});
    AgentStart start;
    start.command = std::move(command);
    start.marker = marker;
    rlimit descriptors{};
    if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) wrong("the limit on open files is unknown");
    auto process = std::make_unique<LocalAgentProcess>(io_, start, descriptors);
    nodes_[index].link = std::make_unique<AgentLink>(io_, std::move(start), std::move(process),
                                                     std::move(callbacks), kLimits);
  }

  void beat() {
    for (const Node& node : nodes_) node.link->tick(false);
    beat_.expires_after(kHeartbeatInterval);
    beat_.async_wait([this](const asio::error_code& error) {
      if (!error && !is_done_) beat();
    });
  }

  void start_world() {
    ++world_;
    output_.clear();
    MpiOrder mpi{MpiMode::kAuto, "restarts-" + std::to_string(world_), 0, {}, {}};
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
      mpi.node_names.push_back("n" + std::to_string(node));
      mpi.node_of_rank.insert(mpi.node_of_rank.end(), kRanksPerNode, node);
      nodes_[node].is_over = false;
    }
    exchange_ = std::make_unique<MpiExchange>(
        mpi.node_of_rank, [this](std::uint32_t node, const MpiMessage& message) {
          send_in_pieces(message, [&](std::string body) {
            nodes_[node].link->send(AgentMessage::kMpi, std::move(body));
          });
        });
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
      mpi.node = node;
      nodes_[node].link->send_order(order_for(node, mpi));
    }
    limit_.expires_after(std::chrono::seconds(20));
    limit_.async_wait([this](const asio::error_code& error) {
      if (!error) wrong("world " + std::to_string(world_) + " does not end");
    });
  }

  StartOrder order_for(std::uint32_t node, const MpiOrder& mpi) const {
    StartOrder order;
    order.world_size = static_cast<std::uint32_t>(mpi.node_of_rank.size());
    order.node_rank = node;
    for (std::uint32_t i = 0; i < kRanksPerNode; ++i) {
      order.ranks.emplace_back().rank = node * kRanksPerNode + i;
    }
    OrderedProgram program;
    program.working_directory = std::filesystem::current_path();
    program.words = {probe_, "world"};
    if (ends_badly()) program.words = {probe_, "kill", "1"};
    order.programs.push_back(std::move(program));
    order.output_window = kOutputWindow;
    order.mpi = encode_fields(mpi);
    return order;
  }

  void on_frame(std::uint32_t index, const internal::Frame& frame) {
    Node& node = nodes_[index];
    switch (type_of(frame)) {
      case AgentMessage::kMpi:
        if (auto message = node.pieces.add(frame.body))
          exchange_->handle(index, std::move(*message));
        return;
      case AgentMessage::kOutput: {
        BodyReader body(frame.body);
        (void)body.u32();
        (void)body.u8();
        output_ += body.text();
        return;
      }
      case AgentMessage::kRankExited:
        return on_exit(decode_exit(frame.body));
      case AgentMessage::kAllExited:
        node.is_over = true;
        return end_world_if_over();
      default:
        return;
    }
  }

  void on_exit(const RankExit& exit) {
    if (exit.value == 0) return;
    if (!ends_badly()) {
      wrong("world " + std::to_string(world_) + ": rank " + std::to_string(exit.rank) +
            " ended with " + std::to_string(exit.value) + ": " + output_);
    }
    for (const Node& node : nodes_) {
      node.link->send(AgentMessage::kSignalRanks, BodyWriter().u32(SIGKILL).take());
    }
  }

  void end_world_if_over() {
    for (const Node& node : nodes_) {
      if (!node.is_over) return;
    }
    const std::string wanted = "ok " + std::to_string(nodes_.size() * kRanksPerNode) + " nodes " +
                               std::to_string(nodes_.size()) + "\n";
    if (!ends_badly() && output_ != wanted) {
      wrong("world " + std::to_string(world_) + " printed: " + output_);
    }
    // By then every kind of end has been met a few times.
    if (world_ == std::min(worlds_, 20)) {
      for (Node& node : nodes_) {
        node.first_kib = resident_kib(node);
        node.first_files = open_files(node);
      }
    }
    if (world_ < worlds_) return start_world();
    is_done_ = true;
    limit_.cancel();
    beat_.cancel();
    io_.stop();
  }

  // Every agent runs on this machine, whatever its network.
  static std::string process(const Node& node) {
    return "/proc/" + std::to_string(node.link->hello()->pid);
  }
  static long resident_kib(const Node& node) {
    std::ifstream status(process(node) + "/status");
    std::string word;
    while (status >> word) {
      long kib = 0;
      if (word == "VmRSS:" && status >> kib) return kib;
    }
    wrong("the memory of an agent cannot be read");
  }
  static long open_files(const Node& node) {
    const std::filesystem::directory_iterator files(process(node) + "/fd");
    return std::distance(begin(files), end(files));
  }

  void judge(std::uint32_t index) const {
    const Node& node = nodes_[index];
    const long kib = resident_kib(node);
    const long files = open_files(node);
    std::printf("agent %u: %ld KiB and %ld descriptors early, %ld KiB and %ld at the end\n", index,
                node.first_kib, node.first_files, kib, files);
    if (kib - node.first_kib > kMayGrowKiB) wrong("an agent's memory grows");
    if (files > node.first_files) wrong("an agent's descriptors are not given back");
  }

  std::string probe_;
  int worlds_;
  asio::io_context io_;  // before what lives in it
  std::vector<Node> nodes_;
  asio::steady_timer limit_;
  asio::steady_timer beat_;
  std::unique_ptr<MpiExchange> exchange_;
  std::string output_;
  std::size_t hellos_ = 0;
  int world_ = 0;
  bool is_done_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) wrong("usage: mpi_restarts LAUNCHER WORLDS PROBE [SSH_CONFIG HOST...]");
  signal(SIGPIPE, SIG_IGN);
  std::vector<Node> nodes;
  for (int i = 5; i < argc; ++i) {
    nodes.emplace_back().command = {"ssh", "-F", argv[4], argv[i], argv[1]};
  }
  if (nodes.empty()) nodes.emplace_back().command = {argv[1]};
  try {
    Restarts(argv[3], std::atoi(argv[2]), std::move(nodes)).run();
  } catch (const Error& error) {
    wrong(error.what());
  }
  return 0;
}
