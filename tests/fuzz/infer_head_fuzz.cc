// parse_infer_head: no overrun, nothing accepted that simdjson does not call JSON, but for bare NaN
// and Infinity in tensors and a byte order mark, and tensors that survive the way through a reply
// and back.
#include <lumen/tensor/bytes_tensor.h>
#include <lumen/wire/oip.h>

#include "fuzz/fuzz_support.h"

#include <simdjson.h>

#include <string>

using lumen::Result;
using lumen::fuzz::Copy;
using lumen::fuzz::Memory;
using lumen::wire::EncodedReply;
using lumen::wire::InferHead;
using lumen::wire::InferInput;
using lumen::wire::JsonParser;
using lumen::wire::ReplyOutput;

namespace {

constexpr size_t kMemoryBytes = 1 << 20;

void check_json(std::string_view json) {
  static simdjson::dom::parser judge;
  const auto verdict = judge.parse(simdjson::padded_string(json)).error();
  // In parts that Lumen ignores, numbers may be larger than simdjson keeps.
  LUMEN_CHECK(verdict == simdjson::SUCCESS || verdict == simdjson::NUMBER_ERROR);
}

void check_input(const InferInput& input) {
  const lumen::TensorView& tensor = input.tensor;
  LUMEN_CHECK(!input.name.empty() && tensor.shape.element_count().has_value());
  const bool is_elsewhere = input.is_binary || input.shared.is_there();
  LUMEN_CHECK(is_elsewhere == (tensor.data == nullptr));
  LUMEN_CHECK(!input.is_binary || !input.shared.is_there());
  if (input.shared.is_there()) LUMEN_CHECK(tensor.byte_size == input.shared.byte_size);
  if (tensor.type != lumen::ElementType::kBytes) {
    LUMEN_CHECK(tensor.byte_size ==
                *tensor.shape.element_count() * lumen::element_size(tensor.type));
  } else if (!is_elsewhere) {
    LUMEN_CHECK(lumen::check_bytes_tensor(input.name, tensor).ok());
  }
}

void check_round_trip(JsonParser& parser, const InferInput& input) {
  const ReplyOutput output{input.name, input.tensor, false};
  lumen::wire::InferReply reply;
  reply.outputs = {&output, 1};
  reply.non_finite = lumen::wire::NonFinite::kString;  // JSON, and keeps infinity
  Memory memory(kMemoryBytes * 16);
  const Result<EncodedReply> encoded = lumen::wire::encode_infer_reply(reply, memory);
  LUMEN_CHECK(encoded.ok());
  check_json(encoded->json);
  const size_t begin = encoded->json.find("\"outputs\":");
  const std::string request = "{\"inputs\":" + std::string(encoded->json.substr(begin + 10));
  const Copy copy(request, JsonParser::kPadding);
  const Result<InferHead> back = lumen::wire::parse_infer_head(parser, copy.view(), memory);
  LUMEN_CHECK(back.ok() && back->inputs.size() == 1);
  const lumen::TensorView& tensor = back->inputs[0].tensor;
  LUMEN_CHECK(back->inputs[0].name == input.name && tensor.byte_size == input.tensor.byte_size);
  LUMEN_CHECK(tensor.byte_size == 0 ||
              std::memcmp(tensor.data, input.tensor.data, tensor.byte_size) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static JsonParser parser;
  const Copy json({reinterpret_cast<const char*>(data), size}, JsonParser::kPadding);
  Memory memory(kMemoryBytes);
  const Result<InferHead> head = lumen::wire::parse_infer_head(parser, json.view(), memory);
  if (!head.ok()) {
    LUMEN_CHECK(!head.status().message().empty());
    return 0;
  }
  // The judge takes neither bare NaN and Infinity nor a byte order mark, which Lumen reads.
  const auto has = [&](std::string_view text) {
    return json.view().find(text) != std::string_view::npos;
  };
  if (!has("NaN") && !has("Infinity") && !json.view().starts_with("\xef\xbb\xbf")) {
    check_json(json.view());
  }
  size_t binary_bytes = 0;
  for (const InferInput& input : head->inputs) {
    check_input(input);
    if (input.is_binary) binary_bytes += input.tensor.byte_size;
    if (input.tensor.data != nullptr) check_round_trip(parser, input);
  }
  LUMEN_CHECK(binary_bytes == head->binary_bytes);
  return 0;
}
