// The bytes of a call, in and out. See the header.
#include "transports/grpc/request.h"

#include "transports/grpc/call_stream.h"
#include "transports/grpc/grpc_transport.h"

#include <lumen/service/reply_outputs.h>
#include <lumen/wire/inflate.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace lumen::grpc {
namespace {

// Touched memory that a request keeps between calls.
constexpr size_t kKeepBytes = size_t{2} << 20;
// Reserved beside a message: the gaps of alignment and of sanitizers.
constexpr size_t kGapBytes = 512;

}  // namespace

void Request::reset() noexcept {
  memory.reset(kKeepBytes);
  memory.use(RequestMemory::Kind::kArena);
  std::destroy_at(&call);
  ::new (static_cast<void*>(&call))
      service::Call{.owner = this, .scratch = &memory, .reply_memory = &memory};
  job = {.owner = this, .memory = &memory};
  head = {};
  model = version = {};
  prefix_bytes = 0;
  message = nullptr;
  message_bytes = received_bytes = timed_bytes = 0;
  stream = nullptr;
  previous = next = nullptr;
  is_away = is_job = is_leaving = wants_final = false;
  output_places = {};
  encode_status = {};
  reply = {};
  piece = sent_of_piece = left_bytes = 0;
  status = 0;
  next_reply = next_leaving = nullptr;
}

Status Request::receive(std::string_view& bytes, size_t most_bytes) noexcept {
  if (const size_t missing = std::min(prefix.size() - prefix_bytes, bytes.size()); missing > 0) {
    std::copy_n(bytes.begin(), missing, prefix.begin() + static_cast<ptrdiff_t>(prefix_bytes));
    prefix_bytes += missing;
    bytes.remove_prefix(missing);
    if (prefix_bytes < prefix.size()) return {};
    for (size_t i = 1; i < prefix.size(); ++i) {
      message_bytes = message_bytes << 8 | static_cast<uint8_t>(prefix[i]);
    }
    if (static_cast<uint8_t>(prefix[0]) > 1) {
      return Status::error(Code::kInternal, "a message begins with byte %u; wanted 0 or 1",
                           static_cast<uint8_t>(prefix[0]));
    }
    if (message_bytes > most_bytes) {
      return Status::error(Code::kResourceExhausted,
                           "message of %zu bytes is above the limit of %zu; send less or start the "
                           "server with a larger --max-body-bytes",
                           message_bytes, most_bytes);
    }
  }
  if (message == nullptr) {
    if (bytes.empty() && message_bytes > 0) return {};  // the first ones say where it is to lie
    if (!allocate_message(bytes.substr(0, message_bytes))) return host.no_room();
  }
  const size_t taken = std::min(bytes.size(), message_bytes - received_bytes);
  // Those that the loop has received to their place lie there, or a few bytes behind it.
  char* const place = message + received_bytes;
  if (taken > 0 && bytes.data() != place) std::memmove(place, bytes.data(), taken);
  received_bytes += taken;
  bytes.remove_prefix(taken);
  return {};
}

// So that the model reads its largest tensor where it lies.
bool Request::allocate_message(std::string_view begin) noexcept {
  const size_t bytes = message_bytes + kCacheLine;
  const auto reserve = [&]() noexcept { return memory.reserve(bytes + kGapBytes); };
  if (!host.thread().memory.take(reserve)) return false;
  auto* const room = static_cast<char*>(memory.allocate(bytes, kCacheLine));
  if (room == nullptr) return false;
  const size_t offset = wire::grpc_tensor_offset(begin);
  message = room + (kCacheLine - offset % kCacheLine) % kCacheLine;
  return true;
}

std::span<char> Request::place() const noexcept {
  if (message == nullptr) return {};
  return {message + received_bytes, message_bytes - received_bytes};
}

Status Request::inflate(std::optional<wire::ContentCoding> coding, size_t most_bytes) noexcept {
  if (prefix[0] == 0) return {};
  if (!coding) {
    return Status::error(Code::kUnsupported,
                         "the header grpc-encoding names a coding that is not known; wanted gzip, "
                         "deflate or identity");
  }
  if (*coding == wire::ContentCoding::kIdentity) {
    return Status::error(Code::kInternal,
                         "a message is compressed, and no header grpc-encoding says how");
  }
  const std::span<std::byte> block = memory.allocate_array<std::byte>(wire::Inflater::kMemoryBytes);
  if (block.empty()) return host.no_room();
  wire::Inflater& inflater = *wire::Inflater::create(*coding, block);
  auto* const plain = static_cast<char*>(memory.begin_growing(most_bytes + 1, kCacheLine));
  if (plain == nullptr) return host.no_room();
  constexpr size_t kStepBytes = size_t{64} << 10;
  std::string_view rest = text();
  size_t used = 0;
  for (;;) {
    const size_t room = std::min(kStepBytes, most_bytes + 1 - used);
    if (!memory.grow_to(plain + used + room)) return host.no_room();
    const wire::Inflater::Step step = inflater.step(rest, {plain + used, room});
    rest.remove_prefix(step.consumed);
    used += step.produced;
    if (step.state == wire::Inflater::State::kRefused) {
      return Status::error(Code::kInternal, "a compressed message can't be read: %.*s",
                           static_cast<int>(step.refusal.reason.size()),
                           step.refusal.reason.data());
    }
    if (used > most_bytes) {
      return Status::error(Code::kResourceExhausted,
                           "a compressed message has more than %zu bytes; send less or start the "
                           "server with a larger --max-body-bytes",
                           most_bytes);
    }
    if (step.state == wire::Inflater::State::kNeedMore) break;
  }
  if (!inflater.is_at_end()) {
    return Status::error(Code::kInternal, "a compressed message ends within its data");
  }
  memory.shrink_last(plain, used);
  message = plain;
  message_bytes = used;
  return {};
}

void Request::encode(service::Call& of_mine) noexcept {
  (void)of_mine;
  encode_status = encode_outputs();
}

void Request::on_returned(service::Call& of_mine) noexcept {
  (void)of_mine;
  host.post(*this);
}

void Request::on_done(service::Job& of_mine) noexcept {
  (void)of_mine;
  host.post(*this);
  host.thread().loop.wake();
}

Status Request::encode_outputs() noexcept {
  const models::ModelMetadata& metadata = call.infer.model->metadata();
  const auto outputs = service::reply_outputs(call, head, output_places, memory);
  if (!outputs.ok()) return outputs.status();
  const wire::InferReply said{.model_name = metadata.name,
                              .model_version = metadata.version,
                              .id = head.id,
                              .outputs = *outputs};
  const Result<wire::GrpcMessage> encoded =
      takes_many(stream->method) ? wire::encode_grpc_stream_reply(said, wants_final, memory)
                                 : wire::encode_grpc_reply(said, memory);
  if (!encoded.ok()) return encoded.status();
  reply = *encoded;
  return {};
}

}  // namespace lumen::grpc
