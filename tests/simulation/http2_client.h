// Http2Client: a client of a simulated world that speaks HTTP/2: requests of REST, calls of gRPC,
// several at once on a connection, which it breaks off, resets and reads slowly. nghttp2 makes its
// frames; it checks each reply to the byte.
// Threads: a fiber. Memory: the heap. Errors: a reply that can't be right ends the world.
#pragma once

#include "simulation/client.h"

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace lumen::sim {

class Http2Client final : private SimClient {
 public:
  explicit Http2Client(Tally& tally) : SimClient(tally) { answers_in_order_ = false; }
  void run(size_t histories);

 private:
  struct Callbacks;
  struct EndSession {
    void operator()(nghttp2_session* session) const noexcept { nghttp2_session_del(session); }
  };
  struct Stream {
    Asked asked;
    bool is_call = false;  // of gRPC
    std::string to_send;
    size_t sent = 0;
    int status = 0;
    int grpc_status = -1;
    std::string grpc_message;
    std::string coding;
    std::string body;
    bool is_answered = false;  // its reply is whole
    bool is_closed = false;
  };

  [[nodiscard]] bool begin_connection();
  void begin_stream();
  void begin_request(Stream& stream, const std::string& text);
  void begin_call(Stream& stream);
  void submit(Stream stream, const std::vector<std::pair<std::string, std::string>>& headers);
  // False: the connection is over.
  [[nodiscard]] bool turn();
  [[nodiscard]] bool send_output();
  void reset_some();
  void settle();
  void check_stream(Stream& stream);
  void leave_connection();

  std::unique_ptr<nghttp2_session, EndSession> session_;
  std::map<int32_t, Stream> streams_;
};

}  // namespace lumen::sim
