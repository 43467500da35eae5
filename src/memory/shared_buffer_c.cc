// The C face of SharedBuffer. Threads: as lumen/c/shared_buffer.h says.
// Memory: one object in create, one in attach; none elsewhere.
// Errors: NULL with the reason copied into the caller's `error`; no exception leaves.
#include <lumen/c/shared_buffer.h>

#include <lumen/base/clock.h>
#include <lumen/memory/shared_buffer.h>

#include <cstring>
#include <new>

using lumen::SharedBuffer;

struct lumen_sb {
  std::unique_ptr<SharedBuffer> buffer;
  lumen_sb_flush_function flush;
  void* context;
};

struct lumen_sb_writer {
  SharedBuffer::Writer writer;
};

namespace {

// The spans of a Flushed are handed on as they lie, without a copy.
static_assert(sizeof(lumen_sb_extent) == sizeof(SharedBuffer::Extent));
static_assert(offsetof(lumen_sb_extent, bytes) == offsetof(SharedBuffer::Extent, bytes));
static_assert(sizeof(lumen_sb_hole) == sizeof(SharedBuffer::Hole));
static_assert(offsetof(lumen_sb_hole, thread_id) == offsetof(SharedBuffer::Hole, thread_id));
static_assert(offsetof(lumen_sb_hole, thread_gone) == offsetof(SharedBuffer::Hole, thread_gone));
static_assert(LUMEN_SB_CHUNKED == static_cast<int>(SharedBuffer::Mode::kChunked));
static_assert(LUMEN_SB_DROP == static_cast<int>(SharedBuffer::WhenFull::kDrop));
static_assert(LUMEN_SB_TOO_LARGE == static_cast<int>(SharedBuffer::Refusal::kTooLarge));
static_assert(LUMEN_SB_DROPPED == static_cast<int>(SharedBuffer::Refusal::kDropped));
static_assert(LUMEN_SB_CLOSED == static_cast<int>(SharedBuffer::Refusal::kClosed));

void forward(void* context, const SharedBuffer::Flushed& flushed) noexcept {
  const auto& self = *static_cast<const lumen_sb*>(context);
  lumen_sb_flushed out = {};
  out.sequence = flushed.sequence;
  out.data = flushed.bytes.data();
  out.bytes = flushed.bytes.size();
  out.records = reinterpret_cast<const lumen_sb_extent*>(flushed.records.data());
  out.record_runs = flushed.records.size();
  out.holes = reinterpret_cast<const lumen_sb_hole*>(flushed.holes.data());
  out.hole_count = flushed.holes.size();
  out.missing_bytes = flushed.missing_bytes;
  out.forced = flushed.forced ? 1 : 0;
  self.flush(self.context, &out);
}

std::nullptr_t fail(std::string_view reason, char* error, size_t error_bytes) {
  if (error != nullptr && error_bytes != 0) {
    const size_t n = std::min(reason.size(), error_bytes - 1);
    std::memcpy(error, reason.data(), n);
    error[n] = '\0';
  }
  return nullptr;
}

SharedBuffer::Options options_from(const lumen_sb_options& in) {
  SharedBuffer::Options o;
  o.mode = in.mode == LUMEN_SB_CHUNKED ? SharedBuffer::Mode::kChunked : SharedBuffer::Mode::kDense;
  o.when_full =
      in.when_full == LUMEN_SB_DROP ? SharedBuffer::WhenFull::kDrop : SharedBuffer::WhenFull::kWait;
  o.flush_by_writers = in.flush_by_writers != 0;
  o.buffer_bytes = in.buffer_bytes;
  o.buffer_count = in.buffer_count;
  o.max_writers = in.max_writers;
  o.chunk_bytes = in.chunk_bytes;
  o.stall_timeout_ns = in.stall_timeout_ns;
  o.flush = in.flush == nullptr ? nullptr : &forward;
  return o;
}

}  // namespace

