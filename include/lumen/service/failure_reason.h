// failure_reason: under which of its model's counters a request that got an error counts.
// Threads, Memory: none. Errors: never; an error without a counter of its own is the server's
// fault.
#pragma once

#include <lumen/base/result.h>
#include <lumen/telemetry/counter_table.h>

namespace lumen::service {

[[nodiscard]] constexpr telemetry::ModelCounter failure_reason(Code code) noexcept {
  switch (code) {
    case Code::kTooLarge: return "failed_too_large";
    case Code::kResourceExhausted: return "failed_queue_full";
    case Code::kOverBudget: return "failed_over_budget";
    case Code::kNoMemory: return "failed_no_memory";
    case Code::kRequestTimeout:
    case Code::kDeadlineExceeded: return "failed_late";
    case Code::kUnavailable: return "failed_unavailable";
    case Code::kInternal:
    case Code::kOk: return "failed_internal";
    case Code::kInvalidArgument:
    case Code::kNotFound:
    case Code::kUnsupported:
    case Code::kAlreadyExists:
    case Code::kMethodNotAllowed:
    case Code::kCancelled:
    case Code::kForbidden:
    case Code::kUnauthenticated:
    case Code::kUnsupportedMediaType: return "failed_invalid";
  }
  return "failed_internal";
}

}  // namespace lumen::service
