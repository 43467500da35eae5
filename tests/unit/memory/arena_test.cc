// Arena against a model: its allocations do not overlap, lie inside, are aligned; marks and resets
// bring back exactly the earlier state.
// One thread. Memory: a few MiB. Errors: by gtest.
#include <lumen/memory/arena.h>

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace lumen {
namespace {

constexpr size_t kCap = 64 * 1024;

Arena hard_capped() { return Arena::create(kCap).value(); }
Arena growing(size_t first = 4096, size_t cap = 1024 * 1024) {
  return Arena::create_growing(first, cap).value();
}

TEST(Arena, GivesAlignedNeighboursUntilTheCapAndThenNull) {
  Arena arena = hard_capped();
  auto* first = static_cast<std::byte*>(arena.allocate(1, 1));
  auto* second = static_cast<std::byte*>(arena.allocate(64, 64));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % 64, 0u);
  EXPECT_EQ(second, first + 64);
  EXPECT_EQ(arena.allocate(kCap, 1), nullptr);
  EXPECT_EQ(arena.stats().refusals, 1u);
  EXPECT_NE(arena.allocate(kCap - arena.used_bytes(), 1), nullptr);
  EXPECT_EQ(arena.used_bytes(), kCap);
  EXPECT_EQ(arena.allocate(1, 1), nullptr);
  EXPECT_TRUE(arena.is_valid());
}

TEST(Arena, RefusesSizesThatWouldWrapAround) {
  Arena fixed = hard_capped();
  Arena linked = growing();
  for (Arena* arena : {&fixed, &linked}) {
    ASSERT_NE(arena->allocate(100, 1), nullptr);
    for (const size_t bytes : {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, size_t{1} << 62}) {
      EXPECT_EQ(arena->allocate(bytes, 64), nullptr) << bytes;
      EXPECT_EQ(arena->allocate(bytes, 1), nullptr) << bytes;
    }
    EXPECT_EQ(arena->allocate(8, size_t{1} << 63), nullptr);
    EXPECT_TRUE(arena->is_valid());
  }
}

TEST(Arena, AnArenaWithoutMemoryRefusesEverythingButNothing) {
  Arena arena;
  EXPECT_EQ(arena.allocate(1, 1), nullptr);
  EXPECT_EQ(arena.capacity_bytes(), 0u);
  EXPECT_TRUE(arena.is_valid());
  arena.reset();
  arena.trim(0);
  EXPECT_TRUE(arena.is_valid());
}

TEST(Arena, ResetGivesTheSameAddressAgain) {
  Arena arena = growing();
  void* first = arena.allocate(100, 8);
  for (int i = 0; i < 100; ++i) ASSERT_NE(arena.allocate(1000, 8), nullptr);
  const size_t blocks = arena.stats().blocks;
  EXPECT_GT(blocks, 1u);
  arena.reset();
  EXPECT_EQ(arena.used_bytes(), 0u);
  EXPECT_EQ(arena.allocate(100, 8), first);
  for (int i = 0; i < 100; ++i) ASSERT_NE(arena.allocate(1000, 8), nullptr);
  EXPECT_EQ(arena.stats().blocks, blocks) << "the linked blocks are used again";
  EXPECT_EQ(arena.stats().resets, 1u);
}

TEST(Arena, AGrowingArenaStopsAtItsCap) {
  Arena arena = growing(4096, 64 * 1024);
  size_t given = 0;
  while (arena.allocate(512, 8) != nullptr) given += 512;
  EXPECT_GT(given, 48u * 1024);
  EXPECT_LE(arena.stats().mapped_bytes, 64u * 1024);
  EXPECT_TRUE(arena.is_valid());
}

TEST(Arena, AGrowingArenaTakesARequestLargerThanAnyBlock) {
  Arena arena = growing(4096, 4 * 1024 * 1024);
  void* large = arena.allocate(1024 * 1024, 4096);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large) % 4096, 0u);
  std::memset(large, 1, 1024 * 1024);
  EXPECT_TRUE(arena.owns(large));
  EXPECT_TRUE(arena.is_valid());
}

TEST(Arena, RewindBringsBackTheMarkAcrossBlocks) {
  Arena arena = growing();
  ASSERT_NE(arena.allocate(100, 8), nullptr);
  const Arena::Mark outer = arena.mark();
  const size_t outer_used = arena.used_bytes();
  for (int i = 0; i < 20; ++i) ASSERT_NE(arena.allocate(1000, 8), nullptr);
  const Arena::Mark inner = arena.mark();
  const size_t inner_used = arena.used_bytes();
  void* after_inner = arena.allocate(64, 8);
  for (int i = 0; i < 200; ++i) ASSERT_NE(arena.allocate(1000, 8), nullptr);
  arena.rewind(inner);
  EXPECT_EQ(arena.used_bytes(), inner_used);
  EXPECT_EQ(arena.allocate(64, 8), after_inner);
  arena.rewind(outer);
  EXPECT_EQ(arena.used_bytes(), outer_used);
  EXPECT_TRUE(arena.is_valid());
  arena.rewind(Arena::Mark{});
  EXPECT_EQ(arena.used_bytes(), 0u);
}

