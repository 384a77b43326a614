// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Trains a small model in an elastic job, writes down which samples each rank takes into which
// step, and ends itself where it is told to (fault_points.h).
//
// usage: elastic_ledger FOLDER STEPS STEPS_PER_EPOCH PAUSE_MS [SAVE_EVERY [OPTIMIZER [MIB]]]
//   FOLDER: of the ledger, of orders, of the log of reports and of checkpoints; STEPS may be made
//   fewer by a file `last` there, as long as no rank is near the step that it names; with a file
//   `late` only the call after the last step says that there is none
//   PAUSE_MS: before each step
//   SAVE_EVERY: steps from checkpoint to checkpoint, each after an evaluation; 0: none
//   OPTIMIZER: adam, or own, whose state has other bytes on other ranks and which passes `complete`
//   MIB: of state besides the model's; 4 where it is not given
//
// Lines of the ledger, after a time in nanoseconds and the member:
//   world GENERATION RANK SIZE NEXT_STEP PID
//   begin STEP GENERATION
//   try STEP GENERATION EPOCH INDEX,...     a rank's samples, before the commit
//   commit STEP GENERATION                  and after it
//   again STEP GENERATION                   what comes after a commit, once more
//   ordered POINT, killed POINT, waits POINT, damaged POINT
//   sent BYTES                              for the world before it
//   holds                                   waits until there is no file `hold` in FOLDER
//   totals MESSAGES WORDS                   sent to others, and to the launcher, from step 10 on
//   evaluated STEP MEAN, saves STEP DIGEST, loaded STEP DIGEST
//   end

#include <chainmail/chainmail.h>
#include <chainmail/elastic.h>
#include <torch/torch.h>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/plugin/elastic/faults/fault_points.h"

namespace {

namespace faults = chainmail::faults;
namespace nn = torch::nn;
using faults::Point;

constexpr std::int64_t kBatch = 36;
constexpr std::int64_t kRows = 500;  // the data repeats itself
constexpr std::int64_t kFeatures = 64;
constexpr std::int64_t kFloatsPerMib = std::int64_t{1} << 18;

struct How {
  std::string folder;
  std::int64_t steps = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t pause_ms = 0;
  std::int64_t save_every = 0;
  std::string optimizer = "adam";
  std::int64_t ballast_mib = 4;  // several pieces for each donor
};

class PassingAdam final : public torch::optim::Adam {
 public:
  using Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override {
    faults::pass(Point::kComplete);
    return Adam::step(std::move(closure));
  }
};

class Training {
 public:
  explicit Training(How how)
      : how_(std::move(how)),
        job_(chainmail::create_elastic_job({.seed = 11})),
        samples_(static_cast<std::size_t>(how_.steps_per_epoch * kBatch - 7),
                 {.batch = kBatch, .seed = 2}) {
    torch::manual_seed(3);
    model_ = nn::Sequential(nn::Linear(kFeatures, 48), nn::BatchNorm1d(48), nn::ReLU(),
                            nn::Dropout(0.3), nn::Linear(48, 32), nn::ReLU(), nn::Linear(32, 5));
    x_ = torch::randn({kRows, kFeatures});
    y_ = torch::randint(5, {kRows}, torch::kLong);
    ballast_ = torch::arange(how_.ballast_mib * kFloatsPerMib, torch::kFloat);
    std::unique_ptr<torch::optim::Optimizer> optimizer =
        std::make_unique<PassingAdam>(model_->parameters(), 1e-3);
    if (how_.optimizer == "adam") {
      optimizer = std::make_unique<torch::optim::Adam>(model_->parameters(), 1e-3);
    }
    optimizer_ = chainmail::create_multi_node_optimizer(
        std::move(optimizer), job_->communicator(),
        {.model = &model_, .bucket_bytes = 2048, .first_bucket_bytes = 2048});
    job_->add("model", &model_);
    job_->add("optimizer", *optimizer_);
    job_->add("samples", samples_);
    job_->add("ballast", ballast());
    // The first layer's gradients are the last ones.
    model_->parameters().front().register_hook([](const torch::Tensor& gradient) {
      if (faults::is_ordered(Point::kBetweenBuckets)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (faults::has_sent_in_exchange()) faults::pass(Point::kBetweenBuckets);
      }
      return gradient;
    });
    job_->on_world([this](const chainmail::Membership& world) { enter(world); });
    if (!job_->is_elastic() && how_.save_every > 0) {
      make_checkpoints();
      const auto loaded = checkpoints_->maybe_load();
      faults::write("loaded " + std::to_string(loaded.value_or(0)) + " " + digest());
    }
  }

