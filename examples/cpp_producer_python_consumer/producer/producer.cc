// Sends 500,000 frames f32[256] to consumer.py, written in place in the ring, and then a sentinel:
//   producer [PATH] [FRAMES]
// value[i] = frame + i * 0.001, computed in double and rounded once; little-endian, 1,024 bytes,
// type 1. The sentinel is 1,024 zero bytes of type 0. Either side may start first.
#include <lumen/base/clock.h>
#include <lumen/bus/connection.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace bus = lumen::bus;

constexpr size_t kValues = 256;
constexpr size_t kBytes = kValues * sizeof(float);
constexpr uint32_t kSentinel = 0;
constexpr uint32_t kFrame = 1;
constexpr uint64_t kBatch = 32;  // one look at the consumer for so many frames

void fill(std::byte* place, uint64_t frame) {
  auto* values = reinterpret_cast<float*>(place);  // at a multiple of 64
  for (size_t i = 0; i < kValues; ++i) {
    values[i] = static_cast<float>(static_cast<double>(frame) + static_cast<double>(i) * 0.001);
  }
}

int main(int argc, char** argv) {
  const std::string path = argc > 1 ? argv[1] : "/tmp/lumen-example.bus";
  uint64_t frames = 500'000;
  if (argc > 2) {
    const std::string_view text = argv[2];
    std::from_chars(text.data(), text.data() + text.size(), frames);
  }
  auto connection = bus::connect(
      path, {.role = bus::Role::kPublish, .deadline_ns = UINT64_MAX, .wait_for_listener = true});
  if (!connection.ok()) {
    std::fprintf(stderr, "producer: %s\n", connection.status().message().data());
    return 1;
  }
  bus::Publisher& publisher = *connection->publisher;
  const uint64_t start_ns = lumen::now_ns();
  for (uint64_t frame = 0; frame <= frames; ++frame) {
    const auto place = publisher.reserve(kBytes);  // waits while the ring is full
    if (!place) {
      std::fprintf(stderr, "producer: at frame %llu: %s\n", static_cast<unsigned long long>(frame),
                   name_of(place.outcome));
      return 1;
    }
    if (frame == frames) {
      std::memset(place.bytes.data(), 0, kBytes);
    } else {
      fill(place.bytes.data(), frame);
    }
    publisher.commit(kBytes, frame == frames ? kSentinel : kFrame, frame);
    if (frame % kBatch == kBatch - 1) publisher.flush();
  }
  publisher.flush();
  const double seconds = static_cast<double>(lumen::now_ns() - start_ns) / 1e9;
  std::printf("producer: %llu frames, %.0f frames/s, %.2f GB/s; waited for room %llu times\n",
              static_cast<unsigned long long>(frames), static_cast<double>(frames) / seconds,
              static_cast<double>(frames * kBytes) / seconds / 1e9,
              static_cast<unsigned long long>(publisher.stalls()));
  return 0;
}
