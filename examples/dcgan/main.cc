// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// DCGAN (Radford et al., 2016), as in LibTorch's own examples, on all ranks of a job: two models,
// two optimizers, one communicator. OUT/samples-N.pgm shows what the generator draws after epoch N.
//
//   launcher -H localhost:2 -n 2 dcgan --dataset fashion_mnist --epoch 5

#include <gflags/gflags.h>

#include <chrono>
#include <string>

#include "../common/file.h"
#include "../common/job.h"

DEFINE_string(communicator, "hierarchical", "as for train_mnist");
DEFINE_string(device, "cpu", "cpu, or cuda: the ranks of a node take its GPUs in turn");
DEFINE_string(dataset, "mnist", "mnist or fashion_mnist");
DEFINE_string(data, "", "folder of the IDX files; otherwise looked for");
DEFINE_string(out, "result", "folder for log and drawn samples");
DEFINE_int64(batchsize, 64, "images per rank and step");
DEFINE_int64(epoch, 10, "times through the images");
DEFINE_int64(samples, 0, "only so many images; 0: all");
DEFINE_int64(noise, 100, "numbers that an image is drawn from");
DEFINE_int64(features, 64, "channels of the widest feature maps; others have a multiple");
DEFINE_double(lr, 2e-4, "learning rate of both optimizers");
DEFINE_uint64(seed, 0, "of weights, noise and the order of images");
DEFINE_bool(verify, false, "end with a digest of both models; fail when ranks differ");

