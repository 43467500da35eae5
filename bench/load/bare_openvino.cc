// bench_bare_openvino: the limit of bench/server.py. One thread calls the model in a loop: no
// server, no socket, tensors bound once, one row, f32, static shape: no server around it can beat
// that.
//   bench_bare_openvino MODEL_FILE SECONDS DIMENSION... [--writer CPU]
// With --writer another thread, on that CPU, writes the whole input before each call, hands it over
// and waits for the end, both spinning: no transport between two cores can beat that. Its time
// counts.
// OpenVINO's C API: the C++ headers belong to one file of the engine alone, and Python's binding
// would add microseconds to a model that takes three.
// Threads: one, or two. Memory: before the loop. Errors: exit status 1 and OpenVINO's message.
#include <lumen/base/clock.h>

#include "summary.h"

#include <openvino/c/openvino.h>

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

namespace {

void check(ov_status_e status, const char* what) {
  if (status == ov_status_e::OK) return;
  std::fprintf(stderr, "bench_bare_openvino: %s: %s (%s)\n", what, ov_get_error_info(status),
               ov_get_last_err_msg());
  std::exit(1);
}

// A process that ends with main(): the objects are not freed one by one.
ov_infer_request_t* make_request(const char* file, const std::vector<int64_t>& dimensions) {
  ov_core_t* core = nullptr;
  check(ov_core_create(&core), "core");
  ov_model_t* model = nullptr;
  check(ov_core_read_model(core, file, nullptr, &model), file);
  ov_partial_shape_t shape{};
  std::vector<ov_dimension_t> axes;
  axes.reserve(dimensions.size());
  for (int64_t size : dimensions) axes.push_back({size, size});
  check(ov_partial_shape_create(static_cast<int64_t>(axes.size()), axes.data(), &shape), "shape");
  check(ov_model_reshape_single_input(model, shape), "reshape");
  ov_compiled_model_t* compiled = nullptr;
  check(ov_core_compile_model(core, model, "CPU", 8, &compiled, "EXCLUSIVE_ASYNC_REQUESTS", "YES",
                              "INFERENCE_PRECISION_HINT", "f32", "INFERENCE_NUM_THREADS", "1",
                              "NUM_STREAMS", "1"),
        "compile");
  ov_infer_request_t* request = nullptr;
  check(ov_compiled_model_create_infer_request(compiled, &request), "infer request");
  return request;
}

std::span<float> input_of(ov_infer_request_t* request) {
  ov_tensor_t* tensor = nullptr;
  check(ov_infer_request_get_input_tensor(request, &tensor), "input tensor");
  void* data = nullptr;
  size_t elements = 0;
  check(ov_tensor_data(tensor, &data), "input data");
  check(ov_tensor_get_size(tensor, &elements), "input size");
  return {static_cast<float*>(data), elements};
}

// Calls `once` until the time is over; the first quarter more does not count.
template <typename Once>
void measure(uint64_t window_ns, Once&& once) {
  const uint64_t warm_up_end_ns = lumen::now_ns() + window_ns / 4;
  while (lumen::now_ns() < warm_up_end_ns) once();
  lumen::bench::Summary summary;
  const uint64_t begin_ns = lumen::now_ns();
  uint64_t now = begin_ns;
  while (now - begin_ns < window_ns) {
    const uint64_t started_ns = now;
    once();
    now = lumen::now_ns();
    summary.add_ns(now - started_ns);
  }
  summary.print(static_cast<double>(now - begin_ns) / 1e9);
}

// Both ends of the hand-over: how many inputs were written, and how many runs have ended.
struct alignas(128) Count {
  std::atomic<uint64_t> value{0};
};

void measure_written_by(int cpu, ov_infer_request_t* request, const std::vector<float>& values,
                        uint64_t window_ns) {
  const std::span<float> input = input_of(request);
  Count written;
  Count done;
  std::thread writer([&] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) std::exit(1);
    uint64_t turn = 0;
    measure(window_ns, [&] {
      std::memcpy(input.data(), values.data(), input.size_bytes());
      ++turn;
      written.value.store(turn, std::memory_order_release);  // sync[bench.bare]: the input
      // sync[bench.bare]: the output
      while (done.value.load(std::memory_order_acquire) != turn) continue;
    });
    written.value.store(UINT64_MAX, std::memory_order_release);  // sync[bench.bare]: the end
  });
  for (uint64_t turn = 1;; ++turn) {
    uint64_t now = 0;
    // sync[bench.bare]: the input
    while ((now = written.value.load(std::memory_order_acquire)) < turn) continue;
    if (now == UINT64_MAX) break;
    check(ov_infer_request_infer(request), "infer");
    done.value.store(turn, std::memory_order_release);  // sync[bench.bare]: the output
  }
  writer.join();
}

}  // namespace

int main(int argc, char** argv) {
  int writer_cpu = -1;
  if (argc > 5 && std::string_view(argv[argc - 2]) == "--writer") {
    writer_cpu = std::atoi(argv[argc - 1]);
    argc -= 2;
  }
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: bench_bare_openvino MODEL_FILE SECONDS DIMENSION... [--writer CPU]\n");
    return 1;
  }
  std::vector<int64_t> dimensions;
  for (int i = 3; i < argc; ++i) dimensions.push_back(std::atoll(argv[i]));
  ov_infer_request_t* request = make_request(argv[1], dimensions);
  const std::span<float> input = input_of(request);
  for (size_t i = 0; i < input.size(); ++i) input[i] = std::sin(static_cast<float>(i));
  const auto window_ns = static_cast<uint64_t>(std::atof(argv[2]) * 1e9);
  if (writer_cpu >= 0) {
    measure_written_by(writer_cpu, request, {input.begin(), input.end()}, window_ns);
  } else {
    measure(window_ns, [request] { check(ov_infer_request_infer(request), "infer"); });
  }
  return 0;
}
