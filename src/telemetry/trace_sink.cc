// Records to lines, lines to the file, and what becomes of those that it doesn't take.
// Threads: as the header says. Memory: none. Errors: counts.
#include "telemetry/trace_sink.h"

#include <cstring>
#include <utility>

namespace lumen::telemetry::detail {
namespace {

// One system call for some 500 lines; larger ones win nothing and cost cache.
constexpr size_t kChunkBytes = 64 * 1024;
constexpr size_t kLeastLineBytes = 48;  // a timestamp alone has 27, sixteen fields 15 commas

uint64_t hole_bytes(const SharedBuffer::Flushed& flushed) noexcept {
  uint64_t sum = 0;
  for (const SharedBuffer::Hole& hole : flushed.holes) sum += hole.bytes;
  return sum;
}

}  // namespace

TraceSink::TraceSink(CsvFile file, CsvNames names, std::function<void(const Status&)> on_error)
    : file_(std::move(file)),
      names_(std::move(names)),
      on_error_(std::move(on_error)),
      chunk_(std::make_unique<char[]>(kChunkBytes)) {
  static_assert(kChunkBytes > 2 * kMaxCsvLineBytes);
  ends_.reserve(kChunkBytes / kLeastLineBytes);
}

void TraceSink::begin() noexcept {
  const CsvFile::Appended appended = file_.append({}, {});
  if (!appended.status.ok()) failed(appended.status);
}

void TraceSink::name_model(uint16_t model, std::string_view name) {
  const std::lock_guard lock(names_mutex_);
  if (names_.models.size() <= model) names_.models.resize(size_t{model} + 1);
  names_.models[model] = csv_field(name);
}

void TraceSink::take(const SharedBuffer::Flushed& flushed) noexcept {
  const std::lock_guard lock(names_mutex_);
  refused_ = false;
  if (flushed.missing_bytes != hole_bytes(flushed)) {
    // Somewhere in it is an old record that nobody wrote over, and which one can't be told.
    return dropped.add(flushed.bytes.size() / sizeof(RequestRecord));
  }
  dropped.add(flushed.missing_bytes / sizeof(RequestRecord));
  for (const SharedBuffer::Extent& run : flushed.records) {
    for (size_t at = run.begin; at < run.begin + run.bytes; at += sizeof(RequestRecord)) {
      RequestRecord record;
      std::memcpy(&record, flushed.bytes.data() + at, sizeof record);
      add(record);
    }
  }
  write_out();
}

void TraceSink::add(const RequestRecord& record) noexcept {
  if (chunk_bytes_ + kMaxCsvLineBytes > kChunkBytes) write_out();
  // The disk has just said no: it is asked again with the next buffer.
  if (refused_) return dropped.add();
  char* const begin = chunk_.get() + chunk_bytes_;
  const auto bytes = static_cast<size_t>(write_csv_line(record, names_, begin) - begin);
  if (file_.is_full_for(chunk_bytes_, bytes)) {
    write_out();
    if (refused_) return dropped.add();
    rotate();
    std::memmove(chunk_.get(), begin, bytes);
  }
  chunk_bytes_ += bytes;
  ends_.push_back(static_cast<uint32_t>(chunk_bytes_));
}

void TraceSink::rotate() noexcept {
  const Status status = file_.rotate();
  if (status.ok()) {
    rotations.add();
  } else {
    failed(status);
  }
}

void TraceSink::write_out() noexcept {
  if (ends_.empty()) return;
  const CsvFile::Appended appended = file_.append({chunk_.get(), chunk_bytes_}, ends_);
  written.add(appended.lines);
  dropped.add(ends_.size() - appended.lines);
  chunk_bytes_ = 0;
  ends_.clear();
  if (appended.status.ok()) {
    told_ = false;
  } else {
    refused_ = true;
    failed(appended.status);
  }
}

void TraceSink::failed(const Status& status) noexcept {
  errors.add();
  {
    const std::scoped_lock lock(mutex_);
    last_error_ = status;
  }
  if (!told_ && on_error_) on_error_(status);
  told_ = true;
}

Status TraceSink::last_error() const {
  const std::scoped_lock lock(mutex_);
  return last_error_;
}

}  // namespace lumen::telemetry::detail
