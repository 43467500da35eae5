// What a crash leaves on stderr: the signal and the thread, the last requests that the flight
// recorder has kept, the calls. Then the process ends by the signal, as without it.
// Threads: begin on the control plane; the report is that of the thread that crashed, others wait.
// Memory: static. Errors: none; a report that takes more than 5 s is ended by SIGALRM.
//
// It has no ids, traces or tensors of clients: a log may be read by more people than they may.
#pragma once

#include <lumen/telemetry/counters.h>

namespace lumen::telemetry {

// For the signals SEGV, BUS, ILL, FPE and ABRT. Before the first TruncationGuard, which takes
// SIGBUS and hands on those that are not its own. With a sanitizer nothing: it has a report of its
// own.
void report_crashes() noexcept;

// The requests in a report are those of `counters`, until it is said otherwise; nullptr: there are
// none. They outlive that.
void report_requests_of(const Counters* counters) noexcept;

// So many, of all I/O threads together.
inline constexpr size_t kRequestsInCrashReport = 64;

}  // namespace lumen::telemetry
