// ModelInferResponse.
#include <lumen/wire/grpc_infer.h>

#include "wire/grpc_fields.h"

#include <lumen/wire/protobuf.h>

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

// An entry of the map of parameters: that this reply is its request's last.
constexpr std::string_view kFinal = "triton_final_response";
constexpr std::string_view kTrue = "\x08\x01";  // InferParameter: bool_param

size_t final_bytes() noexcept { return field_bytes(kFinal.size()) + field_bytes(kTrue.size()); }

// The parts that are neither an output's bytes nor their head.
size_t description_bytes(const InferReply& reply, bool says_final) noexcept {
  size_t bytes = field_bytes(reply.model_name.size()) + field_bytes(reply.model_version.size());
  if (says_final) bytes += field_bytes(final_bytes());
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

namespace {

enum class Frame : uint8_t { kUnary, kStream };

Result<GrpcMessage> encode(const InferReply& reply, Frame frame, bool says_final,
                           Allocator& memory) noexcept {
  const size_t described = description_bytes(reply, says_final);
  size_t heads = 0;  // of the outputs' bytes
  size_t raw = 0;
  for (const ReplyOutput& output : reply.outputs) {
    heads += 1 + varint_bytes(raw_bytes(output));
    raw += raw_bytes(output);
  }
  const size_t inner = described + heads + raw;
  const size_t wrap = frame == Frame::kStream ? 1 + varint_bytes(inner) : 0;
  const size_t message = wrap + inner;
  if (message > UINT32_MAX) {
    return Status::error(Code::kTooLarge,
                         "a reply of %zu bytes is more than a message of gRPC may have; ask for "
                         "fewer outputs, or over HTTP",
                         message);
  }
  const std::span<char> text =
      memory.allocate_array<char>(kGrpcPrefixBytes + wrap + described + heads);
  const std::span<std::string_view> pieces =
      memory.allocate_array<std::string_view>(1 + 2 * reply.outputs.size());
  if (text.empty() || pieces.empty()) return no_room();
  write_grpc_prefix(text.data(), message);
  ProtobufWriter out(text.data() + kGrpcPrefixBytes);
  if (frame == Frame::kStream) out.head(field::kStreamReply, inner);
  out.text(field::kReplyModel, reply.model_name);
  out.text(field::kReplyVersion, reply.model_version);
  if (reply.id) out.text(field::kReplyId, *reply.id);
  if (says_final) {
    out.head(field::kReplyParameters, final_bytes());
    out.text(field::kKey, kFinal);
    out.text(field::kValue, kTrue);
  }
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

}  // namespace

Result<GrpcMessage> encode_grpc_reply(const InferReply& reply, Allocator& memory) noexcept {
  return encode(reply, Frame::kUnary, false, memory);
}

Result<GrpcMessage> encode_grpc_stream_reply(const InferReply& reply, bool says_final,
                                             Allocator& memory) noexcept {
  return encode(reply, Frame::kStream, says_final, memory);
}

Result<GrpcMessage> encode_grpc_stream_error(std::string_view error,
                                             std::optional<std::string_view> id,
                                             Allocator& memory) noexcept {
  const size_t inner = id ? field_bytes(id->size()) : 0;
  const size_t message = field_bytes(error.size()) + (id ? field_bytes(inner) : 0);
  const std::span<char> text = memory.allocate_array<char>(kGrpcPrefixBytes + message);
  const std::span<std::string_view> pieces = memory.allocate_array<std::string_view>(1);
  if (text.empty() || pieces.empty()) return no_room();
  write_grpc_prefix(text.data(), message);
  ProtobufWriter out(text.data() + kGrpcPrefixBytes);
  out.text(field::kStreamError, error);
  if (id) {
    out.head(field::kStreamReply, inner);
    out.text(field::kReplyId, *id);
  }
  pieces[0] = {text.data(), text.size()};
  return GrpcMessage{.pieces = pieces, .bytes = text.size()};
}

}  // namespace lumen::wire
