// Runs: frames of one size, type and id that share a descriptor. Random frames against a list of
// those that were sent, for all ways to take and to put back; and the words in memory.
#include "support/bus_raw.h"
#include "support/stress.h"
#include "unit/bus/bus_fixture.h"

#include <deque>
#include <random>
#include <vector>

namespace lumen::bus {
namespace {

struct Sent {
  uint64_t number = 0;
  uint32_t size = 0;
  uint32_t type_id = 0;
  uint64_t id = 0;
};

class Runs : public BusTest {
 protected:
  // Few sizes, types and ids, so that runs of all lengths come about.
  Sent any_frame() {
    constexpr std::array<uint32_t, 6> kSizes = {0, 8, 8, 48, 64, 200};
    Sent sent{frames_sent++, last.size, last.type_id, last.id};
    if (random() % 4 == 0) sent.size = kSizes[random() % kSizes.size()];
    if (random() % 6 == 0) sent.type_id = static_cast<uint32_t>(random() % 3);
    if (random() % 6 == 0) sent.id = random() % 2;
    return last = sent;
  }
  static void fill(std::byte* data, const Sent& sent) {
    for (uint32_t i = 0; i < sent.size; ++i) data[i] = static_cast<std::byte>(sent.number + i);
  }
  static void check(const std::byte* data, const Sent& sent) {
    for (uint32_t i = 0; i < sent.size; ++i) {
      ASSERT_EQ(data[i], static_cast<std::byte>(sent.number + i)) << sent.number;
    }
  }
  // Up to `most` frames, alone or as batches, as far as there is room.
  void publish_some(Publisher& publisher, size_t most) {
    for (size_t i = 0; i < most; ++i) {
      const Sent sent = any_frame();
      const size_t wanted = random() % 3 == 0 ? 1 + random() % 5 : 1;
      const Publisher::Places places = publisher.try_reserve_batch(sent.size, wanted);
      if (!places) {
        --frames_sent;
        break;
      }
      for (size_t k = 0; k < places.count; ++k) {
        Sent one = sent;
        one.number += k;
        fill(places.data + k * places.stride, one);
        waiting.push_back(one);
      }
      frames_sent += places.count - 1;
      publisher.commit_batch(sent.size, places.count, sent.type_id, sent.id);
      if (random() % 8 == 0) publisher.flush();
    }
    publisher.flush();
  }
  void expect(const Frame& frame, const Sent& sent) {
    ASSERT_EQ(frame.data.size(), sent.size) << sent.number;
    ASSERT_EQ(frame.type_id, sent.type_id) << sent.number;
    ASSERT_EQ(frame.id, sent.id) << sent.number;
    check(frame.data.data(), sent);
  }
  // Takes the first of `waiting`, or more, in one of three ways; how many.
  size_t take_some(Subscriber& subscriber) {
    if (random() % 3 == 0) {
      const Batch batch = subscriber.try_take_batch(1 + random() % 12, size_t{64} << random() % 6);
      for (size_t i = 0; i < batch.count; ++i) {
        const Sent& sent = waiting[i];
        EXPECT_EQ(batch.size, sent.size);
        EXPECT_EQ(batch.type_id, sent.type_id);
        check(batch.data + i * batch.stride, sent);
      }
      return batch.count;
    }
    if (random() % 2 == 0) {
      std::array<Frame, 7> frames;
      const size_t count = subscriber.try_take(std::span(frames).first(1 + random() % 7));
      for (size_t i = 0; i < count; ++i) expect(frames[i], waiting[i]);
      return count;
    }
    const auto frame = subscriber.try_take();
    if (!frame) return 0;
    expect(*frame, waiting.front());
    return 1;
  }
  void drop_first(size_t count) {
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
  }

