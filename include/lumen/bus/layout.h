// Layout: the shared memory of a stream, byte for byte; docs/formats/bus.md describes it.
// Threads: each word is written by one side only, and read by the other, which maps it read-only.
// Memory: none of its own. Errors: never; the reader of a word of the other side checks it
// (bus/stream.h).
//
//   publisher's file   PublisherPage | type counters | descriptors | payload (mapped twice in a row)
//   cursor file        CursorPage, one for each subscriber
//
// All numbers are little-endian and fixed-width, positions count from 0 and never wrap (2^64).
#pragma once

#include <lumen/base/cache_line.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lumen::bus {

inline constexpr uint64_t kMagic = 0x5355424e454d554c;  // "LUMENBUS"
inline constexpr uint32_t kLayoutVersion = 2;

inline constexpr size_t kPayloadAlign = 64;
inline constexpr uint64_t kLeastCapacity = 4096;  // a page: less can't be mapped twice
// The most that one mapping of 64-bit offsets and 31-bit sizes surely carries, and more than a
// frame needs.
inline constexpr uint64_t kMostCapacity = uint64_t{1} << 30;
// Descriptors of 1 GiB of 1 KiB frames: 16 MiB.
inline constexpr uint32_t kMostSlots = 1u << 20;
inline constexpr uint32_t kLeastSlots = 8;
// A publisher looks at every cursor when it lacks room, and rings each: a bound on that work.
inline constexpr uint32_t kMostSubscribers = 64;
// Frames of more types than this are counted in the last row.
inline constexpr uint32_t kCountedTypes = 128;

// A run: frames of one size, type and id, published one after the other. It has the descriptor of
// its first frame; of a run of several frames `size_and_type` of the second one's says how many,
// and the others are not written. `id` is the user's; request/reply keeps its correlation id there.
struct Descriptor {
  std::atomic<uint64_t> size_and_type;  // size: low 31 bits, kIsRun, type_id: high 32
  std::atomic<uint64_t> id;
};
// In size_and_type: the run has several frames. Sizes take the bits below.
inline constexpr uint64_t kIsRun = uint64_t{1} << 31;
inline constexpr uint64_t kMostSize = kIsRun - 1;

// Word of a subscriber in the publisher's file. 0: not yet attached.
enum class Attachment : uint32_t { kNone = 0, kAttached = 1, kDropped = 2 };
struct SubscriberEntry {
  std::atomic<uint64_t> state;         // Attachment: low 32 bits, generation of this entry: high 32
  std::atomic<uint64_t> start_frames;  // where it begins, valid once attached
  std::atomic<uint64_t> start_bytes;
  uint64_t reserved;
};

inline constexpr uint64_t kUsedRow = uint64_t{1} << 32;
// How many frames and bytes of a type were published; for tools.
struct TypeCounter {
  std::atomic<uint64_t> key;  // type_id: low 32 bits; kUsedRow once the row is in use
  std::atomic<uint64_t> frames;
  std::atomic<uint64_t> bytes;
  uint64_t reserved;
};

// Independent words are 128 bytes apart: Intel's prefetcher fetches lines in pairs.
struct PublisherPage {
  // Written once, before another process maps it; for tools. Each side works with its own copy of
  // the handshake's values.
  uint64_t magic;
  uint32_t version;
  uint32_t slots;
  uint64_t capacity;
  uint64_t descriptors_offset;
  uint64_t payload_offset;

  alignas(kFalseSharingRange) std::atomic<uint64_t> tail_frames;  // published so far
  std::atomic<uint64_t> tail_bytes;  // of payload, stored before tail_frames

  // For subscribers that are lapped: up to where the publisher may be writing, stored before it
  // writes.
  alignas(kFalseSharingRange) std::atomic<uint64_t> claimed_bytes;
  std::atomic<uint64_t> claimed_frames;
  std::atomic<uint64_t> settled_bytes;  // tail_bytes again, stored after tail_frames

