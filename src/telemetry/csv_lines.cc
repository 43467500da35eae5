// Chunks of lines to the file, rotation, and the fate of lines that it doesn't take.
// Threads: as the header says. Memory: at creation. Errors: counts.
#include "telemetry/csv_lines.h"

#include <cstring>
#include <utility>

namespace lumen::telemetry::detail {
namespace {

constexpr size_t kLeastLineBytes = 48;  // a timestamp alone has 27, sixteen fields 15 commas

}  // namespace

void CsvFailures::add(const Status& status, bool& was_told) noexcept {
  count_.add();
  {
    const std::scoped_lock lock(mutex_);
    last_ = status;
  }
  if (!was_told && on_error_) on_error_(status);
  was_told = true;
}

Status CsvFailures::last() const {
  const std::scoped_lock lock(mutex_);
  return last_;
}

CsvLines::CsvLines(CsvFile file, CsvCounts& counts, CsvFailures& failures)
    : file_(std::move(file)),
      counts_(counts),
      failures_(failures),
      chunk_(std::make_unique<char[]>(kChunkBytes)) {
  static_assert(kChunkBytes > 2 * kMaxCsvLineBytes);
  ends_.reserve(kChunkBytes / kLeastLineBytes);
}

void CsvLines::begin() noexcept {
  const CsvFile::Appended appended = file_.append({}, {});
  if (!appended.status.ok()) failures_.add(appended.status, told_);
}

void CsvLines::keep(const char* line, size_t bytes) noexcept {
  if (file_.is_full_for(chunk_bytes_, bytes)) {
    write_out();
    if (refused_) return counts_.dropped.add();
    rotate();
    std::memmove(chunk_.get(), line, bytes);
  }
  chunk_bytes_ += bytes;
  ends_.push_back(static_cast<uint32_t>(chunk_bytes_));
}

void CsvLines::rotate() noexcept {
  const Status status = file_.rotate();
  if (status.ok()) {
    counts_.rotations.add();
  } else {
    failures_.add(status, told_);
  }
}

void CsvLines::write_out() noexcept {
  if (ends_.empty()) return;
  const CsvFile::Appended appended = file_.append({chunk_.get(), chunk_bytes_}, ends_);
  counts_.written.add(appended.lines);
  counts_.dropped.add(ends_.size() - appended.lines);
  chunk_bytes_ = 0;
  ends_.clear();
  if (appended.status.ok()) {
    told_ = false;
  } else {
    refused_ = true;
    failures_.add(appended.status, told_);
  }
}

}  // namespace lumen::telemetry::detail
