// MemoryBudget and RequestMemory together: nothing is given out that the budget has not granted,
// and all of it comes back. Threads: the test's, but for one test. Memory: the heap. Errors: by
// gtest.
#include <lumen/memory/memory_budget.h>
#include <lumen/memory/request_memory.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace lumen {
namespace {

using Kind = RequestMemory::Kind;

constexpr size_t kCapacity = 1 << 20;
constexpr size_t kBase = 4096;

RequestMemory charged_to(MemoryBudget& budget, Kind kind = Kind::kArena) {
  RequestMemory memory = RequestMemory::create(kCapacity).value();
  EXPECT_TRUE(memory.charge_to(budget, kBase));
  memory.use(kind);
  return memory;
}

TEST(MemoryBudget, GivesNoMoreThanItHas) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.try_take(60));
  EXPECT_FALSE(budget.try_take(41));
  EXPECT_TRUE(budget.try_take(40));
  EXPECT_TRUE(budget.try_take(0));
  EXPECT_EQ(budget.free_was(), 0u);
  budget.give_back(100);
  EXPECT_EQ(budget.free_was(), 100u);
}

TEST(MemoryBudget, LosesNothingBetweenThreads) {
  MemoryBudget budget(1000);
  std::vector<std::thread> threads;
  for (size_t i = 1; i <= 4; ++i) {
    threads.emplace_back([&budget, i] {
      for (int n = 0; n < 20'000; ++n) {
        if (budget.try_take(i * 100)) budget.give_back(i * 100);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(budget.free_was(), 1000u);
}

class BudgetedMemory : public testing::TestWithParam<Kind> {};

TEST_P(BudgetedMemory, TakesItsBaseAtOnceAndRefusesMoreThanThereIs) {
  MemoryBudget budget(100 * 1024);
  RequestMemory memory = charged_to(budget, GetParam());
  EXPECT_EQ(budget.free_was(), budget.total_bytes() - kBase);
  EXPECT_NE(memory.allocate(50 * 1024, 8), nullptr);
  EXPECT_FALSE(memory.was_refused());
  EXPECT_EQ(memory.allocate(60 * 1024, 8), nullptr);
  EXPECT_TRUE(memory.was_refused());
  memory.reset(0);
  EXPECT_FALSE(memory.was_refused());
  EXPECT_EQ(budget.free_was(), budget.total_bytes() - kBase);
  EXPECT_NE(memory.allocate(90 * 1024, 8), nullptr);
}

TEST_P(BudgetedMemory, ARefusalByItsOwnCapacityIsNotTheBudgetsFault) {
  MemoryBudget budget(16 * kCapacity);
  RequestMemory memory = charged_to(budget, GetParam());
  EXPECT_EQ(memory.allocate(2 * kCapacity, 8), nullptr);
  EXPECT_FALSE(memory.was_refused());
}

TEST_P(BudgetedMemory, ReservedMemoryIsThereAlsoWhenTheBudgetIsUsedUp) {
  MemoryBudget budget(kCapacity);
  RequestMemory memory = charged_to(budget, GetParam());
  ASSERT_TRUE(memory.reserve(200 * 1024));
  RequestMemory other = charged_to(budget, GetParam());
  EXPECT_FALSE(other.reserve(kCapacity - 100 * 1024));
  EXPECT_FALSE(other.was_refused()) << "who asks ahead may wait";
  while (budget.try_take(1)) {
  }
  EXPECT_NE(memory.allocate(100 * 1024, 64), nullptr);
  EXPECT_NE(memory.allocate(90 * 1024, 64), nullptr);
  EXPECT_EQ(memory.allocate(100 * 1024, 64), nullptr);
}

TEST_P(BudgetedMemory, SettleGivesBackTheSurplusOfAReservation) {
  MemoryBudget budget(kCapacity);
  RequestMemory memory = charged_to(budget, GetParam());
  ASSERT_TRUE(memory.reserve(500 * 1024));
  auto* bytes = static_cast<std::byte*>(memory.allocate(10 * 1024, 64));
  ASSERT_NE(bytes, nullptr);
  memory.settle(20 * 1024);
  EXPECT_GE(budget.free_was(), kCapacity - 40 * 1024);
  std::memset(bytes, 1, 10 * 1024);
  EXPECT_NE(memory.allocate(15 * 1024, 64), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BudgetedMemory, testing::Values(Kind::kArena, Kind::kHeap),
                         [](const testing::TestParamInfo<Kind>& one) {
                           return one.param == Kind::kArena ? "Arena" : "Heap";
                         });

TEST(BudgetedRegion, PagesThatResetKeepsStayTakenUntilTheyAreDropped) {
  MemoryBudget budget(kCapacity);
  RequestMemory memory = charged_to(budget);
  ASSERT_NE(memory.allocate(300 * 1024, 64), nullptr);
  memory.reset(100 * 1024);
  EXPECT_EQ(memory.charged_bytes(), 100u * 1024);
  EXPECT_EQ(budget.free_was(), kCapacity - 100 * 1024);
  memory.drop_kept_pages();
  EXPECT_EQ(memory.charged_bytes(), kBase);
  EXPECT_EQ(budget.free_was(), kCapacity - kBase);
}

// Was: a small request after a large one gave back the bytes of the large one's pages, which are
// still there.
TEST(BudgetedRegion, SettlingDoesNotGiveBackPagesThatARequestBeforeHasLeft) {
  MemoryBudget budget(kCapacity);
  RequestMemory memory = charged_to(budget);
  constexpr size_t kLarge = 512 * 1024;
  std::memset(memory.allocate(kLarge, 64), 1, kLarge);
  (void)memory.reset(kCapacity);
  ASSERT_NE(memory.allocate(1024, 64), nullptr);
  memory.settle(1024);
  EXPECT_GE(memory.charged_bytes(), kLarge);
  (void)memory.reset(kCapacity);
  EXPECT_GE(memory.drop_kept_pages(), kLarge);
  ASSERT_NE(memory.allocate(1024, 64), nullptr);
  memory.settle(1024);
  EXPECT_LT(memory.charged_bytes(), kLarge) << "they are gone";
}

TEST(BudgetedRegion, DroppedPagesReadAsZeroSoTheKernelHasThem) {
  MemoryBudget budget(kCapacity);
  RequestMemory memory = charged_to(budget);
  auto* bytes = static_cast<std::byte*>(memory.allocate(300 * 1024, kPageBytes));
  std::memset(bytes, 0xAB, 300 * 1024);
  memory.reset(200 * 1024);
  memory.drop_kept_pages();
  bytes = static_cast<std::byte*>(memory.allocate(300 * 1024, kPageBytes));
  for (size_t i = kBase; i < 300 * 1024; ++i) ASSERT_EQ(bytes[i], std::byte{0}) << i;
}

TEST(BudgetedRegion, GrowingTakesOnlyAsMuchAsHasCome) {
  MemoryBudget budget(256 * 1024);
  RequestMemory memory = charged_to(budget);
  auto* bytes = static_cast<std::byte*>(memory.begin_growing(900 * 1024, 64));
  ASSERT_NE(bytes, nullptr) << "address space, not memory";
  EXPECT_EQ(memory.charged_bytes(), kBase);
  ASSERT_TRUE(memory.grow_to(bytes + 150 * 1024));
  std::memset(bytes, 1, 150 * 1024);
  EXPECT_FALSE(memory.grow_to(bytes + 300 * 1024));
  EXPECT_TRUE(memory.was_refused());
  memory.shrink_last(bytes, 150 * 1024);
  EXPECT_NE(memory.allocate(50 * 1024, 64), nullptr);
  EXPECT_EQ(memory.allocate(100 * 1024, 64), nullptr) << "limited again";
}

TEST(BudgetedRegion, AChangeToTheHeapLeavesNoKeptPagesBeside) {
  MemoryBudget budget(kCapacity);
  RequestMemory memory = charged_to(budget);
  auto* bytes = static_cast<std::byte*>(memory.allocate(300 * 1024, kPageBytes));
  std::memset(bytes, 0xAB, 300 * 1024);
  (void)memory.reset(kCapacity);
  memory.use(Kind::kHeap);
  memory.use(Kind::kArena);
  bytes = static_cast<std::byte*>(memory.allocate(300 * 1024, kPageBytes));
  EXPECT_EQ(bytes[200 * 1024], std::byte{0});
}

TEST(BudgetedRegion, ABudgetThatIsTooSmallForItsBaseIsRefused) {
  MemoryBudget budget(kBase - 1);
  RequestMemory memory = RequestMemory::create(kCapacity).value();
  EXPECT_FALSE(memory.charge_to(budget, kBase));
  EXPECT_EQ(budget.free_was(), kBase - 1);
}

// Random calls of several memories on one budget: held and free bytes are always the whole, and
// none writes outside of its own.
TEST(BudgetedMemoryModel, TheBooksBalanceThroughRandomCalls) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    MemoryBudget budget(3 * kCapacity / 2);
    std::vector<RequestMemory> memories;
    memories.reserve(4);
    for (int i = 0; i < 4; ++i) memories.push_back(charged_to(budget));
    for (int step = 0; step < 300; ++step) {
      RequestMemory& memory = memories[random() % memories.size()];
      const size_t size = 1 + (size_t{1} << random() % 18);
      switch (random() % 8) {
        case 0: memory.use(random() % 2 == 0 ? Kind::kArena : Kind::kHeap); break;
        case 1: memory.reset(random() % 2 == 0 ? 0 : size); break;
        case 2: (void)memory.reserve(size); break;
        case 3: memory.settle(size); break;
        case 4:
          memory.reset(size);
          memory.drop_kept_pages();
          break;
        case 5:
          if (void* bytes = memory.begin_growing(2 * size, 64); bytes != nullptr) {
            const bool granted = memory.grow_to(static_cast<std::byte*>(bytes) + size);
            if (granted) std::memset(bytes, 2, size);
            memory.shrink_last(bytes, granted ? size : 0);
          }
          break;
        default:
          if (void* bytes = memory.allocate(size, 64); bytes != nullptr) {
            std::memset(bytes, 1, size);
          }
      }
      size_t held = budget.free_was();
      for (const RequestMemory& one : memories) {
        held += one.charged_bytes();
        ASSERT_TRUE(one.is_valid()) << "seed " << seed << " step " << step;
      }
      ASSERT_EQ(held, budget.total_bytes()) << "seed " << seed << " step " << step;
    }
    memories.clear();
    ASSERT_EQ(budget.free_was(), budget.total_bytes());
  }
}

}  // namespace
}  // namespace lumen
