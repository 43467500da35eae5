// See the header. Field numbers: grpc_service.proto.
#include "service/grpc_documents.h"

#include <lumen/base/limits.h>
#include <lumen/wire/protobuf.h>

#include <array>
#include <cstdint>

namespace lumen::service {
namespace {

void add_text(std::string& out, uint32_t field, std::string_view text) {
  const size_t before = out.size();
  out.resize(before + wire::field_bytes(text.size()));
  wire::ProtobufWriter(out.data() + before).text(field, text);
}

std::string describe_tensor(const models::TensorSpec& tensor) {
  std::string out;
  add_text(out, 1, tensor.name);
  add_text(out, 2, element_type_name(tensor.type));
  std::array<char, limits::kMaxRank * wire::kMostVarintBytes> shape{};
  wire::ProtobufWriter sizes(shape.data());
  for (const int64_t size : tensor.shape.dimensions()) sizes.varint(static_cast<uint64_t>(size));
  add_text(out, 3, {shape.data(), static_cast<size_t>(sizes.at() - shape.data())});
  return out;
}

}  // namespace

std::string describe_server(std::string_view version,
                            std::span<const std::string_view> extensions) {
  std::string out;
  add_text(out, 1, "lumen");
  add_text(out, 2, version);
  for (const std::string_view extension : extensions) add_text(out, 3, extension);
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
