// SpanBatch: records of requests as spans: an ExportTraceServiceRequest of opentelemetry-proto
// (collector/trace/v1, trace/v1).
//
//   span of the client (its traceparent)
//   └─ infer MODEL             server; the whole request
//      ├─ parse, queue, ...    internal; its stages
//      └─ step MODEL           internal; of an ensemble, with the stages queue, preprocess, inference
//
// A request and its steps are records of the same sequence: the id of its span follows from that
// number, so that steps name their parent wherever it is.
// Threads: one. Memory: the heap; clear() keeps it. Errors: std::bad_alloc.
#pragma once

#include <lumen/telemetry/protobuf_message.h>
#include <lumen/telemetry/request_record.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lumen::otlp {

class SpanBatch {
 public:
  // `secret`: random; ids of spans follow from it. `queue_types` outlives it.
  SpanBatch(std::string_view service_name, std::span<const std::string_view> queue_types,
            uint64_t secret);

  void add(const telemetry::RequestRecord& record, std::string_view model);
  [[nodiscard]] size_t records() const noexcept { return records_; }
  [[nodiscard]] size_t bytes() const noexcept { return spans_.bytes().size(); }
  // The whole message; valid until the next call.
  [[nodiscard]] std::string_view message();
  void clear() noexcept;

 private:
  using Message = telemetry::ProtobufMessage;
  using SpanId = std::array<uint8_t, 8>;
  struct Span;

  [[nodiscard]] SpanId id_of(uint64_t sequence) const noexcept;
  [[nodiscard]] SpanId next_id() noexcept;
  // Into span_, which attributes may follow; end_span() puts it to the others.
  void begin_span(const Span& span);
  void end_span() { spans_.message(kSpanField, span_); }
  void add_stages(const telemetry::RequestRecord& record, const Span& whole);
  void add_attributes(const telemetry::RequestRecord& record, std::string_view model);
  void put(Message& to, uint32_t field, std::string_view key, std::string_view value);
  void put(Message& to, uint32_t field, std::string_view key, uint64_t value);
  [[nodiscard]] std::string_view queue_type(size_t index) const noexcept;

  static constexpr uint32_t kSpanField = 2;  // of ScopeSpans

  const std::span<const std::string_view> queue_types_;
  const uint64_t secret_;
  uint64_t ids_ = 0;
  Message resource_;  // with its field's head
  Message scope_;     // the same
  Message spans_;     // each with its field's head
  Message whole_;
  size_t records_ = 0;
  // Of the span that is written now.
  Message span_, attribute_, value_;
  std::string name_;
};

}  // namespace lumen::otlp
