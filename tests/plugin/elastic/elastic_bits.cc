// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Trains a small model with whatever depends on order or chance: dropout, BatchNorm, Adam,
// clipping, loss scaling and a short last batch. Prints what must be the same on any number of
// ranks.
//
// usage: elastic_bits COMMUNICATOR WIRE SHARDS [STEPS [PAUSE_MS [MODE]]]
//
// WIRE: float32, float16, bfloat16
//
// STEPS: a number, or a file (with a '/') in which the number of the last step will stand some
// steps before it
//
// PAUSE_MS: before each step; above 0, each rank tells of its worlds, and rank 0 of every step
//
// MODE: forget (the optimizer is no part of the state), evaluate (for PAUSE_MS after every step),
// other_data (member 2 has a sample less), other_optimizer (member 2 has SGD), throw (member 1 in
// step 5), throw_all (all of them there), retry, retry_all (the same, and run() is called again),
// retry_late (all of them after its commit), retry_world (member 1 as it enters its second world;
// run() is called again), leave (member 1 before run()), done (nothing is left to do), slow_start
// (three seconds before run()), idle (a minute before run(), of which it tells), idle_end (the same
// after it), save:FOLDER:STEPS (checkpoints there after so many steps), save_late:FOLDER:STEPS
// (only the call after the last step says that there is none), save_die:FOLDER:STEPS (member 0 dies
// as it writes the last one), lost:FOLDER:STEPS (the same, and member 1 dies when it has read one),
// own:FOLDER:STEPS (as lost, by a checkpointer of its own), slow:MEMBER:MS (it takes so much longer
// for a shard), killer:SAMPLE (who computes it in the second epoch says so, and dies), split (each
// step ranks with even and with odd numbers talk, on communicators that each world makes),
// split_once (on those of the first world), per_rank:RAMP (a batch for each rank: rank 0 tells of
// the ranks, the scale and the batch of each step), hang:FILE (member 1 after a step, once FILE is
// there, until FILE.over is), end:FILE (after its last step, until FILE is there)

#include <chainmail/chainmail.h>
#include <chainmail/elastic.h>
#include <torch/torch.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace nn = torch::nn;

// Of save_die, as the last checkpoint is written.
std::atomic<bool> dies_in_fsync{false};

constexpr std::int64_t kSamples = 75;
constexpr std::int64_t kBatch = 36;  // so that the last step of an epoch has fewer than shards

nn::Sequential make_model() {
  torch::manual_seed(3);
  return nn::Sequential(nn::Conv2d(1, 6, 3), nn::BatchNorm2d(6), nn::ReLU(), nn::Flatten(),
                        nn::Dropout(0.3), nn::Linear(6 * 6 * 6, 40), nn::ReLU(), nn::Linear(40, 5));
}

struct How {
  std::int64_t steps = 7;
  std::string last_step_file = {};
  std::int64_t pause_ms = 0;
  std::string mode = {};
};

bool is_member(const std::string& number) {
  const char* const own = std::getenv("RANK");
  return own != nullptr && own == number;
}

// FOLDER and STEPS of a mode, or none.
struct Saving {
  std::string folder = {};
  std::int64_t interval = 0;
};

Saving saving_of(const std::string& mode) {
  const std::size_t begin = mode.find(':');
  const std::size_t end = mode.rfind(':');
  const std::string name = mode.substr(0, begin);
  constexpr std::array kNames = {"save", "save_late", "save_die", "lost", "own"};
  if (std::ranges::find(kNames, name) == kNames.end()) return {};
  return {mode.substr(begin + 1, end - begin - 1), std::atoll(mode.c_str() + end + 1)};
}

chainmail::ShardSamplerOptions sampling_of(const std::string& mode) {
  chainmail::ShardSamplerOptions options{.batch = kBatch, .seed = 2};
  if (mode.rfind("per_rank:", 0) != 0) return options;
  options.policy = chainmail::BatchPolicy::kPerRank;
  options.batch = 5;
  options.ramp_steps = std::atoll(mode.c_str() + 9);
  return options;
}

// FILE of a mode "NAME:FILE", or nothing.
std::string file_of(const std::string& mode, const std::string& name) {
  return mode.rfind(name + ":", 0) == 0 ? mode.substr(name.size() + 1) : "";
}

