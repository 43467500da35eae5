// The question: what does an infer request of 256 numbers as JSON cost, text to floats in place?
//
//   BM_Request    the whole body to an InferHead: lumen, and simdjson's on-demand parser, which has no
//                 float and so rounds twice
//   BM_Numbers    only the numbers and the commas between them: lumen's way into a float, std::from_chars
//                 (fast_float inside, since GCC 12), strtof
//   BM_Integers   the same into INT64
//   BM_Reply      a reply of 10 and of 256 floats to text
//
// Bodies: 0: three decimals, 1: the shortest text of a float, 2: the shortest text of a double, 3:
// whole numbers below 30,000, as those of words, all as Python's json.dumps() writes them. One
// thread, no input or output. A row's "per_number" is in ns.
// Run: taskset -c 0 .build/native/bench_json_tensor --benchmark_repetitions=5
#include <lumen/wire/oip.h>

#include "wire/json_number.h"
#include "wire/json_number_run.h"

#include <benchmark/benchmark.h>
#include <simdjson.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <random>
#include <string>

namespace {

using lumen::wire::JsonParser;

constexpr size_t kNumbers = 256;

class BlockMemory final : public lumen::Allocator {
 public:
  void* allocate(size_t bytes, size_t alignment) noexcept override {
    const size_t begin = (used_ + alignment - 1) & ~(alignment - 1);
    if (begin + bytes > sizeof(bytes_)) return nullptr;
    used_ = begin + bytes;
    return bytes_ + begin;
  }
  void reset() noexcept { used_ = 0; }