namespace {

namespace nn = torch::nn;

// 1x1 to 28x28.
nn::Sequential make_generator(std::int64_t noise, std::int64_t n) {
  using Options = nn::ConvTranspose2dOptions;
  nn::Sequential net;
  net->push_back(nn::ConvTranspose2d(Options(noise, 4 * n, 4).bias(false)));
  net->push_back(nn::BatchNorm2d(4 * n));
  net->push_back(nn::ReLU());
  net->push_back(nn::ConvTranspose2d(Options(4 * n, 2 * n, 3).stride(2).padding(1).bias(false)));
  net->push_back(nn::BatchNorm2d(2 * n));
  net->push_back(nn::ReLU());
  net->push_back(nn::ConvTranspose2d(Options(2 * n, n, 4).stride(2).padding(1).bias(false)));
  net->push_back(nn::BatchNorm2d(n));
  net->push_back(nn::ReLU());
  net->push_back(nn::ConvTranspose2d(Options(n, 1, 4).stride(2).padding(1).bias(false)));
  net->push_back(nn::Tanh());
  return net;
}

// 28x28 to one number; large ones mean that the image is real.
nn::Sequential make_discriminator(std::int64_t n) {
  const auto leaky = nn::LeakyReLUOptions().negative_slope(0.2);
  const auto halve = [](std::int64_t inputs, std::int64_t outputs) {
    return nn::Conv2d(nn::Conv2dOptions(inputs, outputs, 4).stride(2).padding(1).bias(false));
  };
  nn::Sequential net;
  net->push_back(halve(1, n));
  net->push_back(nn::LeakyReLU(leaky));
  net->push_back(halve(n, 2 * n));
  net->push_back(nn::BatchNorm2d(2 * n));
  net->push_back(nn::LeakyReLU(leaky));
  net->push_back(halve(2 * n, 4 * n));
  net->push_back(nn::BatchNorm2d(4 * n));
  net->push_back(nn::LeakyReLU(leaky));
  net->push_back(nn::Conv2d(nn::Conv2dOptions(4 * n, 1, 3).bias(false)));
  net->push_back(nn::Flatten());
  return net;
}

torch::Tensor loss_of(const torch::Tensor& logits, bool is_real) {
  return nn::functional::binary_cross_entropy_with_logits(
      logits, torch::full_like(logits, is_real ? 1.0 : 0.0));
}

// Eight rows of eight images in -1 to 1, side by side.
void write_samples(const std::string& path, const torch::Tensor& images) {
  const torch::Tensor bytes = images.view({8, 8, 28, 28})
                                  .permute({0, 2, 1, 3})
                                  .reshape({8 * 28, 8 * 28})
                                  .add(1)
                                  .mul(127.5)
                                  .to(torch::kCPU, torch::kByte)
                                  .contiguous();
  std::string file = "P5\n224 224\n255\n";
  file.append(static_cast<const char*>(bytes.const_data_ptr()),
              static_cast<std::size_t>(bytes.numel()));
  write_whole(path, file);
}

chainmail::TensorIterator read_batches(const std::shared_ptr<chainmail::Communicator>& comm,
                                       torch::Device device) {
  torch::Tensor images = chainmail::on_all_ranks(*comm, [] {
    const auto folder = chainmail::find_dataset(FLAGS_dataset, FLAGS_data).directory;
    return chainmail::read_image_set(folder, "train").images.unsqueeze(1);
  });
  if (FLAGS_samples > 0) images = images.narrow(0, 0, std::min(FLAGS_samples, images.size(0)));
  return {{images.to(device)},
          chainmail::create_multi_node_sampler(static_cast<std::size_t>(images.size(0)), comm,
                                               {.seed = FLAGS_seed}),
          {.batch_size = FLAGS_batchsize, .scale = 2.0 / 255.0}};
}

void train(const std::shared_ptr<chainmail::Communicator>& comm) {
  const torch::Device device = choose_device(FLAGS_device, *comm);
  const c10::DeviceGuard current(device);
  auto batches = read_batches(comm, device);
  print_banner(*comm, {"Num Minibatch-size: " + std::to_string(FLAGS_batchsize),
                       "Num epoch: " + std::to_string(FLAGS_epoch)});

  torch::manual_seed(FLAGS_seed);
  nn::Sequential generator = make_generator(FLAGS_noise, FLAGS_features);
  nn::Sequential discriminator = make_discriminator(FLAGS_features);
  generator->to(device);
  discriminator->to(device);
  const auto make_optimizer = [&](nn::Sequential& model) {
    return chainmail::create_multi_node_optimizer(
        std::make_unique<torch::optim::Adam>(
            model->parameters(), torch::optim::AdamOptions(FLAGS_lr).betas({0.5, 0.999})),
        comm, {.model = &model});
  };
  const auto generator_optimizer = make_optimizer(generator);
  const auto discriminator_optimizer = make_optimizer(discriminator);
  // The statistics of batch normalization are each rank's own until they are averaged.
  chainmail::AllreducePersistent average_generator(&generator, comm);
  chainmail::AllreducePersistent average_discriminator(&discriminator, comm);
  const torch::Tensor fixed_noise = torch::randn({64, FLAGS_noise, 1, 1}, device);
  // From here on every rank draws noise of its own.
  torch::manual_seed(FLAGS_seed + 1 + static_cast<std::uint64_t>(comm->rank()));

  chainmail::ReportList reports(*comm);
  add_reports(reports, *comm, FLAGS_out,
              {"epoch", "iteration", "discriminator/loss", "generator/loss", "elapsed_time"});
  const auto started = std::chrono::steady_clock::now();
  std::int64_t iteration = 0;
  for (std::int64_t epoch = 1; epoch <= FLAGS_epoch; ++epoch) {
    chainmail::Metrics metrics;
    while (const auto batch = batches.next()) {
      const torch::Tensor real = batch->front() - 1;
      const std::int64_t count = real.size(0);
      discriminator_optimizer->zero_grad();
      const torch::Tensor real_loss = loss_of(discriminator->forward(real), true);
      {
        // The gradients of two backwards add up; the second one exchanges the sum.
        const auto local = discriminator_optimizer->no_sync();
        real_loss.backward();
      }
      const torch::Tensor fake =
          generator->forward(torch::randn({count, FLAGS_noise, 1, 1}, device));
      const torch::Tensor fake_loss = loss_of(discriminator->forward(fake.detach()), false);
      fake_loss.backward();
      discriminator_optimizer->step();

      generator_optimizer->zero_grad();
      const torch::Tensor generator_loss = loss_of(discriminator->forward(fake), true);
      {
        // It reaches the discriminator too, whose gradients nobody needs.
        const auto local = discriminator_optimizer->no_sync();
        generator_loss.backward();
      }
      generator_optimizer->step();
      metrics.add("discriminator/loss", (real_loss + fake_loss).item<double>(), count);
      metrics.add("generator/loss", generator_loss.item<double>(), count);
      reports.progress({++iteration, batches.batches_per_epoch(), FLAGS_epoch});
    }
    average_generator();
    average_discriminator();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    const chainmail::ReportEntry entry{epoch, iteration, elapsed.count(),
                                       chainmail::aggregate_metrics(metrics, *comm).means()};
    chainmail::on_all_ranks(*comm, [&] {
      reports.report(entry);
      if (comm->rank() != 0) return;
      const torch::NoGradGuard no_grad;
      generator->eval();
      write_samples(FLAGS_out + "/samples-" + std::to_string(epoch) + ".pgm",
                    generator->forward(fixed_noise));
      generator->train();
    });
  }
  reports.finish();
  if (FLAGS_verify) {
    std::vector<torch::Tensor> state;
    for (const nn::Sequential& model : {generator, discriminator}) {
      for (const torch::Tensor& tensor : model->parameters()) state.push_back(tensor);
      for (const torch::Tensor& tensor : model->buffers()) state.push_back(tensor);
    }
    print_digest(*comm, state);
  }
  comm->finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{.name = "dcgan",
                               .what = "Trains a DCGAN on MNIST with all ranks of the job."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    if (FLAGS_batchsize < 2 || FLAGS_epoch < 0 || FLAGS_noise < 1 || FLAGS_features < 1) {
      throw flags::UsageError(
          "--batchsize must be at least 2, --noise and --features 1, --epoch 0");
    }
    flags::check_at_least(0, "samples", static_cast<double>(FLAGS_samples));
    flags::check_at_least(0, "lr", FLAGS_lr);
    flags::check_given("out", FLAGS_out);
    train(join(FLAGS_communicator, FLAGS_device));
    return 0;
  });
}