void wait_for(const std::string& file) {
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void idle() {
  std::printf("idles\n");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::minutes(1));
}

// Whom each rank has beside it, and in which order they are.
void talk(chainmail::Communicator& part, chainmail::Communicator& whole) {
  const std::vector<int> all = part.allgather_obj(whole.rank());
  int expected = whole.rank() % 2;
  for (const int rank : all) {
    if (rank != expected) throw std::runtime_error("another rank's object in a part");
    expected += 2;
  }
  if (expected < whole.size()) throw std::runtime_error("too few ranks in a part");
  torch::Tensor sum = torch::ones({50'000});
  part.allreduce({sum});
  if (!sum.eq(part.size()).all().item<bool>()) throw std::runtime_error("a wrong sum in a part");
  if (part.rank() > 0) part.send({torch::full({9}, whole.rank())}, part.rank() - 1);
  if (part.rank() + 1 < part.size()) {
    const torch::Tensor of_next = part.recv(part.rank() + 1).at(0);
    if (!of_next.eq(whole.rank() + 2).all().item<bool>()) {
      throw std::runtime_error("another rank's tensor in a part");
    }
  }
}

void train(const std::string& communicator, const std::string& wire, std::uint32_t shards,
           const How& how) {
  chainmail::ElasticJobOptions options{.shards = shards, .seed = 11, .communicator = communicator};
  options.communicator_options.allreduce_grad_dtype = chainmail::parse_wire_dtype(wire);
  const auto job = chainmail::create_elastic_job(options);
  nn::Sequential model = make_model();
  const auto scaler = std::make_shared<chainmail::LossScaler>(
      chainmail::LossScalerOptions{.initial_scale = 1024, .growth_interval = 2});
  std::unique_ptr<torch::optim::Optimizer> actual_optimizer =
      std::make_unique<torch::optim::Adam>(model->parameters(), 1e-2);
  if (how.mode == "other_optimizer" && is_member("2")) {
    actual_optimizer = std::make_unique<torch::optim::SGD>(model->parameters(), 1e-2);
  }
  const auto optimizer = chainmail::create_multi_node_optimizer(
      std::move(actual_optimizer), job->communicator(),
      {.model = &model, .max_grad_norm = 0.5, .loss_scaler = scaler});
  job->add("model", &model);
  if (how.mode != "forget") job->add("optimizer", *optimizer);
  torch::manual_seed(5);
  const torch::Tensor x = torch::randn({kSamples, 1, 8, 8});
  const torch::Tensor y = torch::randint(5, {kSamples}, torch::kLong);
  const bool lacks_one = how.mode == "other_data" && is_member("2");
  chainmail::ShardSampler samples(lacks_one ? kSamples - 1 : kSamples, sampling_of(how.mode));
  job->add("samples", samples);
  std::map<std::int64_t, std::string> reported;
  const bool tells = how.pause_ms > 0;
  if (how.mode == "leave" && is_member("1")) return;
  const Saving saving = saving_of(how.mode);
  // The last one that is read: rank 0's state at the begin, too, whose next step is the first.
  chainmail::CheckpointCallbacks mark{
      .save =
          [] {
            chainmail::CheckpointState state;
            state.set_integer("mark", 1);
            return state;
          },
      .load =
          [&](const chainmail::CheckpointState& /*state*/) {
            if (job->state().next_step == 1 || how.mode.rfind("save", 0) == 0) return;
            if (is_member("1")) ::raise(SIGKILL);
          }};
  if (saving.interval > 0) job->add("mark", mark);
  const bool saves_itself = how.mode.rfind("own:", 0) == 0;
  if (saving.interval > 0 && !saves_itself) {
    job->checkpoint("run", {.path = saving.folder}, saving.interval);
  }
  std::unique_ptr<chainmail::MultiNodeCheckpointer> checkpoints;
  if (saves_itself) {
    job->on_world([&](const chainmail::Membership& world) {
      checkpoints.reset();
      checkpoints = chainmail::create_multi_node_checkpointer("run", job->communicator(),
                                                              {.path = saving.folder});
      checkpoints->add("job", *job);
      checkpoints->add("model", &model);
      checkpoints->add("optimizer", *optimizer);
      checkpoints->add("samples", samples);
      checkpoints->add("mark", mark);
      if (world.next_step == 1) (void)checkpoints->maybe_load();
    });
  }
  if (how.mode == "idle") idle();
  if (how.mode == "slow_start") std::this_thread::sleep_for(std::chrono::seconds(3));
  std::shared_ptr<chainmail::Communicator> part;
  const bool splits = how.mode == "split" || how.mode == "split_once";
  bool has_thrown = false;
  job->on_world([&](const chainmail::Membership& world) {
    const bool throws = how.mode == "retry_world" && world.next_step > 1 && is_member("1");
    if (throws && !std::exchange(has_thrown, true)) throw std::runtime_error("out of luck");
    if (splits && (!part || how.mode == "split")) {
      part = job->communicator()->split(world.rank % 2, world.rank);
    }
    if (!tells) return;
    std::printf("world %u rank %d of %d pid %d\n", world.generation, world.rank, world.size,
                static_cast<int>(::getpid()));
    if (world.rank == 0) std::printf("from %lld\n", static_cast<long long>(world.next_step));
    std::fflush(stdout);
  });
  std::chrono::milliseconds shard_pause{0};
  if (how.mode.rfind("slow:", 0) == 0) {
    const std::size_t colon = how.mode.rfind(':');
    if (is_member(how.mode.substr(5, colon - 5))) {
      shard_pause = std::chrono::milliseconds(std::atoll(how.mode.c_str() + colon + 1));
    }
  }
  const std::string hang_file = file_of(how.mode, "hang");
  const std::string killer = how.mode.rfind("killer:", 0) == 0 ? how.mode.substr(7) : "";
  std::int64_t steps = how.steps;
  const auto throw_once = [&](const chainmail::Step& step, bool is_late) {
    const bool throws = is_late
                            ? how.mode == "retry_late"
                            : how.mode == "retry_all" || (how.mode == "retry" && is_member("1"));
    if (throws && step.number() == 5 && !std::exchange(has_thrown, true)) {
      throw std::runtime_error("out of luck");
    }
  };
  const auto train_step = [&](chainmail::Step& step) {
    const bool is_new = step.number() == job->state().next_step;
    if (!how.last_step_file.empty()) std::ifstream(how.last_step_file) >> steps;
    if (how.mode == "done" || step.number() > steps) return false;
    const bool throws = how.mode == "throw_all" || (how.mode == "throw" && is_member("1"));
    if (throws && step.number() == 5) throw std::runtime_error("out of luck");
    throw_once(step, false);
    if (tells) std::this_thread::sleep_for(std::chrono::milliseconds(how.pause_ms));
    if (splits) talk(*part, *job->communicator());
    for (chainmail::Shard& shard : step.shards(samples)) {
      std::this_thread::sleep_for(shard_pause);
      std::vector<std::int64_t> indices(shard.indices().begin(), shard.indices().end());
      for (const std::int64_t index : indices) {
        if (std::to_string(index) != killer || step.epoch() != 1) continue;
        std::printf("dies of shard %u in step %lld\n", shard.number(),
                    static_cast<long long>(step.number()));
        std::fflush(stdout);
        ::raise(SIGKILL);
      }
      const torch::Tensor rows = torch::tensor(indices, torch::kLong);
      const auto loss = nn::functional::cross_entropy(model->forward(x.index_select(0, rows)),
                                                      y.index_select(0, rows));
      shard.backward(scaler->scale(loss));
      shard.report("loss", loss.item<double>(), rows.size(0));
    }
    const std::int64_t before = samples.state().position;
    step.commit(*optimizer);
    if (how.mode.rfind("per_rank", 0) == 0 && job->communicator()->rank() == 0) {
      const std::int64_t after = step.ends_epoch() ? kSamples : samples.state().position;
      std::printf("%s %lld %d %.17g %lld\n", is_new ? "scale" : "again",
                  static_cast<long long>(step.number()), job->communicator()->size(),
                  samples.batch_scale(), static_cast<long long>(after - before));
    }
    throw_once(step, true);
    if (!hang_file.empty() && is_member("1") && std::filesystem::exists(hang_file)) {
      std::printf("hangs\n");
      std::fflush(stdout);
      wait_for(hang_file + ".over");
    }
    if (step.ends_epoch()) {
      char text[64];
      std::snprintf(text, sizeof text, " %a", step.metrics().at("loss"));
      reported[step.epoch()] = text;  // a change may bring it once more
    }
    if (how.mode == "evaluate") {
      const auto metrics = job->evaluate(kSamples, [&](const std::vector<std::size_t>& own) {
        std::this_thread::sleep_for(std::chrono::milliseconds(how.pause_ms / 8));
        const torch::NoGradGuard no_grad;
        const std::vector<std::int64_t> indices(own.begin(), own.end());
        chainmail::Metrics of_shard;
        const auto y_own = model->forward(x.index_select(0, torch::tensor(indices)));
        of_shard.add("mean", y_own.mean().item<double>(), static_cast<std::int64_t>(own.size()));
        return of_shard;
      });
      if (job->communicator()->rank() == 0) {
        std::printf("evaluated %lld %a\n", static_cast<long long>(step.number()),
                    metrics.means().at("mean"));
        std::fflush(stdout);
      }
    }
    if (tells && job->communicator()->rank() == 0) {
      std::printf("step %lld\n", static_cast<long long>(step.number()));
      std::fflush(stdout);
    }
    dies_in_fsync = how.mode.rfind("save_die:", 0) == 0 && step.number() == steps && is_member("0");
    return how.mode.rfind("save_late:", 0) == 0 || step.number() < steps;
  };
  try {
    job->run(train_step);
  } catch (const std::runtime_error& error) {
    if (how.mode.rfind("retry", 0) != 0 || std::string(error.what()) != "out of luck") throw;
    job->run(train_step);
  }
  std::vector<torch::Tensor> state = model->parameters();
  for (const torch::Tensor& buffer : model->buffers()) state.push_back(buffer);
  std::vector<torch::Tensor> dense;
  for (const torch::Tensor& tensor : state) dense.push_back(tensor.detach().contiguous());
  dense.push_back(torch::tensor(scaler->get_scale(), torch::kDouble));
  const std::uint64_t digest = chainmail::verify_equal(*job->communicator(), dense);
  if (const std::string file = file_of(how.mode, "end"); !file.empty()) {
    std::printf("waits\n");
    std::fflush(stdout);
    wait_for(file);
  }
  if (job->communicator()->rank() != 0) return;
  std::string losses;
  for (const auto& [epoch, text] : reported) losses += text;
  std::printf("bits %016llx losses%s\n", static_cast<unsigned long long>(digest), losses.c_str());
  if (how.mode == "idle_end") idle();
}

}  // namespace

// The library's calls come here.
extern "C" [[gnu::visibility("default")]] int fsync(int fd) {
  static auto* const real = reinterpret_cast<int (*)(int)>(::dlsym(RTLD_NEXT, "fsync"));  // NOLINT
  if (dies_in_fsync) ::raise(SIGKILL);
  return real(fd);
}

int main(int argc, char** argv) {
  if (argc < 4 || argc > 7) {
    std::fprintf(stderr,
                 "usage: elastic_bits COMMUNICATOR WIRE SHARDS [STEPS [PAUSE_MS [MODE]]]\n");
    return 2;
  }
  try {
    How how;
    const std::string steps = argc > 4 ? argv[4] : "7";
    const bool is_file = steps.find('/') != std::string::npos;
    how.steps = is_file ? std::numeric_limits<std::int64_t>::max() : std::stoll(steps);
    if (is_file) how.last_step_file = steps;
    if (argc > 5) how.pause_ms = std::atoi(argv[5]);
    if (argc > 6) how.mode = argv[6];
    train(argv[1], argv[2], static_cast<std::uint32_t>(std::atoi(argv[3])), how);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    // Its connections are closed; libtorch may take this long to end on a busy machine.
    const bool is_slow = argc > 6 && std::string(argv[6]) == "throw";
    if (!is_slow) return 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    std::_Exit(1);  // what libtorch takes besides is not the question
  }
  return 0;
}