TEST(Arena, PeakRemembersTheMostAndTrimForgetsIt) {
  Arena arena = hard_capped();
  auto* bytes = static_cast<std::byte*>(arena.allocate(5 * kPageBytes, 8));
  ASSERT_NE(bytes, nullptr);
  std::memset(bytes, 3, 5 * kPageBytes);
  EXPECT_GE(arena.peak_bytes(), 5 * kPageBytes);
  arena.reset();
  EXPECT_GE(arena.peak_bytes(), 5 * kPageBytes);
  arena.trim(kPageBytes);
  EXPECT_EQ(arena.peak_bytes(), 0u);
  unpoison(bytes, 5 * kPageBytes);
  EXPECT_EQ(bytes[0], std::byte{3}) << "kept";
  EXPECT_EQ(bytes[kPageBytes], std::byte{0}) << "given back";
}

TEST(Arena, TrimUnmapsLinkedBlocksButNotTheOneInUse) {
  Arena arena = growing();
  for (int i = 0; i < 10; ++i) ASSERT_NE(arena.allocate(1000, 8), nullptr);
  const size_t used = arena.used_bytes();
  const Arena::Mark mark = arena.mark();
  for (int i = 0; i < 200; ++i) ASSERT_NE(arena.allocate(1000, 8), nullptr);
  const size_t before = arena.stats().blocks;
  arena.rewind(mark);
  arena.trim(0);
  EXPECT_LT(arena.stats().blocks, before);
  EXPECT_EQ(arena.used_bytes(), used);
  EXPECT_TRUE(arena.is_valid());
  arena.reset();
  arena.trim(0);
  EXPECT_EQ(arena.stats().blocks, 1u);
}

TEST(Arena, AMoveTakesTheBlocksAndLeavesAnArenaThatRefuses) {
  Arena first = growing();
  void* early = first.allocate(64, 64);
  for (int i = 0; i < 50; ++i) ASSERT_NE(first.allocate(1000, 8), nullptr);
  Arena second = std::move(first);
  EXPECT_TRUE(second.owns(early));
  EXPECT_EQ(first.allocate(1, 1), nullptr);
  EXPECT_FALSE(first.owns(early));
  Arena third = hard_capped();
  third = std::move(second);
  EXPECT_TRUE(third.owns(early));
  EXPECT_TRUE(third.is_valid());
}

TEST(Arena, AllocateArrayConstructsAndRefusesOverflow) {
  Arena arena = hard_capped();
  struct Pair {
    int a = 4;
    int b = 2;
  };
  const std::span<Pair> pairs = arena.allocate_array<Pair>(10);
  ASSERT_EQ(pairs.size(), 10u);
  for (const Pair& p : pairs) EXPECT_EQ(p.a * 10 + p.b, 42);
  EXPECT_TRUE(arena.allocate_array<Pair>(SIZE_MAX / 4).empty());
}

// The model: every live allocation keeps its own byte value, so that any overlap, and any loss over
// a rewind, shows as a wrong byte.
void run_against_model(Arena& arena, uint32_t seed) {
  struct Live {
    std::byte* begin;
    size_t bytes;
    std::byte value;
  };
  std::mt19937 random(seed);
  std::vector<Live> live;
  std::vector<std::pair<Arena::Mark, size_t>> marks;  // and how many were live then
  for (int step = 0; step < 3000; ++step) {
    const auto what = static_cast<uint32_t>(random() % 100);
    if (what < 80) {
      const size_t bytes = random() % (what < 5 ? 20000 : 300);
      const size_t alignment = size_t{1} << (random() % 8);
      auto* begin = static_cast<std::byte*>(arena.allocate(bytes, alignment));
      if (begin == nullptr) continue;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(begin) % alignment, 0u);
      ASSERT_TRUE(bytes == 0 || (arena.owns(begin) && arena.owns(begin + bytes - 1)));
      const auto value = static_cast<std::byte>(random());
      if (bytes != 0) std::memset(begin, static_cast<int>(value), bytes);
      live.push_back({begin, bytes, value});
    } else if (what < 90) {
      marks.emplace_back(arena.mark(), live.size());
    } else if (what < 98 && !marks.empty()) {
      const size_t which = random() % marks.size();
      arena.rewind(marks[which].first);
      live.resize(marks[which].second);
      marks.resize(which);
    } else if (what == 99) {
      arena.reset();
      if (random() % 2 == 0) arena.trim(random() % kCap);
      live.clear();
      marks.clear();
    }
    ASSERT_TRUE(arena.is_valid());
    ASSERT_GE(arena.peak_bytes(), arena.used_bytes());
    if (step % 50 == 0) {
      for (const Live& l : live) {
        for (size_t i = 0; i < l.bytes; ++i) ASSERT_EQ(l.begin[i], l.value);
      }
    }
  }
}

TEST(Arena, KeepsEveryLiveByteOverRandomAllocationsMarksAndResets) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Arena fixed = hard_capped();
    run_against_model(fixed, seed);
    Arena linked = growing();
    run_against_model(linked, seed);
  }
}

#if LUMEN_ASAN
TEST(Arena, PoisonsFreedMemoryAndTheBytesBehindAnAllocation) {
  Arena arena = growing();
  auto* first = static_cast<std::byte*>(arena.allocate(32, 8));
  EXPECT_FALSE(is_poisoned(first + 31));
  EXPECT_TRUE(is_poisoned(first + 32));
  const Arena::Mark mark = arena.mark();
  std::vector<std::byte*> later;
  for (int i = 0; i < 50; ++i) {
    later.push_back(static_cast<std::byte*>(arena.allocate(1000, 8)));
    EXPECT_FALSE(is_poisoned(later.back()));
  }
  arena.rewind(mark);
  for (const std::byte* p : later) EXPECT_TRUE(is_poisoned(p));
  EXPECT_FALSE(is_poisoned(first));
  arena.reset();
  EXPECT_TRUE(is_poisoned(first));
}
#endif

}  // namespace
}  // namespace lumen
