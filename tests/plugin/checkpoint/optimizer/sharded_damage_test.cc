// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What goes wrong with the parts of a sharded optimizer's checkpoint, when it is saved and when it
// is loaded: found by all ranks, by name, and the older checkpoint is there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>

#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/checkpoint/items/optimizer/state_in_parts.h"
#include "plugin/checkpoint/store/parts.h"
#include "tests/plugin/checkpoint/pupil.h"

namespace chainmail::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using PupilBody = std::function<void(const Comm&, MultiNodeCheckpointer&, Pupil&)>;

// Each rank in the folder of its node where they have one each.
std::vector<std::string> errors_of_job(const Shape& shape, const ScratchFolder& scratch,
                                       const PupilBody& body, bool has_node_folders = false) {
  return errors_with_communicator(shape, "hierarchical", [&](const Comm& comm) {
    Pupil pupil(comm, Kind::kAdam, Sharding::kNode);
    const std::string folder =
        scratch.path() + (has_node_folders ? "/" + std::to_string(comm->inter_rank()) : "");
    const auto checkpointer = pupil.checkpointer(comm, folder);
    body(comm, *checkpointer, pupil);
  });
}

void save_generations(const Shape& shape, const ScratchFolder& scratch, int count,
                      bool has_node_folders = false) {
  const auto save = [&](const Comm&, MultiNodeCheckpointer& checkpointer, Pupil& pupil) {
    for (int i = 1; i <= count; ++i) {
      pupil.train(i - 1, i);
      checkpointer.save(i);
    }
    checkpointer.wait();
  };
  EXPECT_THAT(errors_of_job(shape, scratch, save, has_node_folders), Each(""));
}

void expect_resumes(const Shape& shape, const ScratchFolder& scratch, std::int64_t iteration,
                    bool has_node_folders = false) {
  std::atomic<std::uint64_t> expected = 0;
  on_ranks({1}, [&](const Comm& comm) {
    Pupil straight(comm, Kind::kAdam, Sharding::kNone);
    straight.train(0, static_cast<int>(iteration));
    expected = straight.fingerprint();
  });
  const auto load = [&](const Comm&, MultiNodeCheckpointer& checkpointer, Pupil& pupil) {
    EXPECT_EQ(checkpointer.maybe_load(), std::optional<std::int64_t>(iteration));
    EXPECT_EQ(pupil.fingerprint(), expected);
  };
  EXPECT_THAT(errors_of_job(shape, scratch, load, has_node_folders), Each(""));
}

// What a job says that finds no whole one.
std::vector<std::string> refusals(const Shape& shape, const ScratchFolder& scratch) {
  return errors_of_job(shape, scratch,
                       [](const Comm&, MultiNodeCheckpointer& checkpointer, Pupil&) {
                         try {
                           (void)checkpointer.maybe_load();
                         } catch (const CheckpointError& error) {
                           throw std::runtime_error(std::string("refused: ") + error.what());
                         }
                       });
}

std::string folder_of(const ScratchFolder& scratch, std::int64_t iteration) {
  return scratch.path() + "/run/" + internal::generation_name(iteration);
}

void flip_last_byte(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-1, std::ios::end);
  const int byte = file.get();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

// Row B13.
TEST(ShardedDamage, AFlippedBitAndAMissingPartAreFoundByAllRanks) {
  const ScratchFolder scratch;
  save_generations({2}, scratch, 3);
  flip_last_byte(folder_of(scratch, 3) + "/set-0.part-1.bin");
  std::filesystem::remove(folder_of(scratch, 2) + "/set-0.part-0.bin");
  for (const Shape& shape : {Shape{1}, Shape{2}, Shape{3, 3}}) expect_resumes(shape, scratch, 1);
  flip_last_byte(folder_of(scratch, 1) + "/set-0.part-0.bin");
  EXPECT_THAT(refusals({3}, scratch),
              Each(AllOf(HasSubstr("refused: "), HasSubstr("set-0.part-1.bin: 'optimizer/group 0/"),
                         HasSubstr(")' differs from its digest"),
                         HasSubstr("set-0.part-0.bin: cannot be opened"))));
}

// The entries of a file of parts with their data.
using Contents = std::vector<std::pair<internal::FileEntry, std::vector<std::byte>>>;

