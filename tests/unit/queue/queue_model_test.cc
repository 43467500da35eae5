// Every queue against a deque, over all sequences of operations up to a depth, and its items'
// lives.
#include "unit/queue/queue_adapters.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace lumen::testing {
namespace {

template <typename Queue>
class QueueModel : public ::testing::Test {};

using IntQueues = ::testing::Types<SpscPlain<int>, SpscWaiting<int>, MpmcPlain<int>,
                                   MpmcPadded<int>, MpmcWaiting<int>, MutexBoth<int>>;
TYPED_TEST_SUITE(QueueModel, IntQueues);

// The queue and its model side by side; each step does one operation to both and compares.
template <typename Queue>
class Pair {
 public:
  explicit Pair(size_t capacity) : queue_(capacity) {}

  bool step(int operation) {
    switch (operation) {
      case 0: return push();
      case 1: return pop();
      case 2: return push_n(2);
      case 3: return push_n(3);
      case 4: return pop_n(2);
      case 5: return pop_n(3);
      default:
        queue_.close();
        closed_ = true;
        return true;
    }
  }
  bool same_state() {
    return queue_.size_was() == model_.size() && queue_.was_empty() == model_.empty() &&
           queue_.drained() == (closed_ && model_.empty()) && queue_.was_closed() == closed_;
  }

 private:
  size_t room() { return closed_ ? 0 : queue_.capacity() - model_.size(); }
  bool push() {
    int value = next_;
    const bool expected = room() > 0;
    if (queue_.try_push(std::move(value)) != expected) return false;
    if (expected) model_.push_back(next_++);
    return value == next_ - (expected ? 1 : 0);
  }
  bool push_n(size_t count) {
    std::array<int, 3> items{next_, next_ + 1, next_ + 2};
    const size_t expected = std::min(count, room());
    if (queue_.try_push_n({items.data(), count}) != expected) return false;
    for (size_t i = 0; i < expected; ++i) model_.push_back(next_++);
    return true;
  }
  bool pop() {
    int value = -1;
    const bool expected = !model_.empty();
    if (queue_.try_pop(value) != expected) return false;
    if (!expected) return value == -1;
    const int first = model_.front();
    model_.pop_front();
    return value == first;
  }
  bool pop_n(size_t count) {
    std::array<int, 3> items{-1, -1, -1};
    const size_t expected = std::min(count, model_.size());
    if (queue_.try_pop_n({items.data(), count}) != expected) return false;
    for (size_t i = 0; i < expected; ++i) {
      if (items[i] != model_.front()) return false;
      model_.pop_front();
    }
    return true;
  }

  Queue queue_;
  std::deque<int> model_;
  int next_ = 100;
  bool closed_ = false;
};

TYPED_TEST(QueueModel, AgreesWithADequeOverAllSequencesOfOperations) {
  constexpr int kOperations = 7;
  constexpr int kDepth = 6;
  int sequences = 1;
  for (int i = 0; i < kDepth; ++i) sequences *= kOperations;
  for (const size_t capacity : {size_t{2}, size_t{4}}) {
    for (int sequence = 0; sequence < sequences; ++sequence) {
      Pair<TypeParam> pair(capacity);
      int rest = sequence;
      for (int depth = 0; depth < kDepth; ++depth, rest /= kOperations) {
        ASSERT_TRUE(pair.step(rest % kOperations) && pair.same_state())
            << "capacity " << capacity << ", sequence " << sequence << ", step " << depth;
      }
    }
  }
}

TYPED_TEST(QueueModel, StaysRightOverManyLaps) {
  Pair<TypeParam> pair(4);
  uint32_t random = 12345;
  for (int i = 0; i < 100'000; ++i) {
    random = random * 1664525 + 1013904223;
    ASSERT_TRUE(pair.step(static_cast<int>(random >> 16) % 6) && pair.same_state()) << "step " << i;
  }
}

template <typename Queue>
class QueueLifetime : public ::testing::Test {};

using PointerQueues =
    ::testing::Types<SpscPlain<std::shared_ptr<int>>, SpscWaiting<std::shared_ptr<int>>,
                     MpmcPlain<std::shared_ptr<int>>, MpmcPadded<std::shared_ptr<int>>,
                     MpmcWaiting<std::shared_ptr<int>>, MutexBoth<std::shared_ptr<int>>>;
TYPED_TEST_SUITE(QueueLifetime, PointerQueues);

TYPED_TEST(QueueLifetime, KeepsNothingOfAPoppedItemAndDestroysTheRest) {
  auto item = std::make_shared<int>(7);
  {
    TypeParam queue(4);
    for (int lap = 0; lap < 3; ++lap) {
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.try_push(std::shared_ptr<int>(item)));
      EXPECT_EQ(item.use_count(), 4);
      for (int i = 0; i < 3; ++i) {
        std::shared_ptr<int> popped;
        ASSERT_TRUE(queue.try_pop(popped));
      }
      EXPECT_EQ(item.use_count(), 1) << "no copy stays in an empty slot";
    }
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.try_push(std::shared_ptr<int>(item)));
  }
  EXPECT_EQ(item.use_count(), 1);
}

