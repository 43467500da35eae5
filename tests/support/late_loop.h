// LateLoop: a loop over sockets that does everything late, as a kernel's ring does: operations
// begin a turn or more after they were asked for, and their results come a turn or more after the
// kernel had them. Until then it holds the buffers, and sees whether somebody has touched them. It
// lends buffers.
// Threads: as any Loop. Memory: the heap, as it goes.
// Errors: a buffer that was touched too early ends the program, and so does one that is not given
// back.
#pragma once

#include <lumen/net/loop.h>

namespace lumen::net {

// For LoopCase::make and for make_loop().
[[nodiscard]] Result<std::unique_ptr<Loop>> make_late_loop(WakeHandler& wake_handler);

}  // namespace lumen::net
