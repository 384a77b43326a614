// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// ChainerMN's MNIST example with checkpoints: end it in any way, start it again with the same
// --run-id, on the same or another number of ranks, and it goes on where the last checkpoint was.

#include <gflags/gflags.h>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <chainmail/chainmail.h>

#include "batches.h"
#include "model.h"

DEFINE_string(communicator, "hierarchical", "see train_mnist");
DEFINE_int64(batchsize, 100, "samples per rank and step (-b)");
DEFINE_int64(epoch, 20, "times through the training data (-e)");
DEFINE_int64(unit, 1000, "units of each hidden layer (-u)");
DEFINE_string(dataset, "mnist", "mnist or fashion_mnist");
DEFINE_string(data, "", "folder of the IDX files; otherwise looked for");
DEFINE_string(out, "result", "folder for log and checkpoints (-o)");
DEFINE_string(run_id, "train-mnist-example", "name of the run, and of its checkpoints");
DEFINE_int64(interval, 1000, "iterations from one checkpoint to the next");
DEFINE_uint64(seed, 0, "of the initial weights and of the order of samples");

namespace {

// Where training is. `batches_done` counts the batches that all ranks together took of this epoch,
// so another number of ranks goes on with the next one.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t iteration = 0;
  std::int64_t batches_done = 0;
  double elapsed_time = 0;
};

// This rank's share of the report of the epoch.
struct Sums {
  double loss = 0;
  std::int64_t hits = 0;
  std::int64_t samples = 0;
};

chainmail::CheckpointState save_sums(const Sums& sums) {
  chainmail::CheckpointState state;
  state.set_real("loss", sums.loss);
  state.set_integer("hits", sums.hits);
  state.set_integer("samples", sums.samples);
  return state;
}

// The same rank goes on with its own; in a job of another size rank 0 takes all.
Sums load_sums(const std::vector<chainmail::CheckpointState>& ranks,
               const chainmail::Communicator& comm) {
  const bool is_same_size = ranks.size() == static_cast<std::size_t>(comm.size());
  Sums sums;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (is_same_size ? rank == static_cast<std::size_t>(comm.rank()) : comm.rank() == 0) {
      sums.loss += ranks[rank].real("loss");
      sums.hits += ranks[rank].integer("hits");
      sums.samples += ranks[rank].integer("samples");
    }
  }
  return sums;
}

class Training {
 public:
  explicit Training(std::shared_ptr<chainmail::Communicator> comm)
      : comm_(std::move(comm)), batches_(read_batches()), model_(make_model()) {
    optimizer_ = chainmail::create_multi_node_optimizer(
        std::make_unique<torch::optim::Adam>(model_->parameters(), 1e-3), comm_,
        {.model = &model_});
    checkpointer_ =
        chainmail::create_multi_node_checkpointer(FLAGS_run_id, comm_, {.path = FLAGS_out});
    // After everything that has a state was made.
    checkpointer_->add("model", &model_);
    checkpointer_->add("optimizer", *optimizer_);
    checkpointer_->add("rng", at::detail::getDefaultCPUGenerator());
    checkpointer_->add("epoch", &position_.epoch);
    checkpointer_->add("iteration", &position_.iteration);
    checkpointer_->add("batches done", &position_.batches_done);
    checkpointer_->add("elapsed time", &position_.elapsed_time);
    checkpointer_->add(
        "sums", chainmail::PerRankCallbacks{
                    .save = [this] { return save_sums(sums_); },
                    .load = [this](const auto& ranks) { sums_ = load_sums(ranks, *comm_); }});
  }

