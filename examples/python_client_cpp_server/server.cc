// The server inside a C++ program, reached over the shared-memory bus: `client.py` beside it sends
// NumPy arrays that the model reads where they lie. `example_python_client_cpp_server MODELS [BUS]`
// serves until its input ends.
// Threads: main; the server makes its own. Memory: control plane. Errors: printed, exit status 1.
#include <lumen/backends/built_in.h>
#include <lumen/server/server.h>

#include <unistd.h>

#include <cstdio>
#include <string>

int main(int count, char** words) {
  lumen::server::ServerOptions options;
  options.http_address = lumen::server::kOff;
  options.unix_path = lumen::server::kOff;
  options.model_repository = count > 1 ? words[1] : "models";
  options.bus_path = count > 2 ? words[2] : "/tmp/lumen-example-" + std::to_string(getpid());
  // The I/O thread runs the models itself: no other thread has to wake for a request.
  options.engine.queue_type = lumen::models::QueueType::kInline;
  auto started = lumen::server::Server::start(options, lumen::backends::built_in());
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", std::string(started.status().message()).c_str());
    return 1;
  }
  std::printf("serving at bus:%s\n", (*started)->bus_path().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  (*started)->drain();  // answers the requests in flight
  return 0;
}
