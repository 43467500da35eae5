// ModelInferResponse.
#include <lumen/wire/grpc_infer.h>

#include "wire/grpc_fields.h"
#include "wire/protobuf.h"

namespace lumen::wire {
namespace {

Status no_room() noexcept {
  return Status::error(Code::kTooLarge,
                       "the list of outputs does not fit a request's memory; raise "
                       "--max-body-bytes");
}

size_t shape_bytes(const Shape& shape) noexcept {
  size_t bytes = 0;
  for (const int64_t size : shape.dimensions()) bytes += varint_bytes(static_cast<uint64_t>(size));
  return bytes;
}

// Without its field's head.
size_t bytes_of(const ReplyOutput& output) noexcept {
  return field_bytes(output.name.size()) +
         field_bytes(element_type_name(output.tensor.type).size()) +
         field_bytes(shape_bytes(output.tensor.shape));
}

void write(ProtobufWriter& out, const ReplyOutput& output) noexcept {
  out.text(field::kTensorName, output.name);
  out.text(field::kTensorType, element_type_name(output.tensor.type));
  out.head(field::kTensorShape, shape_bytes(output.tensor.shape));
  for (const int64_t size : output.tensor.shape.dimensions()) {
    out.varint(static_cast<uint64_t>(size));
  }
}

size_t raw_bytes(const ReplyOutput& output) noexcept {
  return output.is_elsewhere ? 0 : output.tensor.byte_size;
}

// What is neither an output's bytes nor their head.
size_t description_bytes(const InferReply& reply) noexcept {
  size_t bytes = field_bytes(reply.model_name.size()) + field_bytes(reply.model_version.size());
  if (reply.id) bytes += field_bytes(reply.id->size());
  for (const ReplyOutput& output : reply.outputs) bytes += field_bytes(bytes_of(output));
  return bytes;
}

}  // namespace

void write_grpc_prefix(char* out, size_t message_bytes) noexcept {
  out[0] = 0;  // not compressed
  for (size_t i = 1; i < kGrpcPrefixBytes; ++i) {
    out[i] = static_cast<char>(message_bytes >> (8 * (kGrpcPrefixBytes - 1 - i)));
  }
}

Result<GrpcMessage> encode_grpc_reply(const InferReply& reply, Allocator& memory) noexcept {
  const size_t described = description_bytes(reply);
  size_t heads = 0;  // of the outputs' bytes
  size_t raw = 0;
  for (const ReplyOutput& output : reply.outputs) {
    heads += 1 + varint_bytes(raw_bytes(output));
    raw += raw_bytes(output);
  }
  const size_t message = described + heads + raw;
  if (message > UINT32_MAX) {
    return Status::error(Code::kTooLarge,
                         "a reply of %zu bytes is more than a message of gRPC may have; ask for "
                         "fewer outputs, or over HTTP",
                         message);
  }
  const std::span<char> text = memory.allocate_array<char>(kGrpcPrefixBytes + described + heads);
  const std::span<std::string_view> pieces =
      memory.allocate_array<std::string_view>(1 + 2 * reply.outputs.size());
  if (text.empty() || pieces.empty()) return no_room();
  write_grpc_prefix(text.data(), message);
  ProtobufWriter out(text.data() + kGrpcPrefixBytes);
  out.text(field::kReplyModel, reply.model_name);
  out.text(field::kReplyVersion, reply.model_version);
  if (reply.id) out.text(field::kReplyId, *reply.id);
  for (const ReplyOutput& output : reply.outputs) {
    out.head(field::kReplyOutputs, bytes_of(output));
    write(out, output);
  }
  const char* begin = text.data();
  size_t count = 0;
  for (const ReplyOutput& output : reply.outputs) {
    out.head(field::kReplyRaw, raw_bytes(output));
    if (raw_bytes(output) == 0) continue;
    pieces[count++] = {begin, static_cast<size_t>(out.at() - begin)};
    pieces[count++] = {reinterpret_cast<const char*>(output.tensor.data), raw_bytes(output)};
    begin = out.at();
  }
  if (begin != out.at()) pieces[count++] = {begin, static_cast<size_t>(out.at() - begin)};
  return GrpcMessage{.pieces = pieces.first(count), .bytes = kGrpcPrefixBytes + message};
}

}  // namespace lumen::wire
