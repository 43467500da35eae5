// The one table from Code to a protocol's status. Threads: any. Memory: none. Errors: never.
#pragma once

#include <lumen/base/result.h>

#include <cstdint>

namespace lumen::wire {

// As Triton answers: 400 for all that is the caller's fault and has no better word.
[[nodiscard]] constexpr int http_status(Code code) noexcept {
  switch (code) {
    case Code::kOk: return 200;
    case Code::kInvalidArgument: return 400;
    case Code::kAlreadyExists: return 400;
    case Code::kUnauthenticated: return 401;
    case Code::kForbidden: return 403;
    case Code::kNotFound: return 404;
    case Code::kMethodNotAllowed: return 405;
    case Code::kRequestTimeout: return 408;
    case Code::kTooLarge: return 413;
    case Code::kUnsupportedMediaType: return 415;
    case Code::kResourceExhausted: return 429;
    case Code::kOverBudget: return 429;
    case Code::kNoMemory: return 429;
    case Code::kCancelled: return 499;  // nginx's word; its client has gone
    case Code::kInternal: return 500;
    case Code::kUnsupported: return 501;
    case Code::kUnavailable: return 503;
    case Code::kDeadlineExceeded: return 504;
  }
  return 500;
}

// The numbers of gRPC's status codes.
[[nodiscard]] constexpr uint32_t grpc_status(Code code) noexcept {
  switch (code) {
    case Code::kOk: return 0;
    case Code::kCancelled: return 1;
    case Code::kInvalidArgument: return 3;
    case Code::kDeadlineExceeded: return 4;
    case Code::kRequestTimeout: return 4;
    case Code::kNotFound: return 5;
    case Code::kAlreadyExists: return 6;
    case Code::kForbidden: return 7;
    case Code::kTooLarge: return 8;
    case Code::kResourceExhausted: return 8;
    case Code::kOverBudget: return 8;
    case Code::kNoMemory: return 8;
    case Code::kMethodNotAllowed: return 12;
    case Code::kUnsupportedMediaType: return 12;
    case Code::kUnsupported: return 12;
    case Code::kInternal: return 13;
    case Code::kUnavailable: return 14;
    case Code::kUnauthenticated: return 16;
  }
  return 13;
}

// One request too many: the server's overload_status is the answer.
[[nodiscard]] constexpr bool is_overload(Code code) noexcept {
  return code == Code::kResourceExhausted || code == Code::kOverBudget || code == Code::kNoMemory;
}

}  // namespace lumen::wire