extern "C" {

lumen_sb_options lumen_sb_default_options(void) {
  const SharedBuffer::Options o;
  lumen_sb_options out = {};
  out.version = LUMEN_SB_VERSION;
  out.flush_by_writers = 1;
  out.buffer_bytes = o.buffer_bytes;
  out.buffer_count = o.buffer_count;
  out.max_writers = o.max_writers;
  out.chunk_bytes = o.chunk_bytes;
  out.stall_timeout_ns = o.stall_timeout_ns;
  return out;
}

lumen_sb* lumen_sb_create(const lumen_sb_options* options, void* memory, size_t memory_bytes,
                          char* error, size_t error_bytes) {
  if (options == nullptr || options->version != LUMEN_SB_VERSION ||
      options->mode > LUMEN_SB_CHUNKED || options->when_full > LUMEN_SB_DROP) {
    return fail(
        "lumen_sb_create: no options, or of another version, mode or when_full; begin with "
        "lumen_sb_default_options()",
        error, error_bytes);
  }
  std::unique_ptr<lumen_sb> self(  // alloc: at start
      new (std::nothrow) lumen_sb{nullptr, options->flush, options->context});
  if (self == nullptr) return fail("lumen_sb_create: out of memory", error, error_bytes);
  SharedBuffer::Options o = options_from(*options);
  o.context = self.get();
  auto buffer = memory == nullptr
                    ? SharedBuffer::create(o)
                    : SharedBuffer::create(o, {static_cast<std::byte*>(memory), memory_bytes});
  if (!buffer.ok()) return fail(buffer.status().message(), error, error_bytes);
  self->buffer = std::move(*buffer);
  return self.release();
}

void lumen_sb_destroy(lumen_sb* buffer) { delete buffer; }  // alloc: at the end

lumen_sb_writer* lumen_sb_attach(lumen_sb* buffer, char* error, size_t error_bytes) {
  auto writer = buffer->buffer->writer();
  if (!writer.ok()) return fail(writer.status().message(), error, error_bytes);
  auto* out = new (std::nothrow) lumen_sb_writer{std::move(*writer)};  // alloc: once a thread
  if (out == nullptr) return fail("lumen_sb_attach: out of memory", error, error_bytes);
  return out;
}

void lumen_sb_detach(lumen_sb_writer* writer) { delete writer; }  // alloc: once a thread

void* lumen_sb_reserve(lumen_sb_writer* writer, size_t bytes) {
  return writer->writer.reserve(bytes);
}

void* lumen_sb_try_reserve(lumen_sb_writer* writer, size_t bytes) {
  return writer->writer.try_reserve(bytes);
}

void lumen_sb_commit(lumen_sb_writer* writer) { writer->writer.commit(); }

uint32_t lumen_sb_why(const lumen_sb_writer* writer) {
  return static_cast<uint32_t>(writer->writer.refusal());
}

void lumen_sb_seal(lumen_sb* buffer) { buffer->buffer->seal(); }

size_t lumen_sb_flush_ready(lumen_sb* buffer) { return buffer->buffer->flush_ready(); }

bool lumen_sb_flush(lumen_sb* buffer, uint64_t timeout_ns) {
  const uint64_t now = lumen::now_ns();
  return buffer->buffer->flush(timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns);
}

void lumen_sb_run_flusher(lumen_sb* buffer) { buffer->buffer->run_flusher(); }

void lumen_sb_close(lumen_sb* buffer) { buffer->buffer->close(); }

lumen_sb_statistics lumen_sb_get_statistics(const lumen_sb* buffer) {
  const SharedBuffer::Stats s = buffer->buffer->stats();
  return {s.buffers_flushed,
          s.bytes_flushed,
          s.wasted_bytes,
          s.missing_bytes,
          s.incomplete_buffers,
          s.abandoned_records,
          s.dropped_records,
          s.dropped_bytes,
          s.waits,
          s.quarantined_buffers,
          s.writers};
}

}  // extern "C"
