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
#include <lumen/service/shared_region.h>

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
  std::string config{};         // as Triton writes it; of a model that is ready
  std::string grpc_metadata{};  // ModelMetadataResponse; of a model that is ready
};

struct CatalogModel {
  std::shared_ptr<models::Model> model;
  std::shared_ptr<const ModelDocuments> documents;
  ModelNeed need;  // of memory
};

struct CatalogSnapshot {
  static constexpr uint32_t kNobody = UINT32_MAX;
  std::vector<CatalogModel> models;  // sorted by name, then version as a number
  std::vector<std::shared_ptr<const SharedRegion>> regions{};  // sorted by name
  // The first of them that can't serve: its state does not change while it is here. nullptr: none.
  const models::Model* unready = nullptr;
  // Of a model or region that was in the snapshot before: its place in a reader's table.
  uint32_t leaving = kNobody;

  // `version` empty: the highest that is ready, or the highest. nullptr: no such model (or
  // version).
  [[nodiscard]] const CatalogModel* find(std::string_view name,
                                         std::string_view version) const noexcept;
  // At its place in the list.
  void insert(const CatalogModel& entry);
  // nullptr: no such region.
  [[nodiscard]] const SharedRegion* find_region(std::string_view name) const noexcept;
};

// Why a request for a model is refused. `version` as it was asked for; names may be any bytes of a
// client.
[[nodiscard]] Status model_not_found(std::string_view name, std::string_view version) noexcept;
[[nodiscard]] Status model_unavailable(const models::Model& model) noexcept;
[[nodiscard]] Status region_not_found(std::string_view name) noexcept;

class Catalog {
 public:
  // A thread's view. The result of now() is used within the turn; a model that is held stays until
  // release().
  class Reader {
   public:
    [[nodiscard]] const CatalogSnapshot& now() const noexcept { return *snapshot_; }
    void hold(const models::Model& model) noexcept { ++held_[model.index()]; }
    void release(const models::Model& model) noexcept { --held_[model.index()]; }
    void hold(const SharedRegion& region) noexcept { ++held_[place_of(region)]; }
    void release(const SharedRegion& region) noexcept { --held_[place_of(region)]; }
    // It is held by this thread, and the control plane waits for it.
    [[nodiscard]] bool is_awaited(const models::Model& model) const noexcept {
      return is_awaited(model.index());
    }
    [[nodiscard]] bool is_awaited(const SharedRegion& region) const noexcept {
      return is_awaited(place_of(region));
    }
    // When nothing of now() is used any more; before the thread sleeps.
    void end_turn() noexcept;
    // The thread holds nothing and ends. No other call comes.
    void close() noexcept;

   private:
    friend class Catalog;
    Reader(const std::atomic<const CatalogSnapshot*>& current, std::function<void()> wake);
    [[nodiscard]] bool is_awaited(uint32_t place) const noexcept {
      return snapshot_ != told_ && snapshot_->leaving == place;
    }
    [[nodiscard]] bool is_closed() const noexcept;
    void wait_for(const CatalogSnapshot* snapshot) const noexcept;

    const std::atomic<const CatalogSnapshot*>& current_;
    const std::function<void()> wake_;
    const CatalogSnapshot* snapshot_;
    const CatalogSnapshot* told_;  // that it has acknowledged
    // Requests by place_of().
    std::array<uint32_t, limits::kMaxModels + limits::kMaxSharedRegions> held_{};
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
  // Makes the served versions of a model those that its folder has and its config.json names. A
  // version whose files have not changed since it was loaded stays; one that has changed is loaded
  // beside the old, and takes its place between two requests; then versions that are gone leave.
  // A version that can't be loaded is unavailable with its reason, unless an older state of it
  // serves: that one goes on. `config`: in place of its config.json until the next call; nullptr:
  // that counts. Errors: the reasons of such versions; kNotFound: there is none.
  [[nodiscard]] Status reload(std::string_view name, const std::string* config = nullptr);
  // All versions of a model leave, as in remove(). kNotFound: none is served.
  [[nodiscard]] Status unload(std::string_view name);
  // From now on no request finds it; returns when those that had found it are answered and it is
  // gone. `version` empty: the highest.
  [[nodiscard]] Status remove(std::string_view name, std::string_view version);
  // Clients' memory comes and goes in the same way: remove_region() returns once the requests that
  // use it are answered. Errors: kAlreadyExists by its name; kNotFound; kResourceExhausted.
  [[nodiscard]] Status add_region(const std::shared_ptr<SharedRegion>& region);
  [[nodiscard]] Status remove_region(std::string_view name);
  // As it is now. Any thread of the control plane; its models live as long as it is kept.
  [[nodiscard]] std::shared_ptr<const CatalogSnapshot> snapshot() const;
  // Returns once each thread has ended a turn that it had begun before: the things that it had
  // found then are not used any more, and its writes are seen.
  void wait_for_turns();
  // Refuses new requests; waits for those under way. After the threads have closed their readers.
  void close();

 private:
  // A model's place in a reader's table is its index; those of regions follow.
  [[nodiscard]] static uint32_t place_of(const SharedRegion& region) noexcept {
    return static_cast<uint32_t>(limits::kMaxModels) + region.index();
  }
  void publish(const std::shared_ptr<CatalogSnapshot>& next);
  // Its instances are made. `before`: its place is the model's, which leaves; nullptr: it has none.
  [[nodiscard]] Status serve(const std::shared_ptr<models::Model>& model,
                             const std::shared_ptr<models::Model>& before);
  void publish_instead(const std::shared_ptr<models::Model>& model,
                       const std::shared_ptr<models::Model>& before);
  void leave(const std::shared_ptr<models::Model>& model);
  void end(const std::shared_ptr<models::Model>& model);
  // Ensembles that have a step of this model are made anew for the models that will be served, and
  // take the places of the old ones, before the model comes, changes or leaves: so a request has
  // the same models in all of its steps, and no ensemble names one that is gone.
  // `removed` is replaced by `added`; either may be nullptr.
  void fit_ensembles(const std::shared_ptr<models::Model>& removed,
                     const std::shared_ptr<models::Model>& added);
  [[nodiscard]] models::FindModel finder() const;
  void bring_steps(std::string_view name, const std::string* config);
  [[nodiscard]] Status reload_locked(std::string_view name, const std::string* config);
  [[nodiscard]] Status reload_version(const models::ModelRepository::OnDisk& version,
                                      const std::string* config);
  void describe_all(CatalogSnapshot& snapshot, std::string_view name) const;

  models::ModelRepository& repository_;
  engine::Engine& engine_;
  const Describe describe_;
  const OnAdded on_added_;
  const OnRemoved on_removed_;
  std::mutex models_mutex_;  // of changes of models, which load: one at a time
  std::mutex mutex_;         // of snapshots: one at a time; taken within the other
  bool is_closed_ = false;
  std::vector<std::unique_ptr<Reader>> readers_;
  mutable std::mutex snapshot_mutex_;  // of the pointer below, for the control plane
  std::shared_ptr<const CatalogSnapshot> snapshot_;
  alignas(kFalseSharingRange) std::atomic<const CatalogSnapshot*> current_;
};

}  // namespace lumen::service
