// RequestMemory: region and heap behind one face give the same bytes to their owner, for any order
// of calls. Run under ASan too, which sees a block given twice or used after reset().
// Threads: the test's. Memory: the heap. Errors: by gtest.
#include <lumen/memory/request_memory.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace lumen {
namespace {

using Kind = RequestMemory::Kind;

constexpr size_t kCapacity = 64 * 1024;

RequestMemory make(Kind kind, size_t capacity_bytes = kCapacity) {
  RequestMemory memory = RequestMemory::create(capacity_bytes).value();
  memory.use(kind);
  return memory;
}

class RequestMemoryTest : public testing::TestWithParam<Kind> {};

TEST_P(RequestMemoryTest, GivesBytesAtTheAlignmentThatWasAskedFor) {
  RequestMemory memory = make(GetParam());
  for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
    for (const size_t bytes : {size_t{1}, size_t{17}, size_t{64}, size_t{100}}) {
      void* place = memory.allocate(bytes, alignment);
      ASSERT_NE(place, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % alignment, 0u);
      std::memset(place, 0xAB, bytes);
    }
    memory.reset(0);
  }
}

TEST_P(RequestMemoryTest, RefusesMoreThanItsCapacity) {
  RequestMemory memory = make(GetParam());
  EXPECT_EQ(memory.allocate(memory.capacity_bytes() + 1, 64), nullptr);
  EXPECT_EQ(memory.allocate(SIZE_MAX, 64), nullptr);
  EXPECT_EQ(memory.allocate(SIZE_MAX - 32, 1), nullptr);
  size_t given = 0;
  while (memory.allocate(1000, 8) != nullptr) given += 1000;
  EXPECT_LE(given, memory.capacity_bytes());
  // The heap counts the head in front of each block; nothing is lost beyond that.
  EXPECT_GE(given, memory.capacity_bytes() * 9 / 10);
  memory.reset(0);
  EXPECT_NE(memory.allocate(1000, 8), nullptr) << "reset() gives the room back";
}

TEST_P(RequestMemoryTest, IsEmptyAndRefusesAllWhenItWasNotCreated) {
  RequestMemory memory;
  memory.use(GetParam());
  EXPECT_EQ(memory.allocate(1, 8), nullptr);
  EXPECT_TRUE(memory.is_valid());
  memory.reset(0);
}

TEST_P(RequestMemoryTest, MovesWithItsMemory) {
  RequestMemory first = make(GetParam());
  auto* bytes = static_cast<char*>(first.allocate(100, 8));
  std::memset(bytes, 'x', 100);
  RequestMemory second = std::move(first);
  EXPECT_EQ(bytes[99], 'x');
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): that is the question
  void* of_moved_from = first.allocate(1, 8);
  EXPECT_EQ(of_moved_from, nullptr);
  RequestMemory third = make(GetParam());
  ASSERT_NE(third.allocate(10, 8), nullptr);  // the assignment below must free it: ASan tells
  third = std::move(second);
  EXPECT_EQ(bytes[0], 'x');
  EXPECT_EQ(third.kind(), GetParam());
  EXPECT_TRUE(third.is_valid());
}

INSTANTIATE_TEST_SUITE_P(Kinds, RequestMemoryTest, testing::Values(Kind::kArena, Kind::kHeap),
                         [](const testing::TestParamInfo<Kind>& one) {
                           return one.param == Kind::kArena ? "Arena" : "Heap";
                         });

TEST(RequestMemoryUsage, CountsBytesOfTheRegionAndNoHeapCalls) {
  RequestMemory memory = make(Kind::kArena);
  ASSERT_NE(memory.allocate(100, 64), nullptr);
  ASSERT_NE(memory.allocate(16, 16), nullptr);
  const RequestMemory::Usage usage = memory.reset(0);
  EXPECT_EQ(usage.heap_calls, 0u);
  EXPECT_GE(usage.arena_bytes, 116u);
  EXPECT_LE(usage.arena_bytes, 256u) << "gaps and, under ASan, redzones";
  EXPECT_EQ(memory.reset(0).arena_bytes, 0u);
}

TEST(RequestMemoryUsage, CountsEachCallOfTheHeapAndNoBytesOfTheRegion) {
  RequestMemory memory = make(Kind::kHeap);
  for (int i = 0; i < 3; ++i) ASSERT_NE(memory.allocate(100, 64), nullptr);
  const RequestMemory::Usage usage = memory.reset(0);
  EXPECT_EQ(usage.heap_calls, 6u) << "three of malloc, three of free";
  EXPECT_EQ(usage.arena_bytes, 0u);
  EXPECT_EQ(memory.reset(0).heap_calls, 0u);
}

