// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// As much of Gloo as torch's ProcessGroupGloo.hpp names; wheels contain the class but not Gloo's
// headers.
//
// Safe because we only create the process group and call c10d virtuals of it: the classes below are
// never created, derived from or measured by our code, and the tables of virtual functions that
// torch derives from them lie in libtorch_cpu. Nothing here may be called.

#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace gloo {

struct Context {
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class Device;
struct UnboundBuffer {
  virtual ~UnboundBuffer();
};
}  // namespace transport

namespace rendezvous {
struct Store {
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

}  // namespace gloo
