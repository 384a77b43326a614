// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/output_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "launcher/files/own_file.h"
#include "launcher/output/targets/line_prefix.h"
#include "launcher/output/targets/write_all.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {
namespace {

// Ranks are counted without gaps.
constexpr std::size_t kMostOlderRanks = std::size_t{1} << 20;

bool is_same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

OutputSink::OutputSink(OutputOptions options)
    : options_(std::move(options)),
      is_one_place_(!options_.is_silent && is_same_file(STDOUT_FILENO, STDERR_FILENO)),
      mergers_{make_merger(), make_merger()},
      copier_(options_.copies, [this](const std::string& why) { tell_loss(why, true); }) {
  if (!options_.directory.empty()) {
    if (!options_.append) remove_older_files();
    while (files_.size() < options_.host_of_rank.size()) {
      files_.push_back(open_files(files_.size()));
    }
  }
  // Signals are for the main thread, which forks and waits.
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

LineMerger OutputSink::make_merger() {
  return LineMerger(
      options_.carriage_returns, [this](const LineMerger::Shown& shown) { show(shown); },
      [this](const Writer& writer, std::size_t bytes) { report_written(writer, bytes); });
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

// Of an earlier job with more ranks; they would be taken for this one's.
void OutputSink::remove_older_files() const {
  namespace fs = std::filesystem;
  std::error_code error;
  for (std::size_t rank = options_.host_of_rank.size(); rank < kMostOlderRanks; ++rank) {
    const fs::path directory = fs::path(options_.directory) / ("rank." + std::to_string(rank));
    if (!fs::is_directory(fs::symlink_status(directory, error))) return;
    for (const char* name : {"stdout", "stderr"}) fs::remove(directory / name, error);
    fs::remove(directory, error);  // not where others have put something
  }
}

OutputSink::RankFiles OutputSink::open_files(std::size_t rank) const {
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(options_.directory) / ("rank." + std::to_string(rank));
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    throw SystemError("cannot make " + directory.string() + ": " + error.message(), error.value());
  }
  const internal::UniqueFd folder =
      open_own(AT_FDCWD, directory.string(), O_RDONLY | O_DIRECTORY, 0, directory.string());
  constexpr const char* kNames[2] = {"stdout", "stderr"};
  RankFiles files;
  for (std::size_t i = 0; i < 2; ++i) {
    files.paths[i] = (directory / kNames[i]).string();
    const int mode = options_.append ? O_APPEND : O_TRUNC;
    files.streams[i] =
        open_own(folder.get(), kNames[i], O_WRONLY | O_CREAT | mode, 0666, files.paths[i]);
  }
  return files;
}

void OutputSink::add_rank(const std::string& host) {
  push({.writer = {}, .text = host, .begins_rank = true});
}

// The writing thread's: the folder may be on a file system that does not answer.
void OutputSink::begin_rank(std::string host) {
  options_.host_of_rank.push_back(std::move(host));
  if (options_.directory.empty()) return;
  try {
    files_.push_back(open_files(files_.size()));
  } catch (const SystemError& error) {
    files_.emplace_back();
    tell_loss(error.what(), options_.copies.is_on());
  }
}

void OutputSink::write(std::uint32_t rank, int stream, std::string text) {
  push({{rank, stream}, std::move(text)});
}

void OutputSink::end_rank(std::uint32_t rank) { push({{rank, 0}, {}, true}); }

void OutputSink::say(const std::string& line) { push({{-1, STDERR_FILENO}, line + "\n"}); }

void OutputSink::push(Piece piece) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(piece));
  changed_.notify_all();
}

bool OutputSink::is_broken() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return broken_;
}

std::vector<WrittenOutput> OutputSink::take_written() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<WrittenOutput> all;
  for (const auto& [writer, bytes] : written_) {
    all.push_back({writer.first, writer.second, bytes});
  }
  written_.clear();
  return all;
}

LineMerger& OutputSink::merger_of(int stream) {
  return mergers_[is_one_place_ ? 0 : static_cast<std::size_t>(stream - 1)];
}

void OutputSink::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    wait_for_piece(lock);
    if (queue_.empty() && ending_) break;
    std::deque<Piece> pieces;
    std::swap(pieces, queue_);
    lock.unlock();
    for (Piece& piece : pieces) handle(std::move(piece));
    for (LineMerger& merger : mergers_) merger.tick();
    lock.lock();
  }
  lock.unlock();
  finish_targets();
}

void OutputSink::finish_targets() {
  for (LineMerger& merger : mergers_) merger.finish();
  copier_.finish();
  // What has been lost only now is said as well, if there is anybody to say it to.
  std::deque<Piece> said;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(said, queue_);
  }
  for (Piece& piece : said) handle(std::move(piece));
  for (LineMerger& merger : mergers_) merger.finish();
}

