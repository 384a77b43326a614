// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A small language model over bytes, a transformer that predicts the next letter, trained by all
// ranks of a job: the loop of a single process around chainmail::DistributedModel. The default text
// comes with every Debian.
//
//   launcher -H localhost:2 -n 2 transformer_lm --epoch 5 --sample 200

#include <gflags/gflags.h>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <system_error>

#include "../common/job.h"

DEFINE_string(communicator, "hierarchical", "as for train_mnist");
DEFINE_string(device, "cpu", "cpu, or cuda: the ranks of a node take its GPUs in turn");
DEFINE_string(text, "/usr/share/common-licenses/GPL-3", "file to learn from, any bytes");
DEFINE_string(out, "result", "folder for the log");
DEFINE_int64(context, 64, "letters that the model sees");
DEFINE_int64(width, 128, "of the embeddings; a multiple of --heads");
DEFINE_int64(heads, 4, "of each layer's attention");
DEFINE_int64(layers, 2, "of the transformer");
DEFINE_int64(batchsize, 16, "pieces of text per rank and step");
DEFINE_int64(epoch, 10, "times through the text");
DEFINE_double(lr, 1e-3, "learning rate");
DEFINE_double(max_grad_norm, 1.0, "gradients are scaled down to this norm");
DEFINE_int64(sample, 0, "letters to write at the end, by the trained model");
DEFINE_uint64(seed, 0, "of the weights and of the order");
DEFINE_bool(verify, false, "end with a digest of the parameters; fail when ranks differ");

namespace {

namespace nn = torch::nn;
constexpr std::int64_t kLetters = 256;

struct LanguageModelImpl : nn::Module {
  LanguageModelImpl(std::int64_t context, std::int64_t width, std::int64_t heads,
                    std::int64_t layers)
      : letters(register_module("letters", nn::Embedding(kLetters, width))),
        places(register_module("places", nn::Embedding(context, width))),
        body(register_module("body", nn::TransformerEncoder(nn::TransformerEncoderOptions(
                                         nn::TransformerEncoderLayerOptions(width, heads)
                                             .dim_feedforward(4 * width)
                                             .dropout(0.0),
                                         layers)))),
        head(register_module("head", nn::Linear(width, kLetters))) {}

  // int64 [batch, length] to logits [batch, length, letters]; nobody sees what comes after.
  torch::Tensor forward(const torch::Tensor& text) {
    const std::int64_t length = text.size(1);
    const auto place = torch::arange(length, text.options());
    const torch::Tensor x = letters(text) + places(place);
    const torch::Tensor mask = torch::full({length, length}, -INFINITY, x.options()).triu(1);
    return head(body(x.transpose(0, 1), mask).transpose(0, 1));
  }

