// See the header.
#include "device/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace lumen::device {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 64;

struct Allocator : OrtAllocator {
  const OrtMemoryInfo* info = nullptr;

  Allocator() : OrtAllocator{} {
    version = ORT_API_VERSION;
    Info = [](const OrtAllocator* self) { return static_cast<const Allocator*>(self)->info; };
    Alloc = [](OrtAllocator*, size_t size) { return memory.allocate(size); };
    Reserve = Alloc;
    Free = [](OrtAllocator*, void* place) { memory.free(place); };
  }
};

struct HostAllocator final : Allocator {
  HostAllocator() {
    Alloc = [](OrtAllocator*, size_t size) -> void* {
      ++control.host_blocks;
      return std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
    };
    Reserve = Alloc;
    Free = [](OrtAllocator*, void* place) {
      if (place != nullptr) --control.host_blocks;
      std::free(place);
    };
  }
};

}  // namespace

struct Memory::Block {
  std::byte* base = nullptr;
  size_t half = 0;

  Block(std::byte* first, size_t size) : base(first), half(size) { control.used_bytes += half; }
  ~Block() {
    ::munmap(base, 2 * half);
    control.used_bytes -= half;
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
};

void* Memory::allocate(size_t size) {
  const size_t half = (std::max<size_t>(size, 1) + kPage - 1) / kPage * kPage;
  const std::lock_guard lock(mutex_);
  if (control.used_bytes + half > control.memory_bytes) return nullptr;
  void* base = ::mmap(nullptr, 2 * half, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(base);
  if (::mprotect(first + half, half, PROT_READ | PROT_WRITE) != 0) return nullptr;
  blocks_[first] = std::make_shared<Block>(first, half);
  return base;
}

void Memory::free(void* base) {
  if (base == nullptr) return;
  const std::lock_guard lock(mutex_);
  blocks_.erase(static_cast<std::byte*>(base));
}

Place Memory::place_of(const void* address) {
  auto* const place = static_cast<std::byte*>(const_cast<void*>(address));
  const std::lock_guard lock(mutex_);
  auto found = blocks_.upper_bound(place);
  if (found == blocks_.begin()) return {.bytes = place, .owner = nullptr};
  --found;
  const std::shared_ptr<Block>& block = found->second;
  if (place >= block->base + block->half) return {.bytes = place, .owner = nullptr};
  return {.bytes = place + block->half, .owner = block};
}

OrtStatus* find_place(const OrtValue* value, Place& place) {
  void* data = nullptr;
  size_t size = 0;
  RETURN_IF_FAILED(ort->GetTensorMutableData(const_cast<OrtValue*>(value), &data));
  RETURN_IF_FAILED(ort->GetTensorSizeInBytes(value, &size));
  // ONNX Runtime 1.31 passes on the nullptr of an allocator that has no memory.
  if (data == nullptr && size > 0) return failed("the device has no memory left");
  place = memory.place_of(data);
  place.size = size;
  return nullptr;
}

OrtAllocator* make_allocator(const OrtMemoryInfo* info) {
  const bool is_host = ort->MemoryInfoGetDeviceMemType(info) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
  Allocator* const made = is_host ? new HostAllocator : new Allocator;
  made->info = info;
  return made;
}

void release_allocator(OrtAllocator* allocator) { delete static_cast<Allocator*>(allocator); }

}  // namespace lumen::device