  void run() {
    checkpointer_->maybe_load();
    std::printf("Rank %d: (Re)Starting from (epoch, iter) = (%" PRId64 ", %" PRId64 ")\n",
                comm_->rank(), position_.epoch, position_.iteration);
    std::fflush(stdout);
    chainmail::ReportList reports(*comm_);
    chainmail::on_all_ranks(*comm_, [&] { add_reports(reports); });
    started_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(position_.elapsed_time));
    while (position_.epoch < FLAGS_epoch) {
      finish_epoch();
      const chainmail::ReportEntry entry = report();
      chainmail::on_all_ranks(*comm_, [&] { reports.report(entry); });
    }
    reports.finish();
    checkpointer_->wait();
    const std::uint64_t digest = chainmail::verify_equal(*comm_, model_->parameters());
    if (comm_->rank() == 0) {
      std::printf("digest %016" PRIx64 " on %d ranks\n", digest, comm_->size());
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::int64_t kClasses = 10;

  // All samples in one order: which rank takes which batch follows from the position alone.
  Batches read_batches() const {
    return chainmail::on_all_ranks(*comm_, [] {
      const auto folder = chainmail::find_dataset(FLAGS_dataset, FLAGS_data).directory;
      chainmail::ImageSet set = chainmail::read_image_set(folder, "train", kClasses);
      const torch::Tensor all = torch::arange(set.images.size(0), torch::kLong);
      const auto* const begin = all.const_data_ptr<std::int64_t>();
      return Batches(std::move(set), {begin, begin + all.numel()}, FLAGS_batchsize);
    });
  }

  Mlp make_model() const {
    torch::manual_seed(FLAGS_seed);
    return Mlp(batches_.get(0).x.size(1), FLAGS_unit, kClasses);
  }

  void add_reports(chainmail::ReportList& reports) const {
    reports.add<chainmail::LogReport>((std::filesystem::path(FLAGS_out) / "log").string(),
                                      position_.epoch);
    reports.add<chainmail::PrintReport>(std::vector<std::string>{"epoch", "iteration", "main/loss",
                                                                 "main/accuracy", "elapsed_time"},
                                        std::cout);
  }

  void step(const Batch& batch) {
    optimizer_->zero_grad();
    const torch::Tensor y = model_->forward(batch.x);
    const torch::Tensor loss = torch::nn::functional::cross_entropy(y, batch.t);
    loss.backward();
    optimizer_->step();
    sums_.loss += loss.item<double>() * static_cast<double>(batch.t.size(0));
    sums_.hits += y.argmax(1).eq(batch.t).sum().item<std::int64_t>();
    sums_.samples += batch.t.size(0);
  }

  void finish_epoch() {
    batches_.shuffle(FLAGS_seed + static_cast<std::uint64_t>(position_.epoch));
    while (position_.batches_done < batches_.count()) {
      // At the end some ranks take a batch again, so that all step as often.
      step(batches_.get((position_.batches_done + comm_->rank()) % batches_.count()));
      position_.batches_done += comm_->size();
      position_.elapsed_time = std::chrono::duration<double>(Clock::now() - started_).count();
      if (++position_.iteration % FLAGS_interval == 0) {
        checkpointer_->save(position_.iteration);
      }
    }
  }

  // Of the epoch that is over; the next one begins.
  chainmail::ReportEntry report() {
    chainmail::Metrics metrics;
    const double samples = static_cast<double>(sums_.samples);
    metrics.add("main/loss", sums_.loss / samples, sums_.samples);
    metrics.add("main/accuracy", static_cast<double>(sums_.hits) / samples, sums_.samples);
    sums_ = {};
    position_.batches_done = 0;
    return {++position_.epoch, position_.iteration, position_.elapsed_time,
            chainmail::aggregate_metrics(metrics, *comm_).means()};
  }

  std::shared_ptr<chainmail::Communicator> comm_;
  Batches batches_;
  Mlp model_;
  std::unique_ptr<chainmail::MultiNodeOptimizer> optimizer_;
  Position position_;
  Sums sums_;
  Clock::time_point started_;
  std::unique_ptr<chainmail::MultiNodeCheckpointer> checkpointer_;  // last: it refers to the rest
};

// Chainer's one-letter forms, for gflags.
void lengthen(std::string& word) {
  for (const char* const name : {"batchsize", "epoch", "unit", "out"}) {
    if (word == std::string("-") + name[0]) {
      word = std::string("--") + name;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  std::vector<char*> pointers;
  for (std::string& word : words) {
    lengthen(word);
    pointers.push_back(word.data());
  }
  char** arguments = pointers.data();
  gflags::SetUsageMessage("trains an MLP on MNIST with all ranks of the job, with checkpoints");
  gflags::ParseCommandLineFlags(&argc, &arguments, true);
  try {
    if (FLAGS_batchsize < 1 || FLAGS_unit < 1 || FLAGS_interval < 1) {
      throw chainmail::InvalidArgument("--batchsize, --unit and --interval must be at least 1");
    }
    Training(chainmail::create_communicator(FLAGS_communicator)).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_mnist_checkpoint: %s\n", error.what());
    return 1;
  }
}
