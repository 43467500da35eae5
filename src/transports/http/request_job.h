// The endpoints that a thread of the control plane answers.
// Threads: any. Memory: none. Errors: none.
#pragma once

#include "transports/http/route.h"

#include <lumen/service/job.h>

#include <optional>

namespace lumen::http {

// nullopt: the I/O thread answers it, or it has a thread of its own (the metrics).
[[nodiscard]] constexpr std::optional<service::Job::Topic> topic_of(Endpoint endpoint) noexcept {
  using Topic = service::Job::Topic;
  switch (endpoint) {
    case Endpoint::kEngine: return Topic::kEngine;
    case Endpoint::kRecording: return Topic::kRecording;
    case Endpoint::kRepositoryIndex: return Topic::kRepositoryIndex;
    case Endpoint::kLoadModel: return Topic::kLoadModel;
    case Endpoint::kUnloadModel: return Topic::kUnloadModel;
    case Endpoint::kRegions: return Topic::kRegions;
    case Endpoint::kRegisterRegion: return Topic::kRegisterRegion;
    case Endpoint::kUnregisterRegion: return Topic::kUnregisterRegion;
    case Endpoint::kTrace: return Topic::kTrace;
    case Endpoint::kLogging: return Topic::kLogging;
    default: return std::nullopt;
  }
}

}  // namespace lumen::http
