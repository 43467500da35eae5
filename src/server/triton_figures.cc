// See the header.
#include "server/triton_figures.h"

#include <string_view>

namespace lumen::server {
namespace {

struct Name {
  std::string_view name;
  std::string_view help;
  telemetry::ModelCounter counter;
  double unit = 1;  // of ours, in one of Triton's
  std::string_view type = "counter";
};

constexpr double kNsInUs = 1000;

constexpr Name kNames[] = {
    {"nv_inference_request_success", "Requests that got their result.", "success"},
    {"nv_inference_request_failure", "Requests that got an error.", "failure"},
    {"nv_inference_count", "Rows that were computed.", "inference"},
    {"nv_inference_exec_count", "Runs of the model.", "execution"},
    {"nv_inference_pending_request_count", "Requests that no worker has taken yet.", "queued", 1,
     "gauge"},
    {"nv_inference_request_duration_us", "Time of requests that got their result, summed.",
     "success_ns", kNsInUs},
    {"nv_inference_queue_duration_us", "Time of requests in the queue, summed.", "queue_ns",
     kNsInUs},
    {"nv_inference_compute_input_duration_us", "Time of preparing inputs, summed.", "preprocess_ns",
     kNsInUs},
    {"nv_inference_compute_infer_duration_us", "Time of runs, summed.", "run_ns", kNsInUs},
    {"nv_inference_compute_output_duration_us", "Time of placing outputs, summed.",
     "postprocess_ns", kNsInUs},
    {"nv_cache_num_hits_per_model", "Requests answered by the response cache.", "cache_hit"},
    {"nv_cache_num_misses_per_model", "Requests that it had no answer for.", "cache_miss"},
    {"nv_cache_hit_duration_per_model", "Time of looking up hits, in microseconds, summed.",
     "cache_hit_ns", kNsInUs},
    {"nv_cache_miss_duration_per_model", "Time of misses in it, in microseconds, summed.",
     "cache_miss_ns", kNsInUs},
};

}  // namespace

TritonFigures::TritonFigures(const service::CatalogSnapshot& catalog) {
  for (const service::CatalogModel& entry : catalog.models) {
    const models::ModelMetadata& metadata = entry.model->metadata();
    labels_.push_back({{{"model", metadata.name}, {"version", metadata.version}}});
  }
  for (const Name& name : kNames) {
    size_t number = 0;
    for (const service::CatalogModel& entry : catalog.models) {
      const auto total = static_cast<double>(entry.model->counters().total(name.counter));
      figures_.push_back({.name = name.name,
                          .help = name.help,
                          .type = name.type,
                          .value = total / name.unit,
                          .labels = labels_[number++]});
    }
  }
}

}  // namespace lumen::server
