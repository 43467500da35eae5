// The clients of HTTP/2. See the header for threads, memory and errors.
#include "simulation/http2_client.h"

#include "simulation/backend.h"
#include "support/compress.h"
#include "support/grpc_client.h"

#include <lumen/wire/protobuf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

namespace lumen::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPatienceNs = 5'000 * kMs;
constexpr size_t kMostStreams = 4;
// More would be more memory than a client of a world may have.
constexpr size_t kMostInFlight = 256 * 1024;

std::string lower(std::string_view text) {
  std::string small(text);
  for (char& one : small) {
    if (one >= 'A' && one <= 'Z') one = static_cast<char>(one - 'A' + 'a');
  }
  return small;
}

// A ModelInferRequest.
std::string call_message(const std::string& model, const std::string& id,
                         const std::vector<float>& values) {
  std::string shape;
  for (const size_t dimension : {values.size() / 4, size_t{4}}) {
    std::array<char, wire::kMostVarintBytes> bytes{};
    wire::ProtobufWriter writer(bytes.data());
    writer.varint(dimension);
    shape.append(bytes.data(), static_cast<size_t>(writer.at() - bytes.data()));
  }
  const std::string input =
      test::proto_field(1, "x") + test::proto_field(2, "FP32") + test::proto_field(3, shape);
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return test::grpc_message(test::proto_field(1, model) + test::proto_field(3, id) +
                            test::proto_field(5, input) + test::proto_field(7, bytes));
}

// Its reply, as that of HTTP would name the same.
std::string as_text(std::string_view message) {
  if (message.size() < 5) fail("a reply of %zu bytes", message.size());
  wire::ProtobufReader reader(message.substr(5));
  wire::ProtobufField field;
  std::string text;
  std::string contents;
  while (reader.next(field)) {
    if (field.number == 1) text.append(R"("model_name":")").append(field.bytes).append("\"");
    if (field.number == 3) text.append(R"("id":")").append(field.bytes).append("\"");
    if (field.number == 6) contents += field.bytes;
  }
  if (reader.is_broken()) fail("a reply that is no message");
  return text + contents;
}

int http_status_of(int grpc_status) {
  switch (grpc_status) {
    case 0: return 200;
    case 4: return 504;
    case 5: return 404;
    case 8: return 429;
    case 14: return 503;
    default: return 500;
  }
}

}  // namespace

struct Http2Client::Callbacks {
  static Stream* of(void* self, int32_t number) {
    auto& streams = static_cast<Http2Client*>(self)->streams_;
    const auto found = streams.find(number);
    return found != streams.end() ? &found->second : nullptr;
  }
  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t,
                       void* self) {
    Stream* const stream = of(self, frame->hd.stream_id);
    if (stream == nullptr) return 0;
    const std::string_view key(reinterpret_cast<const char*>(name), name_bytes);
    const std::string text(reinterpret_cast<const char*>(value), value_bytes);
    if (key == ":status") stream->status = std::atoi(text.c_str());
    if (key == "grpc-status") stream->grpc_status = std::atoi(text.c_str());
    if (key == "grpc-message") stream->grpc_message = text;
    if (key == "content-encoding") stream->coding = text;
    return 0;
  }
  static int on_data(nghttp2_session*, uint8_t, int32_t number, const uint8_t* data, size_t bytes,
                     void* self) {
    if (Stream* const stream = of(self, number)) {
      stream->body.append(reinterpret_cast<const char*>(data), bytes);
    }
    return 0;
  }
  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* self) {
    const bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    const bool is_reply = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    Stream* const stream = of(self, frame->hd.stream_id);
    if (ends && is_reply && stream != nullptr) stream->is_answered = true;
    return 0;
  }
  static int on_close(nghttp2_session*, int32_t number, uint32_t, void* self) {
    if (Stream* const stream = of(self, number)) stream->is_closed = true;
    return 0;
  }
  // After a GOAWAY: nobody has seen it.
  static int on_not_sent(nghttp2_session*, const nghttp2_frame* frame, int, void* self) {
    Stream* const stream = of(self, frame->hd.stream_id);
    if (stream != nullptr && frame->hd.type == NGHTTP2_HEADERS) stream->is_closed = true;
    return 0;
  }
  static ssize_t most_of_frame(nghttp2_session*, uint8_t, int32_t, int32_t session_window,
                               int32_t stream_window, uint32_t most, void*) {
    return std::min<ssize_t>(std::min(session_window, stream_window), most);
  }
  static ssize_t read(nghttp2_session*, int32_t number, uint8_t* room, size_t most, uint32_t* flags,
                      nghttp2_data_source*, void* self) {
    Stream* const stream = of(self, number);
    if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const size_t left = stream->to_send.size() - stream->sent;
    // Frames of any size.
    const size_t some = random().one_in(3) ? 1 + random().below(std::max<size_t>(left, 1)) : left;
    const size_t bytes = std::min({left, most, some});
    std::memcpy(room, stream->to_send.data() + stream->sent, bytes);
    stream->sent += bytes;
    if (stream->sent == stream->to_send.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(bytes);
  }
};

