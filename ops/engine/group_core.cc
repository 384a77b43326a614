// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/group_core.h"

#include <pthread.h>

#include "base/error.h"
#include "base/log.h"
#include "base/threads/poll_until.h"
#include "ops/algorithms/select.h"
#include "ops/engine/collectives/measure_tuning.h"

namespace chainmail::ops {
namespace {

// How long a failed group waits for an operation that its aborted Comms should end at once.
constexpr std::chrono::seconds kAbortLimit{10};
// How long a group that ends waits for callbacks.
constexpr std::chrono::seconds kCallbackLimit{10};

// What moves in some microseconds between ranks of a node.
constexpr std::size_t kQuickElements = std::size_t{16} << 10;

// Forks that this process is the child of. A counter, because asking the kernel for the process id
// costs as much as a small operation.
std::atomic<unsigned> fork_count{0};

unsigned count_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });
  });
  return fork_count.load(std::memory_order_relaxed);
}

GroupOptions with_silence(GroupOptions options) {
  options.silence = std::make_shared<PeerSilence>();
  return options;
}

}  // namespace

GroupCore::GroupCore(int rank, Topology topology, const std::shared_ptr<Rendezvous>& rendezvous,
                     GroupOptions options, std::vector<int> global_ranks,
                     std::shared_ptr<FailureNews> news, const CommFactory& factory)
    : rank_(rank),
      topology_(std::move(topology)),
      options_(with_silence(std::move(options))),
      timeout_(options_.timeout),
      global_ranks_(std::move(global_ranks)),
      news_(std::move(news)),
      progress_(dynamic_cast<ProgressCounter*>(news_.get())),
      fork_count_(count_forks()),
      comms_(rank_, topology_, options_, global_ranks_, factory, rendezvous, comm_failure_),
      dispatcher_(rank_, topology_, options_.chunk_bytes, comms_),
      queue_(std::make_shared<OperationQueue>(
          callbacks_,
          [this](QueuedOperation& operation) {
            const auto keep = shared_from_this();  // the last handle may be dropped meanwhile
            carry_out(operation);
          },
          [this](const Collective& collective, const Plan& how) {
            return attempt(collective, how);
          })),
      diagnosis_(
          rank_, topology_, global_ranks_, options_, rendezvous, [this] { return activity(); },
          failure_) {}

GroupCore::~GroupCore() {
  if (is_forked_child()) comms_.leak();
}

void GroupCore::start(const CommFactory& factory, const std::shared_ptr<Rendezvous>& rendezvous) {
  const std::weak_ptr<GroupCore> weak = weak_from_this();
  transfers_ = std::make_shared<Transfers>(
      rank_, topology_, options_, global_ranks_, factory, rendezvous, callbacks_,
      [weak](const PlannedOperation& operation, const std::exception_ptr& error) {
        if (const auto core = weak.lock()) core->find_cause(operation, error);
      });
  watchdog_ = std::make_shared<Watchdog>(
      [weak] {
        const auto core = weak.lock();
        return core == nullptr ? std::vector<std::shared_ptr<PlannedOperation>>{}
                               : core->activity().running;
      },
      [weak](const std::vector<LongOperation>& operations) {
        if (const auto core = weak.lock()) core->look(operations);
      });
  failure_->on_failure([weak](const std::exception_ptr& error) {
    if (const auto core = weak.lock()) core->end_waits(error);
  });
  if (news_ != nullptr) news_->subscribe(options_.name, global_ranks_, failure_);
}

/// Says how an operation that can be right will be carried out; throws when it cannot, or the group
/// is dead.
Plan GroupCore::plan(const Collective& collective) {
  if (is_forked_child()) {
    throw InvalidArgument(std::string(to_string(collective.kind)) + ": group " + options_.name +
                          " belongs to the parent process; a forked child cannot use it");
  }
  if (failure_->has_failed()) throw_if_failed(to_string(collective.kind));
  check_collective(collective, rank_, topology_, options_);
  if (options_.measures_tuning) measure_once(collective);
  Plan plan = plan_collective(collective, rank_, topology_, options_);
  if (internal::log_enabled(internal::LogLevel::kInfo)) tell_choice(collective, plan);
  return plan;
}

