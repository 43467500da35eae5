// bus_infer: requests and replies of inference over the bus, byte for byte;
// docs/formats/bus-inference.md. Tensors are not in the frames: they lie in the area, memory that
// client and server share, and a frame says where. A frame's type is its verb (BusVerb), its id
// comes back with the reply.
//
//   request  BusRequestHead | ttl_ms, if flagged | sequence, if flagged | BusTensorHead for each input | dimensions | strings: model, version, names
//   reply    BusReplyHead   | BusTensorHead for each output | dimensions | strings: version, names | text
//
// Threads: pure functions. Memory: lists from the caller's Allocator; strings stay views of the
// frame.
// Errors: Status. The frame is the caller's own copy: memory that another process can still change
// is not parsed.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>
#include <lumen/tensor/element_type.h>
#include <lumen/tensor/shape.h>
#include <lumen/wire/oip.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace lumen::wire {

inline constexpr uint16_t kBusInferVersion = 1;
// A request of 4,096 inputs of two axes with names of 60 bytes takes 410 KiB; a server's ring has
// twice the limit.
inline constexpr size_t kMaxBusRequestBytes = 512 * 1024;

// Bus frames' type_id.
enum class BusVerb : uint32_t {
  kInfer = 1,
  kCancel = 2,  // no frame of its own: the id says which; never answered itself
  kServerMetadata = 3,
  kServerReady = 4,
  kModelMetadata = 5,
  kModelReady = 6,
  kStatistics = 7,  // without a model: of all
  kReply = 64,
};

struct BusRequestHead {
  static constexpr uint16_t kHasTimeout = 1;  // of `flags`; without it the server's default counts
  static constexpr uint16_t kNoCache = 2;     // neither answered from the response cache nor kept
  static constexpr uint16_t kHasTtl = 4;      // behind the head: uint64_t, milliseconds, 1 or more
  static constexpr uint16_t kHasSequence =
      8;  // behind that: uint64_t, the sequence's number; not 0
  static constexpr uint16_t kStartsSequence = 16;
  static constexpr uint16_t kEndsSequence = 32;
  // Of `flags`, the four uppermost bits: the priority, 1 to 15; 0: the model's own.
  static constexpr uint16_t kPriorityShift = 12;
  static constexpr uint16_t kPriorityMask = 0xf000;
  uint16_t version;
  uint16_t flags;
  uint16_t inputs;
  uint16_t outputs;
  uint64_t timeout_us;    // 0: no deadline
  uint64_t reply_offset;  // of the room for all outputs, in the area
  uint64_t reply_room;
};

struct BusTensorHead {
  uint64_t offset;  // in the area
  uint64_t bytes;
  uint8_t datatype;  // the number of an ElementType
  uint8_t rank;
  uint16_t reserved0;
  uint32_t reserved1;
};

struct BusReplyHead {
  uint16_t version;
  uint16_t status;  // as HTTP would have it
  uint16_t outputs;
  uint16_t reserved0;
  uint32_t text_bytes;  // why it was refused, or a document
  uint32_t reserved1;
};

static_assert(sizeof(BusRequestHead) == 32 && offsetof(BusRequestHead, timeout_us) == 8 &&
              offsetof(BusRequestHead, reply_offset) == 16 &&
              offsetof(BusRequestHead, reply_room) == 24);
static_assert(sizeof(BusTensorHead) == 24 && offsetof(BusTensorHead, bytes) == 8 &&
              offsetof(BusTensorHead, datatype) == 16 && offsetof(BusTensorHead, rank) == 17);
static_assert(sizeof(BusReplyHead) == 16 && offsetof(BusReplyHead, status) == 2 &&
              offsetof(BusReplyHead, text_bytes) == 8);
// `datatype` is the number of an ElementType: these may not change.
static_assert(static_cast<int>(ElementType::kBool) == 0 &&
              static_cast<int>(ElementType::kUint64) == 4 &&
              static_cast<int>(ElementType::kInt64) == 8 &&
              static_cast<int>(ElementType::kBf16) == 10 &&
              static_cast<int>(ElementType::kFp32) == 11 &&
              static_cast<int>(ElementType::kBytes) == 13);

// A tensor in the area.
struct BusTensor {
  std::string_view name;
  ElementType type = ElementType::kFp32;
  Shape shape = {};
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct BusRequest {
  std::string_view model = {};
  std::string_view version = {};  // empty: the highest
  std::optional<uint64_t> timeout_us = {};
  bool no_cache = false;
  std::optional<uint64_t> ttl_ms = {};  // takes and leaves no answer that is older
  SequenceWishes sequence = {};         // by number alone
  uint32_t priority = 0;                // 1 is run first; 0: the model's own. Above 15: as 15
  uint64_t reply_offset = 0;
  uint64_t reply_room = 0;
  std::span<const BusTensor> inputs = {};
  std::span<const std::string_view> outputs = {};  // by name; empty: all
};

struct BusReply {
  uint16_t status = 0;
  std::string_view version = {};  // of the model
  std::span<const BusTensor> outputs = {};
  std::string_view text = {};
};

[[nodiscard]] Result<BusRequest> parse_bus_request(std::span<const std::byte> frame,
                                                   Allocator& memory) noexcept;
[[nodiscard]] Result<BusReply> parse_bus_reply(std::span<const std::byte> frame,
                                               Allocator& memory) noexcept;

// How long the frame is; nullopt: a string, a list or the text is longer than its number can say.
[[nodiscard]] std::optional<size_t> frame_bytes(const BusRequest& request) noexcept;
[[nodiscard]] std::optional<size_t> frame_bytes(const BusReply& reply) noexcept;
// `frame`: exactly frame_bytes() long.
void write_bus_request(const BusRequest& request, std::span<std::byte> frame) noexcept;
void write_bus_reply(const BusReply& reply, std::span<std::byte> frame) noexcept;

}  // namespace lumen::wire
