// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/state/job_state.h"

#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>

#include "base/bytes.h"

namespace chainmail::launch {
namespace {

OutputOptions output_options(const Options& options, const Placement& placement) {
  OutputOptions output;
  output.tag = options.tag_output;
  output.timestamp = options.timestamp;
  output.carriage_returns = !options.is_silent && isatty(STDOUT_FILENO) == 1;
  output.is_silent = options.is_silent;
  output.copies = options.copies;
  output.directory = options.output_dir;
  if (options.elastic.is_on()) return output;  // ranks are added when they start
  for (const PlacedRank& rank : placement.ranks) {
    output.host_of_rank.push_back(placement.nodes[static_cast<std::size_t>(rank.node)].name);
  }
  return output;
}

}  // namespace

JobState::JobState(Options asked, Placement planned, JobDirectory& folder, std::uint32_t world)
    : directory(folder),
      options(std::move(asked)),
      placement(std::move(planned)),
      id(internal::to_hex(internal::random_bytes(8))),
      secret(internal::random_bytes(32)),
      generation(world),
      event_file(options.events_dir.empty() ? options.output_dir : options.events_dir, directory,
                 generation > 0),
      events(id, generation,
             [this](std::string line) {
               event_file.write(without_values(std::move(line), options.hidden));
             }),
      agents(options.elastic.is_on() ? std::vector<Host>() : placement.nodes),
      ranks(options.elastic.is_on() ? RankTable({}, options.elastic.is_fixed ? "rank" : "member")
                                    : RankTable(placement)) {
  OutputOptions to_user = output_options(options, placement);
  to_user.append = generation > 0;
  to_user.on_written = [this] { asio::post(io, [this] { make_room(); }); };
  output = std::make_unique<OutputSink>(std::move(to_user));
}

ContainerStart JobState::container_on(std::uint32_t node) const {
  const Container& asked = options.container;
  if (!asked.is_on()) return {};
  std::string name = asked.name_prefix.empty() ? "chainmail-" + id : asked.name_prefix;
  name += "-" + std::to_string(node);
  const int starts = std::max(agents[node].starts, 1);
  if (generation > 0 || starts > 1) {
    name += "." + std::to_string(generation) + "." + std::to_string(starts);
  }
  return {asked, name, container_label()};
}

std::string JobState::container_label() const {
  const std::string& label = options.container.label;
  return label.empty() ? "chainmail.job=" + id : label;
}

bool JobState::has_terminal() const { return !options.is_silent && isatty(STDOUT_FILENO) == 1; }

// The sink's thread posts to the loop.
JobState::~JobState() { (void)output->finish(); }

// What has been written makes room for more; so a reader that is slower than the ranks slows them
// down, while heartbeats go on.
std::uint32_t JobState::add_node(const Host& host) {
  (void)ranks.add_node(host.name);
  const std::uint32_t node = agents.add(host);
  agents[node].all_exited = true;  // until it is told to start something
  return node;
}

std::uint32_t JobState::add_rank(std::uint32_t node) {
  output->add_rank(agents[node].host);
  return ranks.add_rank(node);
}

void JobState::make_room() {
  for (const WrittenOutput& written : output->take_written()) {
    agents.send(
        ranks[written.rank].node, AgentMessage::kOutputTaken,
        internal::BodyWriter().u32(written.rank).u8(written.stream).u32(written.bytes).take());
  }
}

}  // namespace chainmail::launch
