// ReplyCompressor: the thread that compresses replies of inferences, one after the other, in the
// order in which they came.
// Threads: submit() from any I/O thread, lock-free; everything else by its owner. Memory: the heap
// at create(); a reply's from its job's memory. Errors: create() says that there is no memory; a
// body that can't be compressed is sent as it is.
#pragma once

#include <lumen/base/result.h>
#include <lumen/service/compression.h>
#include <lumen/wire/deflate.h>

#include <lumen/base/job_stack.h>

#include <atomic>
#include <memory>
#include <thread>

namespace lumen::server {

class ReplyCompressor final : public service::CompressionThread {
 public:
  [[nodiscard]] static Result<std::unique_ptr<ReplyCompressor>> create();
  ~ReplyCompressor() { join(); }
  ReplyCompressor(const ReplyCompressor&) = delete;
  ReplyCompressor& operator=(const ReplyCompressor&) = delete;

  [[nodiscard]] bool submit(service::CompressionJob& job) noexcept override;
  // After the I/O threads have ended. Idempotent.
  void join();

 private:
  explicit ReplyCompressor(wire::Deflater deflater);
  void run();
  void compress(service::CompressionJob& job) noexcept;

  wire::Deflater deflater_;
  std::atomic<size_t> waiting_bytes_{0};  // of bodies submitted and not compressed yet
  JobStack<service::CompressionJob> jobs_;
  std::thread thread_;
};

}  // namespace lumen::server
