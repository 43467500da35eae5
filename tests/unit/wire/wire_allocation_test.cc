// The data plane allocates nothing: operator new is counted around each codec once it is warm.
#include <lumen/wire/http.h>

#include "unit/wire/wire_support.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
// relaxed: one thread counts; atomic only because operator new may run anywhere.
std::atomic<size_t> new_calls{0};
}  // namespace

// All forms that the tests and simdjson (the judge of other tests here) call, so that none is left
// to ASan alone and freed here. noinline: g++ 12 would see malloc and free within new and delete
// and warn that they do not match.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  new_calls.fetch_add(1, std::memory_order_relaxed);  // relaxed: see above
  return std::malloc(bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t& none) noexcept {
  return operator new(bytes, none);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete[](void* memory, size_t) noexcept { operator delete(memory); }

namespace lumen::wire {
namespace {

// A bump allocator on the stack of the test.
class StackMemory final : public Allocator {
 public:
  void* allocate(size_t bytes, size_t alignment) noexcept override {
    const size_t begin = (used_ + alignment - 1) & ~(alignment - 1);
    if (begin + bytes > sizeof(bytes_)) return nullptr;
    used_ = begin + bytes;
    return bytes_ + begin;
  }

 private:
  alignas(64) std::byte bytes_[32768];
  size_t used_ = 0;
};

template <typename Work>
size_t new_calls_of(Work work) {
  const size_t before = new_calls.load(std::memory_order_relaxed);  // relaxed: one thread
  work();
  return new_calls.load(std::memory_order_relaxed) - before;  // relaxed: one thread
}

TEST(WireAllocation, IsSeenByTheCounter) {
  // By name: a new-expression may be left out by the optimiser.
  EXPECT_EQ(new_calls_of([] { ::operator delete(::operator new(1)); }), 1U);
}

TEST(WireAllocation, HttpHeadsAndChunksTakeNone) {
  const std::string head = "POST /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  std::string chunks;
  for (int i = 0; i < 1000; ++i) chunks += "6;a=b\r\nabcdef\r\n";
  chunks += "0\r\n\r\n";
  EXPECT_EQ(new_calls_of([&] {
              EXPECT_EQ(parse_http_head(head).progress, HeadProgress::kComplete);
              EXPECT_EQ(parse_http_head("GET /\n\n").progress, HeadProgress::kRefused);
              ChunkedDecoder decoder(1 << 20);
              EXPECT_EQ(decoder.decode(chunks, chunks).state, ChunkedDecoder::State::kComplete);
            }),
            0U);
}

TEST(WireAllocation, InferRequestsAndRepliesTakeNone) {
  const test::PaddedJson binary(
      R"({"id":"1","inputs":[{"name":"x","shape":[1,256],"datatype":"FP32",)"
      R"("parameters":{"binary_data_size":1024}}],"parameters":{"binary_data_output":true}})");
  const test::PaddedJson json(
      R"({"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1.25,2],[1e-50,4]]},)"
      R"({"data":["a\n","\u00e4"],"name":"s","shape":[2],"datatype":"BYTES"}],"z":{"\u0061":[{}]}})");
  const test::PaddedJson wrong(R"({"inputs":[{"name":"x","shape":[2],"datatype":"FP3"}]})");
  JsonParser parser;
  StackMemory memory;
  EXPECT_EQ(new_calls_of([&] {
              EXPECT_TRUE(parse_infer_head(parser, binary.view(), memory).ok());
              EXPECT_FALSE(parse_infer_head(parser, wrong.view(), memory).ok());
              const Result<InferHead> head = parse_infer_head(parser, json.view(), memory);
              EXPECT_TRUE(head.ok());
              const ReplyOutput outputs[] = {{"y", head->inputs[0].tensor, true},
                                             {"z", head->inputs[0].tensor, false},
                                             {"s", head->inputs[1].tensor, false}};
              InferReply reply;
              reply.outputs = outputs;
              EXPECT_TRUE(encode_infer_reply(reply, memory).ok());
            }),
            0U);
}

TEST(WireAllocation, TheFirstRequestOfAParserTakesNoneEither) {
  const test::PaddedJson json(R"({"inputs":[]})");
  const auto parser = std::make_unique<JsonParser>();
  StackMemory memory;
  EXPECT_EQ(new_calls_of([&] { EXPECT_TRUE(parse_infer_head(*parser, json.view(), memory).ok()); }),
            0U);
}

}  // namespace
}  // namespace lumen::wire
