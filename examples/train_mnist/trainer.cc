// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "trainer.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>

#include <torch/torch.h>

#include <chainmail/chainmail.h>

#include "batches.h"
#include "model.h"
#include "snapshot.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kClasses = 10;

// Our launcher sets OMP_NUM_THREADS; other starters leave every rank with threads for all cores,
// and spinning threads on shared cores make a step many times slower.
void choose_threads(int ranks_on_node) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) {
    return;
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  int allowed = cores;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    allowed = CPU_COUNT(&set);
  }
  at::set_num_threads(std::max(1, std::min(allowed, cores / ranks_on_node)));
}

std::optional<c10::ScalarType> wire_dtype(const std::string& name) {
  if (name.empty()) {
    return std::nullopt;
  }
  if (name == "float16" || name == "fp16") {
    return c10::kHalf;
  }
  if (name == "bfloat16" || name == "bf16") {
    return c10::kBFloat16;
  }
  if (name == "float32" || name == "fp32") {
    return c10::kFloat;
  }
  throw chainmail::InvalidArgument("--allreduce_grad_dtype " + name +
                                   ": use float16, bfloat16 or float32");
}

struct Data {
  chainmail::DatasetLocation location;
  chainmail::ImageSet train;
  chainmail::ImageSet test;
};

Data read_data(const Options& options) {
  Data data;
  data.location = chainmail::find_dataset(options.dataset, options.data);
  data.train = chainmail::read_image_set(data.location.directory, "train", kClasses);
  data.test = chainmail::read_image_set(data.location.directory, "t10k", kClasses);
  return data;
}

void print_banner(const Options& options, const chainmail::Communicator& comm,
                  const chainmail::DatasetLocation& location) {
  const char* const line = "==========================================\n";
  std::cout << line << "Num process (COMM_WORLD): " << comm.size() << '\n'
            << "Using " << comm.name() << " communicator\n"
            << "Num unit: " << options.units << '\n'
            << "Num Minibatch-size: " << options.batchsize << '\n'
            << "Num epoch: " << options.epochs << '\n'
            << "Dataset: " << options.dataset << " in " << location.directory << " ("
            << location.origin << ")\n"
            << line << std::flush;
}

void add_batch(chainmail::Metrics& metrics, const std::string& prefix, const torch::Tensor& loss,
               const torch::Tensor& y, const torch::Tensor& t) {
  const double hits = y.argmax(1).eq(t).sum().item<double>();
  metrics.add(prefix + "main/loss", loss.item<double>(), t.size(0));
  metrics.add(prefix + "main/accuracy", hits / static_cast<double>(t.size(0)), t.size(0));
}

chainmail::Metrics evaluate(Mlp& model, const Batches& batches) {
  const torch::NoGradGuard no_grad;
  chainmail::Metrics metrics;
  for (std::int64_t i = 0; i < batches.count(); ++i) {
    const Batch batch = batches.get(i);
    const torch::Tensor y = model->forward(batch.x);
    add_batch(metrics, "validation/", torch::nn::functional::cross_entropy(y, batch.t), y, batch.t);
  }
  return metrics;
}

void add_reports(chainmail::ReportList& reports, const Options& options, std::int64_t done_epochs) {
  const bool draws = chainmail::can_draw_progress();
  reports.add<chainmail::LogReport>((std::filesystem::path(options.out) / "log").string(),
                                    done_epochs);
  reports.add<chainmail::PrintReport>(
      std::vector<std::string>{"epoch", "main/loss", "validation/main/loss", "main/accuracy",
                               "validation/main/accuracy", "elapsed_time"},
      std::cout, draws);
  if (draws) {
    reports.add<chainmail::ProgressBar>(std::cout);
  }
}

}  // namespace

std::shared_ptr<chainmail::Communicator> join(const Options& options) {
  chainmail::CommunicatorOptions communicator_options;
  communicator_options.allreduce_grad_dtype = wire_dtype(options.allreduce_grad_dtype);
  communicator_options.cross = options.cross;
  return chainmail::create_communicator(options.communicator, communicator_options);
}

