// SpanBatch: ids, parents and times of the spans of any record, read back from the message.
// Threads: one. Memory: the heap. Errors: by gtest. Python's decoder of OpenTelemetry judges the
// rest (tests/integration/test_otlp.py).
#include "otlp/span_batch.h"

#include <lumen/telemetry/stages.h>
#include <lumen/wire/protobuf.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace lumen::otlp {
namespace {

using telemetry::RequestRecord;
using telemetry::Stage;
using wire::ProtobufField;
using wire::ProtobufReader;

constexpr std::array<std::string_view, 2> kQueues = {"mpmc", "inline"};

struct Span {
  std::string trace_id, id, parent, name;
  uint64_t kind = 0, begin_ns = 0, end_ns = 0, flags = 0;
};

std::vector<std::string_view> parts(std::string_view message, uint32_t number) {
  std::vector<std::string_view> found;
  ProtobufReader reader(message);
  for (ProtobufField field; reader.next(field);) {
    if (field.number == number) found.push_back(field.bytes);
  }
  EXPECT_FALSE(reader.is_broken());
  return found;
}

Span read_span(std::string_view message) {
  Span span;
  ProtobufReader reader(message);
  for (ProtobufField field; reader.next(field);) {
    switch (field.number) {
      case 1: span.trace_id = field.bytes; break;
      case 2: span.id = field.bytes; break;
      case 4: span.parent = field.bytes; break;
      case 5: span.name = field.bytes; break;
      case 6: span.kind = field.value; break;
      case 7: span.begin_ns = field.value; break;
      case 8: span.end_ns = field.value; break;
      case 16: span.flags = field.value; break;
      default: break;
    }
  }
  EXPECT_FALSE(reader.is_broken());
  return span;
}

std::vector<Span> spans_of(SpanBatch& batch) {
  std::vector<Span> spans;
  for (const std::string_view resource_spans : parts(batch.message(), 1)) {
    for (const std::string_view scope_spans : parts(resource_spans, 2)) {
      for (const std::string_view span : parts(scope_spans, 2)) spans.push_back(read_span(span));
    }
  }
  return spans;
}

class RandomRecords {
 public:
  // Stages as requests have them: those at the end are there or not, one after the other.
  RequestRecord next() {
    RequestRecord record;
    record.sequence = ++sequence_;
    record.received_wall_ns = 1'700'000'000'000'000'000 + static_cast<int64_t>(random_() >> 20);
    record.is_step = below(4) == 0 ? 1 : 0;
    const size_t absent_from = 1 + below(7), absent_to = absent_from + below(8 - absent_from);
    uint64_t total = 0;
    const size_t first = record.is_step != 0 ? 2 : 1;
    for (size_t stage = first; stage < 7; ++stage) {
      const bool is_absent = stage >= absent_from && stage < absent_to;
      const uint64_t ns = below(3) == 0 ? 0 : below(1'000'000);
      total += ns;
      if (!is_absent) record.stage_ns[stage] = ns;
    }
    record.stage_ns[static_cast<size_t>(Stage::kTotal)] = total;
    record.status = below(2) == 0 ? 200 : 503;
    record.worker = static_cast<uint16_t>(below(2) == 0 ? RequestRecord::kNone : below(64));
    record.lane = below(16) & 0xF;
    record.rows = static_cast<uint32_t>(below(3));
    if (below(2) == 0) {
      record.traceparent.is_present = 1;
      record.traceparent.flags = 1;
      for (uint8_t& byte : record.traceparent.trace_id) byte = static_cast<uint8_t>(random_());
      for (uint8_t& byte : record.traceparent.parent_id) byte = static_cast<uint8_t>(random_());
    }
    return record;
  }
  uint64_t below(uint64_t bound) { return random_() % bound; }