Contents contents_of(const internal::Generation& generation, const internal::ManifestFile& file) {
  internal::PartReader reader(generation, file);
  Contents contents;
  for (std::size_t e = 0; e < reader.index().entries.size(); ++e) {
    const auto data = reader.read(e);
    contents.emplace_back(reader.index().entries[e], std::vector(data.begin(), data.end()));
  }
  return contents;
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// Writes the newest generation's part of rank 1 anew, changed, and a manifest that names it: all
// digests are right. `change` gets the part of rank 0, too.
void forge(const ScratchFolder& scratch,
           const std::function<void(Contents& part, const Contents& other)>& change) {
  const internal::Generation generation = internal::list_generations(scratch.path() + "/run").at(0);
  internal::Manifest manifest = generation.manifest.value();
  const Contents other = contents_of(generation, manifest.files.at(1));
  internal::ManifestFile& file = manifest.files.at(2);
  ASSERT_EQ(file.name, "set-0.part-1.bin");
  Contents part = contents_of(generation, file);
  change(part, other);
  internal::FileImage image;
  std::vector<internal::FileEntry> entries;
  for (const auto& [entry, data] : part) entries.push_back(entry);
  image.begin(entries);
  for (std::size_t e = 0; e < part.size(); ++e) {
    std::memcpy(image.data(e).data(), part[e].second.data(), part[e].second.size());
  }
  image.seal();
  file.bytes = image.bytes().size();
  file.digest = internal::file_digest(image.index());
  write_file(generation.folder + '/' + file.name, image.bytes());
  const std::string text = internal::print_manifest(manifest);
  write_file(generation.folder + "/manifest", std::as_bytes(std::span(text)));
}

// Where the part has an entry of that kind.
std::size_t find_entry(const Contents& part, const std::string& member) {
  for (std::size_t e = 0; e < part.size(); ++e) {
    if (part[e].first.name.find(member) != std::string::npos) return e;
  }
  ADD_FAILURE() << "no " << member;
  return 0;
}

struct Forgery {
  std::function<void(Contents& part, const Contents& other)> change;
  std::string problem;
};

std::vector<Forgery> forgeries() {
  const auto at = [](Contents& part, const std::string& member) {
    return part.begin() + static_cast<std::ptrdiff_t>(find_entry(part, member));
  };
  return {
      {[=](Contents& part, const Contents&) { part.erase(at(part, "/exp_avg_sq[")); },
       "no part has the elements"},
      {[](Contents& part, const Contents& other) {
         part.push_back(other.at(find_entry(other, "/exp_avg[")));
       },
       "set-0.part-1.bin overlaps 'optimizer/group 0/parameter"},
      {[=](Contents& part, const Contents&) {
         at(part, "/parameter 0/step[")->second[0] ^= std::byte{1};
       },
       "have different values, which all parts must share"},
      {[](Contents& part, const Contents&) { part.clear(); }, "no part has the elements"},
      {[=](Contents& part, const Contents&) { at(part, "/exp_avg[")->first.name = "x/y[0:1)"; },
       "set-0.part-1.bin: 'x/y[0:1)'"},
  };
}

// Row B13.
TEST(ShardedDamage, GapsAndOverlapsAreFoundByAllRanks) {
  for (const Forgery& forgery : forgeries()) {
    SCOPED_TRACE(forgery.problem);
    const ScratchFolder scratch;
    save_generations({3}, scratch, 2);  // of whom ranks 1 and 2 share parameter 0
    forge(scratch, forgery.change);
    expect_resumes({2}, scratch, 1);
    std::filesystem::remove_all(folder_of(scratch, 1));
    EXPECT_THAT(refusals({2}, scratch),
                Each(AllOf(HasSubstr("refused: "), HasSubstr(forgery.problem))));
  }
}

// The n-th call of one rank's file system fails, for every n.
TEST(ShardedDamage, EveryCallOfEveryRankMayFail) {
  for (const int victim : {0, 1}) {
    int failures_in_all = 0;
    bool has_failed = true;
    for (int at = 1; has_failed; ++at) {
      SCOPED_TRACE("call " + std::to_string(at) + " of rank " + std::to_string(victim));
      const ScratchFolder scratch;
      std::atomic<int> failures = 0;
      const auto job = [&](const Comm& comm, MultiNodeCheckpointer& good, Pupil& pupil) {
        pupil.train(0, 1);
        good.save(1);
        good.wait();
        const bool is_victim = comm->rank() == victim;
        try {
          const auto checkpointer = internal::make_checkpointer(
              comm, "run", {}, {.path = scratch.path(), .keep = 1, .is_async = at % 2 == 0},
              std::make_shared<FaultyFileSystem>(
                  Fault{.kind = is_victim ? Fault::Kind::kError : Fault::Kind::kNone,
                        .at = at,
                        .code = at % 3 == 0 ? ENOSPC : EIO}));
          pupil.add_to(*checkpointer);
          pupil.train(1, 2);
          checkpointer->save(2);
          checkpointer->wait();
        } catch (const CheckpointError& error) {
          EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(victim)));
          ++failures;
        }
        const auto iteration = good.maybe_load();
        ASSERT_TRUE(iteration.has_value());
        pupil.train(static_cast<int>(*iteration), 3);
        good.save(3);
        good.wait();
      };
      EXPECT_THAT(errors_of_job({2}, scratch, job), Each(""));
      EXPECT_TRUE(failures == 0 || failures == 2) << failures;  // all ranks, or none
      has_failed = failures != 0;
      failures_in_all += has_failed ? 1 : 0;
      if (at % 4 == 0) expect_resumes({1}, scratch, 3);
    }
    EXPECT_GT(failures_in_all, 6);
  }
}

