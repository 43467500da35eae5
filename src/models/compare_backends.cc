// See the header.
#include "models/compare_backends.h"

#include <lumen/base/clock.h>

#include <lumen/models/trial_run.h>
#include "models/answer_gap.h"
#include "models/format_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace lumen::models {
namespace {

constexpr uint32_t kPackedRows = kMeasuredRows.back();
constexpr int kMostRounds = 40;
constexpr int kLeastRounds = 3;
// Rows of the calls that are compared first. A backend may run one row and several by different
// code: for one row of some quantised models OpenVINO 2026.4 gives answers that are far off, and
// not for two.
constexpr uint32_t kComparedRows[] = {1, 1, 2};
// Of the output's largest number. Kernels add up in different orders: some 1e-6 for f32; a wrong
// operator is off by orders of magnitude. "auto" precision may compute in bf16, which keeps three
// digits.
constexpr double kTolerance = 1e-3;
constexpr double kHalfPrecisionTolerance = 5e-2;

double tolerance_of(const ModelSource& source) noexcept {
  if (source.rows != nullptr) return std::numeric_limits<double>::infinity();
  return source.options.precision == Precision::kF32 ? kTolerance : kHalfPrecisionTolerance;
}

std::string microseconds(uint64_t ns) {
  return format_text("%.1f us", static_cast<double>(ns) / 1e3);
}

bool same_interface(const std::vector<TensorSpec>& one, const std::vector<TensorSpec>& other) {
  return std::ranges::equal(one, other, [](const TensorSpec& a, const TensorSpec& b) {
    return a.name == b.name && a.type == b.type && a.shape.rank() == b.shape.rank();
  });
}

bool run(Candidate& on, TrialRun& trial, uint32_t first, uint32_t rows) {
  on.memory.reset(kTrialBytes);
  return trial.run(*on.instance, first, rows, TrialRun::kUsualFreeSize);
}

TrialRun trial_of(Candidate& on) { return {on.loaded->metadata(), nullptr, on.memory}; }

bool have_same_interface(const Candidate& one, const Candidate& other) {
  const ModelMetadata& left = one.loaded->metadata();
  const ModelMetadata& right = other.loaded->metadata();
  return same_interface(left.inputs, right.inputs) && same_interface(left.outputs, right.outputs);
}

// Why one of two backends can't stand for the other; empty: it can.
struct Disagreement {
  std::string text;
  bool is_of_answers = false;  // and not that they could not be compared
};

Disagreement disagreement(Candidate& one, Candidate& other, double tolerance, uint32_t first,
                          uint32_t rows) {
  if (!have_same_interface(one, other)) return {"they name or type its tensors differently"};
  TrialRun left = trial_of(one);
  TrialRun right = trial_of(other);
  const bool left_ran = run(one, left, first, rows);
  const bool right_ran = run(other, right, first, rows);
  if (!left_ran && !right_ran && rows > 1) return {};  // the model takes no such number
  if (!left_ran || !right_ran) return {"no input could be made up that both take"};
  for (size_t i = 0; i < left.outputs().size(); ++i) {
    const Gap gap = gap_between(left.outputs()[i], right.outputs()[i]);
    if (gap.share <= tolerance) continue;
    return {format_text(
                "their answers differ: output '%.100s'%s by %s and %s, %.2g of its largest number",
                one.loaded->metadata().outputs[i].name.c_str(), gap.where.c_str(),
                one.report->name.c_str(), other.report->name.c_str(), gap.share),
            true};
  }
  return {};
}

// One call of each is compared with the reference's; false: it is to serve, and `choice` says why.
bool all_agree(std::vector<Candidate>& candidates, size_t reference, double tolerance,
               uint32_t first, uint32_t rows, BackendChoice& choice) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i == reference) continue;
    const Disagreement found =
        disagreement(candidates[reference], candidates[i], tolerance, first, rows);
    if (found.text.empty()) continue;
    choice.answers_differ = found.is_of_answers;
    choice.why = "computes as ONNX defines it; " + candidates[i].report->name +
                 " was left out: " + found.text;
    return false;
  }
  return true;
}