 private:
  std::mt19937_64 random_{27};
  uint64_t sequence_ = 0;
};

TEST(SpanBatch, EachRecordIsASpanAndItsStagesLieWithinIt) {
  SpanBatch batch("a service", kQueues, 7);
  RandomRecords records;
  std::set<std::string> ids;
  for (int i = 0; i < 5000; ++i) {
    const RequestRecord record = records.next();
    batch.clear();
    batch.add(record, "mlp");
    ASSERT_EQ(batch.records(), 1u);
    const std::vector<Span> spans = spans_of(batch);
    const Span& whole = spans.at(0);
    EXPECT_EQ(whole.name, record.is_step != 0 ? "step mlp" : "infer mlp");
    EXPECT_EQ(whole.begin_ns, static_cast<uint64_t>(record.received_wall_ns));
    EXPECT_EQ(whole.end_ns - whole.begin_ns, record.stage_ns[7]);
    EXPECT_EQ(whole.flags & 0xFF, 1u);
    std::map<std::string, uint64_t> found;
    for (const Span& span : spans) {
      EXPECT_EQ(span.trace_id, whole.trace_id);
      EXPECT_EQ(span.trace_id.size(), 16u);
      EXPECT_EQ(span.id.size(), 8u);
      EXPECT_TRUE(ids.insert(span.id).second)
          << "an id that was there before, at " << i << " " << span.name;
      EXPECT_NE(span.flags & 0x100, uint64_t{span.parent.empty()} << 8);
      if (&span == &whole) continue;
      EXPECT_EQ(span.parent, whole.id);
      EXPECT_EQ(span.kind, 1u);
      EXPECT_GE(span.begin_ns, whole.begin_ns);
      EXPECT_LE(span.end_ns, whole.end_ns);
      EXPECT_TRUE(found.emplace(span.name, span.end_ns - span.begin_ns).second);
    }
    // Each stage that took time is there, but for those behind one absent and before another.
    for (const auto& [name, ns] : found) {
      const auto at = std::ranges::find(telemetry::kStageNames, name);
      ASSERT_NE(at, telemetry::kStageNames.end());
      EXPECT_EQ(ns, record.stage_ns[static_cast<size_t>(at - telemetry::kStageNames.begin())]);
    }
  }
}

TEST(SpanBatch, StepsNameTheSpanOfTheirRequestAsParentInAnotherMessageToo) {
  SpanBatch batch("a service", kQueues, 7);
  RandomRecords records;
  for (int i = 0; i < 200; ++i) {
    RequestRecord whole = records.next();
    whole.is_step = 0;
    batch.clear();
    batch.add(whole, "both");
    const Span parent = spans_of(batch).at(0);
    EXPECT_EQ(parent.kind, 2u);
    EXPECT_EQ(parent.parent.size(), whole.traceparent.is_present != 0 ? 8u : 0u);
    EXPECT_EQ((parent.flags & 0x200) != 0, whole.traceparent.is_present != 0);
    RequestRecord step = whole;
    step.is_step = 1;
    batch.clear();
    batch.add(step, "front");
    batch.add(step, "back");
    std::set<std::string> ids;
    for (const Span& span : spans_of(batch)) {
      EXPECT_EQ(span.trace_id, parent.trace_id);
      if (!span.name.starts_with("step ")) continue;
      EXPECT_EQ(span.parent, parent.id);
      EXPECT_EQ(span.flags & 0x200, 0u);
      ids.insert(span.id);
    }
    EXPECT_EQ(ids.size(), 2u);
  }
}

// A decoder of proto3 refuses the whole message for it, with the spans of all other requests.
TEST(SpanBatch, ATextThatIsNoUtf8IsReplaced) {
  SpanBatch batch("\xff service", kQueues, 7);
  RequestRecord record;
  record.sequence = 1;
  record.id = {'\xc3', 'x'};
  record.id_bytes = 2;
  batch.add(record, "mlp");
  const std::string message(batch.message());
  EXPECT_EQ(message.find("\xff service"), message.npos);
  EXPECT_EQ(message.find("\xc3x"), message.npos);
  EXPECT_NE(message.find("lumen.request_id"), message.npos);
  EXPECT_NE(message.find("(not UTF-8)"), message.rfind("(not UTF-8)"));
}

TEST(SpanBatch, ServersWithOtherSecretsHaveOtherIds) {
  RequestRecord record;
  record.sequence = 1;
  std::set<std::string> ids, traces;
  for (uint64_t secret = 0; secret < 100; ++secret) {
    SpanBatch batch("a service", kQueues, secret);
    batch.add(record, "mlp");
    const Span span = spans_of(batch).at(0);
    ids.insert(span.id);
    traces.insert(span.trace_id);
  }
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_EQ(traces.size(), 100u);
}

}  // namespace
}  // namespace lumen::otlp
