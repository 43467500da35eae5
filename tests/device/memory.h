// The device's memory, which the host can't touch, and the host's memory that copies go through.
// Threads: any. Memory: mappings. Errors: nullptr: there is none left.
#pragma once

#include "device/library.h"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace lumen::device {

// Where the bytes of a tensor lie. `owner` keeps the device's memory of it until the last job that
// uses it has ended, as a device orders the return of memory behind its work.
struct Place {
  std::byte* bytes = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> owner;  // nullptr: the host's memory
};

class Memory {
 public:
  // Pages without access, and as many behind them for the bytes.
  void* allocate(size_t size);
  void free(void* base);
  [[nodiscard]] Place place_of(const void* address);

 private:
  struct Block;
  std::mutex mutex_;
  std::map<std::byte*, std::shared_ptr<Block>> blocks_;
};

inline Memory memory;

[[nodiscard]] OrtStatus* find_place(const OrtValue* value, Place& place);

// Of the device's memory, or of the host's, as `info` says.
[[nodiscard]] OrtAllocator* make_allocator(const OrtMemoryInfo* info);
void release_allocator(OrtAllocator* allocator);

}  // namespace lumen::device
