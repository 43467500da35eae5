// The thread's work: names, batches, attempts to send. See the header.
#include <lumen/otlp/span_exporter.h>

#include "otlp/span_batch.h"

#include <lumen/base/clock.h>
#include <lumen/client/fetch.h>
#include <lumen/client/target.h>
#include <lumen/otlp/endpoint.h>
#include <lumen/wire/protobuf.h>

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lumen::otlp {
namespace {

using telemetry::RequestRecord;

// Of a message: a lost one costs about 1,400 requests. OpenTelemetry's collector takes 20 MiB.
constexpr size_t kMostMessageBytes = size_t{1} << 20;
constexpr int kMostAttempts = 4;
// A Retry-After counts up to this, so that records of later requests still find room.
constexpr uint64_t kMostDelayNs = 5'000'000'000;
// Names that an index had before; records of so many models ago are not waiting any more.
constexpr size_t kMostNames = 8;
constexpr std::string_view kDefaultPath = "/v1/traces";

int64_t wall_ns() noexcept {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  return int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
}

// Whether the same message may be taken later: by the specification of OTLP/HTTP, "Failures".
bool may_be_taken_later(int status) noexcept {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

// Spans that the collector has refused of a message that it took, by ExportTraceServiceResponse.
uint64_t rejected_spans(std::string_view reply) noexcept {
  constexpr uint32_t kPartialSuccess = 1, kRejectedSpans = 1;
  uint64_t rejected = 0;
  wire::ProtobufReader outer(reply);
  for (wire::ProtobufField part; outer.next(part);) {
    if (part.number != kPartialSuccess || part.wire != wire::ProtobufWire::kBytes) continue;
    wire::ProtobufReader inner(part.bytes);
    for (wire::ProtobufField field; inner.next(field);) {
      const bool is_count =
          field.number == kRejectedSpans && field.wire == wire::ProtobufWire::kVarint;
      if (is_count) rejected = field.value;
    }
  }
  return rejected;
}

class Exporter final : public SpanExporter, private telemetry::RecordSink {
 public:
  Exporter(SpanExporterOptions options, uint64_t secret)
      : options_(std::move(options)), batch_(options_.service_name, options_.queue_types, secret) {}
  ~Exporter() override { close(); }

  Status start() {
    LUMEN_RETURN_IF_ERROR(check_endpoint(options_.endpoint));
    // Said at once, and no reason not to serve.
    if (const Status status = find_target(); !status.ok()) {
      if (status.code() == Code::kInvalidArgument) return status;
      tell(status);
    }
    Result<std::unique_ptr<telemetry::RecordLog>> log = telemetry::RecordLog::start(
        {.thread_name = "lumen-otlp", .flush_delay_ns = options_.flush_delay_ns}, *this);
    if (!log.ok()) return log.status();
    log_ = std::move(*log);
    return {};
  }

  telemetry::RecordLog& log() noexcept override { return *log_; }

  void name_model(uint16_t model, std::string_view name) override {
    const std::lock_guard lock(names_mutex_);
    if (names_.size() <= model) names_.resize(size_t{model} + 1);
    std::vector<Name>& names = names_[model];
    names.push_back({wall_ns(), std::string(name)});
    if (names.size() > kMostNames) names.erase(names.begin());
  }

  SpanExporterCounters counters() const noexcept override {
    return {.exported = exported_.get(),
            .dropped = dropped_.get() + (log_ == nullptr ? 0 : log_->refused()),
            .failures = failures_.get(),
            .rejected_spans = rejected_.get()};
  }

  void close() noexcept override {
    {
      const std::lock_guard lock(closing_mutex_);
      is_closing_ = true;
    }
    closing_condition_.notify_all();
    if (log_ != nullptr) log_->close();
  }

 private:
  struct Name {
    int64_t since_ns;
    std::string text;
  };
  struct Attempt {
    Status status;
    bool may_succeed_later = false;
    uint64_t delay_ns = 0;  // as the collector wants it
  };

  // By "lumen-otlp".
  void take(const SharedBuffer::Flushed& flushed) noexcept override {
    dropped_.add(telemetry::for_each_record(flushed, [this](const RequestRecord& record) {
      add(record);
      if (batch_.bytes() >= kMostMessageBytes) send();
    }));
    send();
  }

  void add(const RequestRecord& record) noexcept {
    try {
      const std::lock_guard lock(names_mutex_);
      batch_.add(record, name_of(record));
    } catch (const std::exception& e) {
      dropped_.add();
      tell(no_memory(e));
    }
  }

  [[nodiscard]] std::string_view name_of(const RequestRecord& record) const noexcept {
    std::string_view name;
    if (record.model >= names_.size()) return name;
    for (const Name& one : names_[record.model]) {
      if (name.empty() || one.since_ns <= record.received_wall_ns) name = one.text;
    }
    return name;
  }

  static Status no_memory(const std::exception& e) noexcept {
    return Status::error(Code::kNoMemory, "no memory for a message: %s", e.what());
  }

  // The batch is empty afterwards.
  void send() noexcept {
    const size_t records = batch_.records();
    if (records == 0) return;
    Status status;
    try {
      status = send_until_taken();
    } catch (const std::exception& e) {
      status = no_memory(e);
    }
    if (status.ok()) {
      exported_.add(records);
      is_failing_ = false;
    } else {
      dropped_.add(records);
      tell(status);
    }
    batch_.clear();
  }

  // The first message that is lost has all attempts; those after it one each, until one is taken.
  Status send_until_taken() {
    if (is_failing_ && is_closing()) {
      return Status::error(Code::kUnavailable,
                           "the server stops, and the collector did not answer");
    }
    const int attempts = is_failing_ ? 1 : kMostAttempts;
    uint64_t delay_ns = options_.first_delay_ns;
    for (int i = 1;; ++i, delay_ns *= 2) {
      Attempt attempt = send_once();
      if (attempt.status.ok()) return {};
      failures_.add();
      if (i == attempts || !attempt.may_succeed_later) return attempt.status;
      if (!wait(std::min(std::max(delay_ns, attempt.delay_ns), kMostDelayNs))) {
        return attempt.status;
      }
    }
  }

  Attempt send_once() {
    if (!target_) {
      if (const Status status = find_target(); !status.ok()) return {status, true};
    }
    // target_ has the path of the endpoint, and puts it before this one.
    const std::string_view path = target_->base_path.empty() ? kDefaultPath : std::string_view();
    const Result<client::Reply> reply = client::post(*target_, path, "application/x-protobuf",
                                                     batch_.message(), options_.timeout_ns);
    if (!reply.ok()) {
      target_.reset();  // its name may mean another address by now
      return {reply.status(), true};
    }
    if (reply->status / 100 == 2) {
      note_rejected(*reply);
      return {};
    }
    const bool later = may_be_taken_later(reply->status);
    const uint64_t delay_s = std::min<uint64_t>(reply->retry_after_s.value_or(0), 3600);
    return {
        Status::error(later ? Code::kUnavailable : Code::kInvalidArgument,
                      "the collector at %s answered %d%s", options_.endpoint.c_str(), reply->status,
                      reply->status == 404 ? "; wanted the URL of its OTLP/HTTP receiver, as "
                                             "http://127.0.0.1:4318"
                                           : ""),
        later, delay_s * 1'000'000'000};
  }

  // Of a message that was taken some spans may have been refused: no later attempt helps them.
  void note_rejected(const client::Reply& reply) noexcept {
    const uint64_t rejected = rejected_spans(reply.body);
    rejected_.add(rejected);
    if (!std::exchange(was_rejected_, rejected != 0) && rejected != 0) {
      say(Status::error(
          Code::kInvalidArgument, "the collector at %s refused %llu spans of %zu requests",
          options_.endpoint.c_str(), static_cast<unsigned long long>(rejected), batch_.records()));
    }
  }

  Status find_target() {
    Result<client::Target> target = client::parse_target(options_.endpoint, kEndpointForms);
    if (!target.ok()) return target.status();
    target_ = std::move(*target);
    return {};
  }

  // False: the server stops.
  bool wait(uint64_t ns) {
    std::unique_lock lock(closing_mutex_);
    return !closing_condition_.wait_for(lock, std::chrono::nanoseconds(ns),
                                        [this] { return is_closing_; });
  }
  bool is_closing() {
    const std::lock_guard lock(closing_mutex_);
    return is_closing_;
  }

  // Once until the collector has taken a message again.
  void tell(const Status& status) noexcept {
    if (std::exchange(is_failing_, true)) return;
    say(Status::error(status.code(),
                      "%s; spans are dropped until it takes them "
                      "(lumen_otlp_records_dropped_total counts)",
                      status.c_message()));
  }
  void say(const Status& status) noexcept {
    if (options_.on_error == nullptr) return;
    try {
      options_.on_error(status.at("otlp_endpoint"));
    } catch (const std::exception&) {
      failures_.add();  // there is no memory to say it
    }
  }

  const SpanExporterOptions options_;
  std::mutex names_mutex_;
  std::vector<std::vector<Name>> names_;  // by index, the oldest first
  // Of "lumen-otlp".
  SpanBatch batch_;
  std::optional<client::Target> target_;  // nullopt: to be found
  bool is_failing_ = false;
  bool was_rejected_ = false;  // a span of the last message

  std::mutex closing_mutex_;
  std::condition_variable closing_condition_;
  bool is_closing_ = false;
  telemetry::SharedCounter exported_, dropped_, failures_, rejected_;
  std::unique_ptr<telemetry::RecordLog> log_;
};

}  // namespace

Result<std::unique_ptr<SpanExporter>> SpanExporter::start(SpanExporterOptions options) {
  uint64_t secret = 0;
  if (::getrandom(&secret, sizeof secret, 0) != sizeof secret) {
    return Status::from_errno(errno, "no random number for the ids of spans");
  }
  auto exporter = std::make_unique<Exporter>(std::move(options), secret);
  LUMEN_RETURN_IF_ERROR(exporter->start());
  return std::unique_ptr<SpanExporter>(std::move(exporter));
}

}  // namespace lumen::otlp
