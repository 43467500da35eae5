// SpanExporter: sends the requests of traces to an OpenTelemetry collector, as spans by OTLP/HTTP
// (opentelemetry.io/docs/specs/otlp, protobuf messages), from a thread of its own, "lumen-otlp".
// Threads: log().write() from any; name_model() and counters() from any; close() from one.
// Memory: 4 MiB of records that wait, and the heap for one message, of 1 MiB and a span at most.
// Errors: start() with a Status. Afterwards a request never waits for the collector: where that is
// slow or away, records are dropped and counted, and on_error tells why.
#pragma once

#include <lumen/base/result.h>
#include <lumen/telemetry/record_log.h>
#include <lumen/telemetry/shared_counter.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lumen::otlp {

struct SpanExporterOptions {
  // http://HOST:PORT, unix:/PATH or http+unix://%2FPATH. Without a path /v1/traces is meant.
  std::string endpoint = {};
  std::string service_name = "lumen";                  // the resource's service.name
  std::span<const std::string_view> queue_types = {};  // of RequestRecord's queue_type and lane
  uint64_t flush_delay_ns = telemetry::RecordLogOptions{}.flush_delay_ns;
  // Of one attempt to send. A server that stops waits for two of them at most, and for as long as
  // the machine's resolver takes for the collector's name.
  uint64_t timeout_ns = 3'000'000'000;
  // Before the second attempt; twice as long before each one after it.
  uint64_t first_delay_ns = 500'000'000;
  // By "lumen-otlp", the first time that records are lost, and again after it had recovered.
  std::function<void(const Status&)> on_error = {};
};

// A record is a request, or a step of an ensemble.
struct SpanExporterCounters {
  uint64_t exported = 0;        // records in messages that the collector took
  uint64_t dropped = 0;         // other records; after a flush the two are all write() calls
  uint64_t failures = 0;        // attempts to send that failed
  uint64_t rejected_spans = 0;  // that it refused of messages that it took
};

class SpanExporter {
 public:
  // A collector that is not there yet, or whose name is not known yet, is told by on_error and
  // asked again for each message.
  [[nodiscard]] static Result<std::unique_ptr<SpanExporter>> start(SpanExporterOptions options);
  virtual ~SpanExporter() = default;
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Where the records are written that become spans.
  [[nodiscard]] virtual telemetry::RecordLog& log() noexcept = 0;
  // The meaning of RequestRecord::model for requests that are received from now on.
  virtual void name_model(uint16_t model, std::string_view name) = 0;
  [[nodiscard]] virtual SpanExporterCounters counters() const noexcept = 0;
  // Sends the records that wait, as far as one more attempt does it. A second call changes nothing.
  virtual void close() noexcept = 0;

 protected:
  SpanExporter() = default;
};

}  // namespace lumen::otlp
