// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// MPI between threads of the test process: messages keep their order per sender and tag, long sends
// end when they are received, receives end late and in any order, as MPI's may.

#pragma once

#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/comm/mpi/mpi_world.h"

namespace chainmail::test {

class FakeMpi {
 public:
  explicit FakeMpi(int size) {
    for (int rank = 0; rank < size; ++rank) {
      boxes_.push_back(std::make_unique<Box>());
      worlds_.push_back(std::make_shared<ops::MpiWorld>(std::make_shared<Api>(*this, rank)));
    }
  }
  FakeMpi(const FakeMpi&) = delete;
  FakeMpi& operator=(const FakeMpi&) = delete;

  const std::shared_ptr<ops::MpiWorld>& world(int rank) {
    return worlds_.at(static_cast<std::size_t>(rank));
  }
  /// Sends to this process fail from now on.
  void cut_off(int rank) {
    const std::lock_guard lock(box(rank).mutex);
    box(rank).is_cut_off = true;
  }
  /// Messages that nobody has looked for.
  std::size_t waiting(int rank) {
    const std::lock_guard lock(box(rank).mutex);
    return box(rank).messages.size();
  }

 private:
  static constexpr int kLongBytes = 4096;

  struct Message {
    int source = 0;
    int tag = 0;
    std::vector<std::byte> bytes;
    std::atomic<bool> is_received{false};
  };
  struct Request {
    std::shared_ptr<Message> message;
    std::byte* to = nullptr;  // null for a send
    int tests_left = 0;
  };
  struct Box {
    std::mutex mutex;
    std::list<std::shared_ptr<Message>> messages;
    bool is_cut_off = false;
  };

  class Api final : public ops::MpiApi {
   public:
    Api(FakeMpi& all, int rank) : all_(all), rank_(rank) {}
    int rank() const noexcept override { return rank_; }
    int size() const noexcept override { return static_cast<int>(all_.boxes_.size()); }
    int max_tag() const noexcept override { return 32767; }

    ops::MpiCode send(const std::byte* data, int bytes, int peer, int tag,
                      ops::MpiRequest& request) noexcept override {
      auto message = std::make_shared<Message>();
      message->source = rank_;
      message->tag = tag;
      message->bytes.assign(data, data + bytes);
      message->is_received = bytes < kLongBytes;
      const std::lock_guard lock(all_.box(peer).mutex);
      if (all_.box(peer).is_cut_off) return 1;
      request.handle = keep({message, nullptr, 0});
      all_.box(peer).messages.push_back(std::move(message));
      return ops::kMpiSuccess;
    }

    ops::MpiCode probe(int source, int tag, bool& is_found,
                       ops::MpiArrival& arrival) noexcept override {
      Box& box = all_.box(rank_);
      const std::lock_guard lock(box.mutex);
      is_found = false;
      for (auto it = box.messages.begin(); it != box.messages.end(); ++it) {
        const bool matches =
            (*it)->tag == tag && (source == ops::kMpiAnySource || (*it)->source == source);
        if (!matches) continue;
        is_found = true;
        arrival.source = (*it)->source;
        arrival.bytes = static_cast<int>((*it)->bytes.size());
        arrival.message = reinterpret_cast<std::uintptr_t>(new std::shared_ptr<Message>(*it));
        box.messages.erase(it);
        break;
      }
      return ops::kMpiSuccess;
    }

    ops::MpiCode receive(std::byte* data, const ops::MpiArrival& arrival,
                         ops::MpiRequest& request) noexcept override {
      const std::unique_ptr<std::shared_ptr<Message>> message(
          reinterpret_cast<std::shared_ptr<Message>*>(arrival.message));
      const int delay = static_cast<int>(++all_.received_ % 4);
      request.handle = keep({*message, data, delay});
      return ops::kMpiSuccess;
    }

    ops::MpiCode test(ops::MpiRequest& request, bool& is_done) noexcept override {
      auto* const own = reinterpret_cast<Request*>(request.handle);
      Message& message = *own->message;
      is_done = own->to == nullptr ? message.is_received.load() : own->tests_left-- == 0;
      if (!is_done) return ops::kMpiSuccess;
      if (own->to != nullptr) {
        std::memcpy(own->to, message.bytes.data(), message.bytes.size());
        message.is_received = true;
      }
      const std::lock_guard lock(requests_mutex_);
      requests_.erase(request.handle);
      request.handle = 0;
      return ops::kMpiSuccess;
    }

    std::string describe(ops::MpiCode code) const override {
      return "fake error " + std::to_string(code);
    }
    void distrust_peers() noexcept override {}

   private:
    // Owned here, as by MPI: what is abandoned is never tested again.
    std::uintptr_t keep(Request request) {
      auto own = std::make_unique<Request>(std::move(request));
      const auto handle = reinterpret_cast<std::uintptr_t>(own.get());
      const std::lock_guard lock(requests_mutex_);
      requests_.emplace(handle, std::move(own));
      return handle;
    }

    FakeMpi& all_;
    int rank_;
    std::mutex requests_mutex_;
    std::map<std::uintptr_t, std::unique_ptr<Request>> requests_;
  };

  Box& box(int rank) { return *boxes_.at(static_cast<std::size_t>(rank)); }

  std::vector<std::unique_ptr<Box>> boxes_;
  std::vector<std::shared_ptr<ops::MpiWorld>> worlds_;
  std::atomic<unsigned> received_{0};
};

}  // namespace chainmail::test