/// Before the first operation that leaves the choice to us and where there is one: the same on all
/// ranks, for they submit the same collectives in the same order.
void GroupCore::measure_once(const Collective& collective) {
  const bool has_choice = topology_.node_count() > 1 && topology_.node_count() < topology_.size() &&
                          leaves_choice(collective, options_);
  if (!has_choice) return;
  std::call_once(measured_, [this] {
    options_.tuning = measure_tuning([this](const Collective& part) { run(part); });
  });
}

std::chrono::milliseconds GroupCore::limit_of(const Collective& collective) const noexcept {
  return internal::Deadline::bounded(
      collective.timeout.value_or(timeout_.load(std::memory_order_relaxed)));
}

std::shared_ptr<Operation> GroupCore::submit(Collective collective) {
  Plan how = plan(collective);
  const auto timeout = limit_of(collective);
  if (is_point_to_point(collective.kind)) {
    const auto transfer = transfers_->submit(std::move(collective), std::move(how), timeout);
    if (!transfer->is_done()) watchdog_->touch();
    return transfer;
  }
  const auto operation =
      std::make_shared<QueuedOperation>(queue_, std::move(collective), std::move(how), timeout);
  queue_->submit(operation);
  return operation;
}

void GroupCore::run(const Collective& collective) {
  const bool is_quick = collective.kind == OpKind::kAllReduce && !collective.prepare &&
                        collective.shards == nullptr && collective.cut == nullptr &&
                        collective.count <= kQuickElements && topology_.node_count() == 1 &&
                        !is_integer_average(collective);
  if (!is_quick) {
    Collective copy = collective;
    copy.is_async = false;
    submit(std::move(copy))->wait();
    return;
  }
  const auto timeout = limit_of(collective);
  if (const auto operation = queue_->submit_promptly(collective, plan(collective), timeout)) {
    operation->wait();
  }
}

std::shared_ptr<std::byte> GroupCore::allocate(std::size_t bytes) {
  std::shared_ptr<std::byte> memory;
  Collective collective;
  collective.kind = OpKind::kAllocate;
  collective.dtype = DataType::kUInt8;
  collective.count = bytes;
  collective.allocated = &memory;
  run(collective);
  return memory;
}

std::shared_ptr<std::byte> allocate_common(Group& group, std::size_t bytes) {
  std::shared_ptr<std::byte> memory;
  Collective collective;
  collective.kind = OpKind::kAllocate;
  collective.dtype = DataType::kUInt8;
  collective.count = bytes;
  collective.allocated = &memory;
  collective.is_common = true;
  group.run(collective);
  return memory;
}

/// For operations that is_quick() in run().
bool GroupCore::attempt(const Collective& collective, const Plan& plan) noexcept {
  Comm* comm = comms_.flat_if_made();
  const bool is_done =
      comm != nullptr &&
      comm->try_all_reduce(collective.output, collective.count,
                           dispatcher_.reduction_of(collective, plan), plan.header);
  if (is_done && progress_ != nullptr) progress_->count_operation();
  return is_done;
}

void GroupCore::carry_out(QueuedOperation& operation) {
  if (failure_->has_failed()) throw_if_failed(title_of(operation));
  if (progress_ != nullptr) progress_->count_operation();
  if (topology_.size() > 1) watchdog_->touch();
  OpContext context{operation.plan.header,
                    internal::Deadline::after(operation.timeout),
                    comm_failure_.get(),
                    {},
                    &tracker_};
  tracker_.begin();
  try {
    if (operation.collective.prepare) {
      operation.collective.prepare(operation.collective);
      check_collective(operation.collective, rank_, topology_, options_);
    }
    dispatcher_.run(operation.collective, operation.plan, context);
    return;
  } catch (...) {
    operation.moved_bytes = tracker_.bytes();
    find_cause(operation, std::current_exception());
  }
  throw_if_failed(title_of(operation));
}

void GroupCore::throw_if_failed(const std::string& title) {
  if (failure_->has_failed()) std::rethrow_exception(diagnosis_.error_of(title, failure_->error()));
}

/// Makes the group dead with what can be found out about `error`.
void GroupCore::find_cause(const PlannedOperation& operation, const std::exception_ptr& error) {
  // One is enough: what else fails meanwhile fails because explain() aborts the Comms, and knows
  // less.
  if (!is_explaining_.exchange(true)) {
    if (!failure_->has_failed()) {
      // With the error of a send or receive, which the Comms do not know: they tell the neighbours.
      fail(diagnosis_.explain(operation, error, [this, &error] {
        comm_failure_->fail(error);
        comms_.abort();
      }));
    }
    return;
  }
  if (!internal::poll_until([this] { return failure_->has_failed(); },
                            internal::Deadline::after(kAbortLimit))) {
    fail({error});
  }
}

