// bench_bare_openvino: the limit of bench/server.py. One thread calls the model in a loop: no server,
// no socket, tensors bound once, one row, f32, static shape: what no server around it can beat.
//   bench_bare_openvino MODEL_FILE SECONDS DIMENSION...
// OpenVINO's C API: the C++ headers belong to one file of the engine alone, and Python's binding
// would add microseconds to a model that takes three.
// Threads: one. Memory: before the loop. Errors: exit status 1 and OpenVINO's message.
#include <lumen/base/clock.h>

#include "summary.h"

#include <openvino/c/openvino.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

void fill_input(ov_infer_request_t* request) {
  ov_tensor_t* tensor = nullptr;
  check(ov_infer_request_get_input_tensor(request, &tensor), "input tensor");
  void* data = nullptr;
  size_t elements = 0;
  check(ov_tensor_data(tensor, &data), "input data");
  check(ov_tensor_get_size(tensor, &elements), "input size");
  auto* values = static_cast<float*>(data);
  for (size_t i = 0; i < elements; ++i) values[i] = std::sin(static_cast<float>(i));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: bench_bare_openvino MODEL_FILE SECONDS DIMENSION...\n");
    return 1;
  }
  std::vector<int64_t> dimensions;
  for (int i = 3; i < argc; ++i) dimensions.push_back(std::atoll(argv[i]));
  ov_infer_request_t* request = make_request(argv[1], dimensions);
  fill_input(request);
  const auto window_ns = static_cast<uint64_t>(std::atof(argv[2]) * 1e9);
  const uint64_t warm_up_end_ns = lumen::now_ns() + window_ns / 4;
  while (lumen::now_ns() < warm_up_end_ns) check(ov_infer_request_infer(request), "infer");
  lumen::bench::Summary summary;
  const uint64_t begin_ns = lumen::now_ns();
  uint64_t now = begin_ns;
  while (now - begin_ns < window_ns) {
    const uint64_t started_ns = now;
    check(ov_infer_request_infer(request), "infer");
    now = lumen::now_ns();
    summary.add_ns(now - started_ns);
  }
  summary.print(static_cast<double>(now - begin_ns) / 1e9);
  return 0;
}
