// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/staging/preload_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/job/job_protocol.h"
#include "launcher/files/agent_folders.h"
#include "launcher/files/trusted_path.h"

namespace chainmail::launch {
namespace {

// Empty, or why the files cannot go there. Whoever could rename our folder could have ranks run
// programs of his own.
std::string make_below(const std::string& parent, const std::string& marker, std::uint64_t bytes,
                       bool has_programs, std::string& path) {
  const TrustedPath folder = trusted_folder(parent);
  if (folder.path.empty()) return "is not to be trusted (" + folder.why + ")";
  struct statvfs space {};
  if (statvfs(folder.path.c_str(), &space) != 0) return std::strerror(errno);
  const std::uint64_t left = std::uint64_t{space.f_bavail} * space.f_frsize;
  if (has_programs && (space.f_flag & ST_NOEXEC) != 0) return "forbids programs (noexec)";
  if (left < bytes) return "has " + size_text(left);
  path = make_agent_folder(folder.path, marker, kPreloadFolder);
  return path.empty() ? std::strerror(errno) : "";
}

// Throws SystemError that says of every folder why not.
std::string make_folder(const std::string& marker, const std::vector<PreloadedFile>& files) {
  const std::uint64_t bytes = std::accumulate(
      files.begin(), files.end(), std::uint64_t{0},
      [](std::uint64_t sum, const PreloadedFile& file) { return sum + file.bytes; });
  const bool has_programs = std::any_of(files.begin(), files.end(), [](const PreloadedFile& file) {
    return (file.mode & S_IXUSR) != 0;
  });
  std::string path;
  std::string why;
  for (const std::string& parent : agent_folder_parents()) {
    const std::string reason = make_below(parent, marker, bytes, has_programs, path);
    if (reason.empty()) return path;
    why += (why.empty() ? "" : ", ") + parent + " " + reason;
  }
  throw SystemError("no folder takes the " + size_text(bytes) + " of files to preload: " + why +
                        "; make room, or set TMPDIR there to a folder that has it",
                    ENOSPC);
}

}  // namespace

PreloadStore::PreloadStore(std::string marker, Send send)
    : marker_(std::move(marker)), send_(std::move(send)) {}

PreloadStore::~PreloadStore() { remove_folder(path_); }

void PreloadStore::handle(std::string_view bytes) {
  internal::BodyReader body(bytes);
  const auto op = static_cast<PreloadOp>(body.u8());
  if (op == PreloadOp::kList) {
    if (current_ < files_.size()) {
      throw SystemError("files to preload: a list in the midst of another one", EPROTO);
    }
    begin(decode_preload_list(bytes.substr(1)));
  } else if (op == PreloadOp::kPiece) {
    take(body.text());
  } else {
    throw SystemError("files to preload: an answer came to an agent", EPROTO);
  }
}

void PreloadStore::begin(std::vector<PreloadedFile> files) {
  if (has_failed_) return;
  try {
    if (path_.empty()) path_ = make_folder(marker_, files);
    folder_.clear();
    files_ = std::move(files);
    current_ = 0;
    open_next();
  } catch (const SystemError& error) {
    has_failed_ = true;
    send_(encode_preload(PreloadOp::kFailed, error.what()));
  }
}

// The next file with anything in it; those without are complete at once.
void PreloadStore::open_next() {
  for (; current_ < files_.size(); ++current_) {
    const PreloadedFile& file = files_[current_];
    const std::string path = path_ + "/" + file.name;
    fd_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd_.is_open()) throw system_error("cannot write " + path);
    written_ = 0;
    hash_.reset();
    // A full disk shows now; not every file system can tell.
    if (file.bytes > 0 && fallocate(fd_.get(), 0, 0, static_cast<off_t>(file.bytes)) != 0 &&
        errno != EOPNOTSUPP && errno != ENOSYS) {
      throw system_error("no room for the " + size_text(file.bytes) + " of " + path);
    }
    if (file.bytes > 0) return;
    finish_file();
  }
  folder_ = path_;
  send_(encode_preload(PreloadOp::kStored, folder_));
}

void PreloadStore::take(std::string_view piece) {
  if (has_failed_) return;  // what was on its way already
  if (piece.empty() || piece.size() > kPreloadPieceBytes || current_ == files_.size() ||
      piece.size() > files_[current_].bytes - written_) {
    throw SystemError("files to preload: an unexpected piece", EPROTO);
  }
  try {
    for (std::string_view rest = piece; !rest.empty();) {
      const ssize_t count = ::write(fd_.get(), rest.data(), rest.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw system_error("cannot write " + path_ + "/" + files_[current_].name);
      rest.remove_prefix(static_cast<std::size_t>(count));
    }
    written_ += piece.size();
    hash_.add(piece);
    send_(encode_preload(PreloadOp::kTaken));
    if (written_ < files_[current_].bytes) return;
    finish_file();
    ++current_;
    open_next();
  } catch (const SystemError& error) {
    has_failed_ = true;
    send_(encode_preload(PreloadOp::kFailed, error.what()));
  }
}

void PreloadStore::finish_file() {
  const PreloadedFile& file = files_[current_];
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0 || fchmod(fd_.get(), file.mode) != 0) {
    throw system_error("cannot complete " + path_ + "/" + file.name);
  }
  if (static_cast<std::uint64_t>(status.st_size) != file.bytes || hash_.value() != file.checksum) {
    throw SystemError(file.name +
                          " arrived with another content than it had; was it changed while "
                          "the job started?",
                      EIO);
  }
  fd_.reset();  // or it could not be executed
}

}  // namespace chainmail::launch