void GroupCore::look(const std::vector<LongOperation>& operations) {
  if (failure_->has_failed()) return;
  if (const Finding finding = diagnosis_.look(operations); finding.error != nullptr) fail(finding);
}

Activity GroupCore::activity() const {
  // What runs first, then what has ended: what ends meanwhile is in both, not in neither.
  Activity now;
  now.running = transfers_->pending();
  if (auto running = queue_->running()) now.running.push_back(std::move(running));
  now.past = transfers_->past();
  for (PastOperation& past : queue_->past()) now.past.push_back(std::move(past));
  return now;
}

void GroupCore::fail(const Finding& finding) {
  if (failure_->has_failed()) return;
  if (!finding.is_from_others && !is_announced_.exchange(true)) {
    diagnosis_.announce(finding.error);
    if (news_ != nullptr) news_->announce(options_.name, finding.error);
  }
  failure_->fail(finding.error);
}

void GroupCore::end_waits(const std::exception_ptr& error) {
  comm_failure_->fail(error);
  comms_.abort();
  queue_->fail_all(error);
  transfers_->for_all(&TransferEngine::fail_all, error);
}

void GroupCore::shutdown() {
  if (is_shut_down_.exchange(true)) return;
  if (is_forked_child()) {
    queue_->forget_thread();
    transfers_->for_all(&TransferEngine::leak);
    watchdog_->forget_thread();
    callbacks_->forget_threads();
    comms_.leak();
    return;
  }
  const std::chrono::milliseconds limit = timeout_;
  const auto deadline = internal::Deadline::after(limit);
  bool has_ended = failure_->has_failed() || drain(deadline);
  // Callbacks of what was submitted may submit more.
  callbacks_->drain(std::min<std::chrono::milliseconds>(kCallbackLimit, deadline.left()));
  // Only now; and before the last look, for an operation that comes after it would run in Comms
  // that are being closed.
  queue_->close();
  transfers_->for_all(&TransferEngine::close);
  has_ended = has_ended && (failure_->has_failed() || drain(deadline));
  if (!has_ended) {
    const std::string text = "shutdown of group " + options_.name +
                             ": operations have not ended within " + std::to_string(limit.count()) +
                             " ms";
    // Whoever has left them to the group's end sees no exception.
    internal::log_line(internal::LogLevel::kWarning, text + "; what they were to send is lost");
    fail({std::make_exception_ptr(TimeoutError(text))});
  }
  const bool is_idle = queue_->drain(kAbortLimit);
  queue_->stop();
  fail_transfers_if_failed();
  transfers_->for_all(&TransferEngine::stop);
  watchdog_->stop();
  if (news_ != nullptr) news_->unsubscribe(options_.name);
  fail_transfers_if_failed();
  transfers_->for_all(&TransferEngine::disconnect);
  if (is_idle) comms_.close();
  callbacks_->stop(kCallbackLimit);
}

// Who has failed the group, another thread perhaps, may not have come to its transfers yet: their
// peers would hear a goodbye.
void GroupCore::fail_transfers_if_failed() {
  if (failure_->has_failed()) transfers_->for_all(&TransferEngine::fail_all, failure_->error());
}

bool GroupCore::drain(const internal::Deadline& deadline) {
  return queue_->drain(deadline.left()) && transfers_->drain(deadline.left());
}

bool GroupCore::is_forked_child() const noexcept {
  return fork_count.load(std::memory_order_relaxed) != fork_count_;
}

void GroupCore::tell_choice(const Collective& collective, const Plan& plan) {
  if (!leaves_choice(collective, options_)) return;
  const Choice choice = select_all_reduce(plan.bytes, topology_, options_.tuning);
  {
    const std::lock_guard lock(choices_mutex_);
    if (!told_choices_.insert(choice.algorithm).second) return;
  }
  internal::log_line(internal::LogLevel::kInfo,
                     "group " + options_.name + ": picked " + to_string(choice.algorithm) +
                         " for " + to_string(collective.kind) + " of " +
                         std::to_string(plan.bytes) + " bytes on " + topology_.describe() +
                         ", because " + choice.reason);
}

}  // namespace chainmail::ops
