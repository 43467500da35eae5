// Listeners: the sockets of a server, from its options: TCP for HTTP and gRPC, a unix socket, the
// bus; its own, or some that listened already (socket activation).
// Threads: control. Memory: control plane. Errors: a Status with the address and the reason.
#pragma once

#include "server/io_thread.h"

#include <lumen/base/unix_socket.h>
#include <lumen/bus/listener.h>
#include <lumen/server/options.h>
#include <lumen/server/server.h>

#include <memory>
#include <string>
#include <vector>

namespace lumen::server {

class Listeners {
 public:
  Status open(const ServerOptions& options, const Report& report);
  // Those of I/O thread `thread`; once for each. Its own of each TCP address, and duplicates of
  // those that all threads accept from.
  [[nodiscard]] Result<std::vector<ListenerSocket>> sockets_of(uint32_t thread);
  // No client comes any more, once the I/O threads have closed theirs. Not the bus.
  void close() noexcept;
  void close_bus() noexcept { bus_.reset(); }

  // Empty: there is none.
  [[nodiscard]] const std::string& http_address() const noexcept { return http_address_; }
  [[nodiscard]] const std::string& grpc_address() const noexcept { return grpc_address_; }
  [[nodiscard]] const std::string& unix_path() const noexcept { return unix_path_; }
  [[nodiscard]] const std::string& bus_path() const noexcept { return bus_path_; }
  // Why there is no unix socket at the path that nobody asked for.
  [[nodiscard]] const std::string& unix_note() const noexcept { return unix_note_; }
  [[nodiscard]] bus::Listener* bus() const noexcept { return bus_.get(); }

 private:
  // A socket that all I/O threads accept from.
  struct Shared {
    UniqueFd fd;
    bool is_local;
  };

  Status take(const net::ListeningSocket& socket);
  Status open_tcp(const ServerOptions& options, const std::string& wanted, std::string& got);
  Status open_bus(const ServerOptions& options);
  Status open_unix(const ServerOptions& options, const Report& report);

  // Until the I/O threads have them: one for each thread, address by address.
  std::vector<UniqueFd> tcp_;
  uint32_t threads_ = 1;
  std::vector<Shared> given_;
  UnixListener unix_;
  std::unique_ptr<bus::Listener> bus_;
  std::string http_address_;
  std::string grpc_address_;
  std::string unix_path_;
  std::string unix_note_;
  std::string bus_path_;
};

}  // namespace lumen::server
