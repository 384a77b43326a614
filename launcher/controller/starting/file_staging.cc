// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/starting/file_staging.h"

#include <filesystem>
#include <numeric>

#include "launcher/files/trusted_path.h"
#include "launcher/job/environment.h"
#include "launcher/job/expansion.h"
#include "launcher/mpi/service/pmix_helper.h"

namespace chainmail::launch {

namespace fs = std::filesystem;

FileStaging::FileStaging(const Options& options, const std::vector<OrderedProgram>& programs,
                         std::string launcher_path, Agents& agents, Callbacks callbacks)
    : launcher_path_(std::move(launcher_path)),
      callbacks_(std::move(callbacks)),
      sender_(source_, agents.size(),
              {[&agents](std::uint32_t node, std::string body) {
                 agents.send(node, AgentMessage::kPreload, std::move(body));
               },
               [this](std::uint32_t) {
                 if (hosts_without_copies_ > 0 && --hosts_without_copies_ == 0) {
                   callbacks_.on_all_stored();
                 }
               },
               [this, &agents](std::uint32_t node, const std::string& why) {
                 callbacks_.fail("host " + agents[node].host + ": " + why);
               }}),
      nodes_(agents.size()) {
  for (std::size_t i = 0; options.preload && i < programs.size(); ++i) {
    // As it is typed here; --wdir is where the copies run.
    const std::string& typed = programs[i].words.front();
    const std::string path = path_of_program(
        programs[i].expands ? expanded(typed, current_environment()) : typed, current_directory());
    copied_programs_.push_back(source_.add("--preload", path, fs::path(path).filename(), true));
  }
  for (const std::string& path : options.preload_files) {
    (void)source_.add("--preload-files", path, fs::path(path).filename(), false);
  }
}

bool FileStaging::sends_first() {
  if (source_.files().empty() || has_sent_copies_) return hosts_without_copies_ > 0;
  has_sent_copies_ = true;
  hosts_without_copies_ = nodes_;
  std::vector<std::size_t> all(source_.files().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (std::uint32_t node = 0; node < nodes_; ++node) sender_.send(node, all);
  return true;
}

void FileStaging::send_pmix_helper(std::uint32_t node) {
  const fs::path path = fs::path(launcher_path_).parent_path() / kPmixHelperName;
  // Whoever could have put another launcher there is trusted already by whoever started this one.
  const TrustedPath helper = trusted_program(path, writers_of(launcher_path_));
  if (!helper_file_ && helper.path.empty()) {
    return callbacks_.fail("MPI cannot be served: " + path.string() +
                           " is not sent: " + helper.why);
  }
  try {
    if (!helper_file_) helper_file_ = source_.add_image(helper.path, kPmixHelperName);
  } catch (const UsageError& error) {
    return callbacks_.fail(std::string("MPI cannot be served: ") + error.what());
  }
  sender_.send(node, {*helper_file_});
}

void FileStaging::on_frame(std::uint32_t node, const internal::Frame& frame) {
  sender_.handle(node, frame.body);
}

void FileStaging::name_copies(std::uint32_t node, StartOrder& order) const {
  if (!has_sent_copies_) return;
  const std::string& folder = sender_.folder_on(node);
  for (std::size_t i = 0; i < order.programs.size(); ++i) {
    order.programs[i].variables["CHAINMAIL_PRELOAD_DIR"] = folder;
    if (i >= copied_programs_.size()) continue;
    const PreloadedFile& copy = source_.files()[copied_programs_[i]];
    const std::string path = folder + "/" + copy.name;
    order.programs[i].words.front() = order.programs[i].expands ? as_pattern(path) : path;
  }
}

}  // namespace chainmail::launch
