// Recordings: the control plane's side of `lumen record`. Its client begins a recording, asks for
// its state at least once in kKeepNs, ends it, reads its rows and drops it; the protocol is
// docs/formats/recording.md. The rows of a client that does not ask any more are forgotten.
// Threads: one. Memory: the heap. Errors: by the status of the job.
#pragma once

#include <lumen/server/server.h>
#include <lumen/service/catalog.h>
#include <lumen/service/job.h>
#include <lumen/service/row_sampler.h>

#include <cstdint>
#include <string>

namespace lumen::server {

class Recordings {
 public:
  // A client asks every half second; it may be stopped in a terminal for a while.
  static constexpr uint64_t kKeepNs = 10'000'000'000;

  // `sampler`: nullptr where the settings forbid recordings.
  Recordings(const service::Catalog& catalog, service::RowSampler* sampler, Report report);

  // Answers the job.
  void handle(service::Job& job);
  // When expire() is to be called; UINT64_MAX: not at all.
  [[nodiscard]] uint64_t expires_ns() const noexcept { return expires_ns_; }
  void expire();

 private:
  struct Request;
  [[nodiscard]] Status answer(service::Job& job);
  [[nodiscard]] Status begin(const Request& request, const service::Job& job);
  [[nodiscard]] Status answer_row(uint32_t number, service::Job& job);
  void end();
  void drop();
  [[nodiscard]] std::string state() const;

  const service::Catalog& catalog_;
  service::RowSampler* const sampler_;
  const Report report_;
  std::string name_;  // of the recorded model and its version, for the log
  uint32_t rows_ = 0;
  uint64_t expires_ns_ = UINT64_MAX;
};

}  // namespace lumen::server
