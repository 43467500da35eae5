// A stream between a publisher and a subscriber: frames, room, batches, waiting.
#include "unit/bus/bus_fixture.h"

#include <array>
#include <thread>
#include <vector>

namespace lumen::bus {
namespace {

class Stream : public BusTest {};

TEST_F(Stream, AFrameArrivesAsItWasSent) {
  start();
  put("hello", 7, 42);
  EXPECT_FALSE(subscriber().try_take()) << "not published yet";
  publisher().flush();
  const auto frame = subscriber().try_take();
  ASSERT_TRUE(frame);
  EXPECT_EQ(text_of(*frame), "hello");
  EXPECT_EQ(frame->type_id, 7u);
  EXPECT_EQ(frame->id, 42u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(frame->data.data()) % 64, 0u);
  EXPECT_FALSE(subscriber().try_take());
}

TEST_F(Stream, FramesOfNoBytesTakeADescriptorAlone) {
  start({.capacity = 4096, .slots = 8});
  for (int i = 0; i < 8; ++i) put("", 5);
  EXPECT_EQ(publisher().try_reserve(0).outcome, Outcome::kNotNow);
  publisher().flush();
  for (int i = 0; i < 8; ++i) {
    const auto frame = subscriber().try_take();
    ASSERT_TRUE(frame);
    EXPECT_TRUE(frame->data.empty());
  }
  subscriber().release();
  EXPECT_TRUE(publisher().try_reserve(4096)) << "no payload is taken";
}

TEST_F(Stream, AFullRingRefusesUntilSomethingIsGivenBack) {
  start({.capacity = 4096});
  for (int i = 0; i < 4; ++i) put(std::string(1024, static_cast<char>('a' + i)));
  EXPECT_EQ(publisher().try_reserve(1).outcome, Outcome::kNotNow);
  EXPECT_EQ(publisher().reserve(1, now_ns()).outcome, Outcome::kTimedOut);
  EXPECT_EQ(publisher().try_reserve(4097).outcome, Outcome::kTooLarge);
  const auto first = subscriber().try_take();
  ASSERT_TRUE(first) << "waiting published what was committed";
  EXPECT_EQ(publisher().try_reserve(1).outcome, Outcome::kNotNow) << "taken, and not given back";
  subscriber().release();
  EXPECT_TRUE(publisher().try_reserve(1024));
  EXPECT_EQ(publisher().try_reserve(1025).outcome, Outcome::kNotNow);
}

TEST_F(Stream, AFrameIsNeverSplitWhereTheRingEnds) {
  start({.capacity = 4096});
  std::string text(1000, 'x');
  for (int lap = 0; lap < 500; ++lap) {
    const size_t size = 1 + static_cast<size_t>(lap) * 37 % 3000;
    text.assign(size, static_cast<char>('a' + lap % 26));
    put(text);
    publisher().flush();
    const auto frame = subscriber().try_take();
    ASSERT_TRUE(frame) << lap;
    ASSERT_EQ(text_of(*frame), text) << lap;
    subscriber().release();
  }
}

TEST_F(Stream, ABatchIsFramesOfOneSizeAndTypeInOnePieceAcrossTheRingsEnd) {
  start({.capacity = 4096});
  for (int lap = 0; lap < 50; ++lap) {
    for (int i = 0; i < 10; ++i) put(std::string(128, static_cast<char>('a' + i)), 3);
    put(std::string(64, 'z'), 3);
    put(std::string(64, 'y'), 4);
    publisher().flush();
    Batch batch = subscriber().try_take_batch(256);
    ASSERT_EQ(batch.count, 10u) << lap;
    EXPECT_EQ(batch.stride, 128u);
    EXPECT_EQ(batch.size, 128u);
    for (size_t i = 0; i < batch.count; ++i) {
      ASSERT_EQ(static_cast<char>(batch.data[i * batch.stride + 127]), static_cast<char>('a' + i));
    }
    batch = subscriber().try_take_batch(256);
    EXPECT_EQ(batch.count, 1u) << "the type changes";
    EXPECT_EQ(subscriber().try_take_batch(256).type_id, 4u);
    subscriber().release();
  }
}

TEST_F(Stream, HeldFramesAreNotOverwrittenAndGivenBackInPieces) {
  start({.capacity = 4096});
  for (int i = 0; i < 4; ++i) put(std::string(1024, static_cast<char>('a' + i)));
  publisher().flush();
  const auto first = subscriber().try_take();
  const Position after_first = subscriber().position();
  const auto second = subscriber().try_take();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(subscriber().held_frames(), 2u);
  subscriber().release_to(after_first);
  put(std::string(1024, 'n'));
  publisher().flush();
  EXPECT_EQ(text_of(*second), std::string(1024, 'b'));
  EXPECT_EQ(subscriber().held_bytes(), 1024u);
}

TEST_F(Stream, AWaitFindsThatThisProcessHoldsTheWholeRing) {
  start({.capacity = 4096});
  for (int i = 0; i < 4; ++i) put(std::string(1024, 'a'));
  publisher().flush();
  std::array<Frame, 8> frames;
  ASSERT_EQ(subscriber().try_take(frames), 4u);
  std::thread waits([&] { EXPECT_TRUE(publisher().reserve(1, patience())); });
  EXPECT_EQ(subscriber().wait(patience()), Outcome::kHeld);
  subscriber().release();
  waits.join();
}

TEST_F(Stream, EachSideIsWokenByTheOther) {
  start({.capacity = 4096});
  constexpr uint64_t kFrames = 20'000;
  std::thread publishes([&] {
    for (uint64_t i = 0; i < kFrames; ++i) {
      const Publisher::Place place = publisher().reserve(sizeof(i), patience());
      ASSERT_TRUE(place) << name_of(place.outcome);
      std::memcpy(place.bytes.data(), &i, sizeof(i));
      publisher().commit(sizeof(i), 1, i);
      if (i % 7 == 0) publisher().flush();
    }
    publisher().flush();
  });
  uint64_t next = 0;
  while (next < kFrames) {
    ASSERT_EQ(subscriber().wait(patience()), Outcome::kOk);
    while (const auto frame = subscriber().try_take()) {
      uint64_t value = 0;
      std::memcpy(&value, frame->data.data(), sizeof(value));
      ASSERT_EQ(value, next);
      ASSERT_EQ(frame->id, next);
      ++next;
    }
    subscriber().release();
  }
  publishes.join();
}

// A ring stays in the socket until the next sleep: left there it would end every wait at once, a
// loop without a pause.
TEST_F(Stream, ARingOfAnEarlierSleepDoesNotKeepAThreadAwake) {
  start();
  for (int round = 0; round < 3; ++round) {
    subscriber().announce_sleep();
    ASSERT_EQ(publisher().send(bytes_of("rings"), 1), Outcome::kOk);
    subscriber().end_sleep();
    ASSERT_TRUE(subscriber().try_take());
    subscriber().release();
    const uint64_t before = thread_cpu_ns();
    constexpr uint64_t kWait = 100'000'000;
    EXPECT_EQ(subscriber().wait(now_ns() + kWait), Outcome::kTimedOut);
    EXPECT_LT(thread_cpu_ns() - before, kWait / 3);
  }
}

TEST_F(Stream, WaitsForAsManyAsAreAskedForUnlessTheyCantCome) {
  start({.capacity = 4096});
  put("a");
  publisher().flush();
  EXPECT_EQ(subscriber().wait(now_ns() + 1'000'000, 2), Outcome::kTimedOut);
  EXPECT_EQ(subscriber().ready(), 1u);
  put("b");
  publisher().flush();
  EXPECT_EQ(subscriber().wait(patience(), 2), Outcome::kOk);
  EXPECT_EQ(subscriber().ready(), 2u);
  // 64 bytes are left: the rest does not fit, so three can't come.
  std::thread waits([&] { EXPECT_TRUE(publisher().reserve(4096, patience())); });
  EXPECT_EQ(subscriber().wait(patience(), 3), Outcome::kOk);
  EXPECT_EQ(subscriber().ready(), 2u);
  std::array<Frame, 2> frames;
  EXPECT_EQ(subscriber().try_take(frames), 2u);
  subscriber().release();
  waits.join();
}

TEST_F(Stream, ACloseIsToldOnceAllIsDrained) {
  start();
  put("last");
  theirs.reset();
  EXPECT_EQ(subscriber().wait(patience()), Outcome::kOk);
  EXPECT_EQ(text_of(*subscriber().try_take()), "last");
  EXPECT_EQ(subscriber().wait(patience()), Outcome::kClosed);
  EXPECT_EQ(subscriber().state(), Outcome::kClosed);
}

TEST_F(Stream, APublisherLearnsThatItsSubscriberHasClosed) {
  start({.capacity = 4096});
  put(std::string(4096, 'x'));
  publisher().flush();
  ours.reset();
  EXPECT_EQ(publisher().reserve(1, patience()).outcome, Outcome::kClosed);
  EXPECT_EQ(publisher().state(), Outcome::kClosed);
}

// The first call said that the subscriber had gone, the next one found room again.
TEST_F(Stream, APublisherWhoseSubscriberHasClosedFindsNoRoomAnyMore) {
  start({.capacity = 4096});
  ours.reset();
  while (publisher().state() == Outcome::kOk) {
  }
  for (int i = 0; i < 3; ++i) {
    while (publisher().try_reserve(1)) publisher().commit(1, 1);  // the earlier frames
    EXPECT_EQ(publisher().try_reserve(1).outcome, Outcome::kClosed);
  }
}

TEST_F(Stream, AProgramThatNeverWaitsLearnsOfAnEndToo) {
  start();
  theirs.reset();
  while (subscriber().peer()->state() == Outcome::kOk) EXPECT_FALSE(subscriber().try_take());
  EXPECT_EQ(subscriber().state(), Outcome::kClosed);
}

TEST_F(Stream, AConnectionThatIsMovedGoesOnWhereItWas) {
  start({.capacity = 4096});
  for (int i = 0; i < 3; ++i) {
    put(std::to_string(i));
    publisher().flush();
    EXPECT_EQ(text_of(*subscriber().try_take()), std::to_string(i));
    EXPECT_EQ(subscriber().wait(now_ns() + 1'000), Outcome::kTimedOut) << "it has slept";
    Connection moved = std::move(*ours);
    ours.emplace(std::move(moved));
    EXPECT_EQ(subscriber().held_frames(), 1u + static_cast<uint64_t>(i));
  }
}

TEST_F(Stream, AnotherThreadMayGiveBackWhileOneWaits) {
  start({.capacity = 4096});
  put(std::string(4096, 'a'));
  publisher().flush();
  ASSERT_TRUE(subscriber().try_take());
  const Position all = subscriber().position();
  std::thread publishes([&] { EXPECT_EQ(publisher().send(bytes_of("next"), 1), Outcome::kOk); });
  while (publisher().stalls() == 0) std::this_thread::yield();
  std::thread gives_back([&] { subscriber().release_to(all); });
  Outcome outcome = Outcome::kHeld;
  while (outcome == Outcome::kHeld) outcome = subscriber().wait(patience());
  EXPECT_EQ(outcome, Outcome::kOk);
  EXPECT_EQ(text_of(*subscriber().try_take()), "next");
  gives_back.join();
  publishes.join();
}

TEST_F(Stream, FramesPutBackAreTakenAgain) {
  start();
  put("a");
  put("b");
  publisher().flush();
  const Subscriber::Mark before = subscriber().mark();
  ASSERT_TRUE(subscriber().try_take());
  ASSERT_TRUE(subscriber().try_take());
  subscriber().put_back(before);
  EXPECT_EQ(subscriber().held_frames(), 0u);
  EXPECT_EQ(text_of(*subscriber().try_take()), "a");
}

TEST_F(Stream, TwoRingsCarryARequestAndItsReply) {
  listen({.role = Role::kBoth, .area_bytes = 8192});
  Connection client = connect_as(Role::kBoth);
  Connection server = accept();
  ASSERT_EQ(client.publisher->send(bytes_of("ping"), 1, 9), Outcome::kOk);
  ASSERT_EQ(server.subscriber->wait(patience()), Outcome::kOk);
  EXPECT_EQ(text_of(*server.subscriber->try_take()), "ping");
  ASSERT_EQ(server.publisher->send(bytes_of("pong"), 1, 9), Outcome::kOk);
  ASSERT_EQ(client.subscriber->wait(patience()), Outcome::kOk);
  EXPECT_EQ(text_of(*client.subscriber->try_take()), "pong");
  ASSERT_EQ(client.area.size(), 8192u);
  client.area[4096] = std::byte{42};
  EXPECT_EQ(server.area[4096], std::byte{42});
}

}  // namespace
}  // namespace lumen::bus