  void run() {
    const std::filesystem::path hold = how_.folder + "/hold";
    if (std::filesystem::exists(hold)) faults::write("holds");
    while (std::filesystem::exists(hold)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    job_->run([this](chainmail::Step& step) { return train(step); });
    if (checkpoints_) checkpoints_->wait();
    faults::write("totals " + std::to_string(faults::sent().messages - before_.messages) + " " +
                  std::to_string(faults::sent().words - before_.words));
    faults::write("end");
    const std::string bits = digest();
    if (job_->communicator()->rank() == 0) std::printf("bits %s\n", bits.c_str());
  }

 private:
  std::string digest() {
    std::vector<torch::Tensor> state;
    for (const auto& tensors : {model_->parameters(), model_->buffers()}) {
      for (const torch::Tensor& tensor : tensors) state.push_back(tensor.detach().contiguous());
    }
    char text[17];
    std::snprintf(
        text, sizeof text, "%016llx",
        static_cast<unsigned long long>(chainmail::verify_equal(*job_->communicator(), state)));
    return text;
  }

  chainmail::CheckpointCallbacks ballast() {
    return {.save =
                [this] {
                  if (faults::is_changing()) faults::pass(Point::kFetchBegin);
                  chainmail::CheckpointState state;
                  const bool is_wrong =
                      faults::is_changing() && faults::is_ordered(Point::kWrongState);
                  state.set_tensor("ballast", is_wrong ? ballast_ + 1 : ballast_);
                  if (is_wrong) faults::note_damage();
                  return state;
                },
            .load =
                [this](const chainmail::CheckpointState& state) {
                  ballast_ = state.tensor("ballast");
                  faults::pass(Point::kFetchEnd);
                }};
  }

  void make_checkpoints() {
    checkpoints_.reset();
    checkpoints_ = chainmail::create_multi_node_checkpointer("checkpoints", job_->communicator(),
                                                             {.path = how_.folder});
    checkpoints_->add("model", &model_);
    checkpoints_->add("optimizer", *optimizer_);
    checkpoints_->add("samples", samples_);
    checkpoints_->add("job", *job_);
  }

  void enter(const chainmail::Membership& world) {
    generation_ = world.generation;
    faults::write("world " + std::to_string(world.generation) + " " + std::to_string(world.rank) +
                  " " + std::to_string(world.size) + " " + std::to_string(world.next_step) + " " +
                  std::to_string(::getpid()));
    faults::pass(Point::kWorld);
    faults::end_change();
    if (how_.save_every > 0 && job_->is_elastic()) {
      make_checkpoints();
      if (world.next_step == 1) checkpoints_->maybe_load();
    }
    reports_.emplace(*job_->communicator());
    reports_->add<chainmail::LogReport>(how_.folder + "/log", samples_.state().epoch);
  }

  bool train(chainmail::Step& step) {
    faults::look_for_order(step.number());
    std::ifstream(how_.folder + "/last") >> how_.steps;
    if (step.number() > how_.steps) return false;
    if (how_.pause_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(how_.pause_ms));
    const std::string place = std::to_string(step.number()) + " " + std::to_string(generation_);
    faults::write("begin " + place);
    std::string taken;
    for (chainmail::Shard& shard : step.shards(samples_)) {
      for (const std::size_t index : shard.indices()) taken += std::to_string(index) + ",";
      compute(shard);
    }
    if (taken.empty()) {
      faults::write("again " + place);
    } else {
      faults::write("try " + place + " " + std::to_string(step.epoch()) + " " + taken);
    }
    step.commit(*optimizer_);
    faults::set_exchanging(false);
    faults::pass(Point::kCommitted);
    if (!taken.empty()) faults::write("commit " + place);
    if (step.number() == 10) before_ = faults::sent();
    if (how_.save_every > 0 && step.number() % how_.save_every == 0) save(step);
    if (step.ends_epoch())
      reports_->report({samples_.state().epoch, step.number(), 0, step.metrics()});
    faults::pass(Point::kReturned);
    return step.number() < how_.steps || std::filesystem::exists(how_.folder + "/late");
  }

  void compute(chainmail::Shard& shard) {
    faults::pass(Point::kForward);
    std::vector<std::int64_t> rows;
    for (const std::size_t index : shard.indices()) {
      rows.push_back(static_cast<std::int64_t>(index) % kRows);
    }
    const torch::Tensor which = torch::tensor(rows, torch::kLong);
    const torch::Tensor y = model_->forward(x_.index_select(0, which));
    y.register_hook([](const torch::Tensor& gradient) {
      faults::pass(Point::kBackward);
      return gradient;
    });
    const auto loss = nn::functional::cross_entropy(y, y_.index_select(0, which));
    faults::set_exchanging(true);
    shard.backward(loss);
    shard.report("main/loss", loss.item<double>(), which.size(0));
  }

  void save(const chainmail::Step& step) {
    const chainmail::Metrics metrics =
        job_->evaluate(kRows, [this](const std::vector<std::size_t>& own) {
          const torch::NoGradGuard no_grad;
          std::this_thread::sleep_for(std::chrono::milliseconds(how_.pause_ms));
          const std::vector<std::int64_t> rows(own.begin(), own.end());
          chainmail::Metrics of_shard;
          of_shard.add(
              "mean",
              model_->forward(x_.index_select(0, torch::tensor(rows))).mean().item<double>(),
              static_cast<std::int64_t>(own.size()));
          return of_shard;
        });
    if (job_->communicator()->rank() == 0) {
      char text[64];
      std::snprintf(text, sizeof text, " %a", metrics.means().at("mean"));
      faults::write("evaluated " + std::to_string(step.number()) + text);
    }
    faults::write("saves " + std::to_string(step.number()) + " " + digest());
    checkpoints_->save(step.number());
    faults::pass(Point::kSave);
  }

  How how_;
  std::unique_ptr<chainmail::ElasticJob> job_;
  chainmail::ShardSampler samples_;
  nn::Sequential model_{nullptr};
  torch::Tensor x_, y_, ballast_;
  std::unique_ptr<chainmail::MultiNodeOptimizer> optimizer_;
  std::optional<chainmail::ReportList> reports_;
  std::unique_ptr<chainmail::MultiNodeCheckpointer> checkpoints_;
  std::uint32_t generation_ = 1;
  faults::Sent before_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5 || argc > 8) {
    std::fprintf(stderr,
                 "usage: elastic_ledger FOLDER STEPS STEPS_PER_EPOCH PAUSE_MS [SAVE_EVERY "
                 "[OPTIMIZER [MIB]]]\n");
    return 2;
  }
  const char* const member = std::getenv("RANK");
  faults::begin(argv[1], member == nullptr ? 0 : std::atoi(member));
  try {
    Training({argv[1], std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]),
              argc > 5 ? std::atoll(argv[5]) : 0, argc > 6 ? argv[6] : "adam",
              argc > 7 ? std::atoll(argv[7]) : 4})
        .run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
