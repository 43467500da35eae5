// Readiness: whether a server wants requests, as its health endpoints tell balancers and probes.
// Threads: begin_leaving() by any; the rest by readers of the catalog. Memory: none. Errors: the
// reason as a Status.
#pragma once

#include <lumen/base/result.h>
#include <lumen/service/catalog.h>
#include <lumen/service/intake.h>

#include <atomic>

namespace lumen::service {

class Readiness {
 public:
  // `needs_all`: not ready while a version of the catalog can't serve.
  explicit Readiness(bool needs_all) noexcept : needs_all_(needs_all) {}
  // The server serves on, but is not ready any more.
  void begin_leaving() noexcept {
    is_leaving_.store(true, std::memory_order_relaxed);  // relaxed: nothing else is told by it
  }

  [[nodiscard]] bool is_ready(const CatalogSnapshot& now) const noexcept {
    // relaxed: nothing else is told by it
    return !is_leaving_.load(std::memory_order_relaxed) && (!needs_all_ || now.unready == nullptr);
  }
  // Why is_ready() is false.
  [[nodiscard]] Status reason(const CatalogSnapshot& now) const noexcept {
    const bool is_of_model = needs_all_ && now.unready != nullptr &&
                             !is_leaving_.load(std::memory_order_relaxed);  // relaxed: as above
    return is_of_model ? model_unavailable(*now.unready) : shutting_down();
  }

 private:
  const bool needs_all_;
  std::atomic<bool> is_leaving_{false};
};

}  // namespace lumen::service
