// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A residual network on a folder of images, ImageNet's or your own, trained by all ranks of a job.
// Each rank decodes its images in --workers threads of torch's data loader while the model
// computes.
//
//   imagenet --make-sample images
//   launcher -H localhost:2 -n 2 imagenet --data images --side 32 --epoch 3
//
// The folder has train/CLASS/*.jpg and val/CLASS/*.jpg, or PPM images.

#include <gflags/gflags.h>

#include <chrono>
#include <exception>
#include <sstream>

#include "../common/file.h"
#include "../common/job.h"
#include "../common/resnet.h"
#include "image_folder.h"

DEFINE_string(data, "", "folder with train/CLASS/ and val/CLASS/");
DEFINE_string(make_sample, "", "write a folder of small images to try with instead");
DEFINE_string(model, "resnet18", "resnet18, resnet50, or resnet8 and resnet20 for small images");
DEFINE_string(communicator, "hierarchical", "as for train_mnist");
DEFINE_string(allreduce_grad_dtype, "", "of gradients between nodes: float16, bfloat16, float32");
DEFINE_string(device, "cpu", "cpu, or cuda: the ranks of a node take its GPUs in turn");
DEFINE_string(out, "result", "folder for log and model");
DEFINE_int64(side, 224, "of the images that the model sees");
DEFINE_int64(batchsize, 32, "images per rank and step");
DEFINE_int64(epoch, 90, "times through the training images");
DEFINE_int64(workers, 2, "threads per rank that read and decode");
DEFINE_double(lr, 0.1, "learning rate for 256 images a step; grows with the images of all ranks");
DEFINE_uint64(seed, 0, "of weights, order and crops");
DEFINE_bool(verify, false, "end with a digest of the model; fail when ranks differ");

