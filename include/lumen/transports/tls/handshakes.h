// Handshakes: the thread that takes the steps of handshakes. One step (a signature by RSA) may take
// a millisecond, which would hold up the requests of an I/O thread; and OpenSSL allocates in them.
// Threads: submit() from any I/O thread, lock-free; all else by its owner. Memory: OpenSSL's.
// Errors: a job's progress; `warn` is told of failed handshakes, once a second at most.
#pragma once

#include <lumen/base/job_stack.h>
#include <lumen/transports/tls/certificates.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>

namespace lumen::tls {

class HandshakeJob {
 public:
  HandshakeJob* next = nullptr;

  // By the thread. Returns OpenSSL's code of the error that ended the handshake; 0: there is none.
  virtual unsigned long run(const Certificates& certificates) noexcept = 0;

 protected:
  ~HandshakeJob() = default;
};

class Handshakes {
 public:
  using Warn = std::function<void(std::string_view text)>;

  // `certificates` outlive it. `warn`: is told of failed handshakes by its thread; may be empty.
  Handshakes(const Certificates& certificates, Warn warn);
  ~Handshakes() { join(); }
  Handshakes(const Handshakes&) = delete;
  Handshakes& operator=(const Handshakes&) = delete;

  void submit(HandshakeJob& job) noexcept { jobs_.push(job); }
  // After the I/O threads have ended. Idempotent.
  void join();

 private:
  void run() noexcept;
  void tell(unsigned long error) noexcept;

  const Certificates& certificates_;
  const Warn warn_;
  JobStack<HandshakeJob> jobs_;
  uint64_t told_ns_ = 0;          // the thread's: when the last line was written
  uint64_t untold_failures_ = 0;  // since then
  std::thread thread_;
};

}  // namespace lumen::tls