// Adam's states of this rank's slices.
std::vector<torch::optim::AdamParamState*> states_of(torch::optim::Optimizer& optimizer) {
  std::vector<torch::optim::AdamParamState*> states;
  for (const auto& [key, state] : optimizer.state()) {
    auto* const adam = dynamic_cast<torch::optim::AdamParamState*>(state.get());
    if (adam != nullptr) states.push_back(adam);
  }
  return states;
}

// What a save says on all ranks when `spoil` has changed what one has of the optimizer's state.
std::vector<std::string> errors_of_save(
    const Shape& shape, int culprit, const std::function<void(torch::optim::Optimizer&)>& spoil) {
  const ScratchFolder scratch;
  const auto job = [&](const Comm& comm, MultiNodeCheckpointer& checkpointer, Pupil& pupil) {
    pupil.train(0, 2);  // the second step cuts the state of the first
    if (comm->rank() == culprit) spoil(pupil.optimizer->actual_optimizer());
    checkpointer.save(1);
    checkpointer.wait();
  };
  const auto errors = errors_of_job(shape, scratch, job);
  EXPECT_FALSE(std::filesystem::exists(folder_of(scratch, 1)));
  return errors;
}

constexpr const char* kAdvice = "maybe_load() on all ranks";

TEST(ShardedDamage, ASaveFailsWhereCopiesOrStepsDiffer) {
  const auto add = [](torch::optim::Optimizer& optimizer) {
    for (auto* const state : states_of(optimizer)) state->exp_avg().add_(1);
  };
  EXPECT_THAT(errors_of_save({2, 2}, 3, add),
              Each(AllOf(HasSubstr("rank 3 on "), HasSubstr("/exp_avg["),
                         HasSubstr("' should be that of set-0.part-1.bin and differs"),
                         HasSubstr(kAdvice))));
  const auto count = [](torch::optim::Optimizer& optimizer) {
    for (auto* const state : states_of(optimizer)) state->step(state->step() + 1);
  };
  EXPECT_THAT(errors_of_save({3}, 1, count),
              Each(AllOf(HasSubstr("/step["), HasSubstr("set-0.part-1.bin"),
                         HasSubstr("have different values"), HasSubstr(kAdvice))));
}

// Forgets the state of up to `count` slices.
auto forget(std::size_t count) {
  return [count](torch::optim::Optimizer& optimizer) {
    std::vector<void*> keys;
    for (const auto& [key, state] : optimizer.state()) {
      const bool is_of_slice = dynamic_cast<torch::optim::AdamParamState*>(state.get()) != nullptr;
      if (is_of_slice && keys.size() < count) keys.push_back(key);
    }
    for (void* const key : keys) optimizer.state().erase(key);
  };
}

TEST(ShardedDamage, ASaveFailsWhereACopyHasLess) {
  const auto is_missing = [](const std::string& rank, const std::string& file) {
    return Each(AllOf(HasSubstr(rank + " on "), HasSubstr("' should be that of " + file),
                      HasSubstr(" and is missing (of 'optimizer' there are "), HasSubstr(kAdvice)));
  };
  EXPECT_THAT(errors_of_save({2, 2}, 2, forget(1)), is_missing("rank 2", "set-0.part-0.bin"));
  EXPECT_THAT(errors_of_save({2, 2}, 3, forget(100)), is_missing("rank 3", "set-0.part-1.bin"));
  // The rank that writes has lost all, and so has no file.
  EXPECT_THAT(
      errors_of_save({1, 1}, 0, forget(100)),
      Each(AllOf(HasSubstr("rank 1 on "), HasSubstr("no rank of its replica set writes 'opt"),
                 HasSubstr(" and 0 on the rank that writes them"))));
}

