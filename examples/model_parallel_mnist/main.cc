// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Data times model parallelism; ChainerMN's train_mnist_dual_parallel: train_mnist's multi-layer
// perceptron in stages, each on a rank of its own, and a copy of the model for every so many ranks.
// The ranks of a copy pass batches on to each other, those of a stage average its gradients.
//
//   launcher -H localhost:4 -n 4 model_parallel_mnist --epoch 2
//
// Exit code: 0; 1 when training fails; 2 for a command line that cannot be carried out.

#include <gflags/gflags.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "../common/job.h"
#include "../common/mlp.h"

DEFINE_string(communicator, "hierarchical", "as for train_mnist");
DEFINE_string(allreduce_grad_dtype, "", "of gradients between nodes: float16, bfloat16, float32");
DEFINE_string(cross, "tcp", "what joins the nodes: tcp, or mpi (under mpiexec)");
DEFINE_int32(stages, 2, "parts of the model, 1 to 3; the number of ranks is a multiple of it");
DEFINE_int32(microbatches, 4, "pieces of a batch, on which the stages compute at once");
DEFINE_int64(batchsize, 100, "samples per copy of the model and step");
DEFINE_int64(epoch, 20, "times through the training data");
DEFINE_int64(unit, 1000, "units of each hidden layer");
DEFINE_string(dataset, "mnist", "mnist or fashion_mnist");
DEFINE_string(data, "", "folder of the IDX files; otherwise looked for");
DEFINE_string(out, "result", "folder for the log");
DEFINE_uint64(seed, 0, "of the initial weights and of the order of samples");
DEFINE_bool(verify, false, "end with a digest of each stage; fail when its copies differ");

namespace {

constexpr std::int64_t kClasses = 10;
constexpr int kLayers = 3;  // each with the activation that follows it

void check_flags() {
  if (FLAGS_stages < 1 || FLAGS_stages > kLayers) {
    throw flags::UsageError("--stages " + std::to_string(FLAGS_stages) +
                            ": use 1 to 3, the model has three layers");
  }
  if (FLAGS_dataset != "mnist" && FLAGS_dataset != "fashion_mnist") {
    throw flags::UsageError("--dataset " + FLAGS_dataset + ": use mnist or fashion_mnist");
  }
  if (FLAGS_epoch < 0 || FLAGS_unit < 1) {
    throw flags::UsageError("--unit must be at least 1, --epoch at least 0");
  }
  if (FLAGS_microbatches < 1 || FLAGS_batchsize < FLAGS_microbatches) {
    throw flags::UsageError("--microbatches must be at least 1, and --batchsize at least as large");
  }
  flags::check_given("out", FLAGS_out);
}

std::shared_ptr<chainmail::Communicator> join_stages() {
  auto comm = join(FLAGS_communicator, "cpu", FLAGS_allreduce_grad_dtype, FLAGS_cross);
  if (comm->size() % FLAGS_stages != 0) {
    const std::string stages = std::to_string(FLAGS_stages);
    throw flags::UsageError("--stages " + stages + ": the job has " + std::to_string(comm->size()) +
                            (comm->size() == 1 ? " rank" : " ranks") + ", not a multiple of " +
                            stages);
  }
  return comm;
}

class Training {
 public:
  explicit Training(std::shared_ptr<chainmail::Communicator> comm)
      : comm_(std::move(comm)),
        // Neighbours in a model are neighbours by rank, and so on one node where that is possible.
        model_comm_(comm_->split(comm_->rank() / FLAGS_stages, comm_->rank())),
        data_comm_(comm_->split(comm_->rank() % FLAGS_stages, comm_->rank())),
        place_(chainmail::on_all_ranks(
            *comm_, [] { return chainmail::find_dataset(FLAGS_dataset, FLAGS_data); })),
        train_batches_(batches("train", {.seed = FLAGS_seed})),
        test_batches_(batches("t10k", {.shuffle = false, .force_equal_length = false})),
        stage_(make_stage()),
        pipeline_(stage_, model_comm_, {.microbatches = FLAGS_microbatches}),
        optimizer_(chainmail::create_multi_node_optimizer(
            std::make_unique<torch::optim::Adam>(stage_->parameters(), 1e-3), data_comm_,
            {.model = &stage_})),
        reports_(*comm_) {
    print_banner(*comm_, {"Num stages: " + std::to_string(FLAGS_stages) + ", of " +
                              std::to_string(data_comm_->size()) + " copies",
                          "Num unit: " + std::to_string(FLAGS_unit),
                          "Num Minibatch-size: " + std::to_string(FLAGS_batchsize) + " in " +
                              std::to_string(FLAGS_microbatches) + " pieces",
                          "Num epoch: " + std::to_string(FLAGS_epoch),
                          "Dataset: " + FLAGS_dataset + " in " + place_.directory + " (" +
                              place_.origin + ")"});
  }

