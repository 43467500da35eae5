// counter_table: everything that Lumen counts, as two tables. Adding a counter is one line in one
// of them: the code then counts it by its name, and /metrics, docs/formats/counters.md's region and
// its readers have it too.
// Threads: constants. Memory: none. Errors: a name that no table has does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace lumen::telemetry {

enum class CounterKind : uint32_t {
  kCounter = 0,  // only grows; the total is the sum over all writers
  kGauge = 1,    // goes up and down; the sum too, as each writer takes away only its own additions
  kLatest = 2,   // a time, of which the largest counts
  kThread = 3,   // means something for the thread that writes it alone, and has no total
};

struct CounterDescriptor {
  std::string_view name;    // by which the code counts it
  std::string_view series;  // in /metrics, with its label where it has one; empty: not there
  std::string_view unit;
  std::string_view help;
  CounterKind kind = CounterKind::kCounter;
};

// Of the whole server. Series of one family stand one behind the other. The five of a thread's time
// stand together, in ThreadTime's order.
inline constexpr CounterDescriptor kServerCounters[] = {
    {"requests", "lumen_requests_total", "requests", "Requests whose head was understood."},
    {"connections_open", "lumen_connections_open", "connections", "Connections open now.",
     CounterKind::kGauge},
    {"connections_accepted", "lumen_connections_accepted_total", "connections",
     "Connections accepted."},
    {"connections_refused", "lumen_connections_refused_total", "connections",
     "Connections refused: over the cap, or no descriptor left."},
    {"tls_handshakes", "lumen_tls_handshakes_total", "connections",
     "Connections whose TLS handshake was done."},
    {"tls_handshakes_failed", "lumen_tls_handshakes_failed_total", "connections",
     "Connections that ended before their TLS handshake was done."},
    {"tls_sessions_resumed", "lumen_tls_sessions_resumed_total", "connections",
     "Of the TLS handshakes, those that resumed a session."},
    {"received_bytes", "lumen_received_bytes_total", "bytes", "Bytes read from connections."},
    {"received_direct_bytes", "lumen_received_direct_bytes_total", "bytes",
     "Of the bytes read, those that went from the socket straight into a tensor."},
    {"sent_bytes", "lumen_sent_bytes_total", "bytes", "Bytes written to connections."},
    {"timeouts", "lumen_timeouts_total", "connections",
     "Connections and calls ended for a slow head, body or reader."},
    {"loop_wakeups", "lumen_loop_wakeups_total", "returns",
     "Returns of I/O threads from the kernel's wait."},
    {"loop_system_calls", "lumen_loop_system_calls_total", "calls",
     "System calls of I/O threads for their sockets: waits, receives, sends, submissions."},
    {"worker_parks", "lumen_worker_parks_total", "parks",
     "Times a worker went to sleep for lack of requests."},
    {"request_heap_calls", "lumen_request_heap_calls_total", "calls",
     "Calls of malloc and free for the memory of requests (allocator_type standard)."},
    {"request_arena_bytes", "lumen_request_arena_bytes_total", "bytes",
     "Bytes taken from the regions of requests (allocator_type lumen_arena)."},
    {"engine_swaps", "lumen_engine_swaps_total", "changes",
     "Changes of the engine's configuration while it served."},
    {"cancelled", "lumen_cancelled_total", "requests",
     "Requests that were not run, since their client was gone."},
    {"memory_bound_bytes", "lumen_memory_bound_bytes", "bytes",
     "What all requests together may take: max_memory_bytes.", CounterKind::kGauge},
    {"memory_reserved_bytes", "lumen_memory_reserved_bytes", "bytes",
     "Of that, the bytes that requests hold and idle contexts keep, after each I/O thread's last "
     "turn.",
     CounterKind::kGauge},
    {"memory_waiting", "lumen_memory_waiting_requests", "requests",
     "Requests that wait for memory with their body unread.", CounterKind::kGauge},
    {"memory_refused", "lumen_memory_refused_total", "requests",
     "Requests refused since others had all memory."},
    {"responses_2xx", "lumen_responses_total{class=\"2xx\"}", "responses",
     "Responses by the class of their status."},
    {"responses_4xx", "lumen_responses_total{class=\"4xx\"}", "responses",
     "Responses by the class of their status."},
    {"responses_5xx", "lumen_responses_total{class=\"5xx\"}", "responses",
     "Responses by the class of their status."},
    {"replies_compressed", "lumen_replies_compressed_total", "responses",
     "Replies of inferences that were compressed."},
    {"replies_compressed_saved_bytes", "lumen_replies_compressed_saved_bytes_total", "bytes",
     "Bytes by which these replies were smaller."},
    {"bus_connections_open", "lumen_bus_connections_open", "connections",
     "Of the connections open now, those over the bus.", CounterKind::kGauge},
    {"bus_requests", "lumen_bus_requests_total", "requests",
     "Of the requests, those that came over the bus."},
    {"grpc_requests", "lumen_grpc_requests_total", "requests",
     "Of the requests, those that are calls and messages of gRPC."},
    {"http2_requests", "lumen_http2_requests_total", "requests",
     "Of the requests, those of REST that came over HTTP/2."},
    {"http2_connections_open", "lumen_http2_connections_open", "connections",
     "Of the connections open now, those that speak HTTP/2.", CounterKind::kGauge},
    {"busy_ns", "", "ns", "Time that the thread did something, in spells that have ended."},
    {"spin_ns", "", "ns", "Time that it polled for work."},
    {"park_ns", "", "ns", "Time that it slept in the kernel."},
    {"thread_state", "", "state", "What it does now: 0 busy, 1 polls, 2 sleeps.",
     CounterKind::kThread},
    {"thread_since_ns", "", "ns", "Since when, by CLOCK_MONOTONIC.", CounterKind::kThread},
};

