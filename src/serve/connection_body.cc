// How a request's body comes in: by length or in chunks, as JSON, tensors or raw, each byte to where it
// belongs; and the submission once it is whole. Course of the conversation: connection.cc.
// I/O thread only; allocates nothing but from the request's memory.
#include "serve/connection.h"

#include "serve/infer_service.h"
#include "serve/io_thread.h"

#include <lumen/base/clock.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace lumen::serve {

using wire::BodyFraming;

void Connection::begin_body() noexcept {
  progress_bytes_ = 0;
  io_.timeouts().body.start(timeout_, coarse_now_ns());
  if (context_->head.framing == BodyFraming::kChunked) {
    begin_chunked_body();
  } else {
    begin_length_body();
  }
}

void Connection::take_body_bytes(size_t bytes) noexcept {
  context_->begin += bytes;
  context_->body_unread -= bytes;
}

void Connection::begin_length_body() noexcept {
  const uint64_t total = context_->head.content_length;
  const bool is_infer = context_->route.endpoint == Endpoint::kInfer;
  const uint64_t json_bytes =
      is_infer ? context_->head.inference_header_length.value_or(total) : total;
  if (json_bytes > total) {
    respond_error(Status::error(
        Code::kInvalidArgument,
        "Inference-Header-Content-Length is %llu, but the body has only %llu bytes",
        static_cast<unsigned long long>(json_bytes), static_cast<unsigned long long>(total)));
    return;
  }
  if (is_infer && context_->head.inference_header_length == 0u) {
    const Status status = prepare_raw_infer(*context_, *context_->call.infer.model, total);
    if (!status.ok()) {
      respond_error(status);
      return;
    }
    place_tensors(context_->unread().substr(0, context_->body_unread));
    return;
  }
  if (context_->begin + json_bytes <= context_->receive_buffer().size()) {
    state_ = State::kJson;
    continue_json();
    return;
  }
  // Too long for the receive buffer: collected in memory of its own, where the rest arrives directly.
  auto* memory = static_cast<char*>(
      context_->memory.allocate(json_bytes + wire::JsonParser::kPadding, kCacheLine));
  if (memory == nullptr) {
    refuse(Status::error(Code::kTooLarge, "the JSON of the body does not fit a request's memory"));
    return;
  }
  const std::string_view have = context_->unread().substr(0, json_bytes);
  std::memcpy(memory, have.data(), have.size());
  take_body_bytes(have.size());
  context_->body = {memory, json_bytes};
  context_->body_segment = {memory + have.size(), json_bytes - have.size()};
  context_->body_places = service::Places(std::span(&context_->body_segment, 1));
  state_ = State::kJsonDirect;
  receive_pending();
}

void Connection::continue_json() noexcept {
  const uint64_t total = context_->head.content_length;
  const bool is_infer = context_->route.endpoint == Endpoint::kInfer;
  const uint64_t json_bytes =
      is_infer ? context_->head.inference_header_length.value_or(total) : total;
  if (context_->unread().size() < json_bytes) {
    receive_into(context_->free_space());
    return;
  }
  const std::string_view json = context_->unread().substr(0, json_bytes);
  take_body_bytes(json.size());
  on_json(json, context_->unread().substr(0, context_->body_unread), total - json_bytes);
}

void Connection::begin_chunked_body() noexcept {
  const size_t limit = io_.services().options.max_body_bytes;
  // The decoder writes at most the limit, but wants as much room as its input has bytes.
  const size_t bytes = limit + limits::kReceiveBufferBytes + wire::JsonParser::kPadding;
  // How long it is only its end says: memory is taken as it comes.
  auto* memory = static_cast<char*>(context_->memory.begin_growing(bytes, kCacheLine));
  if (memory == nullptr) {
    refuse(Status::error(Code::kTooLarge, "a chunked body does not fit a request's memory"));
    return;
  }
  context_->chunked.emplace(limit);
  context_->body = {memory, 0};
  state_ = State::kChunked;
  continue_chunked();
}

