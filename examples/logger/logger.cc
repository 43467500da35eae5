// A log file that many threads write to without a lock: each line is formatted straight into the
// shared buffer, and one background thread writes full buffers to the file.
// Threads: four that log, one that writes. Memory: the buffer, at start.
// Errors: exit 1 when the file cannot be written or a line is missing from it.
#include <lumen/base/unique_fd.h>
#include <lumen/memory/shared_buffer.h>

#include <fcntl.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

// The flush callback: one write() a megabyte. `bytes` has no gaps in dense mode.
void write_out(void* fd, const lumen::SharedBuffer::Flushed& flushed) noexcept {
  const char* at = reinterpret_cast<const char*>(flushed.bytes.data());
  for (size_t left = flushed.bytes.size(); left != 0;) {
    const ssize_t n = ::write(static_cast<lumen::UniqueFd*>(fd)->get(), at, left);
    if (n <= 0) std::abort();
    at += n;
    left -= static_cast<size_t>(n);
  }
}

[[gnu::format(printf, 2, 3)]]
void log(lumen::SharedBuffer::Writer& writer, const char* format, ...) {
  char line[512];
  va_list args;
  va_start(args, format);
  const int wanted = std::vsnprintf(line, sizeof(line), format, args);
  va_end(args);
  const size_t size = std::min(static_cast<size_t>(std::max(wanted, 0)), sizeof(line) - 1);
  std::byte* place = writer.reserve(size + 1);
  if (place == nullptr) return;  // dropped, and counted, when the disk cannot follow
  std::copy_n(reinterpret_cast<std::byte*>(line), size, place);
  place[size] = std::byte{'\n'};
  writer.commit();
}

}  // namespace

int main() {
  constexpr int kThreads = 4, kLines = 20'000;
  char path[] = "/tmp/lumen_logger_XXXXXX";
  lumen::UniqueFd file(::mkstemp(path));
  if (!file.valid()) return 1;
  lumen::SharedBuffer::Options options;
  options.flush_by_writers = false;
  options.flush = &write_out;
  options.context = &file;
  auto buffer = lumen::SharedBuffer::create(options);
  if (!buffer.ok()) return 1;

  std::thread flusher([&] { (*buffer)->run_flusher(); });
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto writer = (*buffer)->writer();
      for (int i = 0; writer.ok() && i < kLines; ++i) log(*writer, "thread %d line %d", t, i);
    });
  }
  for (std::thread& t : threads) t.join();
  (*buffer)->close();
  flusher.join();

  int lines = 0;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines += line.starts_with("thread ") ? 1 : 0;
  std::printf("%d lines of %d in %s\n", lines, kThreads * kLines, path);
  ::unlink(path);
  return lines == kThreads * kLines ? 0 : 1;
}