// Of each model version. X and X_ns together are how often and how long in all, as the protocol's
// statistics have it.
inline constexpr CounterDescriptor kModelCounters[] = {
    {"inference", "lumen_inference_total", "rows", "Rows that went through the model."},
    {"execution", "lumen_execution_total", "calls", "Calls of the model."},
    {"success", "lumen_inference_success_total", "requests", "Requests that got their result."},
    {"success_ns", "", "ns", "What those took, from the first byte read to the reply encoded."},
    {"failure", "lumen_inference_failure_total", "requests",
     "Requests to the model that got an error instead of a result."},
    {"failure_ns", "", "ns", "What those took."},
    {"failed_invalid", "lumen_inference_failed_total{reason=\"invalid\"}", "requests",
     "Requests to the model that got an error, by its reason."},
    {"failed_too_large", "lumen_inference_failed_total{reason=\"too_large\"}", "requests",
     "Requests to the model that got an error, by its reason."},
    {"failed_queue_full", "lumen_inference_failed_total{reason=\"queue_full\"}", "requests",
     "Requests to the model that got an error, by its reason."},
    {"failed_over_budget", "lumen_inference_failed_total{reason=\"over_budget\"}", "requests",
     "Requests to the model that got an error, by its reason."},
    {"failed_no_memory", "lumen_inference_failed_total{reason=\"no_memory\"}", "requests",
     "Requests to the model that got an error, by its reason."},
    {"failed_late", "lumen_inference_failed_total{reason=\"late\"}", "requests",
     "Requests to the model that got an error, by its reason."},
    {"failed_unavailable", "lumen_inference_failed_total{reason=\"unavailable\"}", "requests",
     "Requests to the model that got an error, by its reason."},
    {"failed_internal", "lumen_inference_failed_total{reason=\"internal\"}", "requests",
     "Requests to the model that got an error, by its reason."},
    {"by_mpmc", "lumen_inference_by_queue_type_total{queue_type=\"mpmc\"}", "requests",
     "Requests that got their result, by how they went to it."},
    {"by_spsc", "lumen_inference_by_queue_type_total{queue_type=\"spsc\"}", "requests",
     "Requests that got their result, by how they went to it."},
    {"by_naive", "lumen_inference_by_queue_type_total{queue_type=\"naive\"}", "requests",
     "Requests that got their result, by how they went to it."},
    {"by_batched", "lumen_inference_by_queue_type_total{queue_type=\"batched\"}", "requests",
     "Requests that got their result, by how they went to it."},
    {"by_inline", "lumen_inference_by_queue_type_total{queue_type=\"inline\"}", "requests",
     "Requests that got their result, by how they went to it."},
    {"express", "lumen_inference_express_total", "requests",
     "Of these, those that the express worker of queue_type auto ran."},
    {"cpu_ns", "lumen_inference_cpu_nanoseconds_total", "ns",
     "CPU time of the model's runs, below 50 us by the clock; none of those that a backend's own "
     "threads complete."},
    {"queued", "lumen_queued_requests", "requests", "Requests that no worker has taken yet.",
     CounterKind::kGauge},
    {"queue", "", "requests", "Requests that a worker took."},
    {"queue_ns", "", "ns", "How long they had waited for it."},
    {"preprocess", "", "requests", "Requests whose inputs were prepared."},
    {"preprocess_ns", "", "ns", "What that took."},
    {"run", "", "requests", "Requests for which the model ran."},
    {"run_ns", "", "ns", "What that took."},
    {"postprocess", "", "requests", "Requests whose outputs were placed and reply encoded."},
    {"postprocess_ns", "", "ns", "What that took."},
    {"cache_hit", "lumen_cache_hit_total", "requests",
     "Requests answered without a run of their own: from the response cache, or by another's run."},
    {"cache_hit_ns", "", "ns", "What looking these up took."},
    {"cache_miss", "lumen_cache_miss_total", "requests",
     "Requests that the response cache had no answer for."},
    {"cache_miss_ns", "", "ns", "What looking these up, and keeping their answers, took."},
    {"cache_shared", "lumen_cache_shared_total", "requests",
     "Of the hits, those that waited for another request's run."},
    {"cache_not_kept", "lumen_cache_not_kept_total", "answers",
     "Answers that the response cache did not keep: too large, no room, or it was busy."},
    {"device_measured", "lumen_device_measured_runs_total", "runs",
     "Runs on a device that were measured by parts, one in 64."},
    {"device_in_ns", "lumen_device_copy_nanoseconds_total{direction=\"in\"}", "ns",
     "How long the copies of these took, to the device (in) and back (out)."},
    {"device_out_ns", "lumen_device_copy_nanoseconds_total{direction=\"out\"}", "ns",
     "How long the copies of these took, to the device (in) and back (out)."},
    {"device_run_ns", "lumen_device_run_nanoseconds_total", "ns",
     "How long the device computed in these."},
    {"instances", "lumen_model_instances", "instances",
     "Instances of the model that there are now.", CounterKind::kGauge},
    {"instance_bytes", "lumen_model_instance_bytes", "bytes",
     "What one of them took of memory when it was made and first ran, the mean.",
     CounterKind::kGauge},
    {"last_inference", "", "ms", "When the model ran last, since the epoch; 0: never.",
     CounterKind::kLatest},
};

