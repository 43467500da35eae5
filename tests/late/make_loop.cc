// In a program that links this, servers run on the late loop. See late_loop.h for threads, memory,
// errors.
#include "support/late_loop.h"

namespace lumen::net {

Result<LoopChoice> choose_loop(LoopKind) { return LoopChoice{LoopKind::kEpoll, "of the tests"}; }

Result<std::unique_ptr<Loop>> make_loop(LoopKind, WakeHandler& wake_handler) {
  return make_late_loop(wake_handler);
}

}  // namespace lumen::net
