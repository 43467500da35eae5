// The bus in C++: a child process sends frames in batches, this one reads them where they lie.
// Run it without arguments.
#include <lumen/bus/connection.h>
#include <lumen/bus/listener.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace bus = lumen::bus;

constexpr uint32_t kSample = 1;
constexpr int kFrames = 100'000;

void produce(const std::string& path) {
  auto connection = bus::connect(
      path, {.role = bus::Role::kPublish, .deadline_ns = UINT64_MAX, .wait_for_listener = true});
  if (!connection.ok()) std::fprintf(stderr, "%s\n", connection.status().message().data());
  bus::Publisher& publisher = *connection->publisher;
  for (int i = 0; i < kFrames; ++i) {
    const auto place = publisher.reserve(64 * sizeof(float));  // waits while the ring is full
    if (!place) break;
    const float value = static_cast<float>(i);
    std::memcpy(place.bytes.data(), &value, sizeof(value));
    publisher.commit(place.bytes.size(), kSample);
    if (i % 32 == 31) publisher.flush();
  }
}

int consume(bus::Listener& listener) {
  auto accepted = listener.accept();
  bus::Subscriber& subscriber = *accepted.connection->subscriber;
  int frames = 0;
  bus::Outcome outcome = bus::Outcome::kOk;
  while ((outcome = subscriber.wait()) == bus::Outcome::kOk) {
    for (;;) {
      const bus::Batch batch = subscriber.try_take_batch(256);  // one piece of memory
      if (batch.count == 0) break;
      frames += static_cast<int>(batch.count);
    }
    subscriber.release();
  }
  std::printf("%d frames, then: %s\n", frames, name_of(outcome));
  return frames;
}

int main() {
  std::string folder = "/tmp/lumen-example-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  const std::string path = folder + "/bus";
  if (::fork() == 0) {
    produce(path);
    ::_exit(0);
  }
  auto listener = bus::Listener::create(path, {.role = bus::Role::kSubscribe, .capacity = 1 << 18});
  if (!listener.ok()) std::fprintf(stderr, "%s\n", listener.status().message().data());
  const int frames = consume(**listener);
  ::wait(nullptr);
  listener->reset();
  return frames == kFrames && ::rmdir(folder.c_str()) == 0 ? 0 : 1;
}
