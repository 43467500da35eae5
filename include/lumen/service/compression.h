// CompressionJob: the body of a reply, compressed by a thread of its own while the client's thread
// goes on with other clients.
// Threads: between submit() and on_compressed() the job is that thread's. Memory: its owner's.
// Errors: none; a body that can't be compressed is sent as it is.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/wire/content_coding.h>

#include <cstddef>
#include <span>

namespace lumen::service {

struct CompressionJob;

class CompressionOwner {
 public:
  // Called on any thread; must not wait.
  virtual void on_compressed(CompressionJob& job) noexcept = 0;

 protected:
  ~CompressionOwner() = default;
};

struct CompressionJob {
  CompressionOwner* owner = nullptr;
  Allocator* memory = nullptr;  // for the compressed body, and for a copy of a body in pieces
  wire::ContentCoding coding = wire::ContentCoding::kIdentity;
  std::span<const std::span<const std::byte>> pieces{};  // of the body, in order
  size_t bytes = 0;                                      // of all pieces
  // Empty: it would be hardly smaller, or there was no memory.
  std::span<const std::byte> compressed{};
  CompressionJob* next = nullptr;  // among those that wait
};

class CompressionThread {
 public:
  // From any thread. False: so much waits already that this body is better sent as it is.
  [[nodiscard]] virtual bool submit(CompressionJob& job) noexcept = 0;

 protected:
  ~CompressionThread() = default;
};

}  // namespace lumen::service
