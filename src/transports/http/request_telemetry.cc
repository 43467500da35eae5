// What is kept of a request once its reply is out: its stages in the histograms, its line in the CSV.
// I/O thread only; allocates nothing. 0.1 us a request.
#include "transports/http/connection_host.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <ctime>

namespace lumen::http {
namespace {

uint64_t between(uint64_t begin_ns, uint64_t end_ns) noexcept {
  constexpr uint64_t kAbsent = telemetry::RequestRecord::kAbsent;
  return begin_ns == 0 || end_ns < begin_ns ? kAbsent : end_ns - begin_ns;
}

}  // namespace

void ConnectionHost::record(const RequestContext& context) noexcept {
  using telemetry::Stage;
  if (context.call.infer.model == nullptr || context.route.endpoint != Endpoint::kInfer) return;
  const engine::InferRequest& infer = context.call.infer;
  const engine::StageTimes& times = infer.times;
  const uint64_t now = now_ns();
  telemetry::RequestRecord record;
  record.sequence = 1 + thread_.index + recorded_++ * services_.options.io_thread_count;
  timespec wall;
  clock_gettime(CLOCK_REALTIME, &wall);
  const int64_t wall_ns = int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
  record.received_wall_ns = wall_ns - static_cast<int64_t>(now - times.received_ns);
  const auto set = [&record](Stage stage, uint64_t ns) {
    record.stage_ns[static_cast<size_t>(stage)] = ns;
  };
  set(Stage::kConnect, between(times.accepted_ns, times.received_ns));
  set(Stage::kParse, between(times.received_ns, times.parsed_ns));
  set(Stage::kQueue, between(times.parsed_ns, times.dequeued_ns));
  set(Stage::kPreprocess, between(times.dequeued_ns, times.preprocessed_ns));
  set(Stage::kInference, between(times.preprocessed_ns, times.inferred_ns));
  set(Stage::kPostprocess, between(times.inferred_ns, times.postprocessed_ns));
  set(Stage::kWrite, between(times.postprocessed_ns, now));
  if (times.postprocessed_ns != 0) reply_time_.add(now - times.postprocessed_ns);
  set(Stage::kTotal, now - times.received_ns);
  record.rows = infer.inputs.empty() ? 0 : engine::rows_of(infer);
  record.model = static_cast<uint16_t>(infer.model->index());
  record.worker = infer.worker == engine::InferRequest::kNoWorker
                      ? telemetry::RequestRecord::kNone
                      : static_cast<uint16_t>(infer.worker);
  record.status = static_cast<uint16_t>(context.reply.status());
  record.queue_type = static_cast<uint8_t>(infer.queue_type);
  record.allocator_type = static_cast<uint8_t>(infer.allocator_type);
  const std::string_view id = context.infer_head.id.value_or("");
  if (id.size() <= record.id.size()) {
    record.id_bytes = static_cast<uint8_t>(id.size());
    std::ranges::copy(id, record.id.begin());
  }
  services_.stages.record(record, thread_.index);
  if (services_.trace_log != nullptr) services_.trace_log->write(record);
}

}  // namespace lumen::http
