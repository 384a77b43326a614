// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <system_error>

#include <chainmail/error.h>

#include "../common/file.h"

namespace {

constexpr int kAcross = 32;
constexpr int kShapes = 10;
constexpr int kKnots = 5;  // of a background, along each side

// What the standard says bit by bit, unlike its distributions.
class Chance {
 public:
  Chance(std::uint64_t seed, std::uint64_t image) : engine_(seed * 1'000'003 + image) {}
  double between(double low, double high) {
    return low + (high - low) * (static_cast<double>(engine_() >> 11) / 9007199254740992.0);
  }

 private:
  std::mt19937_64 engine_;
};

// Whether (u, v) is inside of a shape that fills the square from -1 to 1.
bool is_inside(int shape, double u, double v) {
  const double from_centre = u * u + v * v;
  const double side = std::max(std::abs(u), std::abs(v));
  switch (shape) {
    case 0:
      return from_centre < 0.72;  // a disc
    case 1:
      return from_centre > 0.3 && from_centre < 0.9;  // a ring
    case 2:
      return side < 0.72;  // a square
    case 3:
      return side > 0.5 && side < 0.85;  // a frame
    case 4:
      return v > -0.5 && 1.732 * std::abs(u) + v < 1.0;  // a triangle
    case 5:
      return side < 0.9 && std::min(std::abs(u), std::abs(v)) < 0.26;  // a cross
    case 6:
      return std::abs(u) < 0.95 && std::abs(v) < 0.28;  // a bar
    case 7:
      return (std::abs(u) - 0.52) * (std::abs(u) - 0.52) + v * v < 0.16;  // two discs
    case 8:
      return from_centre < 0.95 && v > 0.1;  // half a disc
    default:
      return side < 0.85 && (u < -0.3 || v < -0.3);  // a corner
  }
}

// Between the four knots around it, in each direction along a straight line.
double cloud(const std::array<double, kKnots * kKnots>& knots, int x, int y) {
  const double across = x * (kKnots - 1.0) / kAcross, down = y * (kKnots - 1.0) / kAcross;
  const int column = static_cast<int>(across), row = static_cast<int>(down);
  const double right = across - column, below = down - row;
  const auto knot = [&](int i, int j) {
    return knots[static_cast<std::size_t>((row + i) * kKnots + column + j)];
  };
  return (knot(0, 0) * (1 - right) + knot(0, 1) * right) * (1 - below) +
         (knot(1, 0) * (1 - right) + knot(1, 1) * right) * below;
}

// Appends a label and the planes of red, green and blue.
void append_image(std::string& bytes, int shape, Chance chance) {
  const double size = chance.between(7, 13);
  const double margin = size * 0.8;
  const double x0 = chance.between(margin, kAcross - margin);
  const double y0 = chance.between(margin, kAcross - margin);
  // The tangent of half the angle, so that there is no sine.
  const double half = chance.between(-1, 1);
  const double cosine = (1 - half * half) / (1 + half * half);
  const double sine = 2 * half / (1 + half * half);
  bytes += static_cast<char>(shape);
  for (int plane = 0; plane < 3; ++plane) {
    const double mean = chance.between(40, 215);
    // Far from the background, on the side where there is more room.
    const double colour = mean + (mean < 128 ? 1 : -1) * chance.between(45, 120);
    std::array<double, kKnots * kKnots> knots;
    for (double& knot : knots) knot = mean + chance.between(-40, 40);
    for (int y = 0; y < kAcross; ++y) {
      for (int x = 0; x < kAcross; ++x) {
        const double right = (x - x0) / size, down = (y - y0) / size;
        const bool is_shape =
            is_inside(shape, right * cosine + down * sine, down * cosine - right * sine);
        const double value = (is_shape ? colour : cloud(knots, x, y)) + chance.between(-25, 25);
        bytes += static_cast<char>(static_cast<unsigned char>(std::clamp(value, 0.0, 255.0)));
      }
    }
  }
}

}  // namespace

void write_shapes(const std::filesystem::path& folder, std::int64_t samples, std::uint64_t seed) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw chainmail::SystemError("cannot make " + folder.string() + ": " + error.message(),
                                 error.value());
  }
  constexpr int kParts = 6;  // five to train with
  for (std::int64_t part = 0; part < kParts; ++part) {
    std::string bytes;
    for (std::int64_t image = 0; image < samples / 5; ++image) {
      append_image(bytes, static_cast<int>(image % kShapes),
                   Chance(seed, static_cast<std::uint64_t>(image * kParts + part)));
    }
    write_whole(folder / (part < 5 ? "data_batch_" + std::to_string(part + 1) + ".bin"
                                   : std::string("test_batch.bin")),
                bytes);
  }
}
