// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/output_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kFullBytes = std::size_t{4} << 20;

}  // namespace

OutputSink::OutputSink(OutputOptions options) : options_(std::move(options)) {
  if (!options_.directory.empty()) open_files();
  thread_ = std::thread([this] { run(); });
}

OutputSink::~OutputSink() { (void)finish(); }

bool OutputSink::finish() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  // Like any program at the head of a pipe: a pager may take its time to read the end.
  if (thread_.joinable()) thread_.join();
  return !lost_output_;
}

void OutputSink::open_files() {
  namespace fs = std::filesystem;
  files_.resize(options_.host_of_rank.size());
  for (std::size_t rank = 0; rank < files_.size(); ++rank) {
    const fs::path directory = fs::path(options_.directory) / ("rank." + std::to_string(rank));
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) {
      throw SystemError("cannot make " + directory.string() + ": " + error.message(),
                        error.value());
    }
    constexpr const char* kNames[2] = {"stdout", "stderr"};
    for (std::size_t i = 0; i < 2; ++i) {
      const std::string path = (directory / kNames[i]).string();
      files_[rank].streams[i].reset(
          ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      if (!files_[rank].streams[i].is_open()) throw system_error("cannot write " + path);
      files_[rank].paths[i] = path;
    }
  }
}

void OutputSink::write(std::uint32_t rank, int stream, std::string text) {
  push({rank, stream, std::move(text)});
}

void OutputSink::say(const std::string& line) { push({-1, STDERR_FILENO, line + "\n"}); }

void OutputSink::push(Piece piece) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queued_bytes_ += piece.text.size();
  queue_.push_back(std::move(piece));
  changed_.notify_all();
}

bool OutputSink::is_full() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return queued_bytes_ > kFullBytes;
}

bool OutputSink::is_broken() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return broken_;
}

void OutputSink::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) break;
    const Piece piece = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    show(piece);
    lock.lock();
    queued_bytes_ -= piece.text.size();
  }
}

void OutputSink::show(const Piece& piece) {
  const auto stream = static_cast<std::size_t>(piece.stream - 1);
  if (piece.rank >= 0 && !files_.empty()) {
    const RankFiles& files = files_[static_cast<std::size_t>(piece.rank)];
    put(files.streams[stream].get(), files.paths[stream], piece.text);
  }
  Line& line = lines_[stream];
  const bool continues_line = line.is_open && line.rank == piece.rank;
  std::string text;
  // Two ranks never share a line; stdout and stderr, which may go to different places, keep their
  // own bytes.
  if (line.is_open && !continues_line) text = "\n";
  text += options_.tag && piece.rank >= 0 ? tagged(piece, continues_line) : piece.text;
  put(piece.stream, piece.stream == STDOUT_FILENO ? "standard output" : "standard error", text);
  line = {!piece.text.empty() && piece.text.back() != '\n', piece.rank};
}

std::string OutputSink::tagged(const Piece& piece, bool continues_line) const {
  const std::string tag = "[" + options_.host_of_rank[static_cast<std::size_t>(piece.rank)] + "/" +
                          std::to_string(piece.rank) + "] ";
  std::string out = continues_line ? "" : tag;
  for (std::size_t i = 0; i < piece.text.size(); ++i) {
    out += piece.text[i];
    const bool ends_line = piece.text[i] == '\n' || piece.text[i] == '\r';
    const bool is_crlf = piece.text[i] == '\r' && piece.text.substr(i + 1, 1) == "\n";
    if (ends_line && !is_crlf && i + 1 < piece.text.size()) out += tag;
  }
  return out;
}

void OutputSink::put(int fd, const std::string& name, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (count < 0 && errno == EAGAIN) {
      // Somebody gave us a non-blocking stdout; wait for it without burning a core.
      pollfd ready{fd, POLLOUT, 0};
      poll(&ready, 1, 1000);
    } else if (count < 0 && errno != EINTR) {
      return report_loss(fd, name, errno);
    }
  }
}

void OutputSink::report_loss(int fd, const std::string& name, int error) {
  if (error == EPIPE && (fd == STDOUT_FILENO || fd == STDERR_FILENO)) {
    // Somebody has seen enough; that is no loss, but the job's end.
    const std::lock_guard<std::mutex> lock(mutex_);
    broken_ = true;
    return;
  }
  if (!failed_fds_.insert(fd).second) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_output_ = true;
  }
  say("launcher: cannot write " + name + ": " + std::generic_category().message(error) +
      "; output is lost");
}

}  // namespace chainmail::launch
