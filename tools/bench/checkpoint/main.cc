// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// chainmail-checkpoint-bench FOLDER [MEGABYTES [SAVES [PARTS]]]: where the time of a save goes, on
// the file system of FOLDER, and what digests and flushing cost: in turn with saves that have
// neither, and with saves by several processes that write a part each. Prints a line per save and
// the medians.

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/common/flags.h"
#include "plugin/checkpoint/store/file_image.h"
#include "plugin/checkpoint/store/generations.h"
#include "tools/bench/checkpoint/part_writers.h"

namespace chainmail::bench {
namespace {

using Clock = std::chrono::steady_clock;
using internal::FileImage;

double seconds(const std::function<void()>& work) {
  const Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Passes everything on and adds up what takes how long.
class TimedFileSystem final : public internal::FileSystem {
 public:
  internal::UniqueFd create(const std::string& path) override { return real_->create(path); }
  void write(const internal::UniqueFd& file, std::uint64_t offset, std::span<const std::byte> bytes,
             const std::string& path) override {
    write_seconds += seconds([&] { real_->write(file, offset, bytes, path); });
  }
  void sync(const internal::UniqueFd& file, const std::string& path) override {
    sync_seconds += seconds([&] { real_->sync(file, path); });
  }
  void close(internal::UniqueFd file, const std::string& path) override {
    real_->close(std::move(file), path);
  }
  void rename(const std::string& from, const std::string& to) override { real_->rename(from, to); }
  void sync_folder(const std::string& path) override {
    sync_seconds += seconds([&] { real_->sync_folder(path); });
  }
  void make_folder(const std::string& path) override { real_->make_folder(path); }
  void remove(const std::string& path) override { real_->remove(path); }

  double write_seconds = 0;
  double sync_seconds = 0;

 private:
  std::shared_ptr<internal::FileSystem> real_ = internal::posix_file_system();
};

enum Part { kCopy, kDigest, kWrite, kSync, kTotal, kParts };
using Times = std::array<double, kParts>;

Times save(const std::string& folder, std::int64_t iteration, const std::vector<std::byte>& state,
           FileImage& image) {
  TimedFileSystem files;
  Times times{};
  times[kTotal] = seconds([&] {
    times[kCopy] = seconds([&] {
      image.begin(
          {{.name = "state", .type = internal::EntryType::kUInt8, .shape = {state.size()}}});
      std::memcpy(image.data(0).data(), state.data(), state.size());
    });
    const std::string name = internal::set_file_name(0);
    internal::Manifest manifest{.iteration = iteration, .id = 1, .world_size = 1, .set_count = 1};
    internal::prepare_generation(files, folder, iteration);
    times[kDigest] = seconds([&] {
      manifest.files = {internal::write_generation_file(files, folder, iteration, name, image)};
    });
    // Digests and writes take turns.
    times[kDigest] -= files.write_seconds + files.sync_seconds;
    internal::publish_generation(files, folder, manifest);
  });
  times[kWrite] = files.write_seconds;
  times[kSync] = files.sync_seconds;
  internal::prune_generations(files, folder, iteration, 1);
  return times;
}

// The same bytes copied and written, with no digests and no flushing.
double save_bare(const std::string& folder, const std::vector<std::byte>& state, FileImage& image) {
  constexpr std::size_t kPartBytes = std::size_t{1} << 20;
  const auto files = internal::posix_file_system();
  const std::string path = folder + "/bare";
  const double taken = seconds([&] {
    image.begin({{.name = "state", .type = internal::EntryType::kUInt8, .shape = {state.size()}}});
    std::memcpy(image.data(0).data(), state.data(), state.size());
    internal::UniqueFd file = files->create(path);
    const std::span<const std::byte> bytes = image.bytes();
    for (std::size_t begin = 0; begin < bytes.size(); begin += kPartBytes) {
      files->write(file, begin, bytes.subspan(begin, std::min(kPartBytes, bytes.size() - begin)),
                   path);
    }
    files->close(std::move(file), path);
  });
  // What the device still has to do for it must not weigh on the next save.
  files->sync(internal::UniqueFd(::open(path.c_str(), O_WRONLY | O_CLOEXEC)), path);
  files->remove(path);
  return taken;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print(const std::string& what, const Times& times) {
  std::printf(
      "%-8s copy %7.1f  digest %7.1f  write %7.1f  fsync %7.1f  all %7.1f ms, digest and "
      "fsync %.1f %%\n",
      what.c_str(), times[kCopy] * 1e3, times[kDigest] * 1e3, times[kWrite] * 1e3,
      times[kSync] * 1e3, times[kTotal] * 1e3,
      100 * (times[kDigest] + times[kSync]) / times[kTotal]);
}

int run(const std::string& folder, std::size_t megabytes, int saves, int parts) {
  const std::size_t bytes = megabytes * 1'000'000;
  PartWriters writers(folder + "/parts", bytes, parts);  // before there is memory to copy
  std::vector<std::byte> state(bytes);
  for (std::size_t i = 0; i < state.size(); ++i) {
    state[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  }
  FileImage image;
  std::vector<Times> all;
  std::vector<double> bare;
  std::vector<double> in_parts;
  for (int i = 0; i <= saves; ++i) {
    const Times times = save(folder, i, state, image);
    const double without = save_bare(folder, state, image);
    const double with_parts = writers.save(i);
    internal::prune_generations(*internal::posix_file_system(), folder + "/parts", i, 1);
    if (i > 0) {  // the first one touches its memory for the first time
      print("save " + std::to_string(i), times);
      all.push_back(times);
      bare.push_back(without);
      in_parts.push_back(with_parts);
    }
  }
  Times medians{};
  for (std::size_t part = 0; part < kParts; ++part) {
    std::vector<double> values;
    for (const Times& times : all) values.push_back(times[part]);
    medians[part] = median(values);
  }
  print("medians", medians);
  const double without = median(bare);
  std::printf("without digest and fsync %.1f ms: they cost %.1f %% of a save\n", without * 1e3,
              100 * (1 - without / medians[kTotal]));
  const double shared = median(in_parts);
  std::printf(
      "%d parts by a process each: all %.1f ms, %.2f of one writer; a process with %.1f MB of it "
      "grows by %.1f MB\n",
      parts, shared * 1e3, shared / medians[kTotal], static_cast<double>(bytes) / 1e6 / parts,
      static_cast<double>(writers.grown_bytes()) / 1e6);
  return 0;
}

}  // namespace
}  // namespace chainmail::bench

int main(int argc, char** argv) {
  const flags::Program program{
      .name = "chainmail-checkpoint-bench",
      .what =
          "Times saves of MEGABYTES (100) bytes of state, SAVES (9) times, on the file system of\n"
          "FOLDER, and what digests and flushing cost; in turn by PARTS (4) processes.",
      .arguments = "FOLDER [MEGABYTES [SAVES [PARTS]]]"};
  return flags::run(program, argc, argv, [](const std::vector<std::string>& arguments) {
    if (arguments.empty() || arguments.size() > 4) {
      throw flags::UsageError("give FOLDER [MEGABYTES [SAVES [PARTS]]]; see --help");
    }
    const auto number = [&](std::size_t i, int otherwise) {
      return arguments.size() > i ? std::max(1, std::stoi(arguments[i])) : otherwise;
    };
    const std::string folder = arguments[0] + "/checkpoint-bench";
    const int code = chainmail::bench::run(folder, static_cast<std::size_t>(number(1, 100)),
                                           number(2, 9), number(3, 4));
    std::filesystem::remove_all(folder);
    return code;
  });
}
