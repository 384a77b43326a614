// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/staging/preload_sender.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/job/job_protocol.h"
#include "launcher/job/environment.h"
#include "launcher/job/options.h"
#include "launcher/remote/agent_image.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "no file";
}

// Per host: enough for a fast link, and little with many hosts.
constexpr std::size_t kMostPiecesUnderWay = 4;

}  // namespace

std::size_t PreloadSource::add(const std::string& option, const std::string& path,
                               const std::string& name, bool is_program) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError(option + ": " + path + " " + why);
  };
  std::error_code error;
  const std::string real = fs::canonical(path, error);
  if (error) refuse("cannot be read: " + error.message());
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].name != name) continue;
    if (opened_[i].path == real) return i;
    refuse("has the same name as " + opened_[i].path +
           ", and all copies lie in one folder; give one of them another name");
  }
  // A pipe would wait for a writer.
  internal::UniqueFd fd(::open(real.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.is_open()) refuse(std::string("cannot be read: ") + std::strerror(errno));
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse("is " + kind_of(status.st_mode) + "; only files are copied");
  if (is_program && access(real.c_str(), X_OK) != 0) refuse("is not executable; chmod +x it");
  if (files_.size() == kMostPreloadedFiles) {
    refuse("is one file too many: at most " + std::to_string(kMostPreloadedFiles) + " are copied");
  }
  files_.push_back({name, static_cast<std::uint64_t>(status.st_size), status.st_mode & 0777U, 0});
  opened_.push_back({real, std::move(fd)});
  compute_checksum(files_.size() - 1);
  return files_.size() - 1;
}

std::size_t PreloadSource::add_image(const std::string& path, const std::string& name) {
  constexpr std::size_t kHeadBytes = 4096;
  const std::size_t index = add(name, path, name, true);
  PreloadedFile& file = files_[index];
  const std::string head = read(index, 0, std::min<std::size_t>(kHeadBytes, file.bytes));
  file.bytes = loadable_bytes(head, file.bytes).value_or(file.bytes);
  compute_checksum(index);
  return index;
}

void PreloadSource::compute_checksum(std::size_t index) {
  PreloadedFile& file = files_[index];
  internal::StreamHash hash;
  for (std::uint64_t at = 0; at < file.bytes; at += kPreloadPieceBytes) {
    const auto bytes = std::min<std::uint64_t>(kPreloadPieceBytes, file.bytes - at);
    hash.add(read(index, at, static_cast<std::size_t>(bytes)));
  }
  file.checksum = hash.value();
}

std::string PreloadSource::read(std::size_t file, std::uint64_t offset, std::size_t bytes) const {
  std::string piece(bytes, '\0');
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t count = pread(opened_[file].fd.get(), piece.data() + at, bytes - at,
                                static_cast<off_t>(offset + at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    at += static_cast<std::size_t>(count);
  }
  return piece;
}

std::string path_of_program(const std::string& program, const std::string& directory) {
  if (program.find('/') != std::string::npos) return fs::path(directory) / program;
  const std::string path = value_of(current_environment(), "PATH").value_or("");
  for (const std::string& file : files_in_path(path, program)) {
    if (access(file.c_str(), X_OK) == 0 && !fs::is_directory(file)) return file;
  }
  throw UsageError("--preload: " + program +
                   " is not in PATH; for a program of this folder write ./" + program);
}

PreloadSender::PreloadSender(const PreloadSource& source, std::size_t nodes, Callbacks callbacks)
    : source_(source), callbacks_(std::move(callbacks)), nodes_(nodes) {}

void PreloadSender::send(std::uint32_t number, std::vector<std::size_t> files) {
  std::vector<PreloadedFile> list;
  for (const std::size_t file : files) list.push_back(source_.files()[file]);
  Node& node = nodes_[number];
  node.files = std::move(files);
  node.current = 0;
  node.sent = 0;
  node.is_waiting = true;
  callbacks_.send(number, encode_preload_list(list));
  send_more(number);
}

void PreloadSender::send_more(std::uint32_t number) {
  Node& node = nodes_[number];
  while (node.pieces_under_way < kMostPiecesUnderWay && node.current < node.files.size()) {
    const std::size_t file = node.files[node.current];
    const std::uint64_t left = source_.files()[file].bytes - node.sent;
    if (left == 0) {
      ++node.current;
      node.sent = 0;
      continue;
    }
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(left, kPreloadPieceBytes));
    callbacks_.send(number,
                    encode_preload(PreloadOp::kPiece, source_.read(file, node.sent, bytes)));
    node.sent += bytes;
    ++node.pieces_under_way;
  }
}

void PreloadSender::handle(std::uint32_t number, std::string_view bytes) {
  Node& node = nodes_[number];
  internal::BodyReader body(bytes);
  const auto op = static_cast<PreloadOp>(body.u8());
  const std::string text = body.text();
  if (op == PreloadOp::kTaken && node.pieces_under_way > 0) {
    --node.pieces_under_way;
    send_more(number);
  } else if (op == PreloadOp::kStored && node.is_waiting && !text.empty()) {
    node.folder = text;
    node.is_waiting = false;
    callbacks_.on_stored(number);
  } else if (op == PreloadOp::kFailed) {
    node.current = node.files.size();
    callbacks_.on_failed(number, text);
  } else {
    throw SystemError("files to preload: an unexpected answer", EPROTO);
  }
}

}  // namespace chainmail::launch