// Ranks beyond the smallest node's have no slice, and before the first step nobody has any state.
TEST(ShardedDamage, CopiesOfNothingAreFine) {
  for (const Shape& shape : {Shape{1, 2}, Shape{2, 1}}) {
    const ScratchFolder scratch;
    const auto save = [](const Comm&, MultiNodeCheckpointer& checkpointer, Pupil& pupil) {
      checkpointer.save(0);
      pupil.train(0, 1);
      checkpointer.save(1);
      checkpointer.wait();
    };
    EXPECT_THAT(errors_of_job(shape, scratch, save), Each(""));
    expect_resumes({2}, scratch, 1);
  }
}

TEST(ShardedDamage, FoldersOfNodesMakeOneCheckpointTogether) {
  const ScratchFolder scratch;
  save_generations({2, 2}, scratch, 2, true);
  const std::string name = "/run/" + internal::generation_name(2) + "/set-0.part-1.bin";
  EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/0" + name));
  EXPECT_FALSE(std::filesystem::exists(scratch.path() + "/1" + name));
  for (const Shape& shape : {Shape{2, 2}, Shape{1, 1}, Shape{3, 2}}) {
    expect_resumes(shape, scratch, 2, true);
  }
  flip_last_byte(scratch.path() + "/0" + name);
  expect_resumes({2, 2}, scratch, 1, true);
}

// What every rank says that loads the generation with `add` added to it.
std::vector<std::string> errors_of_load(
    const ScratchFolder& scratch,
    const std::function<void(MultiNodeCheckpointer::Impl&, Pupil&)>& add) {
  return errors_with_communicator({2}, "hierarchical", [&](const Comm& comm) {
    Pupil pupil(comm, Kind::kAdam, Sharding::kNode);
    auto impl = internal::make_checkpointer_impl(comm, "run", {}, {.path = scratch.path()},
                                                 internal::posix_file_system());
    add(*impl, pupil);
    MultiNodeCheckpointer checkpointer(std::move(impl));
    (void)checkpointer.maybe_load();
  });
}

internal::CheckpointItem empty_item(const std::string& name) {
  return internal::callbacks_item(
      name, {.save = [] { return CheckpointState(); }, .load = [](const CheckpointState&) {}});
}

TEST(ShardedDamage, ErrorsOfALoadNameGenerationAndItem) {
  const ScratchFolder scratch;
  save_generations({2}, scratch, 1);
  const std::string what = "cannot resume from " + folder_of(scratch, 1) + ": ";
  EXPECT_THAT(
      errors_of_load(scratch, [](auto& impl, Pupil&) { impl.add(empty_item("optimizer")); }),
      Each(AllOf(HasSubstr(what + "rank 0 on "), HasSubstr(": 'optimizer': the checkpoint has"),
                 HasSubstr("parts of 'group 0/parameter 0/exp_avg'"),
                 HasSubstr("use another name for the run"))));
  const auto add_full = [](auto& impl, Pupil& pupil) {
    internal::CheckpointItem item =
        internal::multi_node_optimizer_item("optimizer", *pupil.optimizer);
    item.wish_parts = [](const internal::PartTensors&) -> internal::PartWishes {
      return {{}, [] { throw std::runtime_error("full"); }};
    };
    impl.add(std::move(item));
  };
  EXPECT_THAT(errors_of_load(scratch, add_full),
              Each(AllOf(HasSubstr(what + "rank 0 on "), HasSubstr(": 'optimizer': full"))));
}

