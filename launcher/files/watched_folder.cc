// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/files/watched_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <asio/post.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/files/text_file.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

using Callback = std::function<void(const std::string&)>;

constexpr milliseconds kLookAgain{1000};

bool write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// Whoever reads it meanwhile sees the one or the other.
void replace_file(const std::string& path, const std::string& text) {
  struct stat before {};
  if (stat(path.c_str(), &before) != 0) throw system_error("cannot read " + path);
  std::string next = path + ".XXXXXX";
  const UniqueFd file(mkostemp(next.data(), O_CLOEXEC));
  if (!file.is_open()) throw system_error("cannot make a file beside " + path);
  // The owner only root can keep.
  (void)fchown(file.get(), before.st_uid, before.st_gid);
  const bool is_whole = fchmod(file.get(), before.st_mode & 07777) == 0 &&
                        write_whole(file.get(), text) && fsync(file.get()) == 0 &&
                        rename(next.c_str(), path.c_str()) == 0;
  if (is_whole) return;
  const SystemError failure = system_error("cannot write " + path);
  unlink(next.c_str());
  throw failure;
}

// What others append meanwhile stays where this does no more than that.
void write_change(const std::string& path, const std::string& before, const std::string& after) {
  if (after.rfind(before, 0) != 0) return replace_file(path, after);
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  struct stat status {};
  const bool is_open = file.is_open() && fstat(file.get(), &status) == 0;
  if (is_open && write_whole(file.get(), after.substr(before.size()))) return;
  const SystemError failure = system_error("cannot write " + path);
  // Half a line would be refused until somebody mends it.
  if (is_open) (void)!ftruncate(file.get(), status.st_size);
  throw failure;
}

}  // namespace

// Differs when the file has changed; all zero where there is none.
struct WatchedFolder::Signature {
  bool is_there = false;
  bool is_file = false;
  ino_t inode = 0;
  off_t bytes = 0;
  timespec changed{};

  static Signature of(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return {};
    // The time of the last change of its contents or its name; nobody can set it back.
    return {true, S_ISREG(status.st_mode), status.st_ino, status.st_size, status.st_ctim};
  }
  [[nodiscard]] auto fields() const {
    return std::tuple(is_there, is_file, inode, bytes, changed.tv_sec, changed.tv_nsec);
  }
  bool operator==(const Signature& other) const { return fields() == other.fields(); }
};

// Shared with the thread, which may wait for a file system for ever: the launcher ends without it
// then.
struct WatchedFolder::State {
  std::mutex mutex;
  bool is_over = false;
  std::map<std::string, bool> awaited;  // whether it was told to be missing
  std::vector<std::string> to_make;
  struct Edit {
    std::function<std::string(const std::string& text)> change;
    std::uint64_t number = 0;
  };
  std::vector<Edit> edits;
  asio::io_context* io = nullptr;
  Callbacks callbacks;
  UniqueFd wake;
  UniqueFd events;

  // The io_context's own: what these hold must not end in the thread.
  std::map<std::uint64_t, Callback> on_edited;
  std::uint64_t next_edit = 0;

  // The thread's own.
  std::string folder;
  std::string file;
  std::string text;
  Signature seen;
  steady_clock::time_point seen_at = steady_clock::now();
  bool is_settled = false;
  bool is_unreadable = false;
  steady_clock::time_point tried_at;

  // On the io_context's thread, unless the owner has gone meanwhile.
  void tell(const std::shared_ptr<State>& self, Callback Callbacks::*what, std::string about) {
    const std::lock_guard lock(mutex);
    if (is_over) return;
    asio::post(*io, [self, what, about = std::move(about)] {
      if (!self->is_over) (self->callbacks.*what)(about);
    });
  }

  void run(const std::shared_ptr<State>& self) {
    pthread_setname_np(pthread_self(), "watched_folder");
    while (true) {
      {
        const std::lock_guard lock(mutex);
        if (is_over) return;
      }
      make_files(self);
      edit_file(self);
      look_for_files(self);
      if (!file.empty()) look_at_file(self);
      wait();
    }
  }

  void wait() {
    std::array<pollfd, 2> fds = {{{wake.get(), POLLIN, 0}, {events.get(), POLLIN, 0}}};
    const milliseconds time = is_settled || file.empty() ? kLookAgain : kSettle / 4;
    poll(fds.data(), fds.size(), static_cast<int>(time.count()));
    // What happened does not matter: everything is looked at.
    eventfd_t count = 0;
    if (fds[0].revents != 0) (void)eventfd_read(wake.get(), &count);
    std::array<char, 4096> drained;
    while (fds[1].revents != 0 && read(events.get(), drained.data(), drained.size()) > 0) {
    }
  }

