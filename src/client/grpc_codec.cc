// See the header.
#include "client/grpc_codec.h"

#include <lumen/wire/grpc_infer.h>
#include <lumen/wire/status_map.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace lumen::client {
namespace {

// The server may send so much before it hears of us: a bench is not to measure its own windows.
constexpr uint32_t kWindowBytes = uint32_t{1} << 30;

nghttp2_nv field(std::string_view name, std::string_view value) noexcept {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

int http_status_of(uint32_t grpc_status) noexcept {
  for (auto code = Code::kOk; code <= Code::kDeadlineExceeded;
       code = static_cast<Code>(static_cast<int>(code) + 1)) {
    if (wire::grpc_status(code) == grpc_status) return wire::http_status(code);
  }
  return 500;
}

}  // namespace

struct GrpcCodec::Callbacks {
  static GrpcCodec& of(void* self) noexcept { return *static_cast<GrpcCodec*>(self); }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t,
                       void* self) {
    if (frame->hd.stream_id != of(self).stream_) return 0;
    of(self).on_header({reinterpret_cast<const char*>(name), name_bytes},
                       {reinterpret_cast<const char*>(value), value_bytes});
    return 0;
  }
  static int on_data(nghttp2_session*, uint8_t, int32_t stream, const uint8_t* data, size_t bytes,
                     void* self) {
    if (stream != of(self).stream_) return 0;
    of(self).reply_bytes_ += bytes;
    if (of(self).keeps_message_) of(self).reply_.append(reinterpret_cast<const char*>(data), bytes);
    return 0;
  }
  static int on_close(nghttp2_session*, int32_t stream, uint32_t error, void* self) {
    GrpcCodec& codec = of(self);
    if (stream != codec.stream_) return 0;
    codec.is_running_ = false;
    if (error != NGHTTP2_NO_ERROR) codec.fail(nghttp2_http2_strerror(error));
    return 0;
  }
  // As gRPC's own clients do it: a frame is as large as the server and the windows allow.
  static ssize_t most_of_frame(nghttp2_session*, uint8_t, int32_t, int32_t session_window,
                               int32_t stream_window, uint32_t most, void*) {
    return std::min<ssize_t>(std::min(session_window, stream_window), most);
  }
  static ssize_t read(nghttp2_session*, int32_t, uint8_t* room, size_t most, uint32_t* flags,
                      nghttp2_data_source*, void* self) {
    std::string_view& left = of(self).request_;
    const size_t bytes = left.copy(reinterpret_cast<char*>(room), most);
    left.remove_prefix(bytes);
    if (left.empty()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(bytes);
  }
};

GrpcCodec::GrpcCodec(const Target& target, bool keeps_message)
    : target_(&target), keeps_message_(keeps_message) {}

void GrpcCodec::open() noexcept {
  nghttp2_session_callbacks* all = nullptr;
  nghttp2_session* session = nullptr;
  bool is_made = nghttp2_session_callbacks_new(&all) == 0;
  if (is_made) {
    nghttp2_session_callbacks_set_on_header_callback(all, Callbacks::on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(all, Callbacks::on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(all, Callbacks::on_close);
    nghttp2_session_callbacks_set_data_source_read_length_callback(all, Callbacks::most_of_frame);
    is_made = nghttp2_session_client_new(&session, all, this) == 0;
    nghttp2_session_callbacks_del(all);
  }
  session_.reset(session);
  const std::array settings = {
      nghttp2_settings_entry{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
      nghttp2_settings_entry{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindowBytes}};
  is_made =
      is_made &&
      nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings.data(), settings.size()) == 0 &&
      nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0,
                                            static_cast<int32_t>(kWindowBytes)) == 0;
  if (!is_made) fail("no memory for a session of HTTP/2");
}

void GrpcCodec::close() noexcept {
  session_.reset();
  output_.clear();
  output_sent_ = 0;
  is_running_ = false;
}

void GrpcCodec::begin(std::string_view method, std::string_view message) noexcept {
  error_.clear();
  status_ = 0;
  status_text_.clear();
  reply_.clear();
  reply_bytes_ = 0;
  request_ = message;
  path_ = "/inference.GRPCInferenceService/";
  path_ += method;
  if (session_ == nullptr) open();
  if (session_ == nullptr) return;
  const std::array head = {field(":method", "POST"),
                           field(":scheme", "http"),
                           field(":path", path_),
                           field(":authority", target_->host),
                           field("content-type", "application/grpc"),
                           field("te", "trailers"),
                           field("authorization", target_->authorization)};
  const size_t count = target_->authorization.empty() ? head.size() - 1 : head.size();
  nghttp2_data_provider provider{};
  provider.read_callback = Callbacks::read;
  stream_ = nghttp2_submit_request(session_.get(), nullptr, head.data(), count, &provider, nullptr);
  is_running_ = stream_ > 0;
  if (!is_running_) fail(nghttp2_strerror(stream_));
}

std::string_view GrpcCodec::output() noexcept {
  if (output_sent_ == output_.size()) {
    output_.clear();
    output_sent_ = 0;
  }
  const uint8_t* bytes = nullptr;
  while (session_ != nullptr && output_.size() < size_t{64} << 10) {
    const ssize_t size = nghttp2_session_mem_send(session_.get(), &bytes);
    if (size < 0) fail(nghttp2_strerror(static_cast<int>(size)));
    if (size <= 0) break;
    output_.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
  return std::string_view(output_).substr(output_sent_);
}

GrpcCodec::Progress GrpcCodec::receive(std::string_view bytes) noexcept {
  const ssize_t taken =
      session_ == nullptr
          ? -1
          : nghttp2_session_mem_recv(session_.get(), reinterpret_cast<const uint8_t*>(bytes.data()),
                                     bytes.size());
  if (taken < 0 && error_.empty()) fail("the bytes received are not HTTP/2's");
  if (!error_.empty()) return Progress::kBroken;
  if (is_running_) {
    const bool goes_on = nghttp2_session_want_read(session_.get()) != 0;
    if (!goes_on) fail("the server ends the connection");
    return goes_on ? Progress::kPending : Progress::kBroken;
  }
  if (status_ == 0) fail("a reply without grpc-status");
  return status_ == 0 ? Progress::kBroken : Progress::kReplied;
}

bool GrpcCodec::stays_open(std::string_view bytes) noexcept {
  return session_ != nullptr &&
         nghttp2_session_mem_recv(session_.get(), reinterpret_cast<const uint8_t*>(bytes.data()),
                                  bytes.size()) >= 0 &&
         nghttp2_session_want_read(session_.get()) != 0;
}

void GrpcCodec::on_header(std::string_view name, std::string_view value) {
  if (name == ":status" && value != "200") {
    // An answer of HTTP, and of no call.
    (void)std::from_chars(value.data(), value.data() + value.size(), status_);
  } else if (name == "grpc-status") {
    uint32_t number = 0;
    (void)std::from_chars(value.data(), value.data() + value.size(), number);
    status_ = http_status_of(number);
  } else if (name == "grpc-message") {
    status_text_ = value;
  }
}

void GrpcCodec::fail(std::string_view reason) noexcept {
  if (error_.empty()) error_ = reason;
}

std::string_view GrpcCodec::message() const noexcept {
  const std::string_view all(reply_);
  return all.substr(std::min(all.size(), wire::kGrpcPrefixBytes));
}

}  // namespace lumen::client
