// Backends: those that a server has, by name. A model's config.json chooses one ("backend"); a
// model that names none gets the first.
// Threads: add() before it is used; find() any; register_memory() and unregister_memory() by
// several threads at any time, use() on the control plane. Memory: the heap.
// Errors: an unknown name gives a Status with the names that are known and the nearest.
#pragma once

#include <lumen/base/result.h>
#include <lumen/models/backend.h>

#include <concepts>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::models {

class Backends {
 public:
  // A backend and the engine's data of it.
  struct Entry {
    std::unique_ptr<Backend> backend;
    // Held by a thread that loads the model or makes an instance, unless the backend does these in
    // parallel.
    std::mutex making;
    bool is_in_use = false;  // has a model: from then on it is told of memory
  };

  Backends() = default;
  // Not explicit: one backend is a list of one.
  template <std::derived_from<Backend> One>
  Backends(std::unique_ptr<One> only) {
    add(std::move(only));
  }
  Backends(std::vector<std::unique_ptr<Backend>> all) {
    for (auto& backend : all) add(std::move(backend));
  }

  [[nodiscard]] std::span<const std::unique_ptr<Entry>> entries() const noexcept {
    return entries_;
  }
  // No two have the same name.
  void add(std::unique_ptr<Backend> backend);
  // Empty: the first one. kUnsupported when no backend has that name.
  [[nodiscard]] Result<Entry*> find(std::string_view name) const;
  // Before a backend's first model is loaded: it is offered the regions that are registered
  // already.
  [[nodiscard]] Status use(Entry& entry);

  // For every backend in use, now or later. A region that one refuses is registered with none.
  [[nodiscard]] Status register_memory(std::span<std::byte> region);
  void unregister_memory(std::span<std::byte> region) noexcept;

  [[nodiscard]] bool loads_in_parallel() const noexcept;  // any of them
  // Those that read graphs and that this machine can use: "auto" chooses among them.
  [[nodiscard]] std::vector<Entry*> available() const;
  [[nodiscard]] std::string description() const;  // of those, for the banner

 private:
  std::vector<std::unique_ptr<Entry>> entries_;
  // Behind a pointer, so that Backends can be moved into the repository.
  std::unique_ptr<std::mutex> memory_mutex_ = std::make_unique<std::mutex>();
  std::vector<std::span<std::byte>> regions_;
};

}  // namespace lumen::models
