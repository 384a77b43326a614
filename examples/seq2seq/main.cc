// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A sequence-to-sequence model over two ranks; ChainerMN's seq2seq_mp1: the encoder on rank 0, the
// decoder on rank 1, one recurrent layer that goes on from the one to the other. It learns to say
// strings of digits backwards, which the program draws itself.
//
//   launcher -H localhost:2 -n 2 seq2seq

#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>

#include "../common/job.h"

DEFINE_string(communicator, "hierarchical", "as for train_mnist");
DEFINE_int64(length, 6, "digits of the longest strings; the shortest have one");
DEFINE_int64(strings, 10000, "to learn from");
DEFINE_int64(batchsize, 64, "strings per step");
DEFINE_int64(epoch, 10, "times through the strings");
DEFINE_int64(unit, 128, "of the recurrent layer");
DEFINE_double(lr, 3e-3, "learning rate");
DEFINE_int64(sample, 5, "strings to show at the end, with what the model says");
DEFINE_string(out, "result", "folder for the log");
DEFINE_uint64(seed, 0, "of the weights and of the strings");

namespace {

namespace nn = torch::nn;

constexpr int kEncoderRank = 0;
constexpr int kDecoderRank = 1;
// Letters are digits and the end, which the decoder begins with, too.
constexpr std::int64_t kEnd = 10;
constexpr std::int64_t kLetters = 11;
constexpr std::int64_t kIgnored = -100;  // by cross_entropy
constexpr std::int64_t kTestStrings = 500;

// One string a row: its digits, then ends.
torch::Tensor make_strings(std::int64_t count, std::uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  const auto lengths = torch::randint(1, FLAGS_length + 1, {count, 1}, generator, torch::kLong);
  const auto digits = torch::randint(0, kEnd, {count, FLAGS_length}, generator, torch::kLong);
  return digits.masked_fill(torch::arange(FLAGS_length) >= lengths, kEnd);
}

torch::Tensor lengths_of(const torch::Tensor& strings) { return strings.ne(kEnd).sum(-1); }

// Backwards, with one more end.
torch::Tensor reversed(const torch::Tensor& strings) {
  const torch::Tensor place =
      lengths_of(strings).unsqueeze(1) - 1 - torch::arange(strings.size(1) + 1);
  return strings.gather(1, place.clamp(0, strings.size(1) - 1)).masked_fill(place < 0, kEnd);
}

std::string text_of(const torch::Tensor& string) {
  const torch::Tensor text = string.masked_select(string.ne(kEnd)).add(int{'0'}).to(torch::kChar);
  return {static_cast<const char*>(text.const_data_ptr()), text.nbytes()};
}

nn::LSTM make_lstm() { return nn::LSTM(nn::LSTMOptions(FLAGS_unit, FLAGS_unit).batch_first(true)); }

struct EncoderImpl : nn::Module {
  explicit EncoderImpl(chainmail::Chain& chain)
      : letters(register_module("letters", nn::Embedding(kLetters, FLAGS_unit))),
        rnn(register_module("rnn", chainmail::create_multi_node_n_step_rnn(
                                       make_lstm(), chain, {.rank_out = kDecoderRank}))) {}

  // Sends the state after each string's last digit.
  void forward(const torch::Tensor& strings) {
    const auto packed = nn::utils::rnn::pack_padded_sequence(
        letters(strings), lengths_of(strings), /*batch_first=*/true, /*enforce_sorted=*/false);
    (void)rnn->forward_with_packed_input(packed);
  }

  nn::Embedding letters;
  std::shared_ptr<chainmail::MultiNodeNStepRNN<nn::LSTMImpl>> rnn;
};
TORCH_MODULE(Encoder);

struct DecoderImpl : nn::Module {
  explicit DecoderImpl(chainmail::Chain& chain)
      : letters(register_module("letters", nn::Embedding(kLetters, FLAGS_unit))),
        lstm(make_lstm()),
        rnn(register_module("rnn", chainmail::create_multi_node_n_step_rnn(
                                       lstm, chain, {.rank_in = kEncoderRank}))),
        head(register_module("head", nn::Linear(FLAGS_unit, kLetters))) {}

  // The loss of the right answers, each letter from those before it.
  torch::Tensor loss(const torch::Tensor& strings) {
    const torch::Tensor answer = reversed(strings);
    const torch::Tensor before = answer.roll(1, 1);  // its last letter, an end, comes first
    const auto is_behind = torch::arange(answer.size(1)) > lengths_of(strings).unsqueeze(1);
    const torch::Tensor h = std::get<0>(rnn->forward(letters(before)));
    return nn::functional::cross_entropy(head(h).flatten(0, 1),
                                         answer.masked_fill(is_behind, kIgnored).flatten());
  }

  // What the model says to the encoder's strings: at each place the most likely letter.
  torch::Tensor greedy(std::int64_t strings) {
    torch::Tensor letter = torch::full({strings, 1}, kEnd, torch::kLong);
    std::vector<torch::Tensor> said;
    std::optional<std::tuple<torch::Tensor, torch::Tensor>> state;
    for (std::int64_t i = 0; i <= FLAGS_length; ++i) {
      // The first state is the encoder's, all others are this rank's own.
      auto [h, next] =
          state ? lstm->forward(letters(letter), state) : rnn->forward(letters(letter));
      state = std::move(next);
      letter = head(h).argmax(2);
      said.push_back(letter);
    }
    const torch::Tensor all = torch::cat(said, 1);
    return all.masked_fill(all.eq(kEnd).cumsum(1) > 0, kEnd);
  }

