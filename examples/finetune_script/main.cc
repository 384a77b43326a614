// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Fine-tunes a TorchScript model, such as one that Python saved with torch.jit.script(net).save():
// everything but its last layer is frozen, and all ranks of a job train that on MNIST.
//
//   finetune_script --make-model pretrained.pt
//   launcher -H localhost:2 -n 2 finetune_script --model pretrained.pt --save tuned.pt

#include <gflags/gflags.h>

#include <chrono>
#include <sstream>
#include <string_view>

#include <torch/script.h>

#include "../common/file.h"
#include "../common/job.h"

DEFINE_string(model, "", "TorchScript file; takes float32 [batch, 784], gives [batch, 10]");
DEFINE_string(make_model, "", "write a small model with random weights to this file instead");
DEFINE_string(train, "head", "train parameters whose names begin so; the others stay");
DEFINE_string(save, "", "write the tuned model to this file");
DEFINE_string(communicator, "hierarchical", "as for train_mnist");
DEFINE_string(dataset, "mnist", "mnist or fashion_mnist");
DEFINE_string(data, "", "folder of the IDX files; otherwise looked for");
DEFINE_string(out, "result", "folder for the log");
DEFINE_int64(batchsize, 100, "samples per rank and step");
DEFINE_int64(epoch, 3, "times through the training data");
DEFINE_int64(samples, 0, "only so many images; 0: all");
DEFINE_double(lr, 1e-3, "learning rate");
DEFINE_uint64(seed, 0, "of the order of samples, and of the weights of --make_model");
DEFINE_bool(verify, false, "end with a digest of parameters and buffers; fail when ranks differ");