TYPED_TEST(QueueLifetime, ARefusedItemStaysWithItsOwner) {
  TypeParam queue(2);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(queue.try_push(std::make_shared<int>(i)));
  auto item = std::make_shared<int>(7);
  EXPECT_FALSE(queue.try_push(std::move(item)));
  ASSERT_NE(item, nullptr);
  std::shared_ptr<int> popped;
  ASSERT_TRUE(queue.try_pop(popped));
  queue.close();
  EXPECT_FALSE(queue.try_push(std::move(item))) << "there is room, but it is closed";
  ASSERT_NE(item, nullptr);
  std::vector<std::shared_ptr<int>> items{item, item};
  EXPECT_EQ(queue.try_push_n(items), 0u);
  EXPECT_EQ(item.use_count(), 3);
}

TYPED_TEST(QueueLifetime, BatchesMoveAcrossTheRingsEnd) {
  TypeParam queue(4);
  std::shared_ptr<int> popped;
  for (int shift = 0; shift < 4; ++shift) {
    std::vector<std::shared_ptr<int>> items;
    items.reserve(4);
    for (int i = 0; i < 4; ++i) items.push_back(std::make_shared<int>(i));
    ASSERT_EQ(queue.try_push_n(items), 4u);
    for (const auto& item : items) EXPECT_EQ(item, nullptr) << "moved, not copied";
    std::vector<std::shared_ptr<int>> back(4);
    ASSERT_EQ(queue.try_pop_n(back), 4u);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(*back[static_cast<size_t>(i)], i);
    ASSERT_TRUE(queue.try_push(std::make_shared<int>(0)));
    ASSERT_TRUE(queue.try_pop(popped));
  }
}

TEST(SpscQueue, TakesMoveOnlyItemsWithoutDefaultConstructor) {
  struct Only {
    explicit Only(int v) : value(std::make_unique<int>(v)) {}
    std::unique_ptr<int> value;
  };
  SpscQueue<Only> queue(2);
  auto producer = queue.producer();
  auto consumer = queue.consumer();
  ASSERT_TRUE(producer.try_push(Only(5)));
  Only out(0);
  ASSERT_TRUE(consumer.try_pop(out));
  EXPECT_EQ(*out.value, 5);
}

TEST(SpscQueueDeathTest, ASecondProducerIsOurOwnBug) {
  SpscQueue<int> queue(2);
  auto producer = queue.producer();
  EXPECT_DEATH(static_cast<void>(queue.producer()), "producer_taken_");
}

TEST(SpscQueueDeathTest, ASecondConsumerIsOurOwnBug) {
  SpscQueue<int> queue(2);
  auto consumer = queue.consumer();
  EXPECT_DEATH(static_cast<void>(queue.consumer()), "consumer_taken_");
}

TEST(SpscQueue, ARoleThatWasReturnedGoesOnWhereItStopped) {
  SpscQueue<int> queue(4);
  int value = 0;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(queue.producer().try_push(int{i}));
    ASSERT_TRUE(queue.consumer().try_pop(value));
    EXPECT_EQ(value, i);
  }
  queue.producer().close();
  EXPECT_FALSE(queue.producer().try_push(1)) << "closed for the next holder too";
  EXPECT_TRUE(queue.consumer().drained());
}

