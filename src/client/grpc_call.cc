// See the header.
#include "client/grpc_call.h"

#include "client/grpc_codec.h"
#include "client/waiting_socket.h"

#include <lumen/base/clock.h>
#include <lumen/wire/grpc_infer.h>
#include <lumen/wire/protobuf.h>

#include <algorithm>
#include <utility>

namespace lumen::client {
namespace {

constexpr uint64_t kTimeoutNs = 10'000'000'000u;
constexpr size_t kMostReplyBytes = size_t{64} << 20;

using wire::ProtobufField;
using wire::ProtobufReader;
using wire::ProtobufWire;

Status failed(const Target& target, std::string_view method, std::string_view why) {
  return Status::error(Code::kUnavailable, "%.*s of %s: %.*s", static_cast<int>(method.size()),
                       method.data(), target.url.c_str(), static_cast<int>(why.size()), why.data());
}

Status bad_metadata(const char* why) {
  return Status::error(Code::kInternal, "the server's metadata: %s", why);
}

// `message`: without its prefix. A status that is not OK is an error.
Result<std::string> call(const Target& target, std::string_view method, std::string_view message) {
  auto socket = WaitingSocket::connect(target, now_ns() + kTimeoutNs);
  if (!socket.ok()) return failed(target, method, socket.status().message());
  std::string request(wire::kGrpcPrefixBytes, '\0');
  wire::write_grpc_prefix(request.data(), message.size());
  request += message;
  GrpcCodec codec(target, true);
  codec.begin(method, request);
  std::string room(size_t{16} << 10, '\0');
  for (;;) {
    for (auto out = codec.output(); !out.empty(); out = codec.output()) {
      if (const Status sent = socket->send_all(out); !sent.ok()) {
        return failed(target, method, sent.message());
      }
      codec.sent(out.size());
    }
    const Result<size_t> received = socket->receive(room);
    if (!received.ok()) return failed(target, method, received.status().message());
    if (*received == 0) return failed(target, method, "the server closed the connection");
    switch (codec.receive(std::string_view(room).substr(0, *received))) {
      case GrpcCodec::Progress::kPending: break;
      case GrpcCodec::Progress::kBroken: return failed(target, method, codec.error());
      case GrpcCodec::Progress::kReplied:
        if (codec.status() == 200) return std::string(codec.message());
        return failed(target, method, codec.status_text());
    }
    if (codec.reply_bytes() > kMostReplyBytes)
      return failed(target, method, "a reply of over 64 MiB");
  }
}

Status parse_shape(std::string_view packed, Shape& shape) {
  ProtobufReader reader(packed);
  uint64_t value = 0;
  while (!reader.is_at_end()) {
    if (!reader.take_varint(value)) return bad_metadata("a shape that is broken");
    if (!shape.append(static_cast<int64_t>(value))) return bad_metadata("over 8 dimensions");
  }
  return {};
}

Result<TensorInfo> parse_tensor(std::string_view message) {
  TensorInfo tensor;
  ProtobufReader reader(message);
  ProtobufField field;
  bool has_type = false;
  while (reader.next(field)) {
    if (field.number == 1) tensor.name = field.bytes;
    if (field.number == 2) {
      const auto type = parse_element_type(field.bytes);
      if (!type) return bad_metadata("an input of an unknown datatype");
      tensor.type = *type;
      has_type = true;
    }
    if (field.number == 3 && field.wire == ProtobufWire::kBytes) {
      LUMEN_RETURN_IF_ERROR(parse_shape(field.bytes, tensor.shape));
    } else if (field.number == 3 && !tensor.shape.append(static_cast<int64_t>(field.value))) {
      return bad_metadata("over 8 dimensions");
    }
  }
  if (reader.is_broken() || tensor.name.empty() || !has_type) {
    return bad_metadata("an input without name and datatype");
  }
  return tensor;
}

}  // namespace

Result<ModelInfo> parse_grpc_metadata(std::string_view message) {
  ModelInfo info;
  ProtobufReader reader(message);
  ProtobufField field;
  while (reader.next(field)) {
    if (field.number == 1) info.name = field.bytes;
    if (field.number != 4) continue;
    auto tensor = parse_tensor(field.bytes);
    if (!tensor.ok()) return tensor.status();
    info.inputs.push_back(std::move(*tensor));
  }
  if (reader.is_broken() || info.name.empty()) {
    return bad_metadata("no ModelMetadataResponse with a name; is this an inference server?");
  }
  return info;
}

Result<ModelInfo> read_model_info_by_grpc(const Target& target, const std::string& name,
                                          const std::string& version) {
  std::string message(wire::field_bytes(name.size()) + wire::field_bytes(version.size()), '\0');
  wire::ProtobufWriter writer(message.data());
  writer.text(1, name);
  writer.text(2, version);
  const auto reply = call(target, "ModelMetadata", message);
  if (!reply.ok()) return reply.status();
  auto info = parse_grpc_metadata(*reply);
  if (info.ok()) info->version = version;
  return info;
}

}  // namespace lumen::client
