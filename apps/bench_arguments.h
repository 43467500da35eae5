// BenchArguments: the words of `lumen bench URL`, and the parts that its two ways to run share: one
// model (bench_command.cc) and a mix of several (bench_mix.cc).
// Threads: main. Memory: control plane. Errors: Status naming the wrong value and the values
// wanted.
#pragma once

#include <lumen/client/load_plan.h>
#include <lumen/client/model_info.h>
#include <lumen/client/target.h>

#include <lumen/base/result.h>

#include <cstdint>
#include <string>
#include <vector>

struct BenchArguments {
  std::string url;
  std::string model;
  std::string version;
  std::vector<std::string> mix;      // NAME or NAME:WEIGHT
  std::vector<std::string> clients;  // N or NAME:N; empty: the defaults
  uint32_t threads = 1;
  double duration_s = 5;
  double warm_up_s = 0.5;
  std::vector<std::string> rate;  // R or NAME:R; empty: closed loop
  double timeout_s = 20;
  double repeat_ratio = -1;  // below 0: all requests are the same
  uint64_t requests = 0;
  uint64_t seed = 1;
  uint32_t in_flight = 1;
  uint32_t sequence_length = 0;     // 0: requests name no sequence
  std::vector<std::string> inputs;  // FILE or NAME=FILE
  lumen::client::TlsOptions tls;    // of https:// and grpcs://
  bool new_connection = false;
  bool obey_retry_after = false;
  bool poll = false;
  bool json = false;
  bool csv = false;
};

// A line on stderr; the exit status for a failure of the world.
int fail_bench(const lumen::Status& status);

// A plan of `model` with all arguments but clients and rate, probed with one request. `inputs_text`
// describes its inputs in words.
struct BenchPlan {
  std::string inputs_text;
  lumen::client::LoadPlan plan;
};
[[nodiscard]] lumen::Result<BenchPlan> make_plan(const BenchArguments& arguments,
                                                 const std::string& model, double rate);

// `lumen bench URL --mix ...`; the exit status.
int run_bench_mix(const BenchArguments& arguments);
