// Registry: the connections of a listener, their memory, and how much more may be taken.
// Threads: any. Memory: control plane. Errors: a text that says which limit is reached.
#pragma once

#include <lumen/bus/listener.h>
#include <lumen/bus/observer.h>
#include <lumen/bus/stream_memory.h>

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lumen::bus {

class Registry : public std::enable_shared_from_this<Registry> {
 public:
  explicit Registry(const ListenerOptions& options) : options_(options) {}

  // A ring as observers see it.
  struct Ring {
    std::shared_ptr<PublisherMemory> memory;
    std::shared_ptr<CursorMemory> cursor;
    bool they_publish = false;
    bool is_lapped = false;
  };
  struct Entry {
    PeerCredentials credentials{};
    uint64_t bytes = 0;
    std::vector<Ring> rings;
  };

  // Empty: there is room for one more. Else why not, for the process that asks.
  [[nodiscard]] std::string refuses(const PeerCredentials& credentials, uint64_t bytes) const;
  // Counted until the lease is let go.
  [[nodiscard]] std::shared_ptr<const void> add(Entry entry);
  // Each with its rows behind it.
  [[nodiscard]] std::vector<std::vector<uint64_t>> figures() const;
  [[nodiscard]] uint32_t connections() const;
  [[nodiscard]] uint64_t bytes() const;

 private:
  void remove(uint64_t number);

  const ListenerOptions options_;
  mutable std::mutex mutex_;
  uint64_t next_number_ = 0;
  std::vector<std::pair<uint64_t, Entry>> entries_;
};

}  // namespace lumen::bus
