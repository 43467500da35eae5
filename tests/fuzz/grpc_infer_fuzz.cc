// parse_grpc_infer: no overrun, and tensors whose bytes are those of their shape.
#include <lumen/tensor/bytes_tensor.h>
#include <lumen/wire/grpc_infer.h>

#include "fuzz/fuzz_support.h"

using lumen::Result;
using lumen::fuzz::Copy;
using lumen::fuzz::Memory;
using lumen::wire::GrpcInferRequest;
using lumen::wire::InferInput;

namespace {

constexpr size_t kMemoryBytes = 1 << 20;

void check_input(const InferInput& input) {
  const lumen::TensorView& tensor = input.tensor;
  LUMEN_CHECK(!input.name.empty() && tensor.shape.element_count().has_value());
  LUMEN_CHECK(!input.is_binary);
  if (input.shared.is_there()) {
    LUMEN_CHECK(tensor.data == nullptr && tensor.byte_size == input.shared.byte_size);
    return;
  }
  // Each byte can be read.
  size_t sum = 0;
  for (const std::byte byte : tensor.bytes()) sum += static_cast<size_t>(byte);
  LUMEN_CHECK(sum <= 255 * tensor.byte_size);
  if (tensor.type == lumen::ElementType::kBytes) {
    (void)lumen::check_bytes_tensor(input.name, tensor);
  } else {
    LUMEN_CHECK(tensor.byte_size ==
                *tensor.shape.element_count() * lumen::element_size(tensor.type));
  }
}

// Of a message that can be read it is the largest tensor's; of its beginnings it is that,
// another's, or none.
void check_offset(std::string_view message, const Result<GrpcInferRequest>& parsed) {
  for (size_t bytes = message.size(); bytes > 0; bytes /= 2) {
    const Copy begin(message.substr(0, bytes));
    LUMEN_CHECK(lumen::wire::grpc_tensor_offset(begin.view()) <= bytes);
  }
  if (!parsed.ok()) return;
  size_t largest = 0;
  const char* place = nullptr;
  for (const InferInput& input : parsed->head.inputs) {
    const auto* const data = reinterpret_cast<const char*>(input.tensor.data);
    const bool is_raw = data >= message.data() && data < message.data() + message.size();
    if (!is_raw || input.tensor.byte_size <= largest) continue;
    largest = input.tensor.byte_size;
    place = data;
  }
  if (place == nullptr) return;
  LUMEN_CHECK(message.data() + lumen::wire::grpc_tensor_offset(message) == place);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Copy message(std::string_view(reinterpret_cast<const char*>(data), size));
  Memory memory(kMemoryBytes);
  const Result<GrpcInferRequest> parsed = lumen::wire::parse_grpc_infer(message.view(), memory);
  if (parsed.ok()) {
    for (const InferInput& input : parsed->head.inputs) check_input(input);
  }
  check_offset(message.view(), parsed);
  (void)lumen::wire::parse_grpc_model_name(message.view());
  return 0;
}
