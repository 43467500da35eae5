// NvidiaFigures: load and memory of NVIDIA's devices for /metrics, by the names that Triton gives
// them, which perf_analyzer reads. From the driver's own library, where the machine has it.
// Threads: one. Memory: the heap; the library stays loaded. Errors: a figure that the driver does
// not give is left out; without the driver there are none.
// Interface: NVML, its calls of version 2 where there are two.
#pragma once

#include <lumen/telemetry/prometheus.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lumen::server {

class NvidiaFigures {
 public:
  // The most devices that are told of; a machine has 16 at most.
  static constexpr uint32_t kMostDevices = 64;

  NvidiaFigures();
  ~NvidiaFigures();
  NvidiaFigures(const NvidiaFigures&) = delete;
  NvidiaFigures& operator=(const NvidiaFigures&) = delete;

  // As they are now, one name behind the other; until the next read().
  [[nodiscard]] std::span<const telemetry::PrometheusFigure> read();

 private:
  struct Library;  // its functions
  struct Device {
    void* handle = nullptr;
    std::string uuid;
    std::array<telemetry::PrometheusLabel, 1> labels{};
  };

  void find_devices();

  std::unique_ptr<Library> library_;  // nullptr: none
  std::vector<Device> devices_;
  std::vector<telemetry::PrometheusFigure> figures_;
};

}  // namespace lumen::server
