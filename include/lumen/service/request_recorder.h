// RequestRecorder: keeps the record of a call once its reply is out: its stages in the histograms,
// its entry in the flight recorder, its line in the CSV, its spans. One an I/O thread, for all of
// its transports.
// Threads: its I/O thread. Memory: none. Errors: none; CSV and spans count records that they lose.
// 0.1 us a request.
#pragma once

#include <lumen/service/call.h>
#include <lumen/telemetry/counters.h>
#include <lumen/telemetry/flight_recorder.h>
#include <lumen/telemetry/record_log.h>
#include <lumen/telemetry/trace_log.h>

#include <cstdint>
#include <string_view>

namespace lumen::service {

// The moment at which a reply, or all that a turn has answered, is out.
struct ReplyMoment {
  uint64_t now_ns;
  int64_t wall_ns;  // since the epoch
  [[nodiscard]] static ReplyMoment now() noexcept;
};

// Where records go beside the counters.
struct RecordReaders {
  telemetry::TraceLog* trace_log = nullptr;  // nullptr: no CSV
  // Of requests whose client records their trace (traceparent's flag), with their steps; nullptr:
  // no spans.
  telemetry::RecordLog* spans = nullptr;
  // Of requests without a traceparent each such one begins a trace; 0: none.
  uint32_t spans_one_in = 0;
};

class RequestRecorder {
 public:
  // `thread` of `threads` that record, the shards of `counters`.
  RequestRecorder(telemetry::Counters& counters, const RecordReaders& readers, uint32_t thread,
                  uint32_t threads) noexcept
      : counters_(counters),
        flight_recorder_(counters.recent(thread), counters.slow(thread)),
        readers_(readers),
        thread_(thread),
        threads_(threads) {}
  RequestRecorder(const RequestRecorder&) = delete;
  RequestRecorder& operator=(const RequestRecorder&) = delete;

  // `call` has a model. `status`: of HTTP. `id`: the client's own; left out where it is too long.
  void record(const Call& call, telemetry::TransportKind transport, int status, std::string_view id,
              const ReplyMoment& out) noexcept;

 private:
  void record_step(const StepRun& step, const telemetry::RequestRecord& whole,
                   const ReplyMoment& out, bool has_span) noexcept;
  [[nodiscard]] bool has_span(const telemetry::RequestRecord& record) const noexcept;

  telemetry::Counters& counters_;
  telemetry::FlightRecorder flight_recorder_;
  const RecordReaders readers_;
  const uint32_t thread_;
  const uint32_t threads_;
  uint64_t recorded_ = 0;
};

}  // namespace lumen::service