void Connection::continue_chunked() noexcept {
  const std::string_view input = context_->unread();
  const std::span<char> output{context_->body.data() + context_->body.size(), input.size()};
  if (!context_->memory.grow_to(output.data() + output.size() + wire::JsonParser::kPadding)) {
    refuse(io_.no_room());  // where the body ends is not known
    return;
  }
  const wire::ChunkedDecoder::Step step = context_->chunked->decode(input, output);
  context_->begin += step.consumed;
  context_->body = {context_->body.data(), context_->body.size() + step.produced};
  switch (step.state) {
    case wire::ChunkedDecoder::State::kNeedMore:
      context_->move_unread_to_front();
      receive_into(context_->free_space());
      return;
    case wire::ChunkedDecoder::State::kRefused: refuse(step.refusal); return;
    case wire::ChunkedDecoder::State::kComplete: break;
  }
  const std::string_view body{context_->body.data(), context_->body.size()};
  // The room for the longest body there can be shrinks to what came; the bytes stay where they are.
  context_->memory.shrink_last(body.data(), body.size() + wire::JsonParser::kPadding);
  if (context_->route.endpoint == Endpoint::kEngine) {
    ask_control(body);
    return;
  }
  const uint64_t json_bytes = context_->head.inference_header_length.value_or(body.size());
  if (json_bytes > body.size()) {
    respond_error(Status::error(Code::kInvalidArgument,
                                "Inference-Header-Content-Length is larger than the chunked body"));
    return;
  }
  if (context_->head.inference_header_length == 0u) {
    const Status status = prepare_raw_infer(*context_, *context_->call.infer.model, body.size());
    if (status.ok()) {
      place_tensors(body);
    } else {
      respond_error(status);
    }
    return;
  }
  on_json(body.substr(0, json_bytes), body.substr(json_bytes), body.size() - json_bytes);
}

void Connection::on_json(std::string_view json, std::string_view rest,
                         size_t binary_bytes) noexcept {
  if (context_->route.endpoint == Endpoint::kEngine) {
    ask_control(json);
    return;
  }
  Result<wire::InferHead> head = wire::parse_infer_head(io_.json_parser(), json, context_->memory);
  if (!head.ok()) {
    respond_error(head.status());
    return;
  }
  context_->infer_head = *head;
  const Status status = prepare_infer(*context_, *context_->call.infer.model, binary_bytes);
  if (!status.ok()) {
    respond_error(status);
    return;
  }
  place_tensors(rest);
}

// `rest` is copied to where the tensors lie; what has not arrived yet is received there directly.
void Connection::place_tensors(std::string_view rest) noexcept {
  const size_t copied = context_->call.to_receive.fill(rest);
  if (context_->head.framing == BodyFraming::kLength) take_body_bytes(copied);
  if (context_->call.to_receive.empty()) {
    on_body_complete();
    return;
  }
  state_ = State::kTensors;
  receive_pending();
}

service::Places& Connection::places() noexcept {
  return state_ == State::kTensors ? context_->call.to_receive : context_->body_places;
}

void Connection::receive_pending() noexcept { io_.loop().receive(stream_, places().segments()); }

void Connection::on_body_complete() noexcept {
  timeout_.unlink();
  const Status status = service::inputs_arrived(context_->call);
  if (!status.ok()) {
    respond_error(status);
    return;
  }
  io_.settle(*context_);
  io_.counters().add("received_direct_bytes", context_->received_direct_bytes);
  state_ = State::kRunning;
  const engine::SubmitOutcome outcome = io_.submit(*context_);
  if (outcome == engine::SubmitOutcome::kAccepted) return;
  if (outcome == engine::SubmitOutcome::kClosed) close_after_ = true;
  respond_error(context_->call.infer.status);
}

}  // namespace lumen::serve