namespace {

using Loader = torch::data::StatelessDataLoader<
    torch::data::datasets::MapDataset<ImageFolder, torch::data::transforms::Stack<>>,
    chainmail::MultiNodeSampler>;

std::unique_ptr<Loader> make_loader(const ImageFolder& images,
                                    const std::shared_ptr<chainmail::Communicator>& comm,
                                    const chainmail::SamplerOptions& order) {
  return torch::data::make_data_loader(
      ImageFolder(images).map(torch::data::transforms::Stack<>()),
      chainmail::create_multi_node_sampler(*images.size(), comm, order),
      torch::data::DataLoaderOptions()
          .batch_size(static_cast<std::size_t>(FLAGS_batchsize))
          .workers(static_cast<std::size_t>(FLAGS_workers)));
}

chainmail::Metrics evaluate(torch::nn::Sequential& model, Loader& images, torch::Device device) {
  const torch::NoGradGuard no_grad;
  chainmail::Metrics metrics;
  model->eval();
  for (const auto& batch : images) {
    const torch::Tensor t = batch.target.to(device);
    const torch::Tensor y = model->forward(batch.data.to(device));
    add_batch(metrics, "validation/", y, t, torch::nn::functional::cross_entropy(y, t));
  }
  model->train();
  return metrics;
}

void train(const std::shared_ptr<chainmail::Communicator>& comm) {
  const torch::Device device = choose_device(FLAGS_device, *comm);
  const c10::DeviceGuard current(device);
  const std::filesystem::path data = FLAGS_data;
  const auto [images, middles] = chainmail::on_all_ranks(*comm, [&] {
    std::pair both(ImageFolder(data / "train", FLAGS_side, FLAGS_seed),
                   ImageFolder(data / "val", FLAGS_side, std::nullopt));
    check_same_classes(both.first, both.second);
    return both;
  });
  const auto train_images = make_loader(images, comm, {.seed = FLAGS_seed});
  const auto validation_images =
      make_loader(middles, comm, {.shuffle = false, .force_equal_length = false});
  print_banner(*comm,
               {"Model: " + FLAGS_model, "Num Minibatch-size: " + std::to_string(FLAGS_batchsize),
                "Num epoch: " + std::to_string(FLAGS_epoch),
                "Dataset: " + FLAGS_data + ", " + std::to_string(*images.size()) + " images of " +
                    std::to_string(images.classes().size()) + " classes"});

  torch::manual_seed(FLAGS_seed);
  auto model = make_resnet(FLAGS_model, static_cast<std::int64_t>(images.classes().size()),
                           /*is_for_large=*/FLAGS_side > 64);
  model->to(device);
  const double rate = FLAGS_lr * static_cast<double>(FLAGS_batchsize * comm->size()) / 256;
  auto optimizer = chainmail::create_multi_node_optimizer(
      std::make_unique<torch::optim::SGD>(
          model->parameters(), torch::optim::SGDOptions(rate).momentum(0.9).weight_decay(1e-4)),
      comm, {.model = &model});
  // A tenth of the rate after each third of the epochs.
  torch::optim::StepLR schedule(optimizer->actual_optimizer(),
                                static_cast<unsigned>(std::max<std::int64_t>(FLAGS_epoch / 3, 1)));

  chainmail::ReportList reports(*comm);
  add_reports(reports, *comm, FLAGS_out,
              {"epoch", "iteration", "main/loss", "validation/main/loss", "main/accuracy",
               "validation/main/accuracy", "elapsed_time"});
  auto evaluator = chainmail::create_multi_node_evaluator(
      [&] { return evaluate(model, *validation_images, device); }, comm);
  chainmail::AllreducePersistent average_statistics(&model, comm);
  const auto started = std::chrono::steady_clock::now();
  std::int64_t iteration = 0;
  for (std::int64_t epoch = 1; epoch <= FLAGS_epoch; ++epoch) {
    chainmail::Metrics metrics;
    images.set_epoch(epoch);
    for (const auto& batch : *train_images) {
      const torch::Tensor t = batch.target.to(device);
      optimizer->zero_grad();
      const torch::Tensor y = model->forward(batch.data.to(device));
      const torch::Tensor loss = torch::nn::functional::cross_entropy(y, t);
      loss.backward();
      optimizer->step();
      add_batch(metrics, "", y, t, loss);
      ++iteration;
    }
    schedule.step();
    average_statistics();  // of batch normalization, which every rank has of its own images
    chainmail::ReportEntry entry{epoch, iteration, 0.0, evaluator.evaluate()};
    entry.values.merge(chainmail::aggregate_metrics(metrics, *comm).means());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    entry.elapsed_time = elapsed.count();
    chainmail::on_all_ranks(*comm, [&] {
      reports.report(entry);
      if (comm->rank() != 0) return;
      std::ostringstream bytes;
      torch::save(model, bytes);
      write_whole(std::filesystem::path(FLAGS_out) / "model.pt", bytes.view());
    });
  }
  reports.finish();
  if (FLAGS_verify) {
    std::vector<torch::Tensor> state = model->parameters();
    for (const torch::Tensor& buffer : model->buffers()) state.push_back(buffer);
    print_digest(*comm, state);
  }
  comm->finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "imagenet",
      .what = "Trains a residual network on a folder of images with all ranks of the job."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    if (!FLAGS_make_sample.empty()) {
      make_sample(FLAGS_make_sample, 4, 32);
      return 0;
    }
    if (FLAGS_data.empty()) throw flags::UsageError("give --data DIR, or --make_sample DIR");
    if (FLAGS_batchsize < 2 || FLAGS_epoch < 0 || FLAGS_side < 8 || FLAGS_workers < 0) {
      throw flags::UsageError("--batchsize must be at least 2, --side 8, --epoch and --workers 0");
    }
    if (!is_resnet(FLAGS_model)) {
      throw flags::UsageError("--model " + FLAGS_model + ": use " + kResnets);
    }
    flags::check_at_least(0, "lr", FLAGS_lr);
    flags::check_given("out", FLAGS_out);
    try {
      train(join(FLAGS_communicator, FLAGS_device, FLAGS_allreduce_grad_dtype));
    } catch (const torch::data::WorkerException& error) {
      std::rethrow_exception(error.original_exception);
    }
    return 0;
  });
}