namespace {

constexpr std::int64_t kClasses = 10;

void save(const torch::jit::Module& model, const std::string& path) {
  std::ostringstream bytes;
  model.save(bytes);
  write_whole(path, bytes.view());
}

// What Python's torch.jit.script would make of a module with a body, a normalization and a head.
void make_model(const std::string& path) {
  torch::manual_seed(FLAGS_seed);
  torch::jit::Module model("Net");
  model.register_attribute("training", c10::BoolType::get(), true);
  const auto add = [&](const std::string& name, const torch::nn::Linear& layer) {
    model.register_parameter(name + "_weight", layer->weight, /*is_buffer=*/false);
    model.register_parameter(name + "_bias", layer->bias, /*is_buffer=*/false);
  };
  add("body", torch::nn::Linear(784, 100));
  add("head", torch::nn::Linear(100, 10));
  model.register_buffer("mean", torch::zeros({100}));
  model.define(R"(
    def forward(self, x: Tensor):
      h = torch.relu(torch.matmul(x, self.body_weight.t()) + self.body_bias)
      if self.training:
        self.mean = self.mean * 0.9 + h.detach().mean([0]) * 0.1
      return torch.matmul(h - self.mean, self.head_weight.t()) + self.head_bias
  )");
  save(model, path);
}

torch::jit::Module load_model() {
  try {
    return torch::jit::load(FLAGS_model);
  } catch (const c10::Error& error) {
    throw chainmail::InvalidArgument(
        "--model " + FLAGS_model + ": not a TorchScript model: " + error.what_without_backtrace());
  }
}

// By one black image, since the file does not say what the model takes and gives.
void check_shapes(torch::jit::Module& model, std::int64_t pixels) {
  const torch::NoGradGuard no_grad;
  std::string found;
  model.eval();
  try {
    const c10::IValue y = model.forward({torch::zeros({1, pixels})});
    if (!y.isTensor()) {
      found = "gives a " + y.tagKind();
    } else if (y.toTensor().sizes() != c10::IntArrayRef({1, kClasses})) {
      found = c10::str("gives ", y.toTensor().sizes());
    }
  } catch (const std::exception& error) {
    const auto* const torchs = dynamic_cast<const c10::Error*>(&error);
    const std::string text = torchs != nullptr ? torchs->what_without_backtrace() : error.what();
    const std::size_t end = text.find_last_not_of('\n') + 1;  // TorchScript's frames come first
    found = "fails: " + text.substr(0, end).substr(text.find_last_of('\n', end - 1) + 1);
  }
  if (found.empty()) return;
  throw chainmail::InvalidArgument(c10::str("--model ", FLAGS_model, ": must give [1, ", kClasses,
                                            "] for float32 [1, ", pixels, "]; it ", found));
}

// The parameters to train; the others no longer ask for gradients, so nobody exchanges them.
std::vector<torch::Tensor> freeze(torch::jit::Module& model) {
  std::vector<torch::Tensor> trained;
  for (const auto& parameter : model.named_parameters()) {
    const bool is_trained = parameter.name.rfind(FLAGS_train, 0) == 0;
    parameter.value.requires_grad_(is_trained);
    if (is_trained) trained.push_back(parameter.value);
  }
  if (model.parameters().size() == 0) {
    throw chainmail::InvalidArgument("--model " + FLAGS_model +
                                     ": has no parameters; was it frozen by torch.jit.freeze?");
  }
  if (trained.empty()) {
    throw chainmail::InvalidArgument("--train " + FLAGS_train + ": no parameter's name begins so");
  }
  return trained;
}

void train(const std::shared_ptr<chainmail::Communicator>& comm) {
  chainmail::on_all_ranks(*comm, [&] {
    if (comm->rank() == 0 && !FLAGS_save.empty()) PartialFile try_it(FLAGS_save);
  });
  const auto images = chainmail::on_all_ranks(*comm, [] {
    const auto folder = chainmail::find_dataset(FLAGS_dataset, FLAGS_data).directory;
    chainmail::ImageSet set = chainmail::read_image_set(folder, "train", kClasses);
    const std::int64_t all = set.images.size(0);
    const std::int64_t count = FLAGS_samples > 0 ? std::min(FLAGS_samples, all) : all;
    return chainmail::ImageSet{set.images.narrow(0, 0, count), set.labels.narrow(0, 0, count)};
  });
  chainmail::TensorIterator batches(
      {images.images.flatten(1), images.labels},
      chainmail::create_multi_node_sampler(static_cast<std::size_t>(images.images.size(0)), comm,
                                           {.seed = FLAGS_seed}),
      {.batch_size = FLAGS_batchsize, .scale = 1.0 / 255.0});

  torch::jit::Module model = chainmail::on_all_ranks(*comm, [&] {
    torch::jit::Module loaded = load_model();
    check_shapes(loaded, images.images[0].numel());
    return loaded;
  });
  const std::vector<torch::Tensor> trained =
      chainmail::on_all_ranks(*comm, [&] { return freeze(model); });
  auto optimizer = chainmail::create_multi_node_optimizer(
      std::make_unique<torch::optim::Adam>(trained, FLAGS_lr), comm, {.model = &model});
  print_banner(*comm, {"Model: " + FLAGS_model + ", " + std::to_string(trained.size()) +
                           " tensors are trained",
                       "Num Minibatch-size: " + std::to_string(FLAGS_batchsize),
                       "Num epoch: " + std::to_string(FLAGS_epoch)});

  chainmail::AllreducePersistent average_buffers(&model, comm);
  chainmail::ReportList reports(*comm);
  add_reports(reports, *comm, FLAGS_out,
              {"epoch", "iteration", "main/loss", "main/accuracy", "elapsed_time"});
  const auto started = std::chrono::steady_clock::now();
  std::int64_t iteration = 0;
  for (std::int64_t epoch = 1; epoch <= FLAGS_epoch; ++epoch) {
    model.train();
    chainmail::Metrics metrics;
    while (const auto batch = batches.next()) {
      const torch::Tensor& t = (*batch)[1];
      optimizer->zero_grad();
      const torch::Tensor y = model.forward({(*batch)[0]}).toTensor();
      const torch::Tensor loss = torch::nn::functional::cross_entropy(y, t);
      loss.backward();
      optimizer->step();
      add_batch(metrics, "", y, t, loss);
      reports.progress({++iteration, batches.batches_per_epoch(), FLAGS_epoch});
    }
    average_buffers();  // each rank has seen its own samples
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    const chainmail::ReportEntry entry{epoch, iteration, elapsed.count(),
                                       chainmail::aggregate_metrics(metrics, *comm).means()};
    chainmail::on_all_ranks(*comm, [&] { reports.report(entry); });
  }
  reports.finish();
  chainmail::on_all_ranks(*comm, [&] {
    model.eval();
    if (comm->rank() == 0 && !FLAGS_save.empty()) save(model, FLAGS_save);
  });
  if (FLAGS_verify) {
    std::vector<torch::Tensor> state;
    for (const torch::Tensor& tensor : model.parameters()) state.push_back(tensor);
    for (const torch::Tensor& tensor : model.buffers()) state.push_back(tensor);
    print_digest(*comm, state);
  }
  comm->finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "finetune_script",
      .what = "Trains the last layer of a TorchScript model on MNIST with all ranks of the job."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    if (!FLAGS_make_model.empty()) {
      make_model(FLAGS_make_model);
      return 0;
    }
    if (FLAGS_model.empty()) throw flags::UsageError("give --model FILE, or --make_model FILE");
    if (FLAGS_batchsize < 1 || FLAGS_epoch < 0) {
      throw flags::UsageError("--batchsize must be at least 1, --epoch 0");
    }
    flags::check_at_least(0, "samples", static_cast<double>(FLAGS_samples));
    flags::check_at_least(0, "lr", FLAGS_lr);
    flags::check_given("out", FLAGS_out);
    train(join(FLAGS_communicator));
    return 0;
  });
}
