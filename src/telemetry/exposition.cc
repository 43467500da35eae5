// See the header.
#include "telemetry/exposition.h"

#include <algorithm>

namespace lumen::telemetry {

FineCounts fine_counts(const StageHistograms& stages, size_t model, Stage stage) noexcept {
  FineCounts counts{};
  for (size_t shard = 0; shard < stages.shards(); ++shard) {
    const Histogram& histogram = stages.of(model, stage, shard);
    if (histogram.was_empty()) continue;
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += histogram.count_of(i);
  }
  return counts;
}

CoarseCounts coarse_counts(const FineCounts& fine) noexcept {
  CoarseCounts counts{};
  size_t next = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    // The fine bucket that holds the bound counts as below it: up to 1.6 % above are let in.
    const size_t end = i < kPrometheusBoundsNs.size()
                           ? Histogram::bucket_of(kPrometheusBoundsNs[i]) + 1
                           : Histogram::kBuckets;
    for (; next < end; ++next) counts[i] += fine[next];
  }
  return counts;
}

uint64_t sum_of(const StageHistograms& stages, size_t model, Stage stage) noexcept {
  uint64_t sum = 0;
  for (size_t shard = 0; shard < stages.shards(); ++shard) {
    sum += stages.of(model, stage, shard).sum();
  }
  return sum;
}

const PrometheusExemplar* exemplar_in(std::span<const PrometheusExemplar> exemplars, uint32_t model,
                                      size_t bucket) noexcept {
  for (auto one = exemplars.rbegin(); one != exemplars.rend(); ++one) {
    // The first bound that is not below it.
    const auto bound = std::ranges::lower_bound(kPrometheusBoundsNs, one->total_ns);
    const auto its = static_cast<size_t>(bound - kPrometheusBoundsNs.begin());
    if (one->model == model && its == bucket) return &*one;
  }
  return nullptr;
}

std::array<char, 32> trace_id_text(const Traceparent& traceparent) noexcept {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<char, 32> text{};
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t byte = traceparent.trace_id[i / 2];
    text[i] = kDigits[i % 2 == 0 ? byte >> 4 : byte & 15];
  }
  return text;
}

}  // namespace lumen::telemetry
