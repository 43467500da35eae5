// See the header.
#include "otlp/span_batch.h"

#include <lumen/base/utf8.h>
#include <lumen/telemetry/stages.h>

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstddef>

namespace lumen::otlp {
namespace {

using telemetry::RequestRecord;
using telemetry::Stage;
using telemetry::TransportKind;

// Field numbers of trace.proto, resource.proto, common.proto and trace_service.proto.
namespace field {
enum Request : uint32_t { kResourceSpans = 1 };
enum ResourceSpans : uint32_t { kResource = 1, kScopeSpans = 2 };
enum Resource : uint32_t { kResourceAttribute = 1 };
enum ScopeSpans : uint32_t { kScope = 1 };
enum Scope : uint32_t { kScopeName = 1, kScopeVersion = 2 };
enum Span : uint32_t {
  kTraceId = 1,
  kSpanId = 2,
  kParentSpanId = 4,
  kName = 5,
  kKind = 6,
  kBegin = 7,
  kEnd = 8,
  kAttribute = 9,
  kStatus = 15,
  kFlags = 16,
};
enum StatusField : uint32_t { kCode = 3 };
enum KeyValue : uint32_t { kKey = 1, kValue = 2 };
enum AnyValue : uint32_t { kText = 1, kInt = 3 };
}  // namespace field

enum Kind : uint64_t { kInternal = 1, kServer = 2 };
constexpr uint64_t kStatusError = 2;
// Of Span.flags, above the eight of a traceparent: whether the parent is of another process.
constexpr uint32_t kHasIsRemote = 0x100;
constexpr uint32_t kIsRemote = 0x200;
constexpr uint8_t kSampled = 1;

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): each bit of the input moves each of the
// output.
uint64_t mix(uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The `number`th of one of the series of random numbers that follow from a secret.
uint64_t random_of(uint64_t secret, uint64_t series, uint64_t number) noexcept {
  return mix(mix(mix(secret) + series) + number);
}

// Zero is no id.
std::array<uint8_t, 8> id_from(uint64_t random) noexcept {
  return std::bit_cast<std::array<uint8_t, 8>>(random == 0 ? 1 : random);
}

// Of a request whose client told none.
std::array<uint8_t, 16> new_trace_id(uint64_t secret, uint64_t sequence) noexcept {
  const std::array<uint64_t, 2> halves = {random_of(secret, 2, sequence),
                                          random_of(secret, 3, sequence) | 1};
  return std::bit_cast<std::array<uint8_t, 16>>(halves);
}

std::string_view as_text(std::span<const uint8_t> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t stage_ns(const RequestRecord& record, Stage stage) noexcept {
  const uint64_t ns = record.stage_ns[static_cast<size_t>(stage)];
  return ns == RequestRecord::kAbsent ? 0 : ns;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

struct SpanBatch::Span {
  std::array<uint8_t, 16> trace_id;
  SpanId id;
  SpanId parent;  // zero: none
  uint32_t flags;
  std::string_view name;
  Kind kind;
  uint64_t begin_ns, end_ns;  // since the epoch
};

SpanBatch::SpanBatch(std::string_view service_name, std::span<const std::string_view> queue_types,
                     uint64_t secret)
    : queue_types_(queue_types), secret_(secret) {
  Message resource;
  put(resource, field::kResourceAttribute, "service.name", service_name);
  put(resource, field::kResourceAttribute, "service.version", LUMEN_VERSION);
  put(resource, field::kResourceAttribute, "host.name", host_name());
  put(resource, field::kResourceAttribute, "process.pid", static_cast<uint64_t>(::getpid()));
  resource_.message(field::kResource, resource);
  Message scope;
  scope.text(field::kScopeName, "lumen").text(field::kScopeVersion, LUMEN_VERSION);
  scope_.message(field::kScope, scope);
}

SpanBatch::SpanId SpanBatch::id_of(uint64_t sequence) const noexcept {
  return id_from(random_of(secret_, 0, sequence));
}

SpanBatch::SpanId SpanBatch::next_id() noexcept { return id_from(random_of(secret_, 1, ++ids_)); }

void SpanBatch::add(const RequestRecord& record, std::string_view model) {
  const bool is_step = record.is_step != 0;
  const bool has_parent = record.traceparent.is_present != 0;
  const auto begin_ns = static_cast<uint64_t>(std::max<int64_t>(record.received_wall_ns, 0));
  name_.assign(is_step ? "step " : "infer ").append(model);
  Span whole{
      .trace_id = has_parent ? record.traceparent.trace_id : new_trace_id(secret_, record.sequence),
      .id = is_step ? next_id() : id_of(record.sequence),
      .parent = {},
      .flags = has_parent ? record.traceparent.flags : kSampled,
      .name = name_,
      .kind = is_step ? kInternal : kServer,
      .begin_ns = begin_ns,
      .end_ns = begin_ns + stage_ns(record, Stage::kTotal)};
  if (is_step) {
    whole.parent = id_of(record.sequence);
    whole.flags |= kHasIsRemote;
  } else if (has_parent) {
    whole.parent = record.traceparent.parent_id;
    whole.flags |= kHasIsRemote | kIsRemote;
  }
  begin_span(whole);
  add_attributes(record, model);
  end_span();
  add_stages(record, whole);
  ++records_;
}

void SpanBatch::begin_span(const Span& span) {
  span_.clear();
  span_.text(field::kTraceId, as_text(span.trace_id)).text(field::kSpanId, as_text(span.id));
  if (span.parent != SpanId{}) span_.text(field::kParentSpanId, as_text(span.parent));
  span_.text(field::kName, span.name)
      .varint(field::kKind, span.kind)
      .fixed64(field::kBegin, span.begin_ns)
      .fixed64(field::kEnd, span.end_ns)
      .fixed32(field::kFlags, span.flags);
}

// A stage begins where the one before it ended; behind one that did not happen, as in a request
// that the cache has answered, they are found from the end.
void SpanBatch::add_stages(const RequestRecord& record, const Span& whole) {
  const auto first = static_cast<size_t>(record.is_step != 0 ? Stage::kQueue : Stage::kParse);
  constexpr auto kAfterLast = static_cast<size_t>(Stage::kTotal);
  const auto add_stage = [&](size_t stage, uint64_t begin_ns, uint64_t end_ns) {
    if (begin_ns == end_ns) return;
    Span span = whole;
    span.id = next_id();
    span.parent = whole.id;
    span.flags = (whole.flags & ~kIsRemote) | kHasIsRemote;
    span.name = telemetry::kStageNames[stage];
    span.kind = kInternal;
    span.begin_ns = begin_ns;
    span.end_ns = end_ns;
    begin_span(span);
    end_span();
  };
  size_t stage = first;
  for (uint64_t at = whole.begin_ns; stage < kAfterLast; ++stage) {
    const uint64_t ns = record.stage_ns[stage];
    if (ns == RequestRecord::kAbsent) break;
    add_stage(stage, at, at + ns);
    at += ns;
  }
  size_t last = kAfterLast;
  for (uint64_t at = whole.end_ns; last > stage; --last) {
    const uint64_t ns = record.stage_ns[last - 1];
    if (ns == RequestRecord::kAbsent) break;
    add_stage(last - 1, at - ns, at);
    at -= ns;
  }
}

// Names of the semantic conventions where there are some; the others are ours.
void SpanBatch::add_attributes(const RequestRecord& record, std::string_view model) {
  constexpr uint32_t kAttribute = field::kAttribute;
  put(span_, kAttribute, "lumen.model", model);
  if (record.rows != 0) put(span_, kAttribute, "lumen.rows", record.rows);
  put(span_, kAttribute, "lumen.lane", queue_type(record.lane));
  if (record.worker != RequestRecord::kNone) put(span_, kAttribute, "lumen.worker", record.worker);
  if (record.status >= 500) {
    value_.clear();
    span_.message(field::kStatus, value_.varint(field::kCode, kStatusError));
  }
  put(span_, kAttribute, "lumen.status", record.status);
  if (record.is_step != 0) return;
  const auto transport = static_cast<size_t>(record.transport);
  put(span_, kAttribute, "lumen.transport", telemetry::kTransportNames[transport]);
  if (record.transport == TransportKind::kHttp || record.transport == TransportKind::kHttp2) {
    put(span_, kAttribute, "http.request.method", "POST");
    put(span_, kAttribute, "http.response.status_code", record.status);
  } else if (record.transport == TransportKind::kGrpc) {
    put(span_, kAttribute, "rpc.system", "grpc");
  }
  const auto use = static_cast<size_t>(record.cache_use);
  if (use != 0) put(span_, kAttribute, "lumen.cache", telemetry::kCacheUseNames[use]);
  std::array<char, 20> number{};
  std::string_view id(record.id.data(), record.id_bytes);
  if (id.empty()) {
    char* const end =
        std::to_chars(number.data(), number.data() + number.size(), record.sequence).ptr;
    id = {number.data(), static_cast<size_t>(end - number.data())};
  }
  put(span_, kAttribute, "lumen.request_id", id);
}

void SpanBatch::put(Message& to, uint32_t field, std::string_view key, std::string_view value) {
  value_.clear();
  attribute_.clear();
  // A collector refuses a whole message for one such text.
  value_.text(field::kText, is_utf8(value) ? value : "(not UTF-8)");
  to.message(field, attribute_.text(field::kKey, key).message(field::kValue, value_));
}

void SpanBatch::put(Message& to, uint32_t field, std::string_view key, uint64_t value) {
  value_.clear();
  attribute_.clear();
  value_.varint(field::kInt, value);
  to.message(field, attribute_.text(field::kKey, key).message(field::kValue, value_));
}

std::string_view SpanBatch::queue_type(size_t index) const noexcept {
  return index < queue_types_.size() ? queue_types_[index] : std::string_view();
}

std::string_view SpanBatch::message() {
  const uint64_t scope_spans = scope_.bytes().size() + spans_.bytes().size();
  Message head;
  head.head(field::kScopeSpans, scope_spans);
  whole_.clear();
  whole_.head(field::kResourceSpans, resource_.bytes().size() + head.bytes().size() + scope_spans)
      .append(resource_)
      .append(head)
      .append(scope_)
      .append(spans_);
  return whole_.bytes();
}

void SpanBatch::clear() noexcept {
  spans_.clear();
  records_ = 0;
}

}  // namespace lumen::otlp