  nn::Embedding letters;
  nn::LSTM lstm;  // registered by rnn
  std::shared_ptr<chainmail::MultiNodeNStepRNN<nn::LSTMImpl>> rnn;
  nn::Linear head;
};
TORCH_MODULE(Decoder);

class Training {
 public:
  explicit Training(std::shared_ptr<chainmail::Communicator> comm)
      : comm_(std::move(comm)),
        chain_(comm_),
        batches_(chainmail::create_multi_node_iterator(make_iterator(), comm_, kEncoderRank)),
        test_strings_(make_strings(kTestStrings, FLAGS_seed + 1)) {
    torch::manual_seed(FLAGS_seed + static_cast<std::uint64_t>(comm_->rank()));
    if (is_encoder()) encoder_ = Encoder(chain_);
    if (!is_encoder()) decoder_ = Decoder(chain_);
    // Each rank steps what it has.
    optimizer_ = std::make_unique<torch::optim::Adam>(
        is_encoder() ? encoder_->parameters() : decoder_->parameters(), FLAGS_lr);
    print_banner(*comm_, {"Num Minibatch-size: " + std::to_string(FLAGS_batchsize),
                          "Num epoch: " + std::to_string(FLAGS_epoch),
                          "Strings: " + std::to_string(FLAGS_strings) + " of 1 to " +
                              std::to_string(FLAGS_length) + " digits"});
  }

  void run() {
    chainmail::ReportList reports(*comm_);
    add_reports(reports, *comm_, FLAGS_out,
                {"epoch", "iteration", "main/loss", "validation/main/accuracy", "elapsed_time"});
    const auto started = std::chrono::steady_clock::now();
    std::int64_t iteration = 0;
    for (std::int64_t epoch = 1; epoch <= FLAGS_epoch; ++epoch) {
      chainmail::Metrics metrics;  // the decoder's rank has all of them
      for (; const auto batch = batches_.next(); ++iteration) train(batch->front(), metrics);
      evaluate(metrics);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
      const chainmail::ReportEntry entry{epoch, iteration, elapsed.count(),
                                         chainmail::aggregate_metrics(metrics, *comm_).means()};
      chainmail::on_all_ranks(*comm_, [&] { reports.report(entry); });
    }
    reports.finish();
    if (FLAGS_epoch > 0) show_samples();
    comm_->finalize();
  }

 private:
  bool is_encoder() const { return comm_->rank() == kEncoderRank; }

  // The encoder's rank draws the batches; the other one gets them.
  std::shared_ptr<chainmail::TensorIterator> make_iterator() const {
    if (!is_encoder()) return nullptr;
    return std::make_shared<chainmail::TensorIterator>(
        chainmail::TensorList{make_strings(FLAGS_strings, FLAGS_seed)},
        chainmail::MultiNodeSampler(static_cast<std::size_t>(FLAGS_strings), 0, 1,
                                    {.seed = FLAGS_seed}),
        chainmail::TensorIteratorOptions{.batch_size = FLAGS_batchsize, .data_type = torch::kLong});
  }

  void train(const torch::Tensor& strings, chainmail::Metrics& metrics) {
    optimizer_->zero_grad();
    if (is_encoder()) {
      encoder_->forward(strings);
      chain_.backward();  // from what the decoder's rank sends back
    } else {
      const torch::Tensor loss = decoder_->loss(strings);
      chain_.backward(loss);
      metrics.add("main/loss", loss.item<double>(), strings.size(0));
    }
    optimizer_->step();
  }

  // The share of test strings that are said right from end to end.
  void evaluate(chainmail::Metrics& metrics) {
    const torch::NoGradGuard no_grad;
    if (is_encoder()) return encoder_->forward(test_strings_);
    said_ = decoder_->greedy(kTestStrings);
    const torch::Tensor is_right = said_.eq(reversed(test_strings_)).all(1);
    metrics.add_sum("validation/main/accuracy", is_right.sum().item<double>(), kTestStrings);
  }

  void show_samples() {
    const torch::Tensor said = comm_->bcast_tensor(said_, kDecoderRank);
    if (!is_encoder()) return;
    for (std::int64_t i = 0; i < std::min(FLAGS_sample, kTestStrings); ++i) {
      std::cout << text_of(test_strings_[i]) << " backwards is " << text_of(said[i]) << '\n';
    }
  }

  std::shared_ptr<chainmail::Communicator> comm_;
  chainmail::Chain chain_;
  chainmail::MultiNodeIterator batches_;
  torch::Tensor test_strings_;
  Encoder encoder_{nullptr};  // on its rank
  Decoder decoder_{nullptr};  // on the other
  torch::Tensor said_;        // there, to the test strings
  std::unique_ptr<torch::optim::Adam> optimizer_;
};

void check_flags() {
  if (std::min({FLAGS_length, FLAGS_strings, FLAGS_batchsize, FLAGS_unit}) < 1) {
    throw flags::UsageError("--length, --strings, --batchsize and --unit must be at least 1");
  }
  flags::check_at_least(0, "epoch", static_cast<double>(FLAGS_epoch));
  flags::check_at_least(0, "sample", static_cast<double>(FLAGS_sample));
  flags::check_at_least(0, "lr", FLAGS_lr);
  flags::check_given("out", FLAGS_out);
}

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "seq2seq",
      .what = "Trains an encoder on rank 0 and a decoder on rank 1 to say digits backwards."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    check_flags();
    auto comm = join(FLAGS_communicator);
    if (comm->size() != 2) {
      throw flags::UsageError("the number of ranks is " + std::to_string(comm->size()) +
                              ", but an encoder and a decoder are two: start it with -n 2");
    }
    Training(std::move(comm)).run();
    return 0;
  });
}
