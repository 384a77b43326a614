// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// For tests/soak/launcher/output.sh: writes lines that can be told apart, and checks what arrived.
//
//   output_probe write BYTES             as a rank: so many bytes (of each stream the half)
//   output_probe check BYTES RANKS FILE...   0 when the files together hold every line of every
//                                        rank and stream once, whole and in order
//   output_probe slow BYTES_PER_SECOND   copies stdin to stdout at that rate
//
// Lines are of any bytes but '\n': plain text, UTF-8, binary, empty, and some of 300 kB, longer
// than every buffer on the way. Some streams end without a line end.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  std::uint64_t next() {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return state_;
  }
  std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }

 private:
  std::uint64_t state_;
};

// The lines of one stream of one rank, the same in the rank and in the check.
class Lines {
 public:
  Lines(std::uint64_t rank, std::uint64_t stream, std::size_t bytes)
      : head_(std::to_string(rank) + " " + std::to_string(stream) + " "),
        ends_with_newline_((rank + stream) % 2 == 0),
        bytes_(bytes),
        random_(rank * 2 + stream) {}

  bool at_end() const { return done_ >= bytes_; }
  // With its line end, where it has one.
  std::string next() {
    std::string line = head_ + std::to_string(number_++) + " ";
    line += payload();
    done_ += line.size() + 1;
    if (!at_end() || ends_with_newline_) line += '\n';
    return line;
  }

 private:
  std::string payload() {
    static const std::vector<std::string> kCharacters = {
        "a", "\xc3\xb6", " ", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "z"};
    std::size_t length = random_.below(160);
    if (number_ % 2000 == 100) length = 300000;
    std::string text;
    switch (random_.below(4)) {
      case 0:
        while (text.size() < length) text += kCharacters[random_.below(kCharacters.size())];
        break;
      case 1:
        while (text.size() < length) {
          const char c = static_cast<char>(random_.below(256));
          text += c == '\n' ? '\r' : c;
        }
        break;
      case 2:
        text.assign(length, static_cast<char>('a' + random_.below(26)));
        break;
      default:
        text = std::to_string(random_.next());
        break;
    }
    return text;
  }

  std::string head_;
  bool ends_with_newline_;
  std::size_t bytes_;
  std::size_t done_ = 0;
  std::size_t number_ = 0;
  Random random_;
};

void write_all(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(fd, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw std::runtime_error("write failed");
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
}

// Pieces that end anywhere, also inside a character.
void write_lines(std::size_t bytes) {
  const std::uint64_t rank = std::stoull(std::getenv("RANK"));
  Lines lines[2] = {Lines(rank, 1, bytes / 2), Lines(rank, 2, bytes / 2)};
  std::string waiting[2];
  Random random(rank + 77);
  while (true) {
    const std::size_t i = random.below(2);
    while (waiting[i].size() < 8192 && !lines[i].at_end()) waiting[i] += lines[i].next();
    if (waiting[0].empty() && waiting[1].empty() && lines[0].at_end() && lines[1].at_end()) return;
    const std::size_t size = std::min(waiting[i].size(), 1 + random.below(8192));
    write_all(static_cast<int>(i) + 1, waiting[i].data(), size);
    waiting[i].erase(0, size);
  }
}

using Key = std::pair<std::uint64_t, std::uint64_t>;

void check_line(const std::string& line, std::map<Key, Lines>& expected) {
  const std::uint64_t rank = std::strtoull(line.c_str(), nullptr, 10);
  const std::size_t space = line.find(' ');
  const std::uint64_t stream =
      space == std::string::npos ? 0 : std::strtoull(line.c_str() + space, nullptr, 10);
  const auto found = expected.find({rank, stream});
  if (found == expected.end() || found->second.at_end()) {
    throw std::runtime_error("a line that nobody wrote: " + line.substr(0, 100));
  }
  std::string wanted = found->second.next();
  if (!wanted.empty() && wanted.back() == '\n') wanted.pop_back();
  if (wanted != line) {
    throw std::runtime_error("rank " + std::to_string(rank) + ", stream " + std::to_string(stream) +
                             ": " + std::to_string(line.size()) + " bytes '" + line.substr(0, 60) +
                             "...' instead of " + std::to_string(wanted.size()) + " bytes '" +
                             wanted.substr(0, 60) + "...'");
  }
}

void check(std::size_t bytes, std::uint64_t ranks, const std::vector<std::string>& files) {
  std::map<Key, Lines> expected;
  for (std::uint64_t rank = 0; rank < ranks; ++rank) {
    for (std::uint64_t stream = 1; stream <= 2; ++stream) {
      expected.emplace(Key(rank, stream), Lines(rank, stream, bytes / 2));
    }
  }
  std::size_t count = 0;
  for (const std::string& path : files) {
    std::ifstream file(path, std::ios::binary);
    for (std::string line; std::getline(file, line); ++count) check_line(line, expected);
  }
  for (const auto& [key, lines] : expected) {
    if (!lines.at_end()) {
      throw std::runtime_error("rank " + std::to_string(key.first) + ", stream " +
                               std::to_string(key.second) + ": the end is missing");
    }
  }
  std::cout << count << " lines, all whole and in order\n";
}

void copy_slowly(std::size_t bytes_per_second) {
  std::string piece(16384, '\0');
  while (true) {
    const ssize_t count = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (count <= 0) return;
    write_all(STDOUT_FILENO, piece.data(), static_cast<std::size_t>(count));
    const double seconds = static_cast<double>(count) / static_cast<double>(bytes_per_second);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 2 && words[0] == "write") {
      write_lines(std::stoull(words[1]));
    } else if (words.size() == 2 && words[0] == "slow") {
      copy_slowly(std::stoull(words[1]));
    } else if (words.size() >= 4 && words[0] == "check") {
      check(std::stoull(words[1]), std::stoull(words[2]), {words.begin() + 3, words.end()});
    } else {
      std::cerr << "usage: output_probe write BYTES | check BYTES RANKS FILE... | slow RATE\n";
      return 2;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "output_probe: " << error.what() << "\n";
    return 1;
  }
}
