// Tachyon in bench/bus.py, by its C face, as its own package runs it: spinning, published every 32
// messages or by flush. Built by bench/rivals/build_bus.py with the sources of the package.
// With --row frames it is the producer of bench/bus/frames.py, which listens at --path.
//   bench_tachyon --row stream|types|trip|frames --bytes 32|1024 --count N [--parked 1] [--capacity BYTES]
// Threads: one a process. Memory: Tachyon's. Errors: exit 2 with a reason.
#include "../../bus/frames.h"

#include <tachyon.h>

namespace {

using lumen::bench::give_up;
using lumen::bench::Side;

tachyon_bus_t* listen(const std::string& path, size_t capacity) {
  tachyon_bus_t* bus = nullptr;
  if (tachyon_bus_listen(path.c_str(), capacity, &bus) != TACHYON_SUCCESS)
    give_up("Tachyon: listen");
  return bus;
}

tachyon_bus_t* connect(const std::string& path) {
  tachyon_bus_t* bus = nullptr;
  while (tachyon_bus_connect(path.c_str(), &bus) != TACHYON_SUCCESS) ::usleep(1000);
  return bus;
}

class End {
 public:
  End(tachyon_bus_t* out, tachyon_bus_t* in, bool parked) : out_(out), in_(in), parked_(parked) {
    if (in_ != nullptr && !parked_) tachyon_bus_set_polling_mode(in_, 1);
  }
  template <typename Fill>
  void send(size_t size, Fill&& fill, uint32_t type = 1) {
    void* place = nullptr;
    while ((place = tachyon_acquire_tx(out_, size)) == nullptr) continue;
    fill(static_cast<std::byte*>(place));
    (void)tachyon_commit_tx(out_, size, type);
  }
  void flush() { tachyon_flush(out_); }
  template <typename Use>
  size_t receive(Use&& use) {
    uint32_t type = 0;
    size_t size = 0;
    const void* data = parked_ ? tachyon_acquire_rx_blocking(in_, &type, &size, 0)
                               : tachyon_acquire_rx(in_, &type, &size);
    if (data == nullptr) return 0;
    use(static_cast<const std::byte*>(data));
    (void)tachyon_commit_rx(in_);
    return 1;
  }
  void give_back() {}

 private:
  tachyon_bus_t* out_;
  tachyon_bus_t* in_;
  bool parked_;
};

struct Transport {
  std::string path;
  size_t capacity;
  bool parked;
  // A ring each way, as it is meant for a dialogue.
  End open(Side side) const {
    if (side == Side::kConsumer) {
      tachyon_bus_t* in = listen(path + ".there", capacity);
      return {listen(path + ".back", capacity), in, parked};
    }
    tachyon_bus_t* out = connect(path + ".there");
    return {out, connect(path + ".back"), parked};
  }
};

}  // namespace

int main(int argc, char** argv) {
  const lumen::bench::Arguments arguments(argc, argv);
  Transport transport{"/tmp/bench_tachyon." + std::to_string(::getpid()),
                      arguments.number("--capacity", 1 << 20),
                      arguments.number("--parked", 0) != 0};
  const std::string row = arguments.text("--row", "stream");
  const uint64_t count = arguments.number("--count", 1'000'000);
  if (row == "frames") {
    lumen::bench::pin_to(0);
    tachyon_bus_t* out = connect(arguments.text("--path", ""));
    End end(out, nullptr, false);
    lumen::bench::produce_frames(end, count);
    tachyon_bus_destroy(out);
  } else {
    lumen::bench::measure(transport, row, arguments.number("--bytes", 32), count);
  }
  return 0;
}
