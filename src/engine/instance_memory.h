// InstanceMemory: the memory of instances: the growth of the process's anonymous memory while they
// are made. Several are made at once, and the kernel tells only the sum of the whole process. So
// the growth between two moments at which a making begins or ends is split among those that are
// under way, by their weights: the sum is right, and models that are equal get equal parts.
//
// A first run is measured as a making is, for a backend puts off work to it. The process's memory
// for other causes, as requests that run meanwhile, counts too.
// Threads: begin() and the end of a Making from any thread. Memory: a few words for each making.
// Errors: memory that can't be read counts as none.
#pragma once

#include <lumen/base/process_memory.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace lumen::engine {

class InstanceMemory {
 public:
  using Read = std::function<uint64_t()>;

  explicit InstanceMemory(Read read = anonymous_bytes) : read_(std::move(read)) {}
  InstanceMemory(const InstanceMemory&) = delete;
  InstanceMemory& operator=(const InstanceMemory&) = delete;

  // Of one instance, from its construction until end().
  class Making {
   public:
    // `weight`: beside those that are under way with it; the bytes of the model's file, say.
    explicit Making(InstanceMemory& memory, uint64_t weight = 1)
        : memory_(memory), weight_(weight == 0 ? 1 : weight) {
      memory_.begin(*this);
    }
    ~Making() { (void)end(); }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;
    // Its part, 0 where the process has shrunk. Idempotent.
    uint64_t end();

   private:
    friend class InstanceMemory;
    InstanceMemory& memory_;
    const uint64_t weight_;
    int64_t bytes_ = 0;
    bool is_under_way_ = true;
  };

 private:
  void begin(Making& making);
  void end(Making& making);
  void split_growth();

  const Read read_;
  std::mutex mutex_;
  uint64_t seen_ = 0;                 // the last reading
  std::vector<Making*> under_way_{};  // the oldest first
};

}  // namespace lumen::engine
