// LoadPlan: one measurement: the request, the number of connections, how long or how often. Several
// plans may be carried out at once (run_loads() in load_run.h), each with clients of its own.
// Threads: a value, read by all load threads. Memory: one copy of the request. Errors: never.
#pragma once

#include <lumen/client/input_variants.h>
#include <lumen/client/model_info.h>
#include <lumen/client/sequence_walk.h>
#include <lumen/client/target.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lumen::client {

// One of several requests that the same clients send.
struct MixedRequest {
  std::string request;
  double weight = 1;
};

struct LoadPlan {
  Target target;
  std::string request;          // whole, as build_request() or build_grpc_request() makes it
  std::string warm_up_request;  // sent while warming up; empty: `request`
  // In place of `request`, closed loop alone: each time one of these, by weight (WeightedChoice),
  // each counted apart.
  std::vector<MixedRequest> mix;
  // The same for the bus.
  std::string model;
  std::string version;
  std::vector<InputTensor> inputs;
  uint32_t in_flight = 1;  // requests of a client, over the bus alone

  // Which share of the requests repeats the input of an earlier one; the others are fresh. Without,
  // all have the same. Each client has a request of its own to write into, then.
  double repeat_ratio = 0;
  std::optional<InputVariants> variants;
  size_t varied_at = 0;  // in the request, where the input begins that varies

  // Of a model that keeps states: requests of each sequence; 0: they name none. Each client, over
  // the bus each of its requests in flight, has sequences of its own.
  uint32_t sequence_length = 0;
  uint64_t first_sequence = 0;  // any number, best one of no other run
  SequencePlaces sequence_places{};

  uint32_t clients = 1;
  uint32_t threads = 1;

  // Either for a time: replies that come within [warm_up_ns, warm_up_ns + duration_ns) are counted,
  // whenever their requests began, so that slow requests are neither lost nor counted twice.
  uint64_t warm_up_ns = 500'000'000u;
  uint64_t duration_ns = 5'000'000'000u;
  // Or, when not 0, a number of requests, after that number of others as a warm-up.
  uint64_t requests = 0;
  uint64_t warm_up_requests = 0;

  // 0: closed loop, a client sends when it has its reply. Else requests a second over all clients,
  // each with an intended time from which its latency counts: one that has to wait for a free
  // client has waited for the server (no coordinated omission).
  double rate = 0;
  bool new_connection = false;  // one a request; then its latency contains connecting
  // Closed loop: a client that is refused with a Retry-After asks again after that time, not at
  // once.
  bool obey_retry_after = false;
  // Poll without ever sleeping: the client's own wake-ups (20 us on small machines) are not booked
  // as the server's. It takes a whole core a thread.
  bool poll = false;
  uint64_t timeout_ns = 20'000'000'000u;  // of one request

  [[nodiscard]] bool is_open_loop() const noexcept { return rate > 0; }
  // Clients have requests of their own, to write into.
  [[nodiscard]] bool has_many_requests() const noexcept {
    return variants.has_value() || sequence_length > 0;
  }
};

}  // namespace lumen::client
