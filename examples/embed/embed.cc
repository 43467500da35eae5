// The server inside a program of one's own: it starts, asks itself over the loopback, changes its
// engine while it serves, and drains. `example_embed MODELS`.
// Threads: main; the server makes its own. Memory: control plane. Errors: printed, exit status 1.
#include <lumen/backends/built_in.h>
#include <lumen/net/socket.h>
#include <lumen/server/server.h>

#include <netdb.h>
#include <sys/socket.h>

#include <cstdio>
#include <string>

namespace {

// One HTTP request; the server's bytes until it closes the connection.
std::string ask(const std::string& address, const std::string& request) {
  const auto parsed = lumen::net::parse_tcp_address(address);
  addrinfo* found = nullptr;
  if (!parsed.ok() || getaddrinfo(parsed->host.c_str(), std::to_string(parsed->port).c_str(),
                                  nullptr, &found) != 0) {
    return {};
  }
  const lumen::UniqueFd client(socket(found->ai_family, SOCK_STREAM, 0));
  const bool connected = connect(client.get(), found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  if (!connected || send(client.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return {};
  std::string reply;
  char piece[4096];
  for (ssize_t got = 0; (got = recv(client.get(), piece, sizeof(piece), 0)) > 0;) {
    reply.append(piece, static_cast<size_t>(got));
  }
  return reply;
}

}  // namespace

int main(int count, char** words) {
  lumen::server::ServerOptions options;
  options.http_address = "127.0.0.1:0";  // the kernel chooses the port
  options.unix_path = lumen::server::kOff;
  options.model_repository = count > 1 ? words[1] : "models";
  auto started = lumen::server::Server::start(
      options, lumen::backends::built_in(), [](lumen::server::LogLevel, std::string_view text) {
        std::printf("server: %.*s\n", static_cast<int>(text.size()), text.data());
      });
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", std::string(started.status().message()).c_str());
    return 1;
  }
  lumen::server::Server& server = **started;
  const lumen::models::Model* model = server.models().find("identity", "");
  if (model == nullptr || model->state() != lumen::models::ModelState::kReady) {
    std::printf("model identity is not ready: %s\n", model ? model->reason().c_str() : "not there");
    return count > 1 ? 0 : 1;  // a build without a backend is none of this program's faults
  }

  const std::string body =
      R"({"inputs":[{"name":"input","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]})";
  const std::string request =
      "POST /v2/models/identity/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body;
  std::string reply = ask(server.http_address(), request);
  std::printf("%s\n\n", reply.c_str());
  // The same server, with the models run by its I/O thread; no request would be lost meanwhile.
  lumen::engine::EngineConfig config = server.engine_config();
  config.queue_type = lumen::models::QueueType::kInline;
  if (!server.reconfigure(config).ok()) return 1;
  const std::string after = ask(server.http_address(), request);
  server.drain();
  const bool same = after.substr(after.find("\r\n\r\n")) == reply.substr(reply.find("\r\n\r\n"));
  std::printf("inline: %s\n", same ? "the same answer" : after.c_str());
  return same && reply.starts_with("HTTP/1.1 200") ? 0 : 1;
}