  nn::Embedding letters, places;
  nn::TransformerEncoder body;
  nn::Linear head;
};
TORCH_MODULE(LanguageModel);

// One row per piece: its letters and the one that follows.
torch::Tensor read_pieces(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (file.peek() == std::ifstream::traits_type::eof() && !file.eof()) {
    throw chainmail::InvalidArgument("--text " + path +
                                     ": cannot be read: " + std::generic_category().message(errno));
  }
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto size = static_cast<std::int64_t>(text.size());
  if (size < FLAGS_context + 1) {
    throw chainmail::InvalidArgument("--text " + path + ": has " + std::to_string(size) +
                                     " letters; --context " + std::to_string(FLAGS_context) +
                                     " needs one more than that");
  }
  const torch::Tensor letters = torch::from_blob(text.data(), {size}, torch::kByte).clone();
  return letters.unfold(0, FLAGS_context + 1, FLAGS_context);
}

std::string sample(LanguageModel& model, torch::Device device) {
  const torch::NoGradGuard no_grad;
  torch::Tensor text = torch::full({1, 1}, static_cast<std::int64_t>('\n'),
                                   torch::dtype(torch::kLong).device(device));
  std::string written;
  for (std::int64_t i = 0; i < FLAGS_sample; ++i) {
    const std::int64_t seen = std::min(text.size(1), FLAGS_context);
    const torch::Tensor logits = model->forward(text.narrow(1, text.size(1) - seen, seen));
    if (!logits.isfinite().all().item<bool>()) {
      throw std::runtime_error("--sample: the model's outputs are not finite; try a smaller --lr");
    }
    const torch::Tensor next = logits.select(1, seen - 1).softmax(1).multinomial(1);
    text = torch::cat({text, next}, 1);
    const auto letter = static_cast<int>(next.item<std::int64_t>());
    written += std::isprint(letter) != 0 || letter == '\n' ? static_cast<char>(letter) : '?';
  }
  return written;
}

void train(const std::shared_ptr<chainmail::Communicator>& comm) {
  const torch::Device device = choose_device(FLAGS_device, *comm);
  const c10::DeviceGuard current(device);
  const torch::Tensor pieces =
      chainmail::on_all_ranks(*comm, [] { return read_pieces(FLAGS_text); });
  chainmail::TensorIterator batches(
      {pieces.to(device)},
      chainmail::create_multi_node_sampler(static_cast<std::size_t>(pieces.size(0)), comm,
                                           {.seed = FLAGS_seed}),
      {.batch_size = FLAGS_batchsize, .data_type = torch::kLong});
  print_banner(*comm, {"Num Minibatch-size: " + std::to_string(FLAGS_batchsize),
                       "Num epoch: " + std::to_string(FLAGS_epoch),
                       "Text: " + FLAGS_text + ", " + std::to_string(pieces.size(0)) +
                           " pieces of " + std::to_string(FLAGS_context) + " letters"});

  torch::manual_seed(FLAGS_seed);
  LanguageModel net(FLAGS_context, FLAGS_width, FLAGS_heads, FLAGS_layers);
  net->to(device);
  chainmail::DistributedModel model(net, comm);  // backward() leaves the means over all ranks
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(FLAGS_lr));

  chainmail::ReportList reports(*comm);
  add_reports(reports, *comm, FLAGS_out,
              {"epoch", "iteration", "main/loss", "perplexity", "elapsed_time"});
  const auto started = std::chrono::steady_clock::now();
  std::int64_t iteration = 0;
  for (std::int64_t epoch = 1; epoch <= FLAGS_epoch; ++epoch) {
    chainmail::Metrics metrics;
    while (const auto batch = batches.next()) {
      const torch::Tensor& text = batch->front();
      optimizer.zero_grad();
      const torch::Tensor logits = model(text.narrow(1, 0, FLAGS_context));
      const torch::Tensor loss = nn::functional::cross_entropy(
          logits.flatten(0, 1), text.narrow(1, 1, FLAGS_context).flatten());
      loss.backward();
      nn::utils::clip_grad_norm_(net->parameters(), FLAGS_max_grad_norm);
      optimizer.step();
      metrics.add("main/loss", loss.item<double>(), text.size(0));
      reports.progress({++iteration, batches.batches_per_epoch(), FLAGS_epoch});
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    chainmail::ReportEntry entry{epoch, iteration, elapsed.count(),
                                 chainmail::aggregate_metrics(metrics, *comm).means()};
    entry.values["perplexity"] = std::exp(entry.values["main/loss"]);
    chainmail::on_all_ranks(*comm, [&] { reports.report(entry); });
  }
  reports.finish();
  chainmail::on_all_ranks(*comm, [&] {
    if (FLAGS_sample > 0 && comm->rank() == 0) std::cout << sample(net, device) << std::endl;
  });
  if (FLAGS_verify) print_digest(*comm, net->parameters());
  comm->finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "transformer_lm",
      .what = "Trains a small transformer on the letters of a text with all ranks of the job."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    if (FLAGS_batchsize < 1 || FLAGS_epoch < 0 || FLAGS_context < 1 || FLAGS_layers < 1 ||
        FLAGS_heads < 1 || FLAGS_width < FLAGS_heads || FLAGS_width % FLAGS_heads != 0) {
      throw flags::UsageError(
          "--batchsize, --context, --layers and --heads must be at least 1, --epoch 0, and --width "
          "a multiple of --heads");
    }
    flags::check_at_least(0, "sample", static_cast<double>(FLAGS_sample));
    flags::check_at_least(0, "lr", FLAGS_lr);
    if (!(FLAGS_max_grad_norm >= 0)) {
      throw flags::UsageError("--max_grad_norm must be at least 0; inf scales nothing");
    }
    flags::check_given("out", FLAGS_out);
    train(join(FLAGS_communicator, FLAGS_device));
    return 0;
  });
}
