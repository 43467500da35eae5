// See the header. Field numbers: grpc_service.proto.
#include "service/grpc_documents.h"

#include <cstdint>

namespace lumen::service {
namespace {

void add_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void add_text(std::string& out, uint32_t field, std::string_view text) {
  add_varint(out, uint64_t{field} << 3 | 2);
  add_varint(out, text.size());
  out.append(text);
}

std::string describe_tensor(const models::TensorSpec& tensor) {
  std::string out;
  add_text(out, 1, tensor.name);
  add_text(out, 2, element_type_name(tensor.type));
  std::string shape;
  for (const int64_t size : tensor.shape.dimensions()) {
    add_varint(shape, static_cast<uint64_t>(size));
  }
  add_text(out, 3, shape);
  return out;
}

}  // namespace

std::string describe_server(std::string_view version) {
  std::string out;
  add_text(out, 1, "lumen");
  add_text(out, 2, version);
  for (const std::string_view extension : {"classification", "parameters"}) {
    add_text(out, 3, extension);
  }
  return out;
}

std::string describe_model(const models::Model& model, std::span<const std::string> versions) {
  const models::ModelMetadata& metadata = model.metadata();
  std::string out;
  add_text(out, 1, metadata.name);
  for (const std::string& version : versions) add_text(out, 2, version);
  add_text(out, 3, metadata.platform);
  for (const models::TensorSpec& input : metadata.inputs) add_text(out, 4, describe_tensor(input));
  for (const models::TensorSpec& one : metadata.outputs) add_text(out, 5, describe_tensor(one));
  return out;
}

}  // namespace lumen::service
