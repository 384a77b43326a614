// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A residual network on CIFAR-10, or on synthetic images, trained by any number of ranks.
//
// Exit code: 0; 1 when training fails; 2 for a command line that cannot be carried out.

#include <gflags/gflags.h>

#include "../common/job.h"
#include "../common/resnet.h"
#include "trainer.h"

DEFINE_string(model, "resnet20", kResnets);
DEFINE_string(data, "", "folder of CIFAR-10's binary files; synthetic images without");
DEFINE_string(out, "result", "folder for the log");
DEFINE_string(communicator, "hierarchical",
              "naive, flat, hierarchical, two_dimensional, single_node or auto");
DEFINE_string(allreduce_grad_dtype, "",
              "what gradients are rounded to between nodes: float16, bfloat16, float32");
DEFINE_bool(double_buffering, false, "exchange gradients while the next step computes");
DEFINE_bool(mnbn, false, "normalize over the batches of all ranks");
DEFINE_bool(verify, false, "end with a digest of the parameters; fail when ranks differ");
DEFINE_int64(batchsize, 128, "samples per rank and step");
DEFINE_int64(epoch, 160, "times through the training data");
DEFINE_int64(samples, 2000, "synthetic images to train with");
DEFINE_double(lr, 0.1, "learning rate of one rank; multiplied by the number of ranks");
DEFINE_double(warmup_epochs, 5, "in which the rate grows from that of one rank to that of all");
DEFINE_double(weight_decay, 1e-4, "of all parameters");
DEFINE_uint64(seed, 0, "of weights, order and synthetic images");

namespace {

Options checked_options() {
  if (FLAGS_batchsize < 2 || FLAGS_epoch < 0 || FLAGS_samples < 1) {
    throw flags::UsageError("--batchsize must be at least 2, --samples 1 and --epoch 0");
  }
  flags::check_at_least(0, "lr", FLAGS_lr);
  flags::check_at_least(0, "warmup_epochs", FLAGS_warmup_epochs);
  flags::check_at_least(0, "weight_decay", FLAGS_weight_decay);
  flags::check_given("out", FLAGS_out);
  if (!is_resnet(FLAGS_model)) {
    throw flags::UsageError("--model " + FLAGS_model + ": use " + kResnets);
  }
  return {.model = FLAGS_model,
          .data = FLAGS_data,
          .out = FLAGS_out,
          .communicator = FLAGS_communicator,
          .allreduce_grad_dtype = FLAGS_allreduce_grad_dtype,
          .double_buffering = FLAGS_double_buffering,
          .mnbn = FLAGS_mnbn,
          .verify = FLAGS_verify,
          .batchsize = FLAGS_batchsize,
          .epochs = FLAGS_epoch,
          .samples = FLAGS_samples,
          .lr = FLAGS_lr,
          .warmup_epochs = FLAGS_warmup_epochs,
          .weight_decay = FLAGS_weight_decay,
          .seed = FLAGS_seed};
}

}  // namespace

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "cifar_resnet",
      .what =
          "Trains a residual network on CIFAR-10 or synthetic images with all ranks of the job."};
  return flags::run(program, argc, argv, [](const auto& /*arguments*/) {
    const Options options = checked_options();
    train(options, join(options.communicator, "cpu", options.allreduce_grad_dtype));
    return 0;
  });
}