  const uint64_t seed = test::stress_seed();
  std::mt19937_64 random{seed};
  Sent last;
  uint64_t frames_sent = 0;
  std::deque<Sent> waiting;  // sent, and not taken
};

TEST_F(Runs, FramesAlikeShareADescriptorAndAnotherSizeTypeOrIdBeginsItsOwn) {
  listen({.role = Role::kSubscribe, .capacity = 4096, .slots = 64});
  theirs.emplace(connect_as(Role::kPublish));
  ours.emplace(accept());
  for (int i = 0; i < 5; ++i) put("alike", 7, 42);
  put("alike", 7, 43);
  put("alike", 8, 43);
  put("other size", 8, 43);
  put("other size", 8, 43);
  publisher().flush();
  put("other size", 8, 43);  // a publication ends a run
  publisher().flush();
  // The file as it is mapped, at the offsets of docs/formats/bus.md.
  const auto* descriptors = reinterpret_cast<const Descriptor*>(
      static_cast<const std::byte*>(ours->subscriber->try_take()->data.data()) -
      (subscriber().geometry().payload_offset() - subscriber().geometry().descriptors_offset()));
  const auto word = [&](size_t at) { return descriptors[at].size_and_type.load(); };
  EXPECT_EQ(word(0), 5 | kIsRun | uint64_t{7} << 32);
  EXPECT_EQ(word(1), 5u) << "how many frames the run has";
  EXPECT_EQ(descriptors[0].id.load(), 42u);
  EXPECT_EQ(word(5), 5 | uint64_t{7} << 32);
  EXPECT_EQ(descriptors[5].id.load(), 43u);
  EXPECT_EQ(word(6), 5 | uint64_t{8} << 32);
  EXPECT_EQ(word(7), 10 | kIsRun | uint64_t{8} << 32);
  EXPECT_EQ(word(8), 2u);
  EXPECT_EQ(word(9), 10 | uint64_t{8} << 32);
}

TEST_F(Runs, RandomFramesArriveAsTheyWereSentForAllWaysToTakeAndToPutBack) {
  for (uint64_t round = 0; round < test::stress_count(60); ++round) {
    waiting.clear();
    start({.capacity = 4096, .slots = static_cast<uint32_t>(8 << round % 4)});
    for (int step = 0; step < 300 && !HasFatalFailure(); ++step) {
      publish_some(publisher(), random() % 30);
      for (size_t i = random() % 20; i != 0; --i) {
        const Subscriber::Mark before = subscriber().mark();
        const size_t count = take_some(subscriber());
        ASSERT_EQ(count == 0, waiting.empty()) << "seed " << seed << " step " << step;
        if (random() % 4 == 0) {
          subscriber().put_back(before);
        } else {
          drop_first(count);
        }
        if (random() % 3 == 0) subscriber().release();
      }
    }
    while (!waiting.empty()) drop_first(take_some(subscriber()));
    EXPECT_FALSE(subscriber().try_take());
    theirs.reset();
    ours.reset();
    listener.reset();
  }
}

// A lapped subscriber copies frames in the middle of a run by its own copy of the descriptor.
TEST_F(Runs, ALappedSubscriberReadsFramesOfRunsAndCountsThoseThatItHasMissed) {
  listen({.role = Role::kPublish, .capacity = 4096, .slots = 32});
  theirs.emplace(connect_as(Role::kSubscribeLossy));
  ASSERT_EQ(listener->publisher().wait_for_subscribers(1, patience()), Outcome::kOk);
  LossySubscriber& lossy = *theirs->lossy_subscriber;
  std::array<std::byte, 256> bytes;
  uint64_t read = 0;
  uint64_t lost = 0;
  const auto read_one = [&] {
    const auto one = lossy.try_read(bytes);
    if (!one) return false;
    lost += one->lost;
    drop_first(one->lost);
    const Sent& sent = waiting.front();
    EXPECT_EQ(sent.number, read + lost);
    expect({std::span(bytes).first(one->size), one->type_id, one->id}, sent);
    drop_first(1);
    ++read;
    return true;
  };
  for (uint64_t step = 0; step < test::stress_count(20'000) && !HasFatalFailure(); ++step) {
    publish_some(listener->publisher(), random() % (random() % 8 == 0 ? 60 : 6));
    for (size_t i = random() % 8; i != 0 && read_one(); --i) continue;
  }
  while (read_one() && !HasFatalFailure()) continue;
  EXPECT_GT(lost, 0u);
  EXPECT_EQ(read + lossy.lost(), frames_sent) << "seed " << seed;
}

}  // namespace
}  // namespace lumen::bus