  void make_files(const std::shared_ptr<State>& self) {
    std::vector<std::string> names;
    {
      const std::lock_guard lock(mutex);
      names.swap(to_make);
    }
    for (const std::string& name : names) {
      const std::string path = folder + "/" + name;
      const UniqueFd made(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
      if (made.is_open()) continue;
      const std::string why = system_error("cannot make " + path).what();
      const std::lock_guard lock(mutex);
      if (is_over) return;
      asio::post(*io, [self, name, why] {
        if (!self->is_over) self->callbacks.on_not_made(name, why);
      });
    }
  }

  void edit_file(const std::shared_ptr<State>& self) {
    std::vector<Edit> wanted;
    {
      const std::lock_guard lock(mutex);
      wanted.swap(edits);
    }
    for (const Edit& edit : wanted) {
      std::string failure;
      try {
        // Not the name: that of a link would be lost.
        const std::string path = std::filesystem::canonical(folder + "/" + file).string();
        const std::string before = read_host_text(path, "hosts file", Pipes::kRefuse);
        write_change(path, before, edit.change(before));
      } catch (const std::runtime_error& error) {
        failure = error.what();
      }
      const std::lock_guard lock(mutex);
      if (is_over) return;
      asio::post(*io, [self, number = edit.number, failure] {
        const auto edited = self->on_edited.extract(number);
        if (!self->is_over && !edited.empty()) edited.mapped()(failure);
      });
    }
  }

  void look_for_files(const std::shared_ptr<State>& self) {
    std::map<std::string, bool> names;
    {
      const std::lock_guard lock(mutex);
      names = awaited;
    }
    for (const auto& [name, is_told] : names) {
      const bool is_there = access((folder + "/" + name).c_str(), F_OK) == 0;
      if (!is_there && is_told) continue;
      {
        const std::lock_guard lock(mutex);
        const auto found = awaited.find(name);
        if (found == awaited.end()) continue;
        if (is_there) awaited.erase(found);
        if (!is_there) found->second = true;
      }
      tell(self, is_there ? &Callbacks::on_there : &Callbacks::on_missing, name);
    }
  }

  void look_at_file(const std::shared_ptr<State>& self) {
    const std::string path = folder + "/" + file;
    const Signature signature = Signature::of(path);
    if (!(signature == seen)) {
      seen = signature;
      seen_at = steady_clock::now();
      is_settled = false;
    }
    const auto now = steady_clock::now();
    // What has kept it from being read, such as a server that restarts, need not change the file.
    const bool is_due_again = is_unreadable && now - tried_at >= kLookAgain;
    if ((is_settled && !is_due_again) || now - seen_at < kSettle) return;
    tried_at = now;
    try {
      std::string read = read_host_text(path, "hosts file", Pipes::kRefuse);
      // Changed while it was read: it will be read again.
      if (!(Signature::of(path) == seen)) return;
      is_settled = true;
      is_unreadable = false;
      if (std::exchange(text, read) != read) tell(self, &Callbacks::on_text, std::move(read));
    } catch (const std::runtime_error& error) {
      is_settled = true;
      if (!std::exchange(is_unreadable, true)) tell(self, &Callbacks::on_unreadable, error.what());
    }
  }
};

WatchedFolder::WatchedFolder(asio::io_context& io, std::string folder, std::string file,
                             std::string text, Callbacks callbacks)
    : state_(std::make_shared<State>()) {
  State& state = *state_;
  state.io = &io;
  state.callbacks = std::move(callbacks);
  state.folder = std::move(folder);
  state.file = std::move(file);
  state.text = std::move(text);
  state.wake.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state.wake.is_open()) throw system_error("cannot make an eventfd");
  // Without it the file is looked at once a second all the same.
  state.events.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (state.events.is_open()) {
    // Not of each write: logs of a program may lie beside the file. Whoever writes and does not
    // close is seen at the next look.
    (void)inotify_add_watch(state.events.get(), state.folder.c_str(),
                            IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO);
  }
  const SignalsBlocked blocked;
  std::thread([shared = state_] { shared->run(shared); }).detach();
}

WatchedFolder::~WatchedFolder() {
  state_->on_edited.clear();
  const std::lock_guard lock(state_->mutex);
  state_->is_over = true;
  eventfd_write(state_->wake.get(), 1);
}

void WatchedFolder::ask_for(const std::string& name) {
  const std::lock_guard lock(state_->mutex);
  state_->awaited[name] = false;
  eventfd_write(state_->wake.get(), 1);
}

void WatchedFolder::forget(const std::string& name) {
  const std::lock_guard lock(state_->mutex);
  state_->awaited.erase(name);
}

void WatchedFolder::edit(std::function<std::string(const std::string& text)> change,
                         std::function<void(const std::string& failure)> on_done) {
  const std::lock_guard lock(state_->mutex);
  state_->on_edited.emplace(++state_->next_edit, std::move(on_done));
  state_->edits.push_back({std::move(change), state_->next_edit});
  eventfd_write(state_->wake.get(), 1);
}

void WatchedFolder::make(const std::string& name) {
  const std::lock_guard lock(state_->mutex);
  state_->to_make.push_back(name);
  eventfd_write(state_->wake.get(), 1);
}

}  // namespace chainmail::launch
