// Two threads that stand for two processes, over one mapping: under ThreadSanitizer every byte of a
// frame and every place that is given back must be ordered by the ring's own words. Waits, batches,
// a third thread that gives back.
#include "support/bus_pair.h"
#include "support/stress.h"

#include <lumen/base/clock.h>

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <thread>

namespace lumen::bus {
namespace {

constexpr uint64_t kFrames = 400'000;
uint64_t patience() { return now_ns() + 60'000'000'000; }

size_t size_of(uint64_t frame) { return frame % 5 == 0 ? 0 : 8 * (1 + frame * 37 % 60); }

void publish_all(Publisher& publisher, uint64_t frames) {
  for (uint64_t i = 0; i < frames; ++i) {
    const Publisher::Place place = publisher.reserve(size_of(i), patience());
    ASSERT_TRUE(place) << name_of(place.outcome);
    for (size_t at = 0; at < place.bytes.size(); at += 8) {
      std::memcpy(place.bytes.data() + at, &i, sizeof(i));
    }
    publisher.commit(place.bytes.size(), 1 + static_cast<uint32_t>(i % 3), i);
    if (i % 7 == 0) publisher.flush();
  }
  publisher.flush();
}

void expect_frame(const std::byte* data, size_t size, uint64_t frame) {
  ASSERT_EQ(size, size_of(frame));
  for (size_t at = 0; at < size; at += 8) {
    uint64_t value = 0;
    std::memcpy(&value, data + at, sizeof(value));
    ASSERT_EQ(value, frame);
  }
}

TEST(BusStreamStress, EveryFrameArrivesWhole) {
  test::BusPair pair({4096, 16});
  const uint64_t frames = test::stress_count(kFrames);
  std::thread publishes([&] { publish_all(*pair.publisher, frames); });
  for (uint64_t next = 0; next < frames;) {
    ASSERT_EQ(pair.subscriber->wait(patience()), Outcome::kOk);
    while (const auto frame = pair.subscriber->try_take()) {
      ASSERT_EQ(frame->id, next);
      expect_frame(frame->data.data(), frame->data.size(), next++);
    }
    pair.subscriber->release();
  }
  publishes.join();
}

TEST(BusStreamStress, BatchesArriveWhole) {
  test::BusPair pair({4096, 16});
  const uint64_t frames = test::stress_count(kFrames);
  std::thread publishes([&] { publish_all(*pair.publisher, frames); });
  for (uint64_t next = 0; next < frames;) {
    ASSERT_EQ(pair.subscriber->wait(patience()), Outcome::kOk);
    const Batch batch = pair.subscriber->try_take_batch(8);
    for (size_t i = 0; i < batch.count; ++i) {
      expect_frame(batch.data + i * batch.stride, batch.size, next++);
    }
    pair.subscriber->release();
  }
  publishes.join();
}

// A reader of Python's views gives back in a thread of its own while another waits.
TEST(BusStreamStress, AThirdThreadGivesBack) {
  test::BusPair pair({4096, 16});
  const uint64_t frames = test::stress_count(kFrames);
  std::thread publishes([&] { publish_all(*pair.publisher, frames); });
  std::mutex mutex;
  Position taken;
  bool ends = false;
  std::thread gives_back([&] {
    for (;;) {
      Position until;
      {
        const std::scoped_lock lock(mutex);
        if (ends) return;
        until = taken;
      }
      pair.subscriber->release_to(until);
      std::this_thread::
          yield();  // or it has the mutex most of the time, and the test takes 20 s on two CPUs
    }
  });
  for (uint64_t next = 0; next < frames;) {
    const Outcome outcome = pair.subscriber->wait(patience());
    if (outcome == Outcome::kHeld) continue;  // the other thread is about to give some back
    ASSERT_EQ(outcome, Outcome::kOk);
    while (const auto frame = pair.subscriber->try_take()) {
      expect_frame(frame->data.data(), frame->data.size(), next++);
      const std::scoped_lock lock(mutex);
      taken = pair.subscriber->position();
    }
  }
  {
    const std::scoped_lock lock(mutex);
    ends = true;
  }
  gives_back.join();
  publishes.join();
}

}  // namespace
}  // namespace lumen::bus
