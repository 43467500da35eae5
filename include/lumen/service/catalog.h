// Catalog: the served models, with the documents of each, as one snapshot that never changes and is
// replaced by the next: so models come and go while requests are served.
//
//   control plane (add, remove)                     a thread with requests
//     current = next            (release)             in its turn: look in its snapshot, hold, release
//     wake each thread                                at its turn's end:
//     wait until each has acknowledged  ◄───────────    snapshot = current               (acquire)
//     a model that left: nobody looks at it or          unless it holds requests of the model that leaves:
//       holds it; its instances go, then it does          acknowledged = current         (release), notify
//
// A look costs as much as reading: a thread keeps its snapshot for a turn, and counts the requests
// that hold a model in a table of its own. Not a lock or a shared count around each look: each
// would be written by all threads for each request. tests/spin/catalog.pml is the protocol,
// statement by statement.
//
// Threads: a Reader by its own thread; everything else on the control plane, by several threads.
// Memory: the heap, on the control plane. Errors: Status, and the catalog is as it was.
#pragma once

#include <lumen/base/cache_line.h>
#include <lumen/base/limits.h>
#include <lumen/base/result.h>
#include <lumen/models/model_repository.h>
#include <lumen/service/memory_need.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::engine {
class Engine;
}

namespace lumen::service {

// A model's documents for clients; rendered once for each snapshot that changes it.
struct ModelDocuments {
  std::string metadata;
  std::string ready;
  std::string config{};  // as Triton writes it; of a model that is ready
};

struct CatalogModel {
  std::shared_ptr<models::Model> model;
  std::shared_ptr<const ModelDocuments> documents;
  ModelNeed need;  // of memory
};

struct CatalogSnapshot {
  static constexpr uint32_t kNobody = UINT32_MAX;
  std::vector<CatalogModel> models;  // sorted by name, then version as a number
  uint32_t leaving = kNobody;        // the index of a model that was in the snapshot before

  // `version` empty: the highest. nullptr: no such model (or version).
  [[nodiscard]] const CatalogModel* find(std::string_view name,
                                         std::string_view version) const noexcept;
};

// Why a request for a model is refused. `version` as it was asked for; names may be any bytes of a
// client.
[[nodiscard]] Status model_not_found(std::string_view name, std::string_view version) noexcept;
[[nodiscard]] Status model_unavailable(const models::Model& model) noexcept;

class Catalog {
 public:
  // A thread's view. The result of now() is used within the turn; a model that is held stays until
  // release().
  class Reader {
   public:
    [[nodiscard]] const CatalogSnapshot& now() const noexcept { return *snapshot_; }
    void hold(const models::Model& model) noexcept { ++held_[model.index()]; }
    void release(const models::Model& model) noexcept { --held_[model.index()]; }
    // When nothing of now() is used any more; before the thread sleeps.
    void end_turn() noexcept;
    // The thread holds nothing and ends. No other call comes.
    void close() noexcept;

   private:
    friend class Catalog;
    Reader(const std::atomic<const CatalogSnapshot*>& current, std::function<void()> wake);
    [[nodiscard]] bool is_closed() const noexcept;
    void wait_for(const CatalogSnapshot* snapshot) const noexcept;

    const std::atomic<const CatalogSnapshot*>& current_;
    const std::function<void()> wake_;
    const CatalogSnapshot* snapshot_;
    const CatalogSnapshot* told_;                      // that it has acknowledged
    std::array<uint32_t, limits::kMaxModels> held_{};  // requests by Model::index()
    alignas(kFalseSharingRange) std::atomic<const CatalogSnapshot*> acknowledged_;
  };

  // `versions`: of the same name, ascending.
  using Describe = std::function<ModelDocuments(const models::Model& model,
                                                std::span<const std::string> versions)>;
  // Told before a model is in a snapshot, so that its index means it from then on.
  using OnAdded = std::function<void(const models::Model& model)>;
  // Told once a model has left: no request of it is anywhere.
  using OnRemoved = OnAdded;

  // Begins with the models of the repository.
  Catalog(
      models::ModelRepository& repository, engine::Engine& engine, Describe describe,
      OnAdded on_added = [](const models::Model&) {},
      OnRemoved on_removed = [](const models::Model&) {});
  Catalog(const Catalog&) = delete;
  Catalog& operator=(const Catalog&) = delete;

  // Before the threads begin. `wake`: makes the thread end a turn soon.
  [[nodiscard]] Reader& add_reader(std::function<void()> wake);

  // Loads a version from the repository, makes its instances, and only its, and serves it.
  [[nodiscard]] Status add(std::string_view name, std::string_view version);
  // From now on no request finds it; returns when those that had found it are answered and it is
  // gone. `version` empty: the highest.
  [[nodiscard]] Status remove(std::string_view name, std::string_view version);
  // As it is now. Any thread of the control plane; its models live as long as it is kept.
  [[nodiscard]] std::shared_ptr<const CatalogSnapshot> snapshot() const;
  // Returns once each thread has ended a turn that it had begun before: the things that it had
  // found then are not used any more, and its writes are seen.
  void wait_for_turns();
  // Refuses new requests; waits for those under way. After the threads have closed their readers.
  void close();

 private:
  void publish(const std::shared_ptr<CatalogSnapshot>& next);
  void describe_all(CatalogSnapshot& snapshot, std::string_view name) const;

  models::ModelRepository& repository_;
  engine::Engine& engine_;
  const Describe describe_;
  const OnAdded on_added_;
  const OnRemoved on_removed_;
  std::mutex mutex_;  // of changes: one at a time
  bool is_closed_ = false;
  std::vector<std::unique_ptr<Reader>> readers_;
  mutable std::mutex snapshot_mutex_;  // of the pointer below, for the control plane
  std::shared_ptr<const CatalogSnapshot> snapshot_;
  alignas(kFalseSharingRange) std::atomic<const CatalogSnapshot*> current_;
};

}  // namespace lumen::service