// Adds the time of the fastest call with `rows` rows to each; false: one of them failed.
bool measure(std::vector<Candidate>& candidates, uint32_t rows, uint64_t until_ns,
             const LoadOptions& options) {
  std::vector<uint64_t> fastest(candidates.size(), UINT64_MAX);
  for (int round = 0; round < kMostRounds; ++round) {
    if (options.is_stopped()) return false;
    if (round >= kLeastRounds && now_ns() > until_ns) break;
    for (size_t i = 0; i < candidates.size(); ++i) {  // one after the other: noise meets both
      TrialRun trial = trial_of(candidates[i]);
      const uint64_t before = now_ns();
      if (!run(candidates[i], trial, 0, rows)) return false;
      if (round > 0) fastest[i] = std::min(fastest[i], now_ns() - before);
    }
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].report->costs.push_back({rows, fastest[i]});
  }
  return true;
}

// By the geometric mean over the sizes that were measured.
double cost_of(const TriedBackend& tried) noexcept {
  double sum = 0;
  for (const SizeCost& cost : tried.costs) sum += std::log(static_cast<double>(cost.ns));
  return std::exp(sum / static_cast<double>(tried.costs.size()));
}

std::string sentence(const TriedBackend& best, const TriedBackend& other) {
  std::string why = "faster";
  for (size_t i = 0; i < best.costs.size(); ++i) {
    why += format_text("%s %u row%s in %s against %s", i == 0 ? ":" : ",", best.costs[i].rows,
                       best.costs[i].rows == 1 ? "" : "s", microseconds(best.costs[i].ns).c_str(),
                       microseconds(other.costs[i].ns).c_str());
  }
  return why.append(" of ").append(other.name);
}

}  // namespace

size_t compare_backends(std::vector<Candidate>& candidates, const ModelSource& source,
                        const LoadOptions& options, BackendChoice& choice) {
  const uint64_t budget_ns = options.budget_ns;
  const double tolerance = tolerance_of(source);
  const auto is_reference = [](const Candidate& one) {
    return one.entry->backend->traits().is_reference;
  };
  const auto found = std::ranges::find_if(candidates, is_reference);
  const auto reference =
      found == candidates.end() ? size_t{0} : static_cast<size_t>(found - candidates.begin());
  const uint64_t begin = now_ns();
  uint32_t first = 0;
  for (const uint32_t rows : kComparedRows) {
    if (!all_agree(candidates, reference, tolerance, first++, rows, choice)) return reference;
  }
  const bool has_rows = has_batch_axis(candidates[reference].loaded->metadata());
  // Half of the budget for one row, so that the other size has a share too; it is left out where
  // not even the least of calls would fit.
  if (!measure(candidates, 1, begin + budget_ns / 2, options)) {
    choice.why = "computes as ONNX defines it; a call to measure failed";
    return reference;
  }
  uint64_t least_ns = 0;
  for (const Candidate& one : candidates) {
    least_ns += one.report->costs.front().ns * kPackedRows * kLeastRounds;
  }
  if (has_rows && least_ns <= budget_ns) {
    if (!all_agree(candidates, reference, tolerance, first, kPackedRows, choice)) return reference;
    // A backend that can't is no worse for it.
    (void)measure(candidates, kPackedRows, begin + budget_ns, options);
  }
  size_t best = 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    if (cost_of(*candidates[i].report) < cost_of(*candidates[best].report)) best = i;
  }
  size_t other = best == 0 ? 1 : 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const bool is_nearer = cost_of(*candidates[i].report) < cost_of(*candidates[other].report);
    if (i != best && is_nearer) other = i;
  }
  choice.why = sentence(*candidates[best].report, *candidates[other].report);
  return best;
}

}  // namespace lumen::models
