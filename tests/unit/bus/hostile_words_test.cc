// A peer that writes anything into the shared memory that it may write: it is dropped (kInvalid) or
// reads wrong data itself; nothing of ours is read out of bounds, no wait outlives its deadline, no
// other peer notices. See docs/formats/bus.md, "Checks".
#include "support/bus_raw.h"
#include "support/stress.h"
#include "unit/bus/bus_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace lumen::bus {
namespace {

using test::RawStream;

constexpr uint64_t kMoment = 2'000'000;

// Ours subscribes; the attacker publishes.
class HostilePublisher : public BusTest {
 protected:
  void attack(const ListenerOptions& options = {.capacity = 4096}) {
    listen(options);
    attacker.emplace(path, Role::kPublish);
    ours.emplace(accept());
  }
  // The subscriber's outcome for any words that it reads; never beyond the ring.
  Outcome read_for(uint64_t ns) {
    const uint64_t until_ns = now_ns() + ns;
    Outcome outcome = Outcome::kOk;
    while (!is_over(outcome) && now_ns() < until_ns) {
      outcome = subscriber().wait(std::min(until_ns, now_ns() + kMoment), 1);
      if (outcome == Outcome::kHeld) subscriber().release();
      uint8_t sum = 0;
      for (int i = 0; i < 100; ++i) {
        const auto frame = subscriber().try_take();
        if (!frame) break;
        EXPECT_LE(frame->data.size(), subscriber().geometry().capacity);
        for (const std::byte byte : frame->data) sum ^= static_cast<uint8_t>(byte);
      }
      const Batch batch = subscriber().try_take_batch(64);
      EXPECT_LE(batch.count * batch.stride, subscriber().geometry().capacity);
      for (size_t i = 0; i < batch.count * batch.size; ++i) {
        sum ^= static_cast<uint8_t>(batch.data[i]);
      }
      seen = sum;
      EXPECT_LE(subscriber().held_bytes(), subscriber().geometry().capacity);
      if (outcome != Outcome::kTimedOut) subscriber().release();
    }
    return outcome;
  }
  std::optional<RawStream> attacker;
  std::atomic<uint8_t> seen;
};

TEST_F(HostilePublisher, ATailAheadOfTheRingIsInvalid) {
  for (const uint64_t tail : {uint64_t{65}, uint64_t{1} << 32, UINT64_MAX, UINT64_MAX / 2}) {
    attack();
    attacker->page().tail_frames.store(tail, std::memory_order_seq_cst);
    EXPECT_EQ(subscriber().wait(patience()), Outcome::kInvalid) << tail;
    EXPECT_FALSE(subscriber().try_take());
    EXPECT_EQ(subscriber().state(), Outcome::kInvalid) << "for good";
    attacker.reset();
    ours.reset();
    listener.reset();
  }
}

TEST_F(HostilePublisher, ATailThatGoesBackIsInvalid) {
  attack();
  attacker->publish(0, 8, 1);
  attacker->publish(1, 8, 2);
  ASSERT_EQ(subscriber().wait(patience(), 2), Outcome::kOk);
  attacker->page().tail_frames.store(1, std::memory_order_seq_cst);
  EXPECT_TRUE(subscriber().try_take());
  EXPECT_TRUE(subscriber().try_take());
  EXPECT_EQ(subscriber().wait(patience()), Outcome::kInvalid);
}

TEST_F(HostilePublisher, ASizeBeyondTheRestOfTheRingIsInvalid) {
  for (const uint64_t size : {uint64_t{4097}, uint64_t{UINT32_MAX}, uint64_t{UINT32_MAX} - 63}) {
    attack();
    attacker->publish(0, size, 1);
    EXPECT_EQ(subscriber().wait(patience()), Outcome::kOk);
    EXPECT_FALSE(subscriber().try_take()) << size;
    EXPECT_EQ(subscriber().state(), Outcome::kInvalid);
    attacker.reset();
    ours.reset();
    listener.reset();
  }
}

TEST_F(HostilePublisher, SizesThatTogetherAreMoreThanTheRingAreInvalid) {
  attack();
  for (uint64_t i = 0; i < 3; ++i) attacker->publish(i, 2048, i + 1);
  EXPECT_EQ(subscriber().wait(patience(), 3), Outcome::kOk);
  EXPECT_EQ(subscriber().try_take_batch(3).count, 2u) << "as many as the ring has bytes";
  EXPECT_FALSE(subscriber().try_take());
  EXPECT_EQ(subscriber().state(), Outcome::kInvalid);
}

TEST_F(HostilePublisher, ARunOfMoreFramesOrBytesThanAreThereIsInvalid) {
  struct Case {
    uint64_t size, count;
  };
  constexpr std::array<Case, 8> kCases = {{{8, 0},
                                           {8, 4},
                                           {8, uint64_t{1} << 32},
                                           {8, UINT64_MAX},
                                           {0, UINT64_MAX},
                                           {2048, 3},
                                           {kMostSize, 2},
                                           {4097, 1}}};
  for (const bool takes_batches : {false, true}) {
    for (const Case& one : kCases) {
      attack();
      attacker->publish_run(0, one.size, one.count, 3);
      EXPECT_EQ(subscriber().wait(patience()), Outcome::kOk);
      if (takes_batches) {
        EXPECT_EQ(subscriber().try_take_batch(3).count, 0u) << one.size << ' ' << one.count;
      } else {
        EXPECT_FALSE(subscriber().try_take()) << one.size << ' ' << one.count;
      }
      EXPECT_EQ(subscriber().state(), Outcome::kInvalid) << one.size << ' ' << one.count;
      attacker.reset();
      ours.reset();
      listener.reset();
    }
  }
}

// The listener publishes; its memory is written behind its publisher's back.
class HostileSharedPublisher : public BusTest {};

TEST_F(HostileSharedPublisher, ARunOfAnImpossibleNumberOfFramesEndsALappedSubscriber) {
  for (const uint64_t count : {uint64_t{0}, uint64_t{65}, uint64_t{1} << 32, UINT64_MAX}) {
    listen({.role = Role::kPublish, .capacity = 4096, .slots = 64});
    Connection lossy = connect_as(Role::kSubscribeLossy);
    Publisher& publisher = listener->publisher();
    ASSERT_EQ(publisher.wait_for_subscribers(1, patience()), Outcome::kOk);
    const Publisher::Places places = publisher.try_reserve_batch(8, 3);
    ASSERT_EQ(places.count, 3u);
    publisher.commit_batch(8, 3, 1);
    publisher.flush();
    const Geometry& geometry = publisher.geometry();
    auto* descriptors = reinterpret_cast<Descriptor*>(
        places.data - (geometry.payload_offset() - geometry.descriptors_offset()));
    descriptors[1].size_and_type.store(count, std::memory_order_seq_cst);
    std::array<std::byte, 64> bytes;
    EXPECT_FALSE(lossy.lossy_subscriber->try_read(bytes)) << count;
    EXPECT_EQ(lossy.lossy_subscriber->state(), Outcome::kInvalid) << count;
    listener.reset();
  }
}

// The descriptors of a run are not read again after its first frame.
TEST_F(HostilePublisher, ARunThatWasBegunStaysAsItWas) {
  attack();
  attacker->publish_run(0, 8, 3, 3);
  ASSERT_TRUE(subscriber().try_take());
  attacker->publish_run(0, 4096, 60, 3);
  EXPECT_EQ(subscriber().try_take()->data.size(), 8u);
  EXPECT_EQ(subscriber().try_take_batch(60).count, 1u);
  EXPECT_EQ(subscriber().state(), Outcome::kOk);
}

TEST_F(HostilePublisher, WordsOfThePublishersSleepEndNoWaitWithoutHeldFramesAndHangNone) {
  attack();
  for (const uint64_t word : {uint64_t{1}, uint64_t{2}, uint64_t{3}, UINT64_MAX}) {
    attacker->page().asleep.store(word, std::memory_order_seq_cst);
    attacker->page().stuck_for.store(word, std::memory_order_seq_cst);
    EXPECT_EQ(subscriber().wait(now_ns() + kMoment), Outcome::kTimedOut) << word;
  }
}

// All words and descriptors change while they are read.
TEST_F(HostilePublisher, WordsThatChangeAtRandomWhileTheyAreReadHarmNobodyElse) {
  const uint64_t seed = test::stress_seed();
  listen({.capacity = 4096});
  Connection good = connect_as(Role::kPublish);
  Connection good_ours = accept();
  for (uint64_t round = 0; round < test::stress_count(30); ++round) {
    attacker.emplace(path, Role::kPublish);
    ours.emplace(accept());
    std::jthread writes([&](const std::stop_token& stop) {
      std::mt19937_64 random(seed + round);
      const std::array<uint64_t, 8> chosen = {0, 1, 63, 64, 65, 4096, UINT32_MAX, UINT64_MAX};
      uint64_t tail = 0;
      while (!stop.stop_requested()) {
        const uint64_t value = random() % 2 == 0 ? random() : chosen[random() % chosen.size()];
        PublisherPage& page = attacker->page();
        switch (random() % 9) {
          case 0: attacker->descriptors()[random() % 64].size_and_type = value; break;
          case 8: attacker->descriptors()[random() % 64].size_and_type = kIsRun | value % 65; break;
          case 1: attacker->descriptors()[random() % 64].size_and_type = value % 300; break;
          case 2: page.asleep = value; break;
          case 3: page.stuck_for = page.asleep.load(); break;
          case 4: page.tail_bytes = value; break;
          case 5: (void)test::send_raw(attacker->bell(), test::raw_bytes(value)); break;
          // mostly a tail that can be, so that descriptors are read at all
          default: page.tail_frames = random() % 1000 == 0 ? value : ++tail;
        }
      }
    });
    (void)read_for(3 * kMoment);
    writes.request_stop();
    writes.join();
    ASSERT_EQ(good.publisher->send(bytes_of("still here"), 1), Outcome::kOk);
    ASSERT_EQ(good_ours.subscriber->wait(patience()), Outcome::kOk);
    ASSERT_EQ(text_of(*good_ours.subscriber->try_take()), "still here");
    good_ours.subscriber->release();
    attacker.reset();
    ours.reset();
  }
}

// A bell that has hung up is readable for ever: the wait polled it without a pause, a whole core
// for as long as its deadline.
TEST_F(HostilePublisher, ABellClosedAloneDoesNotKeepAThreadAwake) {
  attack();
  attacker->close_bell();
  const uint64_t before = thread_cpu_ns();
  constexpr uint64_t kWait = 300'000'000;
  EXPECT_EQ(subscriber().wait(now_ns() + kWait), Outcome::kTimedOut);
  EXPECT_LT(thread_cpu_ns() - before, kWait / 3);
  attacker.reset();
  EXPECT_EQ(subscriber().wait(patience()), Outcome::kDied) << "the connection tells as before";
}

TEST_F(HostilePublisher, AFloodOfBellsEndsNoWaitAndKeepsItsDeadline) {
  attack();
  std::array<std::byte, 4096> bytes{};
  uint64_t sent = 0;
  while (test::send_raw(attacker->bell(), bytes)) sent += bytes.size();
  ASSERT_GT(sent, 0u);
  const uint64_t before = thread_cpu_ns();
  constexpr uint64_t kWait = 300'000'000;
  EXPECT_EQ(subscriber().wait(now_ns() + kWait), Outcome::kTimedOut);
  const uint64_t cpu = thread_cpu_ns() - before;
  std::printf("%llu bytes of bells cost %.2f ms of this thread\n",
              static_cast<unsigned long long>(sent), static_cast<double>(cpu) / 1e6);
  EXPECT_LT(cpu, kWait / 3) << "a buffer full is drained, then it sleeps";
  attacker->publish(0, 8, 1);
  EXPECT_EQ(subscriber().wait(patience()), Outcome::kOk);
}

// A message on the connection that is no goodbye, and goodbyes that are forged: this stream alone
// ends.
TEST_F(HostilePublisher, AForgedGoodbyeEndsItsOwnStreamAlone) {
  listen({.capacity = 4096});
  Connection good = connect_as(Role::kPublish);
  Connection good_ours = accept();
  const std::array<std::pair<uint64_t, Outcome>, 4> cases = {{{1, Outcome::kClosed},
                                                              {2, Outcome::kDropped},
                                                              {3, Outcome::kInvalid},
                                                              {77, Outcome::kInvalid}}};
  for (const auto& [number, outcome] : cases) {
    attacker.emplace(path, Role::kPublish);
    ours.emplace(accept());
    const auto word = static_cast<uint32_t>(number);
    ASSERT_TRUE(test::send_raw(attacker->socket(), test::raw_bytes(word)));
    EXPECT_EQ(subscriber().wait(patience()), outcome);
  }
  attacker.emplace(path, Role::kPublish);
  ours.emplace(accept());
  std::array<std::byte, 3> odd{};
  ASSERT_TRUE(test::send_raw(attacker->socket(), odd));
  EXPECT_EQ(subscriber().wait(patience()), Outcome::kInvalid);
  ASSERT_EQ(good.publisher->send(bytes_of("x"), 1), Outcome::kOk);
  EXPECT_EQ(good_ours.subscriber->wait(patience()), Outcome::kOk);
}

// Ours publishes to all; the attacker is one of its subscribers.
class HostileSubscriber : public BusTest {
 protected:
  void attack(ListenerOptions options = {.capacity = 4096}, Role role = Role::kSubscribe) {
    options.role = Role::kPublish;
    listen(options);
    good.emplace(connect_as(Role::kSubscribe));
    attacker.emplace(path, role);
    ASSERT_EQ(our_publisher().wait_for_subscribers(2, patience()), Outcome::kOk);
  }
  Publisher& our_publisher() { return listener->publisher(); }
  void expect_good_is_served() {
    Subscriber& reader = *good->subscriber;
    ASSERT_EQ(our_publisher().send(bytes_of("still here"), 1, 0, patience()), Outcome::kOk);
    std::string last;
    while (last != "still here") {
      ASSERT_EQ(reader.wait(patience()), Outcome::kOk);
      while (const auto frame = reader.try_take()) last = text_of(*frame);
      reader.release();
    }
  }
  std::optional<Connection> good;
  std::optional<RawStream> attacker;
};

TEST_F(HostileSubscriber, GivingBackMoreThanWasPublishedIsInvalid) {
  const std::array<std::pair<uint64_t, uint64_t>, 5> words = {
      {{2, 64}, {1, 128}, {UINT64_MAX, 64}, {1, UINT64_MAX - 63}, {1, 1}}};
  for (const auto& [frames, bytes] : words) {
    attack();
    ASSERT_EQ(our_publisher().send(bytes_of("x"), 1), Outcome::kOk);
    attacker->give_back(frames, bytes);
    (void)our_publisher().state();
    EXPECT_EQ(our_publisher().subscribers(), 1u) << frames << " frames, " << bytes << " bytes";
    expect_good_is_served();
    good.reset();
    attacker.reset();
    listener.reset();
  }
}

TEST_F(HostileSubscriber, TakingBackGivenFramesIsInvalid) {
  attack();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(our_publisher().send(bytes_of("x"), 1), Outcome::kOk);
  attacker->give_back(2, 128);
  EXPECT_EQ(our_publisher().state(), Outcome::kOk);
  ASSERT_EQ(our_publisher().subscribers(), 2u);
  attacker->give_back(1, 64);
  (void)our_publisher().state();
  EXPECT_EQ(our_publisher().subscribers(), 1u);
  expect_good_is_served();
}

// A subscriber attaches with two stores; between them the publisher took the first for a lie, and
// an honest subscriber was told that it had broken the protocol.
TEST_F(HostileSubscriber, ASubscriberSeenBetweenTheTwoStoresOfItsStartIsNotInvalid) {
  listen({.role = Role::kPublish, .capacity = 4096});
  good.emplace(connect_as(Role::kSubscribe));
  ASSERT_EQ(our_publisher().wait_for_subscribers(1, patience()), Outcome::kOk);
  expect_good_is_served();
  attacker.emplace(path, Role::kSubscribe);
  ASSERT_EQ(our_publisher().wait_for_subscribers(2, patience()), Outcome::kOk);
  const uint64_t frames = attacker->entry().start_frames.load();
  const uint64_t bytes = attacker->entry().start_bytes.load();
  ASSERT_GT(bytes, 0u);
  attacker->cursor().head_frames.store(frames, std::memory_order_seq_cst);
  (void)our_publisher().state();
  EXPECT_EQ(our_publisher().subscribers(), 2u);
  attacker->cursor().head_bytes.store(bytes, std::memory_order_seq_cst);
  (void)our_publisher().state();
  EXPECT_EQ(our_publisher().subscribers(), 2u);
}

TEST_F(HostileSubscriber, AnAsleepWordThatChangesCostsAtMostOneBellAFlush) {
  attack();
  uint64_t word = 1;
  for (int i = 0; i < 100; ++i) {
    attacker->cursor().asleep.store(word += 2, std::memory_order_seq_cst);
    ASSERT_EQ(our_publisher().send(bytes_of("x"), 1), Outcome::kOk);
    while (good->subscriber->try_take()) {
    }
    good->subscriber->release();
    attacker->give_back(static_cast<uint64_t>(i) + 1, 64 * (static_cast<uint64_t>(i) + 1));
  }
  std::array<std::byte, 4096> bells;
  EXPECT_LE(::recv(attacker->bell(), bells.data(), bells.size(), MSG_DONTWAIT), 101);
  // It never takes them away: the buffer fills, and sending goes on.
  for (uint64_t i = 100; i < 2000; ++i) {
    attacker->cursor().asleep.store(word += 2, std::memory_order_seq_cst);
    ASSERT_EQ(our_publisher().send(bytes_of("x"), 1, 0, patience()), Outcome::kOk);
    while (good->subscriber->try_take()) {
    }
    good->subscriber->release();
    attacker->give_back(i + 1, 64 * (i + 1));
  }
}

// The publisher's own words and the cursors of others are out of reach.
TEST_F(HostileSubscriber, MemoryThatItMayNotWriteCantBeMappedWrittenOrCut) {
  attack();
  const size_t bytes = attacker->geometry().file_bytes();
  const int file = attacker->ring_file();
  EXPECT_EQ(test::map_raw(file, bytes, PROT_READ | PROT_WRITE), nullptr);
  EXPECT_EQ(test::map_raw(file, bytes, PROT_WRITE), nullptr);
  EXPECT_NE(::mprotect(attacker->ring(), 4096, PROT_READ | PROT_WRITE), 0);
  EXPECT_NE(::madvise(attacker->ring(), 4096, MADV_REMOVE), 0);
  const char byte = 1;
  EXPECT_LT(::pwrite(file, &byte, 1, 0), 0);
  EXPECT_NE(::ftruncate(file, 0), 0);
  EXPECT_NE(::ftruncate(file, static_cast<off_t>(2 * bytes)), 0);
  EXPECT_NE(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  EXPECT_LT(::fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), 0) << "no seal can be added";
  const std::string again = "/proc/self/fd/" + std::to_string(file);
  const UniqueFd reopened(::open(again.c_str(), O_RDWR | O_CLOEXEC));
  if (reopened.valid()) {
    EXPECT_EQ(test::map_raw(reopened.get(), bytes, PROT_READ | PROT_WRITE), nullptr);
    EXPECT_LT(::pwrite(reopened.get(), &byte, 1, 0), 0);
  }
  // Its own cursor it may write, and not cut.
  EXPECT_NE(::ftruncate(attacker->cursor_file(), 0), 0);
  expect_good_is_served();
}

TEST_F(HostileSubscriber, CursorWordsThatChangeAtRandomHarmNobodyElse) {
  const uint64_t seed = test::stress_seed();
  attack({.capacity = 4096, .max_connections = 1000, .max_hold_ns = 1'000'000});
  for (uint64_t round = 0; round < test::stress_count(30); ++round) {
    if (round > 0) {
      attacker.emplace(path, round % 2 == 0 ? Role::kSubscribe : Role::kSubscribeLossy);
    }
    std::jthread writes([&](const std::stop_token& stop) {
      std::mt19937_64 random(seed + round);
      CursorPage& page = attacker->cursor();
      while (!stop.stop_requested()) {
        const uint64_t near = attacker->page().tail_frames.load() - random() % 3;
        const uint64_t value = random() % 8 == 0 ? random() : near;
        switch (random() % 4) {
          case 0: page.head_frames = value; break;
          case 1: page.head_bytes = value * 64; break;
          case 2: page.asleep = value; break;
          default: page.lost = value;
        }
      }
    });
    for (int i = 0; i < 100; ++i) expect_good_is_served();
    writes.request_stop();
    writes.join();
  }
}

// A subscriber that had not read everything was dropped together with the one that held the ring.
TEST_F(HostileSubscriber, OneThatHoldsTheLastFrameOnlyIsNotDroppedWithOneThatHoldsTheRing) {
  attack({.capacity = 4096, .max_hold_ns = 1'000'000});
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(our_publisher().send(std::vector<std::byte>(1024), 1), Outcome::kOk);
  }
  ASSERT_EQ(good->subscriber->wait(patience(), 4), Outcome::kOk);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(good->subscriber->try_take());
  good->subscriber->release();
  const auto held = good->subscriber->try_take();
  ASSERT_TRUE(held);
  ASSERT_EQ(our_publisher().send(std::vector<std::byte>(1024), 1, 0, patience()), Outcome::kOk);
  EXPECT_EQ(our_publisher().subscribers(), 1u) << "the attacker, which never reads, is dropped";
  EXPECT_EQ(good->subscriber->state(), Outcome::kOk);
  good->subscriber->release();
  expect_good_is_served();
}

TEST_F(HostileSubscriber, ABellClosedAloneDoesNotKeepThePublisherAwake) {
  attack({.capacity = 4096, .max_hold_ns = UINT64_MAX});
  attacker->close_bell();
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(our_publisher().send(std::vector<std::byte>(1024), 1), Outcome::kOk);
  }
  const uint64_t before = thread_cpu_ns();
  constexpr uint64_t kWait = 300'000'000;
  EXPECT_EQ(our_publisher().reserve(1024, now_ns() + kWait).outcome, Outcome::kTimedOut);
  EXPECT_LT(thread_cpu_ns() - before, kWait / 3);
}

}  // namespace
}  // namespace lumen::bus
