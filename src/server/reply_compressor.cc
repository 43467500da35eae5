// See the header for threads, memory and errors.
#include "server/reply_compressor.h"

#include <lumen/base/cpu.h>

#include <cstring>
#include <utility>

namespace lumen::server {
namespace {

// A body behind more than this, that which is being compressed included, is sent as it is: a large
// one would hold up the small ones of other clients. Some 40 ms of work.
constexpr size_t kMostWaitingBytes = size_t{4} << 20;
// A body that gets smaller by less than one part in so many is sent as it is: the client's work of
// reading it would be for nothing.
constexpr size_t kLeastGain = 16;

// In one piece; empty: there is no memory.
std::span<const std::byte> whole_body(const service::CompressionJob& job) noexcept {
  if (job.pieces.size() == 1) return job.pieces.front();
  const std::span<std::byte> whole = job.memory->allocate_array<std::byte>(job.bytes);
  if (whole.size() != job.bytes) return {};
  size_t used = 0;
  for (const std::span<const std::byte> piece : job.pieces) {
    std::memcpy(whole.data() + used, piece.data(), piece.size());
    used += piece.size();
  }
  return whole;
}

}  // namespace

Result<std::unique_ptr<ReplyCompressor>> ReplyCompressor::create() {
  std::optional<wire::Deflater> deflater = wire::Deflater::create();
  if (!deflater) return Status::error(Code::kNoMemory, "no memory for compressing replies");
  return std::unique_ptr<ReplyCompressor>(new ReplyCompressor(*std::move(deflater)));
}

ReplyCompressor::ReplyCompressor(wire::Deflater deflater)
    : deflater_(std::move(deflater)), thread_([this] { run(); }) {}

bool ReplyCompressor::submit(service::CompressionJob& job) noexcept {
  // relaxed: a number alone; the jobs are handed over by the stack
  const size_t before = waiting_bytes_.fetch_add(job.bytes, std::memory_order_relaxed);
  if (before > kMostWaitingBytes) {
    waiting_bytes_.fetch_sub(job.bytes, std::memory_order_relaxed);  // relaxed: as above
    return false;
  }
  jobs_.push(job);
  return true;
}

void ReplyCompressor::join() {
  jobs_.stop();
  if (thread_.joinable()) thread_.join();
}

void ReplyCompressor::run() {
  name_this_thread("lumen-compress");
  while (service::CompressionJob* job = jobs_.take_all()) {
    while (job != nullptr) {
      service::CompressionJob* const next = job->next;
      compress(*job);
      // Not before: others would wait for it unseen.
      waiting_bytes_.fetch_sub(job->bytes, std::memory_order_relaxed);  // relaxed: as above
      job->owner->on_compressed(*job);                                  // and it may be gone
      job = next;
    }
  }
}

void ReplyCompressor::compress(service::CompressionJob& job) noexcept {
  const std::span<const std::byte> body = whole_body(job);
  if (body.empty()) return;
  const size_t most = body.size() - body.size() / kLeastGain;
  const std::span<std::byte> out = job.memory->allocate_array<std::byte>(most);
  if (out.size() != most) return;
  job.compressed = out.first(deflater_.compress(job.coding, body, out));
}

}  // namespace lumen::server
