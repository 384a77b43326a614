// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A file that others change, and files that others make beside it.
//
// The folder is watched, so that a file that is renamed into its place is seen as well, and looked
// at once a second besides: network file systems tell nothing of what other machines do. A change
// counts when the file has stood still for a moment. A thread of its own looks, since a file system
// that does not answer must not stop the heartbeats; callbacks come on the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace chainmail::launch {

class WatchedFolder {
 public:
  struct Callbacks {
    /// The file has other contents than were known.
    std::function<void(const std::string& text)> on_text;
    /// Once, until it can be read again.
    std::function<void(const std::string& why)> on_unreadable;
    /// A file that was asked for is there; once.
    std::function<void(const std::string& name)> on_there;
    /// A file that was asked for is not there yet; once.
    std::function<void(const std::string& name)> on_missing;
    /// A file could not be made.
    std::function<void(const std::string& name, const std::string& why)> on_not_made;
  };
  /// How long the file must not have changed before it is read.
  static constexpr std::chrono::milliseconds kSettle{200};

  /// `file`: its name in `folder`, empty where only others are waited for; `text`: what is known of
  /// it. Throws SystemError where no thread or descriptor can be had.
  WatchedFolder(asio::io_context& io, std::string folder, std::string file, std::string text,
                Callbacks callbacks);
  ~WatchedFolder();
  WatchedFolder(const WatchedFolder&) = delete;
  WatchedFolder& operator=(const WatchedFolder&) = delete;

  /// Tells when a file of this name is there.
  void ask_for(const std::string& name);
  void forget(const std::string& name);
  /// Makes an empty one.
  void make(const std::string& name);
  /// Puts what `change` makes of the watched file in its place, whole and at once; `change` runs in
  /// another thread, and may throw. `on_done` has why it could not be done, or nothing.
  void edit(std::function<std::string(const std::string& text)> change,
            std::function<void(const std::string& failure)> on_done);

 private:
  struct Signature;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace chainmail::launch
