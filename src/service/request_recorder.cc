// See the header. I/O thread only; allocates nothing.
#include <lumen/service/request_recorder.h>

#include <lumen/base/clock.h>
#include <lumen/models/model_repository.h>
#include <lumen/wire/status_map.h>

#include <algorithm>
#include <ctime>

namespace lumen::service {
namespace {

uint64_t between(uint64_t begin_ns, uint64_t end_ns) noexcept {
  constexpr uint64_t kAbsent = telemetry::RequestRecord::kAbsent;
  return begin_ns == 0 || end_ns < begin_ns ? kAbsent : end_ns - begin_ns;
}

}  // namespace

ReplyMoment ReplyMoment::now() noexcept {
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  return {lumen::now_ns(), int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec};
}

void RequestRecorder::record(const Call& call, telemetry::TransportKind transport, int status,
                             std::string_view id, const ReplyMoment& out) noexcept {
  using telemetry::Stage;
  const models::InferRequest& infer = call.infer;
  const models::StageTimes& times = infer.times;
  telemetry::RequestRecord record;
  record.sequence = 1 + thread_ + recorded_++ * threads_;
  record.received_wall_ns = out.wall_ns - static_cast<int64_t>(out.now_ns - times.received_ns);
  const auto set = [&record](Stage stage, uint64_t ns) {
    record.stage_ns[static_cast<size_t>(stage)] = ns;
  };
  set(Stage::kConnect, between(times.accepted_ns, times.received_ns));
  set(Stage::kParse, between(times.received_ns, times.parsed_ns));
  set(Stage::kQueue, between(times.parsed_ns, times.dequeued_ns));
  set(Stage::kPreprocess, between(times.dequeued_ns, times.preprocessed_ns));
  set(Stage::kInference, between(times.preprocessed_ns, times.inferred_ns));
  set(Stage::kPostprocess, between(times.inferred_ns, times.postprocessed_ns));
  set(Stage::kWrite, between(times.postprocessed_ns, out.now_ns));
  set(Stage::kTotal, out.now_ns - times.received_ns);
  record.rows = infer.inputs.empty() ? 0 : models::rows_of(infer);
  record.model = static_cast<uint16_t>(infer.model->index());
  record.worker = infer.worker == models::InferRequest::kNoWorker
                      ? telemetry::RequestRecord::kNone
                      : static_cast<uint16_t>(infer.worker);
  record.status = static_cast<uint16_t>(status);
  record.cache_use = call.cache_outcome;
  record.transport = transport;
  record.traceparent = call.traceparent;
  static_assert(models::kQueueTypeNames.size() <= 16);
  record.queue_type = static_cast<uint8_t>(infer.configured_type) & 0xF;
  record.lane = static_cast<uint8_t>(infer.queue_type) & 0xF;
  record.allocator_type = static_cast<uint8_t>(infer.allocator_type) & 0xF;
  if (id.size() <= record.id.size()) {
    record.id_bytes = static_cast<uint8_t>(id.size());
    std::ranges::copy(id, record.id.begin());
  }
  counters_.stages().record(record, thread_);
  // The call holds its model: the generation is that model's.
  flight_recorder_.record(record, counters_.generation(record.model), out.now_ns);
  if (readers_.trace_log != nullptr) readers_.trace_log->write(record);
  const bool is_traced = has_span(record);
  if (is_traced) readers_.spans->write(record);
  for (const StepRun& step : call.step_runs) record_step(step, record, out, is_traced);
}

bool RequestRecorder::has_span(const telemetry::RequestRecord& record) const noexcept {
  constexpr uint8_t kIsRecorded = 1;
  if (readers_.spans == nullptr) return false;
  if (record.traceparent.is_present != 0) return (record.traceparent.flags & kIsRecorded) != 0;
  return readers_.spans_one_in != 0 && recorded_ % readers_.spans_one_in == 0;
}

// In the flight recorder and the spans alone: elsewhere a step would count as one request more.
void RequestRecorder::record_step(const StepRun& step, const telemetry::RequestRecord& whole,
                                  const ReplyMoment& out, bool has_span) noexcept {
  using telemetry::Stage;
  const models::StageTimes& times = step.times;
  telemetry::RequestRecord record = whole;
  record.is_step = 1;
  record.stage_ns.fill(telemetry::RequestRecord::kAbsent);
  record.received_wall_ns = out.wall_ns - static_cast<int64_t>(out.now_ns - times.parsed_ns);
  const auto set = [&record](Stage stage, uint64_t begin_ns, uint64_t end_ns) {
    record.stage_ns[static_cast<size_t>(stage)] = between(begin_ns, end_ns);
  };
  const uint64_t end_ns = std::max({times.parsed_ns, times.dequeued_ns, times.inferred_ns});
  set(Stage::kQueue, times.parsed_ns, times.dequeued_ns);
  set(Stage::kPreprocess, times.dequeued_ns, times.preprocessed_ns);
  set(Stage::kInference, times.preprocessed_ns, times.inferred_ns);
  set(Stage::kTotal, times.parsed_ns, end_ns);
  record.rows = step.rows;
  record.model = static_cast<uint16_t>(step.model->index());
  record.worker = step.worker == models::InferRequest::kNoWorker
                      ? telemetry::RequestRecord::kNone
                      : static_cast<uint16_t>(step.worker);
  record.status = static_cast<uint16_t>(wire::http_status(step.code));
  record.lane = static_cast<uint8_t>(step.lane) & 0xF;
  record.cache_use = CacheOutcome::kNone;
  flight_recorder_.record(record, counters_.generation(record.model), out.now_ns);
  if (has_span) readers_.spans->write(record);
}

}  // namespace lumen::service
