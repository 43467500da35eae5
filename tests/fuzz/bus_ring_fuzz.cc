// A subscriber and a publisher over shared words that a second thread rewrites from the input while
// they are used: for any words, views lie within the ring, no call hangs, and no more is held than
// the ring has.
#include <lumen/base/clock.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "fuzz/fuzz_support.h"
#include "support/bus_pair.h"

using lumen::test::BusPair;
using namespace lumen::bus;

namespace {

// Four bytes an act: the act, its place, and a number that is small or near the edges.
struct Act {
  uint8_t what;
  uint8_t where;
  uint8_t low;
  uint8_t scale;
};

uint64_t number_of(const Act& act) {
  switch (act.scale % 6) {
    case 0: return act.low;
    case 1: return uint64_t{act.low} * 64;
    case 2: return uint64_t{0} - act.low;
    case 3: return uint64_t{act.low} << 32;
    case 4: return uint64_t{UINT32_MAX} - act.low;
    default: return uint64_t{act.low} << (act.scale % 64);
  }
}

// The attacker's half: all that another process could write.
void rewrite(BusPair& pair, const Act& act) {
  PublisherPage& page = pair.memory->page();
  CursorPage& cursor = pair.cursor->page();
  Descriptor& descriptor = pair.memory->descriptors()[act.where % pair.memory->geometry().slots];
  const uint64_t number = number_of(act);
  // relaxed, all: an attacker orders nothing
  constexpr auto kAny = std::memory_order_relaxed;
  switch (act.what % 13) {
    case 0: page.tail_frames.store(number, kAny); break;
    case 1: page.tail_frames.fetch_add(act.low % 8, kAny); break;
    case 2: descriptor.size_and_type.store(number, kAny); break;
    case 3: descriptor.size_and_type.store(act.low | uint64_t{act.where} << 32, kAny); break;
    case 4: page.asleep.store(number, kAny); break;
    case 5: page.stuck_for.store(number, kAny); break;
    case 6: cursor.head_bytes.store(number, kAny); break;
    case 7: cursor.head_frames.store(number, kAny); break;
    case 8: cursor.head_bytes.fetch_add(uint64_t{act.low} * 64, kAny); break;
    case 9: cursor.head_frames.fetch_add(act.low % 8, kAny); break;
    case 10: cursor.asleep.store(number, kAny); break;
    case 11: page.tail_bytes.store(number, kAny); break;
    // a run: its descriptor, beside others that may say how many frames it has
    default: descriptor.size_and_type.store(kIsRun | act.low, kAny); break;
  }
}

void check_view(const BusPair& pair, const std::byte* data, size_t bytes) {
  const std::byte* begin = pair.memory->payload();
  const uint64_t capacity = pair.memory->geometry().capacity;
  LUMEN_CHECK(bytes <= capacity);
  if (bytes != 0) LUMEN_CHECK(data >= begin && data + bytes <= begin + 2 * capacity);
  uint8_t sum = 0;  // ASan and the mappings see a read outside
  for (size_t i = 0; i < bytes; ++i) sum ^= static_cast<uint8_t>(data[i]);
  static std::atomic<uint8_t> seen;
  seen.store(sum, std::memory_order_relaxed);  // relaxed: so that the reads are not left out
}

void read_some(BusPair& pair, const Act& act) {
  Subscriber& subscriber = *pair.subscriber;
  switch (act.what % 5) {
    case 0:
      if (const auto frame = subscriber.try_take()) {
        check_view(pair, frame->data.data(), frame->data.size());
      }
      break;
    case 1: {
      const Batch batch = subscriber.try_take_batch(act.low);
      if (batch.count != 0) {
        check_view(pair, batch.data, (batch.count - 1) * batch.stride + batch.size);
      }
      break;
    }
    case 2: (void)subscriber.wait(1, 1 + act.low % 4); break;  // a deadline that has passed
    case 3: (void)subscriber.state(); break;
    default: subscriber.release(); break;
  }
  LUMEN_CHECK(subscriber.held_bytes() <= subscriber.geometry().capacity);
  LUMEN_CHECK(subscriber.held_frames() <= subscriber.geometry().slots);
}

void publish_some(BusPair& pair, const Act& act) {
  Publisher& publisher = *pair.publisher;
  const size_t size = size_t{act.low} * 17;
  switch (act.what % 4) {
    case 0:
      if (const auto place = publisher.try_reserve(size)) {
        if (size != 0) std::memset(place.bytes.data(), act.where, size);
        publisher.commit(size, act.where);
      }
      break;
    case 1: publisher.flush(); break;
    case 2: (void)publisher.reserve(size, 1); break;
    default: (void)publisher.state(); break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const size_t count = size / sizeof(Act);
  if (count < 2) return 0;
  std::vector<Act> acts(count);
  std::memcpy(acts.data(), data, count * sizeof(Act));
  // One that reads, one that writes: each has one half that is rewritten.
  BusPair pair({4096, 8});
  const size_t half = count / 2;
  std::atomic<bool> ends{false};
  std::thread attacks([&] {
    for (size_t turn = 0; turn < 4 || !ends.load(std::memory_order_relaxed);
         ++turn) {  // relaxed: a hint
      for (size_t i = half; i < count; ++i) rewrite(pair, acts[i]);
      if (turn == 1000) return;
    }
  });
  const bool publishes = (data[0] & 0x80) != 0;
  for (size_t turn = 0; turn < 4; ++turn) {
    for (size_t i = 0; i < half; ++i) {
      if (publishes) {
        publish_some(pair, acts[i]);
      } else {
        read_some(pair, acts[i]);
      }
    }
  }
  ends.store(true, std::memory_order_relaxed);  // relaxed: a hint
  attacks.join();
  return 0;
}