// A place in one of the tables, by the name that stands there.
template <const auto& kTable>
class CounterOf {
 public:
  consteval CounterOf(const char* name) : index_(find(name)) {}
  // For code that goes through the table: `index` < std::size(kTable).
  explicit constexpr CounterOf(size_t index) noexcept : index_(static_cast<uint32_t>(index)) {}

  [[nodiscard]] constexpr uint32_t index() const noexcept { return index_; }
  [[nodiscard]] constexpr const CounterDescriptor& descriptor() const noexcept {
    return kTable[index_];
  }

 private:
  static consteval uint32_t find(std::string_view name) {
    for (uint32_t i = 0; i < std::size(kTable); ++i) {
      if (kTable[i].name == name) return i;
    }
    throw "no counter has this name";  // in a constant expression: an error of the compiler
  }

  uint32_t index_;
};

// One of those that may be used as this kind alone.
template <typename Counter, CounterKind kKind>
class OfKind : public Counter {
 public:
  consteval OfKind(const char* name) : Counter(name) {
    if (this->descriptor().kind != kKind) throw "the counter is of another kind";
  }
};

using ServerCounter = CounterOf<kServerCounters>;
using ServerGauge = OfKind<ServerCounter, CounterKind::kGauge>;
using ModelCounter = CounterOf<kModelCounters>;
using ModelGauge = OfKind<ModelCounter, CounterKind::kGauge>;
using ModelLatest = OfKind<ModelCounter, CounterKind::kLatest>;

// The two counters of a duration: "queue" is also "queue_ns".
struct ModelTime {
  consteval ModelTime(const char* name) : count(name), ns(size_t{count.index()} + 1) {
    const std::string_view first = count.descriptor().name;
    const std::string_view second = ns.descriptor().name;
    if (!second.starts_with(first) || second.substr(first.size()) != "_ns") {
      throw "the counter behind it does not hold its time";
    }
  }
  ModelCounter count;
  ModelCounter ns;
};

}  // namespace lumen::telemetry
