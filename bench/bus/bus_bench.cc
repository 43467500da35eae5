// The question: how many messages a second, and how long for a round trip, between two processes?
//
//   stream   process on CPU 0 --> process on CPU 1, each byte written and each byte read
//   types    the same, each message of another type than the one before it
//   trip     CPU 0 --> CPU 1 --> CPU 0, 32 bytes, spinning, or with --parked 1 sleeping
//   call     the same through Requester and Responder (lumen alone)
//   frames   the producer of bench/bus/frames.py, which listens at --path (lumen alone)
//
// One measurement a call, so that bench/bus.py interleaves contenders:
//   bench_bus --via lumen|pipe|socket|boost --row stream|types|trip|call|frames --bytes 32|1024 --count N
//             [--parked 1] [--capacity BYTES] [--every N] [--wait reserve|spin|flush|sleep|park]
// It prints {"mops": ..} or {"p50_ns": .., "p99_ns": .., "mean_ns": ..}.
#include "frames.h"
#include "lumen_bus.h"
#include "lumen_call.h"
#include "system_transports.h"

namespace lumen::bench {
namespace {

Wait wait_named(const std::string& name) {
  constexpr std::array kNames = {"reserve", "spin", "flush", "sleep", "park"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<Wait>(i);
  }
  give_up("--wait reserve|spin|flush|sleep|park");
}

int run(const Arguments& arguments) {
  const std::string via = arguments.text("--via", "lumen");
  const std::string row = arguments.text("--row", "stream");
  const uint64_t bytes = arguments.number("--bytes", 32);
  const uint64_t count = arguments.number("--count", 1'000'000);
  const std::string own = "bench_bus." + std::to_string(::getpid());
  if (via == "lumen") {
    const LumenTuning tuning{
        .capacity = arguments.number("--capacity", 1 << 20),
        .parked = arguments.number("--parked", 0) != 0,
        .every = static_cast<uint32_t>(arguments.number("--every", kFlushEvery)),
        .wait = wait_named(arguments.text("--wait", "reserve"))};
    LumenTransport transport{"/tmp/" + own, tuning};
    if (row == "call") {
      CallTransport calls{transport};
      round_trip(calls, count);
    } else if (row == "frames") {
      pin_to(0);
      LumenEnd end = connect_to(arguments.text("--path", ""), bus::Role::kPublish, tuning);
      produce_frames(end, count);
    } else {
      measure(transport, row, bytes, count);
    }
  } else if (via == "pipe") {
    PipeTransport transport(bytes);
    measure(transport, row, bytes, count);
  } else if (via == "socket") {
    SocketTransport transport(bytes);
    measure(transport, row, bytes, count);
#ifdef LUMEN_BENCH_BOOST_QUEUE
  } else if (via == "boost") {
    if (row != "stream") give_up("boost: stream alone");
    BoostTransport transport(own, bytes);
    measure(transport, row, bytes, count);
#endif
  } else {
    give_up("--via " + via + ": not built");
  }
  return 0;
}

}  // namespace
}  // namespace lumen::bench

int main(int argc, char** argv) { return lumen::bench::run({argc, argv}); }
