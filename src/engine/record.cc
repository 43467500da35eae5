// Body of record.h: plain additions in the writer's own block. No memory.
#include <lumen/engine/record.h>

#include "engine/batch.h"

#include <lumen/models/model_repository.h>

#include <ctime>

namespace lumen::engine {
namespace {

// Wall clock in kernel ticks (3 ns a call): the protocol reports it to clients as a date.
uint64_t wall_ms() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_REALTIME_COARSE, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1'000'000;
}

// By QueueType; `auto` is none of a request's.
constexpr telemetry::ModelCounter kByQueueType[] = {"by_mpmc", "by_spsc", "by_naive", "by_batched",
                                                    "by_inline"};

}  // namespace

void record(const models::InferRequest& request, uint64_t run_rows,
            telemetry::CounterWriter& counters) noexcept {
  if (!request.status.ok()) return;
  const uint32_t model = request.model->index();
  const models::StageTimes& times = request.times;
  // Rows are counted where the model has a free first axis; otherwise a call is one inference.
  counters.add(model, "inference", run_rows_of(request));
  counters.add(model, "execution", run_rows > 0 ? 1 : 0);
  counters.set(model, "last_inference", wall_ms());
  counters.add(model, kByQueueType[static_cast<size_t>(request.queue_type)]);
  if (request.is_express) counters.add(model, "express");
  const auto add_stage = [&](telemetry::ModelTime stage, uint64_t begin_ns, uint64_t end_ns) {
    if (begin_ns != 0 && end_ns >= begin_ns) counters.add_time(model, stage, end_ns - begin_ns);
  };
  add_stage("queue", times.parsed_ns, times.dequeued_ns);
  add_stage("preprocess", times.dequeued_ns, times.preprocessed_ns);
  add_stage("run", times.preprocessed_ns, times.inferred_ns);
  add_stage("postprocess", times.inferred_ns, times.postprocessed_ns);
  const auto between = [](uint64_t begin_ns, uint64_t end_ns) {
    return begin_ns != 0 && end_ns > begin_ns ? end_ns - begin_ns : 0;
  };
  if (run_rows > 0) {
    request.model->batch_times().add(
        counters.row(), {.rows = run_rows,
                         .count = 1,
                         .input_ns = between(times.dequeued_ns, times.preprocessed_ns),
                         .infer_ns = between(times.preprocessed_ns, times.inferred_ns),
                         .output_ns = between(times.inferred_ns, times.postprocessed_ns)});
  }
  if (times.device.run_ns == 0) return;
  counters.add(model, "device_measured");
  counters.add(model, "device_in_ns", times.device.copy_in_ns);
  counters.add(model, "device_run_ns", times.device.run_ns);
  counters.add(model, "device_out_ns", times.device.copy_out_ns);
}

}  // namespace lumen::engine
