// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files that hosts get before ranks start: --preload, --preload-files, and what MPI needs where the
// launcher itself had to be sent.

#include <filesystem>
#include <numeric>

#include "launcher/controller/controller.h"
#include "launcher/controller/rank_environment.h"
#include "launcher/mpi/pmix_helper.h"
#include "launcher/staging/trusted_path.h"

namespace chainmail::launch {

namespace fs = std::filesystem;

// Before anything is started: what cannot be read is bad usage.
void Controller::prepare_preload() {
  for (std::size_t i = 0; options_.preload && i < programs_.size(); ++i) {
    // As it is typed here; --wdir is where the copies run.
    const std::string path = path_of_program(programs_[i].words.front(), current_directory());
    copied_programs_.push_back(
        preload_source_.add("--preload", path, fs::path(path).filename(), true));
  }
  for (const std::string& path : options_.preload_files) {
    (void)preload_source_.add("--preload-files", path, fs::path(path).filename(), false);
  }
  PreloadSender::Callbacks callbacks;
  callbacks.send = [this](std::uint32_t node, std::string body) {
    if (nodes_[node].link) nodes_[node].link->send(AgentMessage::kPreload, std::move(body));
  };
  callbacks.on_stored = [this](std::uint32_t) {
    if (hosts_without_copies_ > 0 && --hosts_without_copies_ == 0) on_hello();
  };
  callbacks.on_failed = [this](std::uint32_t node, const std::string& why) {
    fail({std::nullopt, exit_code::kLauncherError,
          "host " + placement_.nodes[node].name + ": " + why});
  };
  preload_ = std::make_unique<PreloadSender>(preload_source_, nodes_.size(), std::move(callbacks));
}

// Whether ranks have to wait for files; on_hello() is called again when they are there.
bool Controller::sends_files_first() {
  if (preload_source_.files().empty() || has_sent_copies_) return hosts_without_copies_ > 0;
  has_sent_copies_ = true;
  hosts_without_copies_ = nodes_.size();
  std::vector<std::size_t> all(preload_source_.files().size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) preload_->send(node, all);
  return true;
}

// The first rank there has called MPI_Init, and chainmail-pmix is not installed.
void Controller::send_pmix_helper(std::uint32_t node) {
  const fs::path path = fs::path(launcher_path_).parent_path() / kPmixHelperName;
  // Whoever could have put another launcher there is trusted already by whoever started this one.
  const TrustedPath helper = trusted_program(path, writers_of(launcher_path_));
  if (!helper_file_ && helper.path.empty()) {
    return fail({std::nullopt, exit_code::kLauncherError,
                 "MPI cannot be served: " + path.string() + " is not sent: " + helper.why});
  }
  try {
    if (!helper_file_) helper_file_ = preload_source_.add_image(helper.path, kPmixHelperName);
  } catch (const UsageError& error) {
    return fail({std::nullopt, exit_code::kLauncherError,
                 std::string("MPI cannot be served: ") + error.what()});
  }
  preload_->send(node, {*helper_file_});
}

void Controller::on_preload(std::uint32_t node, const internal::Frame& frame) {
  preload_->handle(node, frame.body);
}

// Ranks there run the copy and find the folder.
void Controller::name_copies(std::uint32_t node, StartOrder& order) const {
  if (!has_sent_copies_) return;
  const std::string& folder = preload_->folder_on(node);
  for (std::size_t i = 0; i < order.programs.size(); ++i) {
    order.programs[i].variables["CHAINMAIL_PRELOAD_DIR"] = folder;
    if (i >= copied_programs_.size()) continue;
    const PreloadedFile& copy = preload_source_.files()[copied_programs_[i]];
    order.programs[i].words.front() = folder + "/" + copy.name;
  }
}

}  // namespace chainmail::launch
