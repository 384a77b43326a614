// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/support/thread_world.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include "ops/core/rendezvous.h"
#include "ops/engine/create_group.h"
#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::testing {

namespace {

// What the ranks of one job share: a rendezvous per group.
class Job {
 public:
  explicit Job(ops::Topology topology) : topology_(std::move(topology)) {}
  const ops::Topology& topology() const { return topology_; }
  std::shared_ptr<ops::Rendezvous> rendezvous(const std::string& group) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<ops::Rendezvous>& place = places_[group];
    if (!place) place = std::make_shared<ops::LocalRendezvous>();
    return place;
  }

 private:
  ops::Topology topology_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ops::Rendezvous>> places_;
};

class ThreadWorld final : public World {
 public:
  ThreadWorld(std::shared_ptr<Job> job, int rank)
      : job_(std::move(job)),
        rank_(rank),
        host_("host" + std::to_string(job_->topology().node_of(rank))) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return job_->topology().size(); }
  int number_of(int rank) const override { return rank; }
  const ops::Topology& topology() const noexcept override { return job_->topology(); }
  const std::string& starter() const noexcept override { return starter_; }
  const std::string& host() const noexcept override { return host_; }

  std::shared_ptr<ops::Group> create_group(ops::GroupOptions options) override {
    return make(rank_, job_->topology(), std::move(options), {});
  }

  std::shared_ptr<ops::Group> create_subgroup(const std::vector<int>& ranks,
                                              ops::GroupOptions options) override {
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    return make(static_cast<int>(own - ranks.begin()), job_->topology().subset(ranks),
                std::move(options), ranks);
  }

  std::shared_ptr<ops::Group> create_torch_group(internal::TorchBackend /*backend*/,
                                                 const std::vector<int>& /*ranks*/,
                                                 ops::GroupOptions /*options*/) override {
    throw InvalidArgument("torch's own groups need a store, which ranks as threads do not have");
  }

  std::shared_ptr<ops::Rendezvous> create_rendezvous(const std::string& name) override {
    return job_->rendezvous(name);
  }

  void report_step(std::uint64_t /*step*/) noexcept override {}

 private:
  std::shared_ptr<ops::Group> make(int rank, ops::Topology topology, ops::GroupOptions options,
                                   std::vector<int> global_ranks) {
    options.host = host_;
    options.secret = "a secret of 32 bytes for a test..";
    options.interface = "127.0.0.1";
    const std::shared_ptr<ops::Rendezvous> place = job_->rendezvous(options.name);
    return ops::create_group(rank, std::move(topology), place, std::move(options),
                             std::move(global_ranks));
  }

  std::shared_ptr<Job> job_;
  int rank_;
  std::string host_;
  std::string starter_ = "test";
};

// Long enough for sanitizers, short against the test's own limit.
constexpr auto kTimeout = std::chrono::seconds{20};

}  // namespace

std::vector<std::string> run_ranks(const std::vector<int>& node_sizes,
                                   const std::function<void(std::shared_ptr<World>)>& body) {
  const auto job = std::make_shared<Job>(ops::Topology::from_node_sizes(node_sizes));
  const auto size = static_cast<std::size_t>(job->topology().size());
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(std::make_shared<ThreadWorld>(job, static_cast<int>(r)));
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

std::vector<std::string> errors_with_communicator(
    const std::vector<int>& node_sizes, const std::string& name,
    const std::function<void(std::shared_ptr<Communicator>)>& body) {
  return run_ranks(node_sizes, [&](const std::shared_ptr<World>& world) {
    CommunicatorOptions options;
    options.timeout = kTimeout;
    body(internal::make_communicator(world, name, options, "test"));
  });
}

void with_communicator(const std::vector<int>& node_sizes, const std::string& name,
                       const CommunicatorOptions& options,
                       const std::function<void(std::shared_ptr<Communicator>)>& body) {
  const auto errors = run_ranks(node_sizes, [&](const std::shared_ptr<World>& world) {
    CommunicatorOptions with_timeout = options;
    with_timeout.timeout = kTimeout;
    body(internal::make_communicator(world, name, with_timeout, "test"));
  });
  for (std::size_t r = 0; r < errors.size(); ++r) {
    EXPECT_EQ(errors[r], "") << "rank " << r << " of communicator " << name;
  }
}

}  // namespace chainmail::testing
