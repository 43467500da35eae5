// What a service manager such as systemd gives a server that it starts, and wants to hear of it:
// sockets that listen already, by sd_listen_fds(3), and a datagram socket for notices, by
// sd_notify(3). Both protocols are stable and need no library.
// Threads: main. Memory: control plane. Errors: a Status that names the socket and the fix.
#pragma once

#include <lumen/base/result.h>
#include <lumen/net/socket.h>

#include <string>
#include <string_view>
#include <vector>

// From $LISTEN_FDS, where $LISTEN_PID is this process; none without. They are closed in children
// from now on, and the variables are taken away. Refused: one that is no stream socket that
// listens, more than two of TCP, more than one unix socket.
[[nodiscard]] lumen::Result<std::vector<lumen::net::ListeningSocket>> take_listening_sockets();

// Notices to $NOTIFY_SOCKET. Without one, and where the manager does not listen, nothing is sent:
// a server does not end for that.
class ServiceManager {
 public:
  ServiceManager();  // takes the variable away: children are not to notify

  void ready() const noexcept { send("READY=1"); }
  void reloading() const noexcept { send("RELOADING=1"); }
  void stopping() const noexcept { send("STOPPING=1"); }

 private:
  void send(std::string_view state) const noexcept;

  std::string path_;  // empty: none; an abstract name begins with '@'
};