std::string OutputSink::loss() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return first_loss_;
}

// Or for a line that others wait for to have stood still long enough.
void OutputSink::wait_for_piece(std::unique_lock<std::mutex>& lock) {
  const auto is_ready = [this] { return ending_ || !queue_.empty(); };
  auto first = mergers_[0].next_tick();
  const auto second = mergers_[1].next_tick();
  if (!first || (second && *second < *first)) first = second;
  if (first) {
    changed_.wait_until(lock, *first, is_ready);
  } else {
    changed_.wait(lock, is_ready);
  }
}

void OutputSink::handle(Piece piece) {
  if (piece.ends_rank) {
    for (LineMerger& merger : mergers_) merger.end(piece.writer.rank);
    return end_files(piece.writer.rank);
  }
  if (piece.begins_rank) return begin_rank(std::move(piece.text));
  if (piece.writer.rank >= 0 && !options_.directory.empty()) {
    const RankFiles& files = files_[static_cast<std::size_t>(piece.writer.rank)];
    const auto stream = static_cast<std::size_t>(piece.writer.stream - 1);
    const int fd = files.streams[stream].get();
    if (fd >= 0) put(fd, files.paths[stream], piece.text);
  }
  // At once, whatever line is unfinished elsewhere.
  if (piece.writer.rank < 0) copier_.log(piece.text);
  merger_of(piece.writer.stream).add(piece.writer, std::move(piece.text));
  let_open_lines_end();
}

// Of jobs whose ranks come and go; a number of a descriptor may have another meaning from here on.
void OutputSink::end_files(std::int64_t rank) {
  if (options_.directory.empty()) return;
  for (internal::UniqueFd& stream : files_[static_cast<std::size_t>(rank)].streams) {
    failed_fds_.erase(stream.get());
    stream.reset();
  }
}

// A rank whose line is open on one of two places must not wait on the other: for a rank there that
// waits for it here.
void OutputSink::let_open_lines_end() {
  if (is_one_place_) return;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto rank = mergers_[i].open_rank();
    if (rank && !mergers_[1 - i].take_of(*rank)) mergers_[i].give_up();
  }
}

void OutputSink::show(const LineMerger::Shown& shown) {
  const Writer& writer = shown.writer;
  const std::string prefix = prefix_of(writer);
  if (!options_.is_silent) {
    std::string text = shown.breaks ? "\n" : "";
    text += prefix.empty() ? shown.text : with_prefix(prefix, shown.text, shown.continues);
    put(writer.stream, writer.stream == STDOUT_FILENO ? "standard output" : "standard error", text);
  }
  copier_.write(writer.rank, writer.stream, prefix, shown.text);
}

std::string OutputSink::prefix_of(const Writer& writer) const {
  std::string prefix = options_.timestamp ? time_prefix() : "";
  if (options_.tag && writer.rank >= 0) {
    const auto rank = static_cast<std::size_t>(writer.rank);
    prefix += "[" + options_.host_of_rank[rank] + "/" + std::to_string(rank) + "] ";
  }
  return prefix;
}

void OutputSink::report_written(const Writer& writer, std::size_t bytes) {
  if (writer.rank < 0) return;
  bool is_first = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_first = written_.empty();
    written_[{static_cast<std::uint32_t>(writer.rank), static_cast<std::uint8_t>(writer.stream)}] +=
        static_cast<std::uint32_t>(bytes);
  }
  if (is_first && options_.on_written) options_.on_written();
}

void OutputSink::put(int fd, const std::string& name, const std::string& text) {
  if (const int error = write_all(fd, text); error != 0) report_loss(fd, name, error);
}

void OutputSink::report_loss(int fd, const std::string& name, int error) {
  if (error == EPIPE && (fd == STDOUT_FILENO || fd == STDERR_FILENO)) {
    // Somebody has seen enough; that is no loss, but the job's end.
    const std::lock_guard<std::mutex> lock(mutex_);
    broken_ = true;
    return;
  }
  if (!failed_fds_.insert(fd).second) return;
  const bool is_stream = fd == STDOUT_FILENO || fd == STDERR_FILENO;
  tell_loss("cannot write " + name + ": " + std::generic_category().message(error),
            !is_stream && options_.copies.is_on());
}

void OutputSink::tell_loss(const std::string& why, bool is_of_copy) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    lost_output_ = lost_output_ || !is_of_copy;
    if (first_loss_.empty()) first_loss_ = why;
  }
  say("launcher: " + why + "; output is lost");
}

}  // namespace chainmail::launch