TEST(RequestMemoryUsage, CountsBothWhereTheKindWasChangedInBetween) {
  RequestMemory memory = make(Kind::kHeap);
  auto* heap = static_cast<char*>(memory.allocate(8, 8));
  memory.use(Kind::kArena);
  auto* region = static_cast<char*>(memory.allocate(8, 8));
  heap[0] = region[0] = 'x';  // both live until reset()
  EXPECT_EQ(memory.kind(), Kind::kArena);
  const RequestMemory::Usage usage = memory.reset(0);
  EXPECT_EQ(usage.heap_calls, 2u);
  EXPECT_GE(usage.arena_bytes, 8u);
}

TEST(RequestMemoryKeep, ResetLeavesMemoryFromBeforeServing) {
  RequestMemory memory = make(Kind::kArena);
  auto* kept = static_cast<char*>(memory.allocate(100, 64));
  std::memset(kept, 'k', 100);
  memory.keep_what_is_there();
  void* first = memory.allocate(100, 64);
  EXPECT_LT(memory.reset(0).arena_bytes, 256u) << "what is kept does not count";
  EXPECT_EQ(memory.allocate(100, 64), first) << "the same place again";
  memory.reset(0);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(kept[i], 'k');
}

TEST(RequestMemoryShrink, GivesBackTheEndOfTheLastAllocation) {
  RequestMemory memory = make(Kind::kArena);
  auto* large = static_cast<char*>(memory.allocate(memory.capacity_bytes() - 4096, 64));
  ASSERT_NE(large, nullptr);
  std::memset(large, 'x', 100);
  EXPECT_EQ(memory.allocate(8192, 64), nullptr);
  memory.shrink_last(large, 100);
  auto* next = static_cast<char*>(memory.allocate(8192, 64));
  ASSERT_NE(next, nullptr);
  EXPECT_GE(next, large + 100);
  EXPECT_EQ(large[99], 'x');
}

TEST(RequestMemoryShrink, ChangesNothingOnTheHeapOrForMoreBytesThanThereAre) {
  RequestMemory heap = make(Kind::kHeap);
  auto* block = static_cast<char*>(heap.allocate(1000, 8));
  heap.shrink_last(block, 1);
  block[999] = 'x';
  EXPECT_TRUE(heap.is_valid());
  RequestMemory region = make(Kind::kArena);
  void* place = region.allocate(100, 16);
  void* after = region.allocate(16, 16);
  region.reset(0);
  ASSERT_EQ(region.allocate(100, 16), place);
  region.shrink_last(place, 4096);
  EXPECT_EQ(region.allocate(16, 16), after);
}

// Random calls against a list of the blocks that must be there: no two overlap, and each keeps its
// bytes until reset(), for either kind.
TEST(RequestMemoryModel, KeepsEveryBlockWholeThroughRandomCalls) {
  struct Given {
    uint8_t* bytes;
    size_t size;
    uint8_t mark;
  };
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    RequestMemory memory = make(Kind::kArena, 16 * 1024);
    std::vector<Given> given;
    const auto check_all = [&] {
      for (const Given& one : given) {
        for (size_t i = 0; i < one.size; ++i) ASSERT_EQ(one.bytes[i], one.mark) << "seed " << seed;
      }
    };
    for (int step = 0; step < 60; ++step) {
      switch (random() % 8) {
        case 0: memory.use(random() % 2 == 0 ? Kind::kArena : Kind::kHeap); break;
        case 1:
          check_all();
          given.clear();
          memory.reset(random() % 2 == 0 ? 0 : 4096);
          break;
        case 2:
          if (!given.empty()) {
            given.back().size = random() % (given.back().size + 1);
            memory.shrink_last(given.back().bytes, given.back().size);
          }
          break;
        default: {
          const size_t size = 1 + random() % 1500;
          auto* bytes = static_cast<uint8_t*>(memory.allocate(size, size_t{1} << random() % 8));
          if (bytes == nullptr) break;
          const auto mark = static_cast<uint8_t>(random());
          std::memset(bytes, mark, size);
          given.push_back({bytes, size, mark});
        }
      }
      ASSERT_TRUE(memory.is_valid()) << "seed " << seed << " step " << step;
    }
    check_all();
  }
}

}  // namespace
}  // namespace lumen
