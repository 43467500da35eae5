// Job: a client's request to the control plane (models, shared memory, settings, metrics): its
// answer may lock, allocate and take long, so another thread makes it while the client's goes on.
// Threads: between submit() and on_done() the job is that thread's. Memory: its owner's. Errors:
// its status.
#pragma once

#include <lumen/base/allocator.h>
#include <lumen/base/result.h>

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace lumen::service {

struct Job;

// The text of a job for metrics that are wanted as OpenMetrics or as messages; empty: as
// Prometheus' own text.
inline constexpr std::string_view kOpenMetrics = "openmetrics";
inline constexpr std::string_view kMetricsProtobuf = "protobuf";

// The form of a job's text and document where they are no JSON. By the thread that answers the job.
class JobForm {
 public:
  // The client's message, in job.text, becomes the JSON and the names that the answer is made from.
  [[nodiscard]] virtual Status read(Job& job) const = 0;
  // job.document, JSON, becomes the client's message.
  [[nodiscard]] virtual Status write(Job& job) const = 0;

 protected:
  ~JobForm() = default;
};

class JobOwner {
 public:
  // The job is answered. Called on any thread; must not wait.
  virtual void on_done(Job& job) noexcept = 0;

 protected:
  ~JobOwner() = default;
};

struct Job {
  struct Peer {
    pid_t pid;
    uid_t uid;
  };
  JobOwner* owner = nullptr;
  Allocator* memory = nullptr;  // for the answer
  enum class Topic : uint8_t {
    kEngine,
    kRecording,
    kRepositoryIndex,
    kLoadModel,
    kUnloadModel,
    kRegions,
    kRegisterRegion,
    kUnregisterRegion,
    kTrace,
    kLogging,
    kModelConfig,
    kStatistics,
  };
  Topic topic = Topic::kEngine;
  std::string_view subject{};     // the name of a model or a region; empty: all
  std::string_view version{};     // of the model; empty: the highest
  std::string_view text{};        // the change; empty: only to be told
  std::optional<Peer> by{};       // the client that asks, if the kernel knows it
  const JobForm* form = nullptr;  // nullptr: JSON

  Status status{};
  std::string_view document{};                         // the answer, if that is ok
  std::string_view content_type = "application/json";  // of the answer
  Job* next = nullptr;                                 // among those that wait

  // Copies the answer into the job's memory; the status says so where it does not fit.
  void answer(std::string_view reply) noexcept {
    const std::span<char> room = memory->allocate_array<char>(reply.size());
    if (room.size() == reply.size()) {
      document = {room.data(), reply.copy(room.data(), room.size())};
    } else {
      status = Status::error(
          Code::kTooLarge, "the answer, %zu bytes, does not fit a request's memory", reply.size());
    }
  }
};

class JobThread {
 public:
  // From any thread.
  virtual void submit(Job& job) noexcept = 0;

 protected:
  ~JobThread() = default;
};

}  // namespace lumen::service