TEST(SpscQueue, SpansAreFilledAndReadInPlace) {
  SpscQueue<int> queue(8);
  auto producer = queue.producer();
  auto consumer = queue.consumer();
  int next = 0;
  int expected = 0;
  for (int round = 0; round < 50; ++round) {
    const std::span<int> room = producer.reserve(5);
    ASSERT_GE(room.size(), 1u);
    for (int& item : room) item = next++;
    ASSERT_TRUE(producer.commit(room.size()));
    const std::span<int> items = consumer.peek(8);
    ASSERT_EQ(items.size(), room.size());
    EXPECT_EQ(items.data(), room.data()) << "no copy";
    for (const int item : items) EXPECT_EQ(item, expected++);
    consumer.release(items.size());
  }
}

TEST(SpscQueue, AReservationThatIsNotCommittedIsNotSeen) {
  SpscQueue<int> queue(8);
  auto producer = queue.producer();
  auto consumer = queue.consumer();
  ASSERT_EQ(producer.reserve(3).size(), 3u);
  EXPECT_EQ(consumer.peek(3).size(), 0u);
  ASSERT_TRUE(producer.commit(1));
  EXPECT_EQ(consumer.peek(3).size(), 1u);
}

TEST(MpmcQueue, RunsAreFilledAndReadInPlace) {
  MpmcQueue<int> queue(8);
  int next = 0;
  int expected = 0;
  for (int round = 0; round < 50; ++round) {
    auto room = queue.reserve(5);
    ASSERT_EQ(room.size(), 5u);
    for (size_t i = 0; i < room.size(); ++i) room[i] = next++;
    int value = 0;
    EXPECT_FALSE(queue.try_pop(value)) << "not done yet";
    room.done();
    auto items = queue.peek(8);
    ASSERT_EQ(items.size(), 5u);
    for (size_t i = 0; i < items.size(); ++i) EXPECT_EQ(items[i], expected++);
    items.done();
  }
}

TEST(MpmcQueueDeathTest, ARunThatIsDroppedWouldBlockTheQueueAndIsOurOwnBug) {
  MpmcQueue<int> queue(8);
  EXPECT_DEATH({ auto run = queue.reserve(2); }, "count_ == 0");
}

// Looks at its queue whenever it is moved, as another thread might at that moment.
struct Looking {
  static inline std::function<void()> look;
  int value = 0;
  explicit Looking(int v = 0) : value(v) {}
  Looking(Looking&& other) noexcept : value(other.value) { look_once(); }
  Looking& operator=(Looking&& other) noexcept {
    value = other.value;
    look_once();
    return *this;
  }
  static void look_once() {
    if (const auto now = std::exchange(look, nullptr)) {
      now();
      look = now;
    }
  }
};

// The other side finds nothing at each of the four moves of `batch`, and all four items after it.
template <typename Batch, typename OtherSide>
void expect_all_at_once(const Batch& batch, const OtherSide& other_side) {
  int looks = 0;
  Looking::look = [&] {
    ++looks;
    EXPECT_EQ(other_side(), 0u) << "a part of the batch at look " << looks;
  };
  EXPECT_EQ(batch(), 4u);
  EXPECT_EQ(looks, 4);
  Looking::look = nullptr;
  EXPECT_EQ(other_side(), 4u);
}

template <typename Queue>
class QueueBatch : public ::testing::Test {
 protected:
  ~QueueBatch() override { Looking::look = nullptr; }
};
using LookingQueues =
    ::testing::Types<MpmcPlain<Looking>, MpmcPadded<Looking>, MpmcWaiting<Looking>>;
TYPED_TEST_SUITE(QueueBatch, LookingQueues);

TYPED_TEST(QueueBatch, IsSeenAllAtOnceAndNotItemByItem) {
  TypeParam queue(4);
  std::array<Looking, 4> items;
  std::array<Looking, 4> popped;
  expect_all_at_once([&] { return queue.try_push_n(items); },
                     [&] { return queue.try_pop_n(popped); });
}