TEST(ShardedDamage, APartThatVanishesDuringALoadIsNamedAndNothingIsKept) {
  const ScratchFolder scratch;
  save_generations({2}, scratch, 1);
  std::atomic<int> kept = 0;
  const auto add = [&](auto& impl, Pupil& pupil) {
    internal::CheckpointItem item =
        internal::multi_node_optimizer_item("optimizer", *pupil.optimizer);
    item.wish_parts = [&kept, wish = item.wish_parts](const internal::PartTensors& saved) {
      internal::PartWishes wished = wish(saved);
      ++kept;
      const std::shared_ptr<void> counted(nullptr, [&kept](void*) { --kept; });
      wished.take = [counted, take = wished.take] { take(); };
      return wished;
    };
    item.finish = [&scratch] {
      std::filesystem::remove(folder_of(scratch, 1) + "/set-0.part-1.bin");
    };
    impl.add(std::move(item));
  };
  EXPECT_THAT(errors_of_load(scratch, add),
              Each(AllOf(HasSubstr("cannot resume from " + folder_of(scratch, 1)),
                         HasSubstr(": parts became unreadable: rank "),
                         HasSubstr("set-0.part-1.bin: cannot be opened"))));
  EXPECT_EQ(kept, 0);
}

// A checkpoint whose digests are right may still be another program's.
TEST(ShardedDamage, LayoutsThatAreNoneAreRefused) {
  const std::string key = "group 0/parameter 0/lies in memory as";
  const auto problem_of = [&](const std::vector<std::int64_t>& sizes,
                              const std::vector<std::int64_t>& strides) -> std::string {
    CheckpointState state;
    state.set_tensor(key, torch::stack({torch::tensor(sizes), torch::tensor(strides)}));
    try {
      (void)internal::saved_layout(state, "group 0/parameter 0/");
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(problem_of({3, 4}, {4, 1}), "");
  EXPECT_EQ(problem_of({3, 4}, {1, 3}), "");
  EXPECT_EQ(problem_of({1, 4}, {99, 1}), "");
  EXPECT_EQ(problem_of({0, 4}, {4, 1}), "");
  const std::vector<std::vector<std::int64_t>> wrong = {
      {0, 0}, {0, 1}, {1, 1}, {8, 2}, {4, -1}, {std::int64_t{1} << 62, 1}};
  for (const auto& strides : wrong) {
    EXPECT_THAT(problem_of({3, 4}, strides),
                AllOf(HasSubstr(key), HasSubstr("[3, 4] with strides"), HasSubstr("no layout")));
  }
  EXPECT_THAT(problem_of({-1, -1}, {1, 1}), HasSubstr("no layout"));
}

TEST(ShardedDamage, ValuesThatPassForTensorsAreRefused) {
  const auto parameter = torch::zeros({3, 4}, torch::requires_grad());
  torch::optim::Adam optimizer(std::vector<torch::Tensor>{parameter}, 0.1);
  internal::StateInParts state(optimizer);
  const std::string prefix = "group 0/parameter 0/";
  const auto expect_shape = [&](const std::vector<std::int64_t>& sizes,
                                const std::vector<std::int64_t>& strides) {
    CheckpointState saved;
    saved.set_tensor(prefix + "lies in memory as",
                     torch::stack({torch::tensor(sizes), torch::tensor(strides)}));
    state.expect(saved);
  };
  try {
    expect_shape({4, 3}, {3, 1});
    ADD_FAILURE() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(prefix), HasSubstr("[4, 3]"), HasSubstr("[3, 4]")));
  }
  expect_shape({3, 4}, {4, 1});
  internal::PartTensors tensors = {
      {prefix + "step", {12, internal::EntryType::kInt64, true}},
      {prefix + "exp_avg", {12, internal::EntryType::kFloat32, false}},
      {prefix + "exp_avg_sq", {12, internal::EntryType::kFloat32, false}}};
  const auto nobody = [](const torch::Tensor&) { return false; };
  EXPECT_EQ(state.wish(tensors, {}, nobody).wishes().size(), 3U);
  const auto refusal_with = [&](const std::string& name) -> std::string {
    internal::PartTensors more = tensors;
    more[name] = {12, internal::EntryType::kFloat32, false};
    try {
      (void)state.wish(more, {}, nobody);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* const name :
       {"group 0/parameter 1/exp_avg", "group 0/parameter 0/exp", "group 0/parameter 0"}) {
    EXPECT_THAT(refusal_with(name),
                AllOf(HasSubstr("'" + std::string(name) + "', which is no state of the program's"),
                      HasSubstr("Adam with 1 groups of 1 parameters"), HasSubstr("give the opt")));
  }
  tensors[prefix + "exp_avg"].is_shared = true;
  expect_shape({3, 4}, {4, 1});
  try {
    (void)state.wish(tensors, {}, nobody);
    ADD_FAILURE() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'group 0/parameter 0/exp_avg' in the checkpoint is no"));
  }
}

}  // namespace
}  // namespace chainmail::testing
