// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/files/trusted_path.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

constexpr int kMostLinksOnPath = 40;  // as the kernel has it

// In a user namespace that has no number for root of the outside: the one that he and all others
// without a number are shown as. Nothing where somebody inside has that number.
std::optional<uid_t> users_of_outside() {
  constexpr const char* kNumber = "/proc/sys/kernel/overflowuid";  // belongs to that root
  struct stat status {};
  uid_t number = 0;
  if (!(std::ifstream(kNumber) >> number) || stat(kNumber, &status) != 0 ||
      status.st_uid != number) {
    return std::nullopt;
  }
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t inside = 0;
  std::uint64_t outside = 0;
  std::uint64_t count = 0;
  bool is_known = false;
  while (map >> inside >> outside >> count) {
    if (number >= inside && number - inside < count) return std::nullopt;
    is_known = true;
  }
  return is_known ? std::optional(number) : std::nullopt;
}

std::string mode_text(mode_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), " (mode %04o)", mode & 07777U);
  return text.data();
}

class Walk {
 public:
  explicit Walk(const Writers& also) : also_(also) {}

  TrustedPath run(const std::string& path) {
    if (path.empty() || path.front() != '/') return {"", "'" + path + "' is not an absolute path"};
    push(path);
    std::string why = enter_root();
    while (why.empty() && !rest_.empty()) {
      const std::string name = std::move(rest_.front());
      rest_.pop_front();
      why = step(name);
    }
    return why.empty() ? TrustedPath{name_of(""), ""} : TrustedPath{"", why};
  }

  // What `run` has come to.
  mode_t mode() const { return passed_.back().mode; }

 private:
  struct Passed {
    std::string name;
    mode_t mode;
    // Others may put things there, which are theirs.
    bool is_open() const { return S_ISDIR(mode) && (mode & S_ISVTX) != 0; }
  };

  void push(const std::string& path) {
    const std::vector<std::string> names = split(path, '/');
    rest_.insert(rest_.begin(), names.begin(), names.end());
  }

  std::string name_of(const std::string& last) const {
    std::string path;
    for (std::size_t i = 1; i < passed_.size(); ++i) path += "/" + passed_[i].name;
    if (!last.empty()) path += "/" + last;
    return path.empty() ? "/" : path;
  }

  std::string enter_root() {
    struct stat status {};
    if (lstat("/", &status) != 0) return std::string("/: ") + std::strerror(errno);
    passed_.clear();
    std::string why = fault_of("/", status);
    passed_.push_back({"", status.st_mode});
    return why;
  }

  std::string step(const std::string& name) {
    if (!S_ISDIR(mode())) return name_of("") + " is not a folder";
    if (name.empty() || name == ".") return {};
    if (name == "..") {
      if (passed_.size() > 1) passed_.pop_back();
      return {};
    }
    const std::string path = name_of(name);
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) return path + ": " + std::strerror(errno);
    std::string why = fault_of(path, status);
    if (!why.empty()) return why;
    if (S_ISLNK(status.st_mode)) return follow(path);
    passed_.push_back({name, status.st_mode});
    return {};
  }

  std::string follow(const std::string& path) {
    if (++links_ > kMostLinksOnPath) return path + ": " + std::strerror(ELOOP);
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(path, error);
    if (error) return path + ": " + error.message();
    push(target);
    return target.front() == '/' ? enter_root() : std::string();
  }

  std::string fault_of(const std::string& path, const struct stat& status) const {
    const bool is_folder = S_ISDIR(status.st_mode);
    if (!is_trusted(status.st_uid, is_folder)) {
      return path + " belongs to uid " + std::to_string(status.st_uid) +
             ", who is neither root nor this user (uid " + std::to_string(geteuid()) + ")";
    }
    if (S_ISLNK(status.st_mode)) return {};
    if (!is_folder && !S_ISREG(status.st_mode)) return path + " is not a regular file or a folder";
    // Where anybody may put files, he may give another name to one of this user's.
    if (!is_folder && passed_.back().is_open() && status.st_nlink > 1) {
      return path + " has " + std::to_string(status.st_nlink) + " names (hard links)";
    }
    if (is_folder && (status.st_mode & S_ISVTX) != 0) return {};
    if ((status.st_mode & S_IWOTH) != 0) {
      return "everybody may write to " + path + mode_text(status.st_mode);
    }
    if ((status.st_mode & S_IWGRP) != 0 && !also_.groups.contains(status.st_gid)) {
      return "the group of " + path + " may write to it" + mode_text(status.st_mode);
    }
    return {};
  }

  // What belongs to somebody of the outside is root's where nobody else could put it. A file has to
  // be as certain as the launcher that runs.
  bool is_trusted(uid_t owner, bool is_folder) const {
    if (owner == 0 || owner == geteuid()) return true;
    if (outside_ != owner) return also_.users.contains(owner);
    const bool is_below_open = !passed_.empty() && passed_.back().is_open();
    return !is_below_open && (is_folder || also_.users.contains(owner));
  }

  const Writers& also_;
  const std::optional<uid_t> outside_ = users_of_outside();
  std::deque<std::string> rest_;
  std::vector<Passed> passed_;
  int links_ = 0;
};

}  // namespace

TrustedPath trusted_folder(const std::string& path) {
  std::string real = path;
  if (!path.empty() && path.front() == '/') {
    const std::unique_ptr<char, decltype(&std::free)> found(realpath(path.c_str(), nullptr),
                                                            &std::free);
    if (found) real = found.get();  // otherwise the walk says what is missing
  }
  const Writers nobody;
  Walk walk(nobody);
  TrustedPath folder = walk.run(real);
  if (!folder.path.empty() && !S_ISDIR(walk.mode())) return {"", real + " is not a folder"};
  return folder;
}

TrustedPath trusted_program(const std::string& path, const Writers& also) {
  Walk walk(also);
  TrustedPath program = walk.run(path);
  if (program.path.empty()) return program;
  if (!S_ISREG(walk.mode())) return {"", program.path + " is not a regular file"};
  if (access(program.path.c_str(), X_OK) != 0) {
    return {"", program.path + " cannot be executed: " + std::strerror(errno)};
  }
  return program;
}

Writers writers_of(const std::string& path) {
  Writers writers;
  std::filesystem::path at;
  for (const auto& part : std::filesystem::path(path)) {
    at /= part;
    struct stat status {};
    if (lstat(at.c_str(), &status) != 0) continue;
    writers.users.insert(status.st_uid);
    const bool is_sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
    if ((status.st_mode & S_IWGRP) != 0 && !is_sticky) writers.groups.insert(status.st_gid);
  }
  return writers;
}

std::vector<std::string> temporary_folders() {
  std::vector<std::string> folders = scratch_folders();
  folders.resize(folders.front() == "/tmp" ? 1 : 2);
  return folders;
}

std::vector<std::string> scratch_folders() {
  std::vector<std::string> folders;
  const auto add = [&folders](const char* folder) {
    if (folder == nullptr || *folder == '\0') return;
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
      folders.emplace_back(folder);
    }
  };
  add(std::getenv("TMPDIR"));
  for (const char* folder : {"/tmp", "/var/tmp", "/dev/shm"}) add(folder);
  add(std::getenv("XDG_RUNTIME_DIR"));
  return folders;
}

}  // namespace chainmail::launch
