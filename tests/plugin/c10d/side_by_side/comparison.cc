// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/plugin/c10d/side_by_side/comparison.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <optional>
#include <sstream>

namespace chainmail::side_by_side {
namespace {

/// How one group did in one case.
enum class Result : std::uint8_t { kRight, kWrong, kRefused };

struct Seen {
  Result result = Result::kRight;
  std::string text;
};

Seen run(const Collective& collective, c10d::Backend& group, const Case& what,
         const std::optional<std::vector<at::Tensor>>& expected) {
  std::vector<at::Tensor> got;
  try {
    got = collective.run(group, what);
  } catch (const std::exception& error) {
    return {Result::kRefused, std::string(error.what()).substr(0, 200)};
  }
  if (!expected) return {Result::kWrong, "gives values where none are right"};
  if (got.size() != expected->size()) return {Result::kWrong, "another number of tensors"};
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (is_equal(got[i], (*expected)[i])) continue;
    std::ostringstream text;
    text << "tensor " << i << " of " << got[i].sizes() << " is\n"
         << got[i].reshape(-1).slice(0, 0, 8) << "\nnot " << (*expected)[i].sizes() << "\n"
         << (*expected)[i].reshape(-1).slice(0, 0, 8);
    return {Result::kWrong, text.str()};
  }
  return {Result::kRight, ""};
}

Verdict judge(Result ours, Result gloo, bool has_meaning) {
  if (!has_meaning) {
    if (ours != Result::kRefused) return Verdict::kBad;
    return gloo == Result::kRefused ? Verdict::kBothRefuse : Verdict::kOnlyOursRefuses;
  }
  if (ours != Result::kRight) return Verdict::kBad;
  if (gloo == Result::kRight) return Verdict::kSame;
  return gloo == Result::kWrong ? Verdict::kGlooWrong : Verdict::kGlooRefuses;
}

// The worst that any rank saw: wrong before refused before right.
Result worst(const Backends& backends, Result mine) {
  std::vector<at::Tensor> seen{at::zeros({2}, at::kInt)};
  if (mine == Result::kWrong) seen[0][0] = 1;
  if (mine == Result::kRefused) seen[0][1] = 1;
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  backends.ours->allreduce(seen, options)->wait();
  if (seen[0][0].item<int>() != 0) return Result::kWrong;
  return seen[0][1].item<int>() != 0 ? Result::kRefused : Result::kRight;
}

class Comparison {
 public:
  Comparison(const Backends& backends, Extent extent,
             const std::function<void(const std::string&)>& complain)
      : backends_(backends), extent_(extent), complain_(complain) {}

  Verdict of(const Collective& collective, Case what) {
    if (!collective.applies(what)) return Verdict::kNone;
    if (extent_ == Extent::kQuick && what.reduction.type != c10d::ReduceOp::SUM &&
        what.shape.name != "matrix" && what.shape.name != "strided") {
      return Verdict::kNone;
    }
    if (what.shape.layout == Layout::kMixed) {
      what.shape.layout = what.rank % 2 == 0 ? Layout::kPlain : Layout::kTransposed;
    }
    what.is_async = (++cases_ % 2) == 0;
    const Verdict first = of_one(collective, what);
    if (extent_ == Extent::kQuick) return first;
    what.is_async = !what.is_async;
    const Verdict second = of_one(collective, what);
    return first == Verdict::kBad ? first : second;
  }

 private:
  Verdict of_one(const Collective& collective, const Case& what) {
    const bool has_right = !collective.reduces || has_meaning_here(collective, what);
    std::optional<std::vector<at::Tensor>> expected;
    if (has_right) expected = collective.expect(what);
    const Seen ours = run(collective, *backends_.ours, what, expected);
    const Seen gloo = run(collective, *backends_.gloo, what, expected);
    const Result ours_everywhere = worst(backends_, ours.result);
    const Result gloo_everywhere = worst(backends_, gloo.result);
    const Verdict verdict = judge(ours_everywhere, gloo_everywhere, has_right);
    if (verdict == Verdict::kBad && judge(ours.result, gloo.result, has_right) == verdict) {
      std::ostringstream text;
      text << collective.name << " " << what.reduction.name << " of " << what.dtype << " "
           << what.shape.name << (what.is_async ? ", async" : ", sync") << " on rank " << what.rank
           << ": " << ours.text;
      complain_(text.str());
    }
    return verdict;
  }

  static bool has_meaning_here(const Collective& collective, const Case& what) {
    if (collective.name == "allreduce, sparse" && what.reduction.type != c10d::ReduceOp::SUM) {
      return false;
    }
    return has_meaning(what.reduction, what.dtype);
  }

  const Backends& backends_;
  const Extent extent_;
  const std::function<void(const std::string&)>& complain_;
  int cases_ = 0;
};

}  // namespace

void compare(const Backends& backends, Extent extent,
             const std::function<void(const std::string&)>& complain,
             const std::function<void(const Row&)>& report) {
  Comparison comparison(backends, extent, complain);
  for (const Collective& collective : collectives()) {
    const std::vector<Reduction> none{{"", c10d::ReduceOp::SUM}};
    for (const Reduction& reduction : collective.reduces ? reductions() : none) {
      for (const Shape& shape : shapes()) {
        Row row{collective.name, reduction.name, shape.name, {}};
        for (const at::ScalarType dtype : dtypes()) {
          const Case what{dtype, shape, reduction, true, backends.rank, backends.size};
          row.verdicts.push_back(comparison.of(collective, what));
        }
        report(row);
      }
    }
  }
}

std::string describe(const Row& row) {
  std::ostringstream text;
  text << std::left << std::setw(32) << row.collective << std::setw(11) << row.reduction
       << std::setw(11) << row.shape;
  for (const Verdict verdict : row.verdicts) text << static_cast<char>(verdict) << "    ";
  return text.str();
}

}  // namespace chainmail::side_by_side
