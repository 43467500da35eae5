// Nothing on the data plane of this module takes memory from the heap: counted by replacing
// operator new for the whole test program.
// Threads: the counter takes any. Memory: malloc's. Errors: by gtest.
#include <lumen/base/clock.h>
#include <lumen/memory/arena.h>
#include <lumen/memory/shared_buffer.h>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace {
std::atomic<uint64_t> allocations{0};
uint64_t allocations_were() { return allocations.load(std::memory_order_relaxed); }
}  // namespace

// At -O1 gcc 12 inlines one of a pair and takes it for a mismatch with the other (PR 105562).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes); memory != nullptr) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace lumen {
namespace {

TEST(Allocations, TheCounterCounts) {
  const uint64_t before = allocations_were();
  delete new int;
  // A pair that the compiler removes would count nothing: through a pointer that it cannot follow.
  void* memory = ::operator new(8);
  ::operator delete(memory);
  EXPECT_GT(allocations_were(), before);
}

TEST(Allocations, AnArenaTakesNothingFromTheHeap) {
  Arena arena = Arena::create_growing(4096, 1024 * 1024).value();
  const uint64_t before = allocations_were();
  for (int round = 0; round < 10; ++round) {
    const Arena::Mark mark = arena.mark();
    for (int i = 0; i < 100; ++i) ASSERT_NE(arena.allocate(1000, 64), nullptr);
    arena.rewind(mark);
    for (int i = 0; i < 500; ++i) ASSERT_NE(arena.allocate(1000, 8), nullptr);
    arena.reset();
    arena.trim(0);
  }
  EXPECT_EQ(allocations_were(), before) << "linked blocks come from the kernel";
}

// Reserve, commit, swap, flush, a record that is overdue, and the way out of quarantine.
TEST(Allocations, ASharedBufferTakesNothingFromTheHeapAfterItsCreation) {
  for (const auto mode : {SharedBuffer::Mode::kDense, SharedBuffer::Mode::kChunked}) {
    uint64_t buffers = 0;
    SharedBuffer::Options o;
    o.mode = mode;
    o.buffer_bytes = 1024;
    o.chunk_bytes = 64;
    o.max_writers = 4;
    o.stall_timeout_ns = 100'000;
    o.flush = [](void* context, const SharedBuffer::Flushed&) noexcept {
      ++*static_cast<uint64_t*>(context);
    };
    o.context = &buffers;
    auto buffer = SharedBuffer::create(o).value();
    const uint64_t before = allocations_were();
    auto w = buffer->writer().value();
    auto held = buffer->writer().value();
    const auto write = [&](int records) {
      for (int i = 0; i < records; ++i) {
        std::byte* memory = w.reserve(static_cast<size_t>(1 + i % 64));
        ASSERT_NE(memory, nullptr);
        std::memset(memory, i, 1);
        w.commit();
      }
    };
    write(5000);
    ASSERT_NE(held.reserve(16), nullptr);
    write(5);
    buffer->seal();
    const uint64_t deadline = now_ns() + 2'000'000'000;
    while (buffer->stats().incomplete_buffers == 0 && now_ns() < deadline) buffer->flush_ready();
    write(5000);
    held.commit();
    write(5000);
    ASSERT_TRUE(buffer->flush());
    EXPECT_EQ(allocations_were(), before);
    EXPECT_EQ(buffer->stats().quarantined_buffers, 0u);
    EXPECT_GT(buffers, 100u);
  }
}

}  // namespace
}  // namespace lumen
