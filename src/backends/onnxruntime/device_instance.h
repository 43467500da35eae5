// One slot's way into a session on a device: tensors there that stay, memory here that copies go
// through, and a stream in which the copies in, the run and the copies out follow each other. The
// host waits once, at the end. Nothing on the device refers to a request's memory.
// Threads: made on one, used by one, the slot's. Memory: of each input there and here, of each
// output here, as large as the largest seen; outputs there are the session's own for each run.
// Errors: a failed run is a Status in the request. Work that it left in the stream is waited for
// before the next one; until that succeeds no run is begun.
#pragma once

#include "backends/onnxruntime/instance.h"

#include <memory>

namespace lumen::backends::onnxruntime {

// Throws Failure. The session was opened for `device`; nullptr: for one that the library alone
// reaches, and copies to and from itself.
[[nodiscard]] std::unique_ptr<Instance> make_device_instance(
    std::shared_ptr<const SharedSession> shared, const OrtEpDevice* device);

}  // namespace lumen::backends::onnxruntime
