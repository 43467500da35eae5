// A slot's way to a device: a stream, in which copies and runs follow each other; memory there; and
// memory here that the device copies from and to, pinned where the provider offers such.
// Threads: the slot's. Memory: that of its buffers. Errors: the library's, as Error or thrown as
// Failure. Interface: ONNX Runtime's for plugin execution providers, version 24.
#pragma once

#include "backends/onnxruntime/instance.h"
#include "backends/onnxruntime/library.h"
#include "backends/onnxruntime/values.h"

#include <cstddef>
#include <memory>
#include <span>

namespace lumen::backends::onnxruntime {

class DeviceLink {
 public:
  // `device`: nullptr: the library alone reaches it.
  DeviceLink(std::shared_ptr<const SharedSession> shared, const OrtEpDevice* device);

  // Memory that grows to the largest tensor and keeps its place until then.
  class Memory {
   public:
    // Throws Failure where there is none left.
    std::byte* at_least(size_t bytes);

   private:
    friend class DeviceLink;
    explicit Memory(OrtAllocator* allocator) : allocator_(allocator) {}
    struct Free {
      OrtAllocator* allocator;
      void operator()(std::byte* p) const noexcept;
    };
    OrtAllocator* allocator_;  // nullptr: the heap
    Buffer heap_;
    std::unique_ptr<std::byte, Free> taken_{nullptr, Free{nullptr}};
    size_t bytes_ = 0;
  };
  [[nodiscard]] Memory memory_there() const { return Memory(there_.get()); }
  [[nodiscard]] Memory memory_here() const { return Memory(here_); }
  // How a value over these is described. nullptr: nothing can be copied there by copy().
  [[nodiscard]] const OrtMemoryInfo* info_there() const noexcept { return info_there_; }
  [[nodiscard]] const OrtMemoryInfo& info_here() const noexcept { return *info_here_; }
  // A call has ended with all that it began.
  [[nodiscard]] bool is_synchronous() const noexcept { return stream_ == nullptr; }

  // Runs with these options go into the stream, and come back when they have been put there.
  void set_stream(OrtRunOptions& options) const;
  // Behind all that is in the stream; comes back at once. Without a stream: when it is done.
  [[nodiscard]] Error copy(std::span<const OrtValue* const> from, std::span<OrtValue* const> to);
  // For all that is in the stream. Its error, once.
  [[nodiscard]] Error wait();
  // Copies a few bytes there and back. False: it can't, or nothing can be copied there.
  [[nodiscard]] bool answers() noexcept;

 private:
  const std::shared_ptr<const SharedSession> shared_;
  const OrtMemoryInfo* info_there_ = nullptr;
  const OrtMemoryInfo* info_here_ = nullptr;
  Owned<OrtAllocator> there_;     // the session's, so that its limit counts
  OrtAllocator* here_ = nullptr;  // the environment's; nullptr: the heap
  Owned<OrtSyncStream> stream_;   // nullptr: the provider has none
};

}  // namespace lumen::backends::onnxruntime
