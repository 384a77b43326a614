// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// File systems that go wrong at the n-th call. Not thread-safe.

#pragma once

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plugin/checkpoint/store/file_system.h"

namespace chainmail::testing {

/// What happens at call number `at`, counted from 1.
struct Fault {
  enum class Kind {
    kNone,
    kError,      ///< that call fails with `code`, later ones work
    kCrash,      ///< that call and all later ones fail; what was not flushed is lost
    kKill,       ///< the process ends by SIGKILL before the call
    kKillAfter,  ///< ... after it
  };
  Kind kind = Kind::kNone;
  int at = 0;
  int code = EIO;
};

/// A call that the process did not survive.
struct Crash : SystemError {
  Crash() : SystemError("the machine went down", EIO) {}
};

class FaultyFileSystem final : public internal::FileSystem {
 public:
  explicit FaultyFileSystem(Fault fault) : fault_(fault) {}

  internal::UniqueFd create(const std::string& path) override {
    internal::UniqueFd file;
    call("create " + path, [&] {
      file = real_->create(path);
      unsynced_.insert(path);
      unnamed_.insert(path);
    });
    return file;
  }
  void write(const internal::UniqueFd& file, std::uint64_t offset, std::span<const std::byte> bytes,
             const std::string& path) override {
    // A full disk takes the first half.
    call(
        "write " + path, [&] { real_->write(file, offset, bytes, path); },
        [&] { real_->write(file, offset, bytes.first(bytes.size() / 2), path); });
  }
  void sync(const internal::UniqueFd& file, const std::string& path) override {
    call("sync " + path, [&] {
      real_->sync(file, path);
      unsynced_.erase(path);
    });
  }
  void close(internal::UniqueFd file, const std::string& path) override {
    call("close " + path, [&] { real_->close(std::move(file), path); });
  }
  void rename(const std::string& from, const std::string& to) override {
    call("rename " + from, [&] {
      real_->rename(from, to);
      renamed_.emplace_back(from, to);
      follow_rename(unsynced_, from, to);
      follow_rename(unnamed_, from, to);
    });
  }
  void sync_folder(const std::string& path) override {
    call("sync_folder " + path, [&] {
      real_->sync_folder(path);
      std::erase_if(renamed_, [&](const auto& name) { return folder_of(name.second) == path; });
      std::erase_if(unnamed_, [&](const std::string& name) { return folder_of(name) == path; });
    });
  }
  void make_folder(const std::string& path) override {
    call("make_folder " + path, [&] {
      const bool is_new = !std::filesystem::exists(path);
      real_->make_folder(path);
      if (is_new) unnamed_.insert(path);
    });
  }
  void remove(const std::string& path) override {
    call("remove " + path, [&] { real_->remove(path); });
  }

  int calls() const { return calls_; }

  /// The worst that a power cut may leave: files without contents or names, folders without names,
  /// renames undone.
  void lose_what_is_not_flushed() {
    std::error_code error;
    for (const std::string& path : unsynced_) std::filesystem::resize_file(path, 0, error);
    for (const std::string& path : unnamed_) std::filesystem::remove_all(path, error);
    for (auto name = renamed_.rbegin(); name != renamed_.rend(); ++name) {
      std::filesystem::rename(name->second, name->first, error);
    }
  }

 private:
  void call(
      const std::string& what, const std::function<void()>& work,
      const std::function<void()>& partly = [] {}) {
    ++calls_;
    const bool is_it = calls_ == fault_.at;
    if (fault_.kind == Fault::Kind::kCrash && calls_ >= fault_.at) {
      if (is_it) {
        partly();
        lose_what_is_not_flushed();
      }
      throw Crash();
    }
    if (fault_.kind == Fault::Kind::kKill && is_it) {
      partly();
      ::kill(::getpid(), SIGKILL);
    }
    if (fault_.kind == Fault::Kind::kError && is_it) {
      partly();
      throw SystemError(what + ": " + std::strerror(fault_.code), fault_.code);
    }
    work();
    if (fault_.kind == Fault::Kind::kKillAfter && is_it) ::kill(::getpid(), SIGKILL);
  }

  static std::string folder_of(const std::filesystem::path& path) {
    return path.parent_path().string();
  }

  static void follow_rename(std::set<std::string>& paths, const std::string& from,
                            const std::string& to) {
    std::set<std::string> moved;
    for (const std::string& path : paths) {
      const bool moves = path == from || path.starts_with(from + '/');
      moved.insert(moves ? to + path.substr(from.size()) : path);
    }
    paths = std::move(moved);
  }

  std::shared_ptr<internal::FileSystem> real_ = internal::posix_file_system();
  Fault fault_;
  int calls_ = 0;
  std::set<std::string> unsynced_;  ///< whose contents may be lost
  std::set<std::string> unnamed_;   ///< whose names may be lost
  std::vector<std::pair<std::string, std::string>> renamed_;
};

/// A folder that goes with the test.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "chainmail-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace chainmail::testing
