// Every bound of Lumen that more than one module must agree on, each with its reason.
// Threads: constants. Memory: none. Errors: the module that meets a bound answers the error.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lumen::limits {

// Models. Names go into URLs and file paths: [A-Za-z0-9._-]{1,128}, never "." or "..".
inline constexpr size_t kMaxNameBytes = 128;
// ONNX tensors of rank > 8 have not been seen in models with a latency budget; a Shape stays
// inline.
inline constexpr size_t kMaxRank = 8;
// Inputs or outputs of one model or request; bounds the memory of its lists. Tabular models may
// have an input for each column, so it is as wide as tables are.
inline constexpr size_t kMaxTensors = 4096;
// The batch sizes of a model that get a static compile of their own.
inline constexpr size_t kMaxStaticBatchSizes = 16;

// HTTP heads, as hardening practice has it: nginx 32 KiB, most clients send under 1 KiB.
inline constexpr size_t kMaxHeadBytes = 32 * 1024;
inline constexpr size_t kMaxRequestLineBytes = 8 * 1024;
inline constexpr size_t kMaxHeaders = 100;
// Read buffer of a connection: a whole head fits, and the part of the body that comes with it is
// cheap to copy.
inline constexpr size_t kReceiveBufferBytes = 64 * 1024;
static_assert(kReceiveBufferBytes >= 2 * kMaxHeadBytes);
// Default body limit, the same as Triton's.
inline constexpr size_t kDefaultMaxBodyBytes = 64 * 1024 * 1024;
// Chunked bodies: framing overhead may reach body / 4 + this (CVE-2025-23310 is endless tiny
// chunks).
inline constexpr size_t kChunkOverheadSlackBytes = 64 * 1024;
inline constexpr size_t kMaxChunkExtensionBytes = 256;
inline constexpr size_t kMaxJsonDepth = 100;
// A request id is echoed back; longer ones are an attack on the log.
inline constexpr size_t kMaxRequestIdBytes = 1024;
// A sequence's id as text is kept for each live sequence; a UUID has 36 bytes.
inline constexpr size_t kMaxSequenceIdBytes = 128;

// Work in flight.
inline constexpr size_t kDefaultQueueCapacity = 1024;
inline constexpr size_t kMaxQueueCapacity = size_t{1} << 20;
// Rows in one packed inference: beyond 64 a small MLP gains little by the row (0.36 us at 16, 0.19
// at 64), and each size in use is one more compile.
inline constexpr uint32_t kDefaultBatchSize = 16;
inline constexpr uint32_t kMaxBatchSize = 128;
// How long a request may be held back for others, and how long it may wait at all: a day, so that
// sums of nanoseconds can't overflow.
inline constexpr uint32_t kMaxQueueDelayUs = 10'000'000;
inline constexpr uint64_t kMaxTimeoutUs = uint64_t{24} * 3600 * 1'000'000;
inline constexpr size_t kMaxWorkers = 256;
inline constexpr size_t kMaxIoThreads = 64;
inline constexpr size_t kMaxSubmitters = kMaxIoThreads + 16;  // and others that bring requests
inline constexpr size_t kMaxModels = 256;
// Regions of clients' shared memory: a client has one for each tensor that it sends or gets.
inline constexpr size_t kMaxSharedRegions = 1024;

}  // namespace lumen::limits