void train(const Options& options, const std::shared_ptr<chainmail::Communicator>& comm) {
  choose_threads(comm->intra_size());
  const Data data = chainmail::on_all_ranks(*comm, [&] { return read_data(options); });
  if (comm->rank() == 0) {
    print_banner(options, *comm, data.location);
  }

  torch::manual_seed(options.seed);
  Mlp model(data.train.images[0].numel(), options.units, kClasses);
  auto adam = std::make_unique<torch::optim::Adam>(model->parameters(), 1e-3);
  Position position = chainmail::on_all_ranks(*comm, [&] {
    return comm->rank() == 0 && !options.resume.empty()
               ? load_snapshot(options.resume, model, *adam)
               : Position{};
  });
  position.epoch = std::stoll(comm->bcast_obj(std::to_string(position.epoch)));
  position.iteration = std::stoll(comm->bcast_obj(std::to_string(position.iteration)));
  // Gives all ranks rank 0's parameters and optimizer state, so only rank 0 has to load a file.
  auto optimizer = chainmail::create_multi_node_optimizer(
      std::move(adam), comm, {.model = &model, .double_buffering = options.double_buffering});

  const auto train_part = chainmail::scatter_indices(data.train.images.size(0), comm,
                                                     {.shuffle = true, .seed = options.seed});
  const auto test_part =
      chainmail::scatter_indices(data.test.images.size(0), comm, {.force_equal_length = false});
  Batches train_batches(data.train, train_part.indices, options.batchsize);
  const Batches test_batches(data.test, test_part.indices, options.batchsize);
  auto evaluator =
      chainmail::create_multi_node_evaluator([&] { return evaluate(model, test_batches); }, comm);

  chainmail::ReportList reports(*comm);
  chainmail::on_all_ranks(*comm, [&] { add_reports(reports, options, position.epoch); });
  const double earlier = position.elapsed_time;
  const Clock::time_point started = Clock::now();
  while (position.epoch < options.epochs) {
    // Every epoch has an order of its own that depends on nothing but seed and epoch, so a resumed
    // run sees the same batches.
    train_batches.shuffle(options.seed + static_cast<std::uint64_t>(position.epoch));
    chainmail::Metrics metrics;
    for (std::int64_t i = 0; i < train_batches.count(); ++i) {
      const Batch batch = train_batches.get(i);
      optimizer->zero_grad();
      const torch::Tensor y = model->forward(batch.x);
      const torch::Tensor loss = torch::nn::functional::cross_entropy(y, batch.t);
      loss.backward();
      optimizer->step();
      add_batch(metrics, "", loss.detach(), y.detach(), batch.t);
      reports.progress({++position.iteration, train_batches.count(), options.epochs});
    }
    optimizer->flush();  // evaluation and snapshot see every gradient
    ++position.epoch;

    chainmail::ReportEntry entry{position.epoch, position.iteration, 0.0, evaluator.evaluate()};
    entry.values.merge(chainmail::aggregate_metrics(metrics, *comm).means());
    position.elapsed_time = earlier + std::chrono::duration<double>(Clock::now() - started).count();
    entry.elapsed_time = position.elapsed_time;
    chainmail::on_all_ranks(*comm, [&] {
      reports.report(entry);
      if (comm->rank() == 0) {
        save_snapshot((std::filesystem::path(options.out) / "snapshot").string(), model,
                      optimizer->actual_optimizer(), position);
      }
    });
  }
  reports.finish();

  if (options.verify) {
    const std::uint64_t digest = chainmail::verify_equal(*comm, model->parameters());
    if (comm->rank() == 0) {
      std::printf("digest %016" PRIx64 " on %d ranks\n", digest, comm->size());
      std::fflush(stdout);
    }
  }
  comm->finalize();
}
