// One publisher, several subscribers: some hold it back, are lapped, come, go, and are dropped.
#include "unit/bus/bus_fixture.h"

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace lumen::bus {
namespace {

class FanOut : public BusTest {
 protected:
  void publish_as(ListenerOptions options = {}) {
    options.role = Role::kPublish;
    listen(options);
  }
  // Attached from the next frame on.
  Connection subscribe(Role role = Role::kSubscribe) {
    Connection connection = connect_as(role);
    ++subscribers;
    EXPECT_EQ(listener->publisher().wait_for_subscribers(subscribers, patience()), Outcome::kOk);
    return connection;
  }
  void send(std::string_view text) {
    ASSERT_EQ(listener->publisher().send(bytes_of(text), 1, 0, patience()), Outcome::kOk);
  }
  static std::string read_all(Subscriber& subscriber) {
    std::string all;
    while (const auto frame = subscriber.try_take()) all += text_of(*frame);
    subscriber.release();
    return all;
  }
  size_t subscribers = 0;
};

TEST_F(FanOut, EachSubscriberSeesFramesFromItsAttachingOn) {
  publish_as();
  send("a");
  Connection first = subscribe();
  send("b");
  Connection second = subscribe();
  send("c");
  EXPECT_EQ(read_all(*first.subscriber), "bc");
  EXPECT_EQ(read_all(*second.subscriber), "c");
}

TEST_F(FanOut, WithoutSubscribersFramesAreDroppedAndThePublisherNeverWaits) {
  publish_as({.capacity = 4096});
  for (int i = 0; i < 100; ++i) send(std::string(4096, 'x'));
}

TEST_F(FanOut, TheSlowestThatHoldsBackDecides) {
  publish_as({.capacity = 4096, .max_hold_ns = UINT64_MAX});
  Connection fast = subscribe();
  Connection slow = subscribe();
  for (int i = 0; i < 4; ++i) send(std::string(1024, 'x'));
  EXPECT_EQ(read_all(*fast.subscriber).size(), 4096u);
  EXPECT_EQ(listener->publisher().reserve(1, now_ns()).outcome, Outcome::kTimedOut);
  EXPECT_EQ(read_all(*slow.subscriber).size(), 4096u);
  send("next");
  EXPECT_EQ(read_all(*fast.subscriber), "next");
  EXPECT_EQ(read_all(*slow.subscriber), "next");
}

TEST_F(FanOut, ASubscriberThatHoldsTheRingForTooLongIsDroppedAndTold) {
  publish_as({.capacity = 4096, .max_hold_ns = 1'000'000});
  Connection good = subscribe();
  Connection bad = subscribe();
  for (int i = 0; i < 4; ++i) send(std::string(1024, 'x'));
  EXPECT_EQ(read_all(*good.subscriber).size(), 4096u);
  ASSERT_TRUE(bad.subscriber->try_take());
  send("goes on");
  for (int i = 0; i < 100; ++i) {  // far beyond its last look
    EXPECT_EQ(read_all(*good.subscriber), i == 0 ? "goes on" : "on");
    send("on");
  }

  EXPECT_EQ(bad.subscriber->wait(patience()), Outcome::kDropped);
  EXPECT_FALSE(bad.subscriber->try_take()) << "what it has not read is written over";
  EXPECT_EQ(listener->publisher().subscribers(), 1u);
}

TEST_F(FanOut, ASubscriberThatIsOnlyBehindIsNotDroppedWithAHolder) {
  publish_as({.capacity = 4096, .max_hold_ns = 1'000'000});
  Connection behind = subscribe();
  Connection holds = subscribe();
  for (int i = 0; i < 4; ++i) {
    send(std::string(1024, 'x'));
    if (i == 3) break;
    EXPECT_EQ(read_all(*behind.subscriber).size(), 1024u);
  }
  send(std::string(1024, 'y'));  // waits until the holder is dropped
  EXPECT_EQ(read_all(*behind.subscriber).size(), 2048u);
  EXPECT_EQ(holds.subscriber->wait(patience()), Outcome::kDropped);
  EXPECT_EQ(behind.subscriber->state(), Outcome::kOk);
}

TEST_F(FanOut, AProgramThatNeverWaitsDropsHoldersToo) {
  publish_as({.capacity = 4096, .max_hold_ns = 1'000'000});
  Connection holds = subscribe();
  send(std::string(4096, 'x'));
  while (!listener->publisher().try_reserve(1)) {
  }
  EXPECT_EQ(holds.subscriber->wait(patience()), Outcome::kDropped);
}

TEST_F(FanOut, ASubscriberThatLeavesHoldsNobodyBackAndItsPlaceIsUsedAgain) {
  publish_as({.capacity = 4096, .max_hold_ns = UINT64_MAX});
  for (int round = 0; round < 200; ++round) {
    auto one = std::make_optional(subscribe());
    send("x");
    EXPECT_EQ(read_all(*one->subscriber), "x");
    send(std::string(4096, 'y'));
    one.reset();
    send("z");
    --subscribers;
  }
  while (listener->counts().connections != 0) (void)listener->publisher().state();
}

// As Stream.ARingOfAnEarlierSleepDoesNotKeepAThreadAwake.
TEST_F(FanOut, ARingOfAnEarlierSleepDoesNotKeepAPublisherThatWaitsForSubscribersAwake) {
  publish_as({.capacity = 4096});
  Connection one = subscribe();
  Publisher& publisher = listener->publisher();
  publisher.announce_sleep();
  send(std::string(4096, 'x'));
  EXPECT_EQ(read_all(*one.subscriber).size(), 4096u);
  publisher.end_sleep();
  const uint64_t before = thread_cpu_ns();
  constexpr uint64_t kWait = 100'000'000;
  EXPECT_EQ(publisher.wait_for_subscribers(2, now_ns() + kWait), Outcome::kTimedOut);
  EXPECT_LT(thread_cpu_ns() - before, kWait / 3);
}

TEST_F(FanOut, ALappedSubscriberIsToldHowManyItHasMissed) {
  publish_as({.capacity = 4096});
  Connection lossy = subscribe(Role::kSubscribeLossy);
  constexpr uint64_t kFrames = 10'000;
  uint64_t read = 0;
  uint64_t lost = 0;
  std::array<std::byte, 64> bytes;
  for (uint64_t i = 0; i < kFrames; ++i) {
    const std::string text = std::to_string(i);
    ASSERT_EQ(listener->publisher().send(bytes_of(text), 1, i, now_ns()), Outcome::kOk)
        << "never held back";
    if (i % 100 > 1) continue;  // a read after a lap begins with the next frame
    while (const auto one = lossy.lossy_subscriber->try_read(bytes)) {
      ++read;
      lost += one->lost;
      ASSERT_EQ(one->id, read + lost - 1) << "in order, and what is missing is counted";
      const std::string_view got(reinterpret_cast<const char*>(bytes.data()), one->size);
      ASSERT_EQ(got, std::to_string(one->id));
    }
  }
  EXPECT_GT(read, 0u);
  EXPECT_GT(lost, 0u);
  while (lossy.lossy_subscriber->try_read(bytes)) ++read;
  EXPECT_EQ(read + lossy.lossy_subscriber->lost(), kFrames);
}

TEST_F(FanOut, ALappedSubscriberNeverSeesAFrameThatIsHalfWritten) {
  publish_as({.capacity = 8192});
  Connection lossy = subscribe(Role::kSubscribeLossy);
  const std::jthread publishes([&](const std::stop_token& stop) {
    Publisher& publisher = listener->publisher();
    for (uint64_t i = 0; !stop.stop_requested(); ++i) {
      std::array<uint64_t, 96> words;
      words.fill(i);
      const auto bytes = std::as_bytes(std::span(words)).first(8 * (1 + i % words.size()));
      ASSERT_EQ(publisher.send(bytes, 1, i, now_ns()), Outcome::kOk);
    }
  });
  uint64_t last = 0;
  for (int read = 0; read < 3'000;) {
    ASSERT_EQ(lossy.lossy_subscriber->wait(patience()), Outcome::kOk);
    std::array<uint64_t, 96> words;
    const auto one = lossy.lossy_subscriber->try_read(std::as_writable_bytes(std::span(words)));
    if (!one) continue;
    ASSERT_EQ(one->size, 8 * (1 + one->id % words.size()));
    for (size_t i = 0; i < one->size / 8; ++i) ASSERT_EQ(words[i], one->id);
    ASSERT_TRUE(read == 0 || one->id == last + 1 + one->lost);
    last = one->id;
    ++read;
  }
}

TEST_F(FanOut, AllPlacesCanBeTakenAndOneMoreIsRefused) {
  publish_as({.max_connections = 1000, .max_connections_per_user = 1000});
  std::vector<Connection> all;
  all.reserve(kMostSubscribers);
  for (uint32_t i = 0; i < kMostSubscribers; ++i) all.push_back(subscribe());
  send("to all");
  for (Connection& one : all) EXPECT_EQ(read_all(*one.subscriber), "to all");
  const auto more = connect(path, {.role = Role::kSubscribe, .deadline_ns = patience()});
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.status().message().find("all 64 places"), std::string_view::npos)
      << more.status().message();
}

TEST_F(FanOut, APublisherThatWaitsForASubscriberThatDiesGoesOn) {
  publish_as({.capacity = 4096, .max_hold_ns = UINT64_MAX});
  auto holds = std::make_optional(subscribe());
  send(std::string(4096, 'x'));
  std::thread leaves([&] {
    while (listener->publisher().stalls() == 0) std::this_thread::yield();
    holds.reset();
  });
  send("after");
  leaves.join();
}

// Frames that were committed before a subscriber came were written over without bound, and the next
// subscriber was given more frames than a ring holds: it took the publisher for a liar.
TEST_F(FanOut, FramesCommittedBeforeASubscriberCameNeverExceedTheRing) {
  publish_as({.capacity = 4096, .slots = 8});
  Publisher& publisher = listener->publisher();
  for (int i = 0; i < 100; ++i) {
    const Publisher::Place place = publisher.reserve(8, patience());
    ASSERT_TRUE(place) << name_of(place.outcome);
    publisher.commit(8, 1);
  }
  Connection one = connect_as(Role::kSubscribe);
  while (listener->counts().accepted == 0) std::this_thread::yield();  // the publisher may have it
  publisher.flush();
  ASSERT_EQ(publisher.wait_for_subscribers(1, patience()), Outcome::kOk);
  (void)one.subscriber->try_take();
  EXPECT_EQ(one.subscriber->state(), Outcome::kOk);
  one.subscriber->release();
  send("after");
  EXPECT_TRUE(read_all(*one.subscriber).ends_with("after"));
}

// A publisher that has nothing to say for long did not notice subscribers that had left: after 64
// of them no other could come any more.
TEST_F(FanOut, PlacesOfSubscribersThatLeftAreFreeThoughThePublisherDoesNothing) {
  publish_as();
  for (uint32_t i = 0; i < 3 * kMostSubscribers; ++i) {
    const auto one = connect(path, {.role = Role::kSubscribe, .deadline_ns = patience()});
    ASSERT_TRUE(one.ok()) << i << ": " << one.status().message();
  }
  const uint64_t until_ns = patience();
  while (listener->counts().connections != 0 && now_ns() < until_ns) std::this_thread::yield();
  EXPECT_EQ(listener->counts().connections, 0u);
  Connection last = subscribe();
  send("x");
  EXPECT_EQ(read_all(*last.subscriber), "x");
}

TEST_F(FanOut, SubscribersComeAndGoUnderLoadAndEachSeesWithoutAGapFromItsStart) {
  publish_as({.capacity = 16'384, .max_connections = 1000, .max_connections_per_user = 1000});
  std::atomic<bool> stops{false};
  std::thread publishes([&] {
    Publisher& publisher = listener->publisher();
    for (uint64_t i = 0; !stops; ++i) {
      const Publisher::Place place = publisher.reserve(1 + i % 200, patience());
      ASSERT_TRUE(place) << name_of(place.outcome);
      std::memset(place.bytes.data(), static_cast<int>(i), place.bytes.size());
      publisher.commit(place.bytes.size(), 1, i);
      if (i % 3 == 0) publisher.flush();
    }
  });
  const auto read_some = [&](uint64_t rounds) {
    for (uint64_t round = 0; round < rounds; ++round) {
      Connection one = connect_as(Role::kSubscribe);
      uint64_t next = 0;
      for (uint64_t read = 0; read < 500;) {
        ASSERT_EQ(one.subscriber->wait(patience()), Outcome::kOk);
        while (const auto frame = one.subscriber->try_take()) {
          if (read++ == 0) next = frame->id;
          ASSERT_EQ(frame->id, next);
          ASSERT_EQ(frame->data.size(), 1 + next % 200);
          ASSERT_EQ(frame->data.back(), static_cast<std::byte>(next));
          ++next;
        }
        one.subscriber->release();
      }
    }
  };
  std::thread other([&] { read_some(30); });
  read_some(30);
  other.join();
  stops = true;
  publishes.join();
}

}  // namespace
}  // namespace lumen::bus
