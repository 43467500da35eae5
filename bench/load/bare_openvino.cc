// bench_bare_openvino: the limit of bench/server.py. One thread calls the model in a loop: no
// server, no socket, tensors bound once, one row, f32, static shape: no server around it can beat
// that.
//   bench_bare_openvino MODEL_FILE SECONDS DIMENSION... [--writer CPU | --sender CPU BYTES]
// With --writer another thread, on that CPU, writes the whole input before each call, hands it over
// and waits for the end, both spinning: no transport between two cores can beat that. Its time
// counts.
// With --sender another thread, on that CPU, sends so many bytes over a connection of TCP before
// each call and receives the output, both by blocking calls alone: no server over TCP whose threads
// sleep while nothing is to do can beat that. Its time without that of the call counts.
// OpenVINO's C API: the C++ headers belong to one file of the engine alone, and Python's binding
// would add microseconds to a model that takes three.
// Threads: one, or two. Memory: before the loop. Errors: exit status 1 and OpenVINO's message.
#include <lumen/base/clock.h>

#include "summary.h"

#include <openvino/c/openvino.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
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

std::span<float> elements_of(const ov_tensor_t* tensor) {
  void* data = nullptr;
  size_t elements = 0;
  check(ov_tensor_data(tensor, &data), "tensor data");
  check(ov_tensor_get_size(tensor, &elements), "tensor size");
  return {static_cast<float*>(data), elements};
}

std::span<float> input_of(ov_infer_request_t* request) {
  ov_tensor_t* tensor = nullptr;
  check(ov_infer_request_get_input_tensor(request, &tensor), "input tensor");
  return elements_of(tensor);
}

std::span<float> output_of(ov_infer_request_t* request) {
  ov_tensor_t* tensor = nullptr;
  check(ov_infer_request_get_output_tensor(request, &tensor), "output tensor");
  return elements_of(tensor);
}

void move_to_cpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) std::exit(1);
}

// Calls `once` until the time is over; the first quarter more does not count, and neither do the
// nanoseconds of each call that it returns.
template <typename Once>
void measure(uint64_t window_ns, Once&& once) {
  const uint64_t warm_up_end_ns = lumen::now_ns() + window_ns / 4;
  while (lumen::now_ns() < warm_up_end_ns) once();
  lumen::bench::Summary summary;
  const uint64_t begin_ns = lumen::now_ns();
  uint64_t now = begin_ns;
  while (now - begin_ns < window_ns) {
    const uint64_t started_ns = now;
    const uint64_t left_out_ns = once();
    now = lumen::now_ns();
    summary.add_ns(now - started_ns - left_out_ns);
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
    move_to_cpu(cpu);
    uint64_t turn = 0;
    measure(window_ns, [&] {
      std::memcpy(input.data(), values.data(), input.size_bytes());
      ++turn;
      written.value.store(turn, std::memory_order_release);  // sync[bench.bare]: the input
      // sync[bench.bare]: the output
      while (done.value.load(std::memory_order_acquire) != turn) continue;
      return uint64_t{0};
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

// Both ends of a connection over loopback: the one that was accepted, and the client's.
std::array<int, 2> connect_pair() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any_address = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  const bool is_connected = listener >= 0 && client >= 0 &&
                            bind(listener, any_address, length) == 0 && listen(listener, 1) == 0 &&
                            getsockname(listener, any_address, &length) == 0 &&
                            connect(client, any_address, length) == 0;
  const int accepted = is_connected ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1;
  if (accepted < 0) {
    std::perror("bench_bare_openvino: a connection over loopback");
    std::exit(1);
  }
  close(listener);
  const int on = 1;
  for (const int end : {accepted, client})
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return {accepted, client};
}

// False: the other end is closed.
bool receive_all(int end, std::span<std::byte> bytes) {
  return recv(end, bytes.data(), bytes.size(), MSG_WAITALL) == std::ssize(bytes);
}

bool send_all(int end, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(end, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

void measure_sent_by(int cpu, ov_infer_request_t* request, size_t bytes, uint64_t window_ns) {
  const auto [server, client] = connect_pair();
  const std::span<const std::byte> output = std::as_bytes(output_of(request));
  std::atomic<uint64_t> run_ns{0};
  std::thread sender([&] {
    move_to_cpu(cpu);
    const std::vector<std::byte> sent(bytes);
    std::vector<std::byte> received(output.size());
    measure(window_ns, [&] {
      if (!send_all(client, sent) || !receive_all(client, received)) std::exit(1);
      return run_ns.load(std::memory_order_relaxed);  // relaxed: the bytes came after it
    });
    close(client);
  });
  std::vector<std::byte> received(bytes);
  while (receive_all(server, received)) {
    const uint64_t begin_ns = lumen::now_ns();
    check(ov_infer_request_infer(request), "infer");
    run_ns.store(lumen::now_ns() - begin_ns, std::memory_order_relaxed);  // relaxed: as above
    if (!send_all(server, output)) std::exit(1);
  }
  sender.join();
  close(server);
}

}  // namespace

int main(int argc, char** argv) {
  const auto is_option = [&](int from_end, std::string_view name) {
    return argc >= 4 + from_end && argv[argc - from_end] == name;
  };
  int writer_cpu = -1;
  int sender_cpu = -1;
  size_t sent_bytes = 0;
  if (is_option(2, "--writer")) {
    writer_cpu = std::atoi(argv[argc - 1]);
    argc -= 2;
  } else if (is_option(3, "--sender")) {
    sender_cpu = std::atoi(argv[argc - 2]);
    sent_bytes = static_cast<size_t>(std::atoll(argv[argc - 1]));
    argc -= 3;
  }
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: bench_bare_openvino MODEL_FILE SECONDS DIMENSION... "
                 "[--writer CPU | --sender CPU BYTES]\n");
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
  } else if (sender_cpu >= 0) {
    measure_sent_by(sender_cpu, request, sent_bytes, window_ns);
  } else {
    measure(window_ns, [request] {
      check(ov_infer_request_infer(request), "infer");
      return uint64_t{0};
    });
  }
  return 0;
}
