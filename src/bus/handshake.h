// The messages of a connection's beginning; docs/formats/bus.md describes them byte by byte.
// Threads: any. Memory: none. Errors: Status.
#pragma once

#include <lumen/base/result.h>
#include <lumen/base/unique_fd.h>
#include <lumen/bus/connection.h>
#include <lumen/bus/layout.h>

#include "bus/connect_socket.h"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace lumen::bus {

inline constexpr uint16_t kNewestProtocol = 2;
inline constexpr uint16_t kOldestProtocol = 2;
inline constexpr size_t kMostStreams = 2;
// Publisher's file, cursor file and bell of each stream, and the area.
inline constexpr size_t kMostDescriptors = 3 * kMostStreams + 1;
// Beyond the roles of a Connection: asks for figures, takes part in nothing (`lumen bus top`).
inline constexpr uint32_t kObserve = 5;

// From the process that connects.
struct Hello {
  uint64_t magic = kMagic;
  uint16_t newest = kNewestProtocol;
  uint16_t oldest = kOldestProtocol;
  uint32_t role = 0;  // of the process that connects
  std::array<uint8_t, 48> reserved{};
};

enum class Answer : uint16_t {
  kWelcome = 0,
  kMalformed = 1,
  kVersion = 2,
  kRole = 3,
  kForbidden = 4,
  kFull = 5,
  kNoMemory = 6,
};

struct StreamGeometry {
  uint64_t capacity = 0;
  uint32_t slots = 0;
  uint32_t entry = 0;  // of the subscriber in PublisherPage::subscribers
  uint32_t generation = 0;
  uint32_t has_entry = 0;
};

// From the listener, with the descriptors beside it; or a refusal with its text, and no
// descriptors.
struct Welcome {
  uint64_t magic = kMagic;
  uint16_t version = kNewestProtocol;
  Answer answer = Answer::kWelcome;
  uint16_t streams = 0;
  uint16_t has_area = 0;
  uint64_t area_bytes = 0;
  std::array<StreamGeometry, kMostStreams> stream{};
  std::array<char, 184> text{};
};

static_assert(sizeof(Hello) == 64 && sizeof(StreamGeometry) == 24 && sizeof(Welcome) == 256);
static_assert(offsetof(Hello, role) == 12 && offsetof(Welcome, answer) == 10);
static_assert(offsetof(Welcome, area_bytes) == 16 && offsetof(Welcome, stream) == 24);
static_assert(offsetof(Welcome, text) == 72);

// One message with descriptors, without waiting. False: the other side is gone or does not read.
[[nodiscard]] bool send_with_descriptors(int socket, const Welcome& welcome,
                                         std::span<const int> descriptors) noexcept;

struct ReceivedWelcome {
  Welcome welcome;
  std::array<UniqueFd, kMostDescriptors> descriptors;
  size_t descriptor_count = 0;
};
[[nodiscard]] Result<ReceivedWelcome> receive_welcome(int socket, Patience& patience);

// The shortest text that says it, cut to fit.
[[nodiscard]] Welcome refusal(Answer answer, std::string_view text) noexcept;

}  // namespace lumen::bus