bool Http2Client::begin_connection() {
  if (!connect()) return false;
  streams_.clear();
  nghttp2_session_callbacks* all = nullptr;
  nghttp2_session* session = nullptr;
  if (nghttp2_session_callbacks_new(&all) != 0) fail("no callbacks");
  nghttp2_session_callbacks_set_on_header_callback(all, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(all, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(all, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(all, Callbacks::on_close);
  nghttp2_session_callbacks_set_data_source_read_length_callback(all, Callbacks::most_of_frame);
  nghttp2_session_callbacks_set_on_frame_not_send_callback(all, Callbacks::on_not_sent);
  if (nghttp2_session_client_new(&session, all, this) != 0) fail("no session");
  nghttp2_session_callbacks_del(all);
  session_.reset(session);
  const uint32_t window =
      random().one_in(3) ? static_cast<uint32_t>(64 + random().below(4000)) : 65'535;
  const nghttp2_settings_entry setting{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
  if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, &setting, 1) != 0) fail("no settings");
  return true;
}

void Http2Client::submit(Stream stream,
                         const std::vector<std::pair<std::string, std::string>>& headers) {
  std::vector<nghttp2_nv> fields;
  for (const auto& [name, value] : headers) {
    const auto bytes = [](const std::string& text) {
      return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
    };
    fields.push_back({bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  nghttp2_data_provider provider{};
  provider.read_callback = Callbacks::read;
  const int32_t number =
      nghttp2_submit_request(session_.get(), nullptr, fields.data(), fields.size(),
                             stream.to_send.empty() ? nullptr : &provider, nullptr);
  if (number > 0) streams_.emplace(number, std::move(stream));  // none after a GOAWAY
}

// A request's text of HTTP/1.1, with or without its length.
void Http2Client::begin_request(Stream& stream, const std::string& text) {
  const size_t head_end = text.find("\r\n\r\n") + 4;
  const std::string_view head = std::string_view(text).substr(0, head_end - 2);
  const size_t method_end = head.find(' ');
  const size_t path_end = head.find(' ', method_end + 1);
  std::vector<std::pair<std::string, std::string>> headers = {
      {":method", std::string(head.substr(0, method_end))},
      {":scheme", "http"},
      {":path", std::string(head.substr(method_end + 1, path_end - method_end - 1))},
      {":authority", "test"}};
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t end = head.find("\r\n", at);
    const size_t colon = head.find(": ", at);
    const std::string name = lower(head.substr(at, colon - at));
    const bool says_length = name == "content-length" && random().one_in(2);
    if (name != "host" && name != "connection" && (name != "content-length" || says_length)) {
      headers.emplace_back(name, head.substr(colon + 2, end - colon - 2));
    }
    at = end + 2;
  }
  stream.to_send = text.substr(head_end);
  submit(std::move(stream), headers);
}

void Http2Client::begin_call(Stream& stream) {
  ++tally_.calls;
  stream.is_call = true;
  std::vector<float> values = some_request(stream.asked);
  stream.to_send = call_message(stream.asked.model, stream.asked.id, values);
  expect_reply(stream.asked, std::move(values));
  submit(std::move(stream), {{":method", "POST"},
                             {":scheme", "http"},
                             {":path", "/inference.GRPCInferenceService/ModelInfer"},
                             {":authority", "test"},
                             {"content-type", "application/grpc"},
                             {"te", "trailers"}});
}

void Http2Client::begin_stream() {
  ++tally_.histories;
  ++tally_.streams;
  Stream stream;
  if (random().one_in(8)) {
    const std::string text = some_document();
    begin_request(stream, text);
  } else if (random().one_in(3)) {
    begin_call(stream);
  } else {
    const std::string text = some_inference(stream.asked);
    begin_request(stream, text);
  }
}

// Behind the server's end there may be bytes to read.
bool Http2Client::send_output() {
  std::string output;
  const uint8_t* bytes = nullptr;
  ssize_t size = 0;
  while ((size = nghttp2_session_mem_send(session_.get(), &bytes)) > 0) {
    output.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  if (size < 0) fail("nghttp2: %s", nghttp2_strerror(static_cast<int>(size)));
  send_slowly(output);
  settle();
  if (wire_->server_reset || wire_->client_reset) return false;
  for (auto& [number, stream] : streams_) {
    const bool is_sent = stream.sent == stream.to_send.size();
    if (is_sent && stream.asked.sent_bytes == SIZE_MAX) stream.asked.sent_bytes = sent_bytes_;
  }
  return true;
}

void Http2Client::reset_some() {
  if (streams_.empty() || !random().one_in(40)) return;
  const auto some =
      std::next(streams_.begin(), static_cast<ptrdiff_t>(random().below(streams_.size())));
  (void)nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, some->first, NGHTTP2_CANCEL);
  streams_.erase(some);
}

// Of replies that are whole, and of streams that the server has ended without one.
void Http2Client::settle() {
  for (auto it = streams_.begin(); it != streams_.end();) {
    Stream& stream = it->second;
    if (stream.is_answered) {
      check_stream(stream);
    } else if (stream.is_closed) {
      ++tally_.streams_refused;
    }
    it = stream.is_answered || stream.is_closed ? streams_.erase(it) : std::next(it);
  }
}

void Http2Client::check_stream(Stream& stream) {
  int status = stream.status;
  std::string body = std::move(stream.body);
  if (stream.is_call) {
    if (status != 200 || stream.grpc_status < 0) fail("status %d of a call", status);
    status = http_status_of(stream.grpc_status);
    body = status == 200 ? as_text(body) : stream.grpc_message;
  } else if (!stream.coding.empty()) {
    body = test::inflate(body);
    ++tally_.compressed;
  }
  check(stream.asked, "HTTP/2   " + std::to_string(status), body);
}

bool Http2Client::turn() {
  reset_some();
  if (!send_output()) return false;
  if (random().one_in(200)) let_time_pass_ns(random().below(400 * kMs));
  if (random().one_in(tally_.large_one_in)) {
    reset_wire(*wire_);
    return false;
  }
  if (streams_.empty()) return true;
  const std::string more = read_wire(*wire_, time_ns() + kPatienceNs);
  if (more.empty()) {
    if (wire_->server_ended || wire_->is_over()) return false;
    fail("no reply and no end came for %zu streams; %zu bytes delivered, %zu wait", streams_.size(),
         wire_->delivered, wire_->to_server.size());
  }
  const ssize_t taken = nghttp2_session_mem_recv(
      session_.get(), reinterpret_cast<const uint8_t*>(more.data()), more.size());
  if (taken < 0) fail("nghttp2: %s", nghttp2_strerror(static_cast<int>(taken)));
  settle();
  return nghttp2_session_want_read(session_.get()) != 0 ||
         nghttp2_session_want_write(session_.get()) != 0;
}

void Http2Client::leave_connection() {
  // One connection that ends is one timeout, however many of its streams have no answer.
  for (auto& [number, stream] : streams_) {
    if (stream.asked.sent_bytes == SIZE_MAX) continue;
    asked_.push_back(std::move(stream.asked));
    break;
  }
  streams_.clear();
  leave();
  session_ = nullptr;
}

void Http2Client::run(size_t histories) {
  while (histories > 0) {
    if (wire_ == nullptr && !begin_connection()) return;
    bool goes_on = true;
    for (size_t more = 1 + random().below(kMostStreams); more > 0 && histories > 0; --more) {
      size_t in_flight = 0;
      for (const auto& [number, stream] : streams_) in_flight += stream.to_send.size();
      if (in_flight > kMostInFlight) break;
      begin_stream();
      --histories;
      if (random().one_in(3)) goes_on = goes_on && turn();
      if (!goes_on) break;
    }
    while (goes_on && !streams_.empty()) goes_on = turn();
    if (!goes_on && wire_->was_refused && random().one_in(2)) let_time_pass_ns(random().below(kMs));
    if (!goes_on || random().one_in(20)) leave_connection();
    if (random().one_in(10)) let_time_pass_ns(random().below(2 * kMs));
    if (random().one_in(300)) let_time_pass_ns(random().below(600 * kMs));  // idle too long
  }
  if (wire_ != nullptr) leave_connection();
}

}  // namespace lumen::sim