  alignas(kFalseSharingRange) std::atomic<uint64_t> asleep;  // odd: waits for room
  std::atomic<uint64_t>
      stuck_for;                  // the value of `asleep` for which it has looked and found no room
  std::atomic<uint64_t> stalls;   // times that it had to wait for room; for tools
  std::atomic<uint64_t> dropped;  // subscribers that held the ring for too long

  alignas(kFalseSharingRange) std::array<SubscriberEntry, kMostSubscribers> subscribers;
  alignas(4096) std::array<TypeCounter, kCountedTypes> types;
};

struct CursorPage {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;

  alignas(kFalseSharingRange) std::atomic<uint64_t> head_bytes;  // given back so far
  std::atomic<uint64_t> head_frames;                             // stored before head_bytes

  alignas(kFalseSharingRange) std::atomic<uint64_t> asleep;  // odd: waits for frames

  alignas(4096 /
          2) std::atomic<uint64_t> lost;  // frames that a lapped subscriber has missed; for tools
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(Descriptor) == 16 && sizeof(SubscriberEntry) == 32 &&
              sizeof(TypeCounter) == 32);
static_assert(offsetof(PublisherPage, slots) == 12 && offsetof(PublisherPage, capacity) == 16);
static_assert(offsetof(PublisherPage, payload_offset) == 32);
static_assert(offsetof(PublisherPage, tail_frames) == 128);
static_assert(offsetof(PublisherPage, tail_bytes) == 136);
static_assert(offsetof(PublisherPage, claimed_bytes) == 256);
static_assert(offsetof(PublisherPage, settled_bytes) == 272);
static_assert(offsetof(PublisherPage, asleep) == 384);
static_assert(offsetof(PublisherPage, subscribers) == 512);
static_assert(offsetof(PublisherPage, types) == 4096);
static_assert(sizeof(PublisherPage) == 8192);
static_assert(offsetof(CursorPage, head_bytes) == 128 && offsetof(CursorPage, head_frames) == 136);
static_assert(offsetof(CursorPage, asleep) == 256 && offsetof(CursorPage, lost) == 2048);
static_assert(sizeof(CursorPage) == 4096);

[[nodiscard]] constexpr uint64_t payload_bytes(uint64_t size) noexcept {
  return (size + kPayloadAlign - 1) & ~uint64_t{kPayloadAlign - 1};
}

// Whether the lines of frames so far apart are asked for before they are written or read: of more
// than one line, and up to a page; beyond it the processor has long seen the pattern itself.
[[nodiscard]] constexpr bool is_fetched(uint64_t stride) noexcept {
  constexpr uint64_t kLeast = 2 * kPayloadAlign;
  constexpr uint64_t kMost = 4096;
  return stride - kLeast <= kMost - kLeast;
}

// The numbers that make a stream's size. Both are powers of two.
struct Geometry {
  uint64_t capacity = 0;  // bytes of payload
  uint32_t slots = 0;     // frames

  [[nodiscard]] constexpr bool is_valid() const noexcept {
    return std::has_single_bit(capacity) && capacity >= kLeastCapacity &&
           capacity <= kMostCapacity && std::has_single_bit(slots) && slots >= kLeastSlots &&
           slots <= kMostSlots;
  }
  [[nodiscard]] constexpr uint64_t descriptors_offset() const noexcept {
    return sizeof(PublisherPage);
  }
  [[nodiscard]] constexpr uint64_t payload_offset() const noexcept {
    return (descriptors_offset() + slots * sizeof(Descriptor) + 4095) & ~uint64_t{4095};
  }
  [[nodiscard]] constexpr uint64_t file_bytes() const noexcept {
    return payload_offset() + capacity;
  }
  friend bool operator==(const Geometry&, const Geometry&) = default;
};
static_assert(kMostCapacity <= kMostSize);

}  // namespace lumen::bus