  void run() {
    add_reports(reports_, *comm_, FLAGS_out,
                {"epoch", "main/loss", "validation/main/loss", "main/accuracy",
                 "validation/main/accuracy", "elapsed_time"});
    const auto started = std::chrono::steady_clock::now();
    std::int64_t iteration = 0;
    for (std::int64_t epoch = 1; epoch <= FLAGS_epoch; ++epoch) {
      chainmail::Metrics metrics;
      while (const auto batch = train_batches_.next()) {
        // The rest of an epoch, equally large on all ranks.
        if (batch->front().size(0) < FLAGS_microbatches) continue;
        train(*batch, metrics);
        reports_.progress({++iteration, train_batches_.batches_per_epoch(), FLAGS_epoch});
      }
      evaluate(metrics);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
      const chainmail::ReportEntry entry{epoch, iteration, elapsed.count(),
                                         chainmail::aggregate_metrics(metrics, *comm_).means()};
      chainmail::on_all_ranks(*comm_, [&] { reports_.report(entry); });
    }
    reports_.finish();
    if (FLAGS_verify) print_digests();
    data_comm_->finalize();
    model_comm_->finalize();
    comm_->finalize();
  }

 private:
  bool is_first() const { return model_comm_->rank() == 0; }
  bool is_last() const { return model_comm_->rank() == model_comm_->size() - 1; }

  // Flat images, 0 to 1, and labels. All ranks of a copy draw the same: they are told apart from
  // the others by their rank among those of their stage.
  chainmail::TensorIterator batches(const std::string& part,
                                    const chainmail::SamplerOptions& order) {
    const auto set = chainmail::on_all_ranks(
        *comm_, [&] { return chainmail::read_image_set(place_.directory, part, kClasses); });
    pixels_ = set.images[0].numel();
    return {{set.images.flatten(1), set.labels},
            chainmail::create_multi_node_sampler(static_cast<std::size_t>(set.images.size(0)),
                                                 data_comm_, order),
            {.batch_size = FLAGS_batchsize, .scale = 1.0 / 255.0}};
  }

  // Every rank draws the weights of the whole model, so that they do not depend on --stages.
  torch::nn::Sequential make_stage() const {
    torch::manual_seed(FLAGS_seed);
    torch::nn::Sequential whole = make_mlp(pixels_, FLAGS_unit, kClasses);
    const auto first_module = [&](int stage) {
      const int module = 2 * (stage * kLayers / FLAGS_stages);
      return whole->begin() + std::min(module, static_cast<int>(whole->size()));
    };
    torch::nn::Sequential stage;
    const int own = model_comm_->rank();
    for (auto at = first_module(own); at != first_module(own + 1); ++at) stage->push_back(*at);
    return stage;
  }

  void train(const chainmail::TensorList& batch, chainmail::Metrics& metrics) {
    optimizer_->zero_grad();
    {
      // Each piece has a backward; step() exchanges what all of them have left.
      const chainmail::NoSync own = optimizer_->no_sync();
      (void)pipeline_.step(batch[0], batch[1], [&](const auto& y, const auto& t) {
        const torch::Tensor loss = torch::nn::functional::cross_entropy(y, t);
        add_batch(metrics, "", y, t, loss);
        return loss;
      });
    }
    optimizer_->step();
  }

  // Without backward a model's ranks are no pipeline; the last one knows the results.
  void evaluate(chainmail::Metrics& metrics) {
    const torch::NoGradGuard no_grad;
    chainmail::Chain chain(model_comm_);
    const int own = model_comm_->rank();
    while (const auto batch = test_batches_.next()) {
      const torch::Tensor y = stage_->forward(is_first() ? batch->front() : chain.recv(own - 1));
      if (is_last()) {
        const torch::Tensor& t = batch->back();
        add_batch(metrics, "validation/", y, t, torch::nn::functional::cross_entropy(y, t));
      } else {
        chain.send(y, own + 1);
      }
    }
  }

  void print_digests() {
    const std::uint64_t own = chainmail::verify_equal(*data_comm_, stage_->parameters());
    const auto all = comm_->gather_obj(own);
    if (comm_->rank() != 0) return;
    for (int stage = 0; stage < FLAGS_stages; ++stage) {
      std::printf("digest %016" PRIx64 " of stage %d on %d ranks\n",
                  all[static_cast<std::size_t>(stage)], stage, data_comm_->size());
    }
  }

  std::shared_ptr<chainmail::Communicator> comm_, model_comm_, data_comm_;
  chainmail::DatasetLocation place_;
  std::int64_t pixels_ = 0;
  chainmail::TensorIterator train_batches_, test_batches_;
  torch::nn::Sequential stage_;
  chainmail::Pipeline pipeline_;
  std::unique_ptr<chainmail::MultiNodeOptimizer> optimizer_;
  chainmail::ReportList reports_;
};

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "model_parallel_mnist",
      .what =
          "Trains copies of a multi-layer perceptron on MNIST, each in stages on several ranks.",
      .short_names = {{'b', "batchsize"}, {'e', "epoch"}, {'u', "unit"}, {'o', "out"}}};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    check_flags();
    Training(join_stages()).run();
    return 0;
  });
}
