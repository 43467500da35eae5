// What a connection says about the server itself: metrics, and the engine's configuration.
// I/O thread only; what may take long is the control thread's and the metrics thread's.
#include "serve/connection.h"

#include "serve/io_thread.h"

namespace lumen::serve {

void Connection::begin_engine() noexcept {
  if (!is_local_) {
    // Who can reach the port may use the models; who may change the server is a matter of the
    // socket file's owner and mode.
    respond_error(Status::error(Code::kForbidden,
                                "/v2/lumen/engine answers on the unix socket only; see --unix"));
    return;
  }
  if (context_->head.method != wire::HttpMethod::kPost) {
    ask_control({});
    return;
  }
  if (context_->head.framing == wire::BodyFraming::kNone || context_->head.content_length == 0) {
    if (context_->head.framing != wire::BodyFraming::kChunked) {
      respond_error(Status::error(Code::kInvalidArgument,
                                  "a change needs a body: the \"engine\" section of config.json"));
      return;
    }
  }
  begin_body();
}

// The control thread answers by on_infer_done(), as the engine does.
void Connection::ask_control(std::string_view body) noexcept {
  timeout_.unlink();
  state_ = State::kRunning;
  io_.ask_control(*context_, body, io_.loop().peer_credentials(stream_));
}

// So does the metrics thread.
void Connection::answer_metrics() noexcept {
  timeout_.unlink();
  state_ = State::kRunning;
  io_.ask_metrics(*context_);
}

}  // namespace lumen::serve
