// One thread that reads from several publishers.
#include <lumen/bus/wait_any.h>

#include "unit/bus/bus_fixture.h"

#include <array>
#include <thread>
#include <vector>

namespace lumen::bus {
namespace {

class WaitAny : public BusTest {};

TEST_F(WaitAny, SeveralPublishersReachOneThreadAndEachEndIsTold) {
  constexpr size_t kPublishers = 3;
  constexpr uint64_t kFrames = 5'000;
  listen({.capacity = 4096});
  std::vector<Connection> connections;
  std::vector<std::thread> threads;
  for (size_t p = 0; p < kPublishers; ++p) {
    threads.emplace_back([connection = connect_as(Role::kPublish)]() mutable {
      for (uint64_t i = 0; i < kFrames; ++i) {
        const auto bytes = std::as_bytes(std::span(&i, 1));
        ASSERT_EQ(connection.publisher->send(bytes, 1, i, patience()), Outcome::kOk);
      }
    });
    connections.push_back(accept());
  }
  std::array<Subscriber*, kPublishers> subscribers{};
  for (size_t p = 0; p < kPublishers; ++p) subscribers[p] = &*connections[p].subscriber;
  std::array<uint64_t, kPublishers> next{};
  std::vector<Subscriber*> left(subscribers.begin(), subscribers.end());
  IdleStrategy idle;
  size_t start = 0;
  while (!left.empty()) {
    const Ready ready = wait_any(left, idle, start, patience());
    if (ready.outcome != Outcome::kOk) {
      ASSERT_EQ(ready.outcome, Outcome::kClosed);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(ready.index));
      continue;
    }
    start = ready.index + 1;
    Subscriber& one = *left[ready.index];
    const auto which =
        static_cast<size_t>(std::ranges::find(subscribers, &one) - subscribers.begin());
    while (const auto frame = one.try_take()) ASSERT_EQ(frame->id, next[which]++);
    one.release();
  }
  for (const uint64_t count : next) EXPECT_EQ(count, kFrames);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(WaitAny, ABusyPublisherDoesNotHideAnother) {
  listen({});
  Connection busy = connect_as(Role::kPublish);
  Connection a = accept();
  Connection quiet = connect_as(Role::kPublish);
  Connection b = accept();
  const std::array<Subscriber*, 2> both = {&*a.subscriber, &*b.subscriber};
  IdleStrategy idle;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(busy.publisher->send({}, 1), Outcome::kOk);
  ASSERT_EQ(quiet.publisher->send({}, 2), Outcome::kOk);
  EXPECT_EQ(wait_any(both, idle, 0, patience()).index, 0u);
  EXPECT_EQ(wait_any(both, idle, 1, patience()).index, 1u);
  ASSERT_TRUE(b.subscriber->try_take());
  EXPECT_EQ(wait_any(both, idle, 1, patience()).index, 0u);
  while (a.subscriber->try_take()) {
  }
  EXPECT_EQ(wait_any(both, idle, 0, now_ns()).outcome, Outcome::kTimedOut);
}

}  // namespace
}  // namespace lumen::bus