 private:
  alignas(64) std::byte bytes_[1 << 18];
  size_t used_ = 0;
};

std::string numbers_text(int64_t kind) {
  std::mt19937_64 random(1);
  std::string text;
  for (size_t i = 0; i < kNumbers; ++i) {
    const double value = static_cast<double>(random() >> 11) * 0x1p-53;
    char number[64];
    const char* end = number;
    if (kind == 0) end = number + std::snprintf(number, sizeof(number), "%.3f", value);
    if (kind == 1) end = std::to_chars(number, number + 64, static_cast<float>(value)).ptr;
    if (kind == 2) end = std::to_chars(number, number + 64, value).ptr;
    if (kind == 3) end = std::to_chars(number, number + 64, static_cast<int>(value * 30'000)).ptr;
    if (i > 0) text += ", ";
    text.append(number, static_cast<size_t>(end - number));
  }
  return text;
}

struct Body {
  explicit Body(int64_t kind)
      : text(R"({"inputs": [{"name": "input", "shape": [1, 256], "datatype": "FP32", "data": [)" +
             numbers_text(kind) + "]}]}"),
        size(text.size()) {
    text.append(JsonParser::kPadding, '\0');
  }
  std::string text;
  size_t size;
};

void report(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(bytes) * state.iterations());
  state.counters["per_number"] = benchmark::Counter(
      1e-9 * kNumbers, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void BM_Request_lumen(benchmark::State& state) {
  const Body body(state.range(0));
  JsonParser parser;
  BlockMemory memory;
  while (state.KeepRunning()) {
    memory.reset();
    const auto head =
        parse_infer_head(parser, std::string_view(body.text).substr(0, body.size), memory);
    if (!head.ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(head->inputs[0].tensor.data);
  }
  report(state, body.size);
}

void BM_Request_simdjson(benchmark::State& state) {
  const Body body(state.range(0));
  simdjson::ondemand::parser parser;
  std::array<float, kNumbers> out;
  while (state.KeepRunning()) {
    auto document = parser.iterate(body.text.data(), body.size, body.text.size());
    size_t i = 0;
    for (auto input : document["inputs"].get_array()) {
      for (auto number : input["data"].get_array()) {
        out[i++] = static_cast<float>(number.get_double().value());
      }
    }
    if (i != kNumbers) state.SkipWithError("refused");
    benchmark::DoNotOptimize(out);
  }
  report(state, body.size);
}

// `read_all(at, end, out)` reads the array of numbers from its first comma on.
template <typename T, typename ReadAll>
void read_array(benchmark::State& state, ReadAll read_all) {
  std::string text = ", " + numbers_text(state.range(0)) + "]";
  const size_t size = text.size();
  text.append(JsonParser::kPadding, '\0');
  std::array<T, kNumbers> out;
  while (state.KeepRunning()) {
    read_all(text.data(), text.data() + size, out);
    benchmark::DoNotOptimize(out);
  }
  report(state, size);
}

// One by one.
template <typename T, typename Read>
void read_numbers(benchmark::State& state, Read read) {
  read_array<T>(state, [read](const char* at, const char* end, std::array<T, kNumbers>& out) {
    for (T& value : out) at = read(at + 2, end, value);
  });
}

template <typename T>
void read_runs(benchmark::State& state) {
  read_array<T>(state, [](const char* at, const char* end, std::array<T, kNumbers>& out) {
    for (size_t read = 0; read < kNumbers;) {
      read += lumen::wire::read_number_run(at, end, out.data() + read, kNumbers - read);
      if (read == kNumbers) break;
      const auto slow = lumen::wire::read_number<T>(at + 2, end);
      out[read++] = slow.value;
      at = slow.end;
    }
  });
}

void BM_Numbers_lumen(benchmark::State& state) { read_runs<float>(state); }
void BM_Integers_lumen(benchmark::State& state) { read_runs<int64_t>(state); }

void BM_Integers_lumen_slow_way(benchmark::State& state) {
  read_numbers<int64_t>(state, [](const char* at, const char* end, int64_t& out) {
    const auto slow = lumen::wire::read_number<int64_t>(at, end);
    out = slow.value;
    return slow.end;
  });
}

void BM_Integers_from_chars(benchmark::State& state) {
  read_numbers<int64_t>(state, [](const char* at, const char* end, int64_t& out) {
    return std::from_chars(at, end, out).ptr;
  });
}

void BM_Numbers_lumen_slow_way(benchmark::State& state) {
  read_numbers<float>(state, [](const char* at, const char* end, float& out) {
    const auto slow = lumen::wire::read_number<float>(at, end);
    out = slow.value;
    return slow.end;
  });
}

void BM_Numbers_from_chars(benchmark::State& state) {
  read_numbers<float>(state, [](const char* at, const char* end, float& out) {
    return std::from_chars(at, end, out).ptr;
  });
}

void BM_Numbers_strtof(benchmark::State& state) {
  read_numbers<float>(state, [](const char* at, const char*, float& out) -> const char* {
    char* end = nullptr;
    out = std::strtof(at, &end);
    return end;
  });
}

void BM_Reply_lumen(benchmark::State& state) {
  std::mt19937_64 random(1);
  std::vector<float> values(static_cast<size_t>(state.range(0)));
  for (float& value : values) value = static_cast<float>(random() >> 11) * 0x1p-53F;
  lumen::wire::ReplyOutput output;
  output.name = "output";
  output.tensor.type = lumen::ElementType::kFp32;
  if (!output.tensor.shape.append(1) || !output.tensor.shape.append(state.range(0))) return;
  output.tensor.data = reinterpret_cast<std::byte*>(values.data());
  output.tensor.byte_size = values.size() * sizeof(float);
  lumen::wire::InferReply reply;
  reply.model_name = "mlp";
  reply.model_version = "1";
  reply.outputs = {&output, 1};
  BlockMemory memory;
  while (state.KeepRunning()) {
    memory.reset();
    const auto encoded = encode_infer_reply(reply, memory);
    if (!encoded.ok()) state.SkipWithError("refused");
    benchmark::DoNotOptimize(encoded->json.data());
  }
}

BENCHMARK(BM_Request_lumen)->DenseRange(0, 2);
BENCHMARK(BM_Request_simdjson)->DenseRange(0, 2);
BENCHMARK(BM_Numbers_lumen)->DenseRange(0, 2);
BENCHMARK(BM_Numbers_lumen_slow_way)->DenseRange(0, 2);
BENCHMARK(BM_Numbers_from_chars)->DenseRange(0, 2);
BENCHMARK(BM_Numbers_strtof)->DenseRange(0, 2);
BENCHMARK(BM_Integers_lumen)->Arg(3);
BENCHMARK(BM_Integers_lumen_slow_way)->Arg(3);
BENCHMARK(BM_Integers_from_chars)->Arg(3);
BENCHMARK(BM_Reply_lumen)->Arg(10)->Arg(256);

}  // namespace

BENCHMARK_MAIN();
