// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "trainer.h"

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include <chainmail/chainmail.h>

#include "model.h"
#include "snapshot.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kClasses = 10;

// GPUs in turn where a node has fewer than ranks.
torch::Device choose_device(const Options& options, const chainmail::Communicator& comm) {
  if (options.device == "cpu") {
    return torch::kCPU;
  }
  const auto count = static_cast<int>(torch::cuda::device_count());
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(comm.intra_rank() % count)};
}

// What is computed while it lives is in bfloat16 where that keeps the accuracy, as torch judges.
class Autocast {
 public:
  Autocast(bool is_on, const torch::Device& device) : is_on_(is_on), type_(device.type()) {
    if (is_on_) {
      at::autocast::set_autocast_dtype(type_, torch::kBFloat16);
      at::autocast::set_autocast_enabled(type_, true);
    }
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (is_on_) {
      at::autocast::set_autocast_enabled(type_, false);
      at::autocast::clear_cache();  // of the parameters, which the step changes
    }
  }

 private:
  bool is_on_;
  torch::DeviceType type_;
};

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

// Batches of flat images, 0 to 1, and labels, on `device`.
chainmail::TensorIterator batches_of(const chainmail::ImageSet& set, std::int64_t size,
                                     torch::Device device,
                                     const std::shared_ptr<chainmail::Communicator>& comm,
                                     const chainmail::SamplerOptions& order) {
  const auto samples = static_cast<std::size_t>(set.images.size(0));
  return {{set.images.flatten(1).to(device), set.labels.to(device)},
          chainmail::create_multi_node_sampler(samples, comm, order),
          {.batch_size = size, .scale = 1.0 / 255.0}};
}

chainmail::Metrics evaluate(Mlp& model, chainmail::TensorIterator& batches) {
  const torch::NoGradGuard no_grad;
  chainmail::Metrics metrics;
  while (const auto batch = batches.next()) {
    const torch::Tensor& t = (*batch)[1];
    const torch::Tensor y = model->forward((*batch)[0]);
    add_batch(metrics, "validation/", torch::nn::functional::cross_entropy(y, t), y, t);
  }
  return metrics;
}

void add_reports(chainmail::ReportList& reports, const Options& options, std::int64_t done_epochs) {
  const bool draws = chainmail::can_draw_progress();
  const std::filesystem::path out = options.out;
  reports.add<chainmail::LogReport>((out / "log").string(), done_epochs);
  if (options.plot) {
    for (const std::string name : {"loss", "accuracy"}) {
      reports.add<chainmail::PlotReport>(
          (out / (name + ".svg")).string(),
          std::vector<std::string>{"main/" + name, "validation/main/" + name});
    }
  }
  if (!options.tensorboard.empty()) {
    reports.add<chainmail::TensorBoardReport>(options.tensorboard);
  }
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
  communicator_options.allreduce_grad_dtype =
      chainmail::parse_wire_dtype(options.allreduce_grad_dtype);
  communicator_options.cross = options.cross;
  return chainmail::create_communicator(options.communicator, communicator_options);
}

void train(const Options& options, const std::shared_ptr<chainmail::Communicator>& comm) {
  chainmail::choose_threads(*comm);
  const torch::Device device = choose_device(options, *comm);
  const c10::DeviceGuard current(device);
  const Data data = chainmail::on_all_ranks(*comm, [&] { return read_data(options); });
  if (comm->rank() == 0) {
    print_banner(options, *comm, data.location);
  }

  torch::manual_seed(options.seed);
  Mlp model(data.train.images[0].numel(), options.units, kClasses);
  model->to(device);
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

  chainmail::TensorIterator train_batches =
      batches_of(data.train, options.batchsize, device, comm, {.seed = options.seed});
  chainmail::TensorIterator test_batches = batches_of(
      data.test, options.batchsize, device, comm, {.shuffle = false, .force_equal_length = false});
  // The order of an epoch depends on nothing but seed and epoch: a resumed run sees the same.
  train_batches.load_state({options.seed, position.epoch, 0});
  auto evaluator =
      chainmail::create_multi_node_evaluator([&] { return evaluate(model, test_batches); }, comm);

  chainmail::ReportList reports(*comm);
  chainmail::on_all_ranks(*comm, [&] { add_reports(reports, options, position.epoch); });
  chainmail::StepTimer timer(comm);
  const double earlier = position.elapsed_time;
  const Clock::time_point started = Clock::now();
  while (position.epoch < options.epochs) {
    chainmail::Metrics metrics;
    timer.start();
    while (const auto batch = train_batches.next()) {
      const torch::Tensor& t = (*batch)[1];
      optimizer->zero_grad();
      const auto [y, loss] = [&] {
        const Autocast autocast(options.autocast, device);
        const torch::Tensor output = model->forward((*batch)[0]);
        return std::pair(output, torch::nn::functional::cross_entropy(output, t));
      }();
      loss.backward();
      optimizer->step();
      add_batch(metrics, "", loss.detach(), y.detach(), t);
      timer.step();
      reports.progress({++position.iteration, train_batches.batches_per_epoch(), options.epochs});
    }
    optimizer->flush();  // evaluation and snapshot see every gradient
    ++position.epoch;

    chainmail::ReportEntry entry{position.epoch, position.iteration, 0.0, evaluator.evaluate()};
    entry.values.merge(chainmail::aggregate_metrics(metrics, *comm).means());
    if (options.timing) {
      const chainmail::TimingSummary timing = timer.summary();
      entry.values.merge(timing.values());
      if (comm->rank() == 0) {
        std::cerr << "epoch " + std::to_string(position.epoch) + ": " + timing.text() + "\n";
      }
    }
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
