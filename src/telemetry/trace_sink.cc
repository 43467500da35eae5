// Records to lines of the two files. Threads: as the header says. Memory: the neighbour's, once.
// Errors: counts.
#include "telemetry/trace_sink.h"

#include <lumen/telemetry/trace_log.h>

#include <exception>
#include <utility>

namespace lumen::telemetry::detail {

TraceSink::TraceSink(CsvFile file, CsvNames names, NeighbourOptions neighbour,
                     std::function<void(const Status&)> on_error)
    : names_(std::move(names)),
      failures_(std::move(on_error)),
      requests_(std::move(file), requests, failures_),
      neighbour_(std::move(neighbour)) {}

void TraceSink::name_model(uint16_t model, std::string_view name) {
  const std::lock_guard lock(names_mutex_);
  if (names_.models.size() <= model) names_.models.resize(size_t{model} + 1);
  names_.models[model] = csv_field(name);
}

void TraceSink::take(const SharedBuffer::Flushed& flushed) noexcept {
  const std::lock_guard lock(names_mutex_);
  requests_.begin_buffer();
  if (traceparents_) traceparents_->begin_buffer();
  neighbour_was_refused_ = false;
  requests.dropped.add(
      for_each_record(flushed, [this](const RequestRecord& record) { add(record); }));
  requests_.write_out();
  if (traceparents_) traceparents_->write_out();
}

Status TraceSink::reopen() noexcept {
  const Status status = requests_.reopen();
  const Status of_neighbour = traceparents_ ? traceparents_->reopen() : Status();
  return status.ok() ? of_neighbour : status;
}

void TraceSink::add(const RequestRecord& record) noexcept {
  requests_.add([&](char* out) { return write_csv_line(record, names_, time_, out); });
  // Beside a pipe or a terminal no file would be found.
  if (record.traceparent.is_present == 0 || !requests_.is_regular()) return;
  if (!open_neighbour()) return traceparents.dropped.add();
  traceparents_->add([&](char* out) { return write_traceparent_line(record, time_, out); });
}

// Another server may write it, or the disk be full: it is tried again with the next buffer.
bool TraceSink::open_neighbour() noexcept {
  if (traceparents_) return true;
  if (neighbour_was_refused_) return false;
  Status status;
  try {
    Result<CsvFile> file = CsvFile::open(neighbour_.path, kTraceparentCsvHeader,
                                         neighbour_.max_bytes, neighbour_.keep);
    if (file.ok()) {
      traceparents_.emplace(std::move(*file), traceparents, failures_);
      return true;
    }
    status = file.status();
  } catch (const std::exception& e) {
    status = Status::error(Code::kInternal, "telemetry CSV %s: can't open it: %s",
                           neighbour_.path.c_str(), e.what());
  }
  neighbour_was_refused_ = true;
  failures_.add(status, neighbour_was_told_);
  return false;
}

}  // namespace lumen::telemetry::detail
