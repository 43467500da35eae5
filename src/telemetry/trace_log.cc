// TraceLog: its options, its file, and the names of its counts.
// Threads: as the header says. Memory: all in open(). Errors: open() with a Status.
#include <lumen/telemetry/trace_log.h>

#include <system_error>
#include <utility>

#include "telemetry/csv_file.h"
#include "telemetry/csv_line.h"
#include "telemetry/trace_sink.h"

namespace lumen::telemetry {
namespace {

constexpr uint32_t kMostKept = 1000;
static_assert(TraceLog::kLeastMaxBytes > kTraceCsvHeader.size() + detail::kMaxCsvLineBytes);
static_assert(kTraceparentCsvHeader.size() < kTraceCsvHeader.size());

std::vector<std::string> csv_fields(std::span<const std::string_view> names) {
  std::vector<std::string> fields;
  for (const std::string_view name : names) fields.push_back(detail::csv_field(name));
  return fields;
}

detail::CsvNames csv_names(const TraceLogOptions& options) {
  detail::CsvNames names;
  names.queue_types = csv_fields(options.queue_types);
  names.allocator_types = csv_fields(options.allocator_types);
  return names;
}

Status check(const TraceLogOptions& o) {
  if (o.max_bytes != 0 && o.max_bytes < TraceLog::kLeastMaxBytes) {
    return Status::error(Code::kInvalidArgument,
                         "telemetry CSV: %llu bytes a file; at least %llu, or 0 for no bound",
                         static_cast<unsigned long long>(o.max_bytes),
                         static_cast<unsigned long long>(TraceLog::kLeastMaxBytes));
  }
  if (o.keep > kMostKept) {
    return Status::error(Code::kInvalidArgument, "telemetry CSV: %u old files kept; at most %u",
                         o.keep, kMostKept);
  }
  return {};
}

}  // namespace

TraceLog::TraceLog(TraceLogOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<TraceLog>> TraceLog::open(TraceLogOptions options) {
  LUMEN_RETURN_IF_ERROR(check(options));
  std::unique_ptr<TraceLog> log(new TraceLog(std::move(options)));
  LUMEN_RETURN_IF_ERROR(log->start());
  return log;
}

Status TraceLog::start() {
  // Absolute: the working directory may change, and the place is told to users.
  std::error_code error;
  path_ = std::filesystem::absolute(options_.path, error).lexically_normal();
  if (options_.path.empty() || error) {
    return Status::error(Code::kInvalidArgument, "telemetry CSV: \"%s\" is not a path",
                         options_.path.c_str());
  }
  Result<detail::CsvFile> file =
      detail::CsvFile::open(path_, kTraceCsvHeader, options_.max_bytes, options_.keep);
  if (!file.ok()) return file.status();
  sink_ = std::make_unique<detail::TraceSink>(
      std::move(*file), csv_names(options_),
      detail::NeighbourOptions{traceparent_path(path_), options_.max_bytes, options_.keep},
      options_.on_error);
  Result<std::unique_ptr<RecordLog>> log =
      RecordLog::start({.thread_name = "lumen-trace",
                        .buffer_bytes = options_.buffer_bytes,
                        .buffer_count = options_.buffer_count,
                        .max_threads = options_.max_threads,
                        .flush_delay_ns = options_.flush_delay_ns},
                       *sink_);
  if (!log.ok()) return log.status();
  log_ = std::move(*log);
  return {};
}

TraceLog::~TraceLog() = default;

void TraceLog::write(const RequestRecord& record) noexcept {
  if (!log_->write(record) && record.traceparent.is_present != 0) refused_traceparents_.add();
}

TraceLogCounters TraceLog::counters() const noexcept {
  return {.written = sink_->requests.written.get(),
          .dropped = sink_->requests.dropped.get() + log_->refused(),
          .write_errors = sink_->errors(),
          .rotations = sink_->requests.rotations.get() + sink_->traceparents.rotations.get(),
          .wakeups = log_->wakeups(),
          .traceparents_written = sink_->traceparents.written.get(),
          .traceparents_dropped = sink_->traceparents.dropped.get() + refused_traceparents_.get()};
}

void TraceLog::name_model(uint16_t model, std::string_view name) {
  (void)log_->flush();
  sink_->name_model(model, name);
}

Status TraceLog::last_error() const { return sink_->last_error(); }

std::filesystem::path TraceLog::traceparent_path(const std::filesystem::path& path) {
  return path.parent_path() / (path.stem().string() + ".traceparent.csv");
}

}  // namespace lumen::telemetry