TYPED_TEST(QueueBatch, GivesItsRoomBackAllAtOnce) {
  TypeParam queue(4);
  std::array<Looking, 4> items;
  std::array<Looking, 4> popped;
  ASSERT_EQ(queue.try_push_n(items), 4u);
  expect_all_at_once([&] { return queue.try_pop_n(popped); },
                     [&] { return queue.try_push_n(items); });
}

// A thread that is held (or dies) between claim and publication, as the headers have it.
TEST(MpmcQueue, AHeldProducerHidesLaterItemsAndNoEarlierOne) {
  MpmcQueue<int> queue(4);
  ASSERT_TRUE(queue.try_push(1));
  auto held = queue.reserve(1);  // a producer held between its claim and its publication
  held[0] = 2;
  ASSERT_TRUE(queue.try_push(3));
  int value = 0;
  ASSERT_TRUE(queue.try_pop(value));
  EXPECT_EQ(value, 1);
  EXPECT_FALSE(queue.try_pop(value)) << "3 is behind the held slot";
  ASSERT_TRUE(queue.try_push(4));
  ASSERT_TRUE(queue.try_push(5));
  EXPECT_FALSE(queue.try_push(6)) << "one lap later the held slot is full for producers too";
  held.done();
  for (const int expected : {2, 3, 4, 5}) {
    ASSERT_TRUE(queue.try_pop(value));
    EXPECT_EQ(value, expected);
  }
}

TEST(MpmcQueue, ABatchEndsAtTheFirstSlotThatIsHeldWhereverTheRingBegins) {
  constexpr size_t kSlots = 16;
  std::array<int, kSlots> items;
  std::array<int, kSlots> popped;
  for (size_t shift = 0; shift < kSlots; ++shift) {
    MpmcQueue<int> queue(kSlots);
    ASSERT_EQ(queue.try_push_n(std::span(items).first(shift)), shift);
    ASSERT_EQ(queue.try_pop_n(popped), shift);
    for (size_t before = 0; before < kSlots; ++before) {
      const size_t after = kSlots - before - 1;
      std::iota(items.begin(), items.end(), 0);
      popped.fill(-1);
      ASSERT_EQ(queue.try_push_n(std::span(items).first(before)), before);
      auto filling = queue.reserve(1);
      ASSERT_EQ(queue.try_push_n(std::span(items).last(after)), after);
      ASSERT_EQ(queue.try_pop_n(popped), before);
      filling[0] = static_cast<int>(before);
      filling.done();
      ASSERT_EQ(queue.try_pop_n(std::span(popped).subspan(before)), after + 1);
      ASSERT_EQ(popped, items) << "shift " << shift;

      ASSERT_EQ(queue.try_push_n(items), kSlots);
      ASSERT_EQ(queue.try_pop_n(std::span(popped).first(before)), before);
      auto emptying = queue.peek(1);
      ASSERT_EQ(queue.try_pop_n(popped), after);
      ASSERT_EQ(queue.try_push_n(items), before) << "shift " << shift;
      emptying.done();
      ASSERT_EQ(queue.try_push_n(items), after + 1);
      ASSERT_EQ(queue.try_pop_n(popped), kSlots);
    }
  }
}

TEST(MpmcQueue, AHeldConsumerKeepsItsSlotAndNothingElse) {
  MpmcQueue<int> queue(4);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(queue.try_push(int{i}));
  auto held = queue.peek(1);
  int value = 0;
  for (int i = 1; i < 4; ++i) {
    ASSERT_TRUE(queue.try_pop(value));
    EXPECT_EQ(value, i);
  }
  EXPECT_FALSE(queue.try_push(9)) << "three slots are free, but the next one is held";
  EXPECT_EQ(held[0], 0);
  held.done();
  ASSERT_TRUE(queue.try_push(9));
}

TEST(MpmcQueue, CloseWaitsForAcceptedItemsThatAreNotYetPublished) {
  MpmcQueue<int> queue(4);
  auto held = queue.reserve(1);
  held[0] = 7;
  queue.close();
  EXPECT_FALSE(queue.drained()) << "an accepted item is on its way";
  held.done();
  int value = 0;
  ASSERT_TRUE(queue.try_pop(value));
  EXPECT_EQ(value, 7);
  EXPECT_TRUE(queue.drained());
}

}  // namespace
}  // namespace lumen::testing
