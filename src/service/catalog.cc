// See the header for the protocol, threads, memory and errors.
#include <lumen/service/catalog.h>

#include <lumen/engine/engine.h>
#include <lumen/models/builders.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace lumen::service {
namespace {

// Stands for a reader that is closed: no snapshot has its address.
const CatalogSnapshot kClosed;

std::string_view name_of(const CatalogModel& entry) noexcept {
  return entry.model->metadata().name;
}

std::string_view region_name(const std::shared_ptr<const SharedRegion>& region) noexcept {
  return region->name();
}

uint64_t number_of(const CatalogModel& entry) noexcept {
  const std::string& version = entry.model->metadata().version;
  uint64_t number = 0;
  (void)std::from_chars(version.data(), version.data() + version.size(), number);
  return number;
}

// That version alone, ready or not; a model that can't be read may have none ("").
const CatalogModel* version_in(const CatalogSnapshot& snapshot, std::string_view name,
                               std::string_view version) noexcept {
  for (const CatalogModel& entry : snapshot.models) {
    if (name_of(entry) == name && entry.model->metadata().version == version) return &entry;
  }
  return nullptr;
}

int width(std::string_view text) noexcept {
  return static_cast<int>(std::min(text.size(), limits::kMaxNameBytes));
}

Status shutting_down() { return Status::error(Code::kUnavailable, "the server is shutting down"); }

// At the start: a model whose instances can't be made is known to be unavailable only now.
void mark_unless_steps_are_ready(models::Model& ensemble) {
  if (ensemble.ensemble() == nullptr) return;
  for (const models::EnsemblePlan::Step& step : ensemble.ensemble()->steps) {
    if (step.model->state() == models::ModelState::kReady) continue;
    return ensemble.mark_unavailable(ensemble.metadata().name + "/config.json: model '" +
                                     step.model->metadata().name +
                                     "' of a step is unavailable: " + step.model->reason());
  }
}

const models::Model* unready_of(const CatalogSnapshot& snapshot) {
  const auto found = std::ranges::find_if(snapshot.models, [](const CatalogModel& entry) {
    return entry.model->state() != models::ModelState::kReady;
  });
  return found == snapshot.models.end() ? nullptr : found->model.get();
}

}  // namespace

const CatalogModel* CatalogSnapshot::find(std::string_view name,
                                          std::string_view version) const noexcept {
  const auto same = std::ranges::equal_range(models, name, std::ranges::less(), &name_of);
  if (same.empty()) return nullptr;
  if (version.empty()) {
    for (size_t i = same.size(); i > 0; --i) {
      if (same[i - 1].model->state() == models::ModelState::kReady) return &same[i - 1];
    }
    return &same.back();
  }
  for (const CatalogModel& entry : same) {
    if (entry.model->metadata().version == version) return &entry;
  }
  return nullptr;
}

void CatalogSnapshot::insert(const CatalogModel& entry) {
  const auto sooner = [](const CatalogModel& a, const CatalogModel& b) {
    return std::pair(name_of(a), number_of(a)) < std::pair(name_of(b), number_of(b));
  };
  models.insert(std::ranges::upper_bound(models, entry, sooner), entry);
}

const SharedRegion* CatalogSnapshot::find_region(std::string_view name) const noexcept {
  const auto found = std::ranges::lower_bound(regions, name, std::ranges::less(), &region_name);
  return found != regions.end() && (*found)->name() == name ? found->get() : nullptr;
}

Status model_not_found(std::string_view name, std::string_view version) noexcept {
  if (version.empty()) {
    return Status::error(Code::kNotFound,
                         "model '%.*s' is not in the repository; GET /v2/models/stats lists those "
                         "that are ready",
                         width(name), name.data());
  }
  return Status::error(Code::kNotFound,
                       "model '%.*s' version '%.*s' is not in the repository; leave the version "
                       "out for the highest",
                       width(name), name.data(), width(version), version.data());
}

Status region_not_found(std::string_view name) noexcept {
  return Status::error(Code::kNotFound, "region '%.*s' of shared memory is not registered",
                       width(name), name.data());
}

Status model_unavailable(const models::Model& model) noexcept {
  return Status::error(Code::kUnavailable, "model '%s' version '%s' is unavailable: %.300s",
                       model.metadata().name.c_str(), model.metadata().version.c_str(),
                       model.reason().c_str());
}

Catalog::Reader::Reader(const std::atomic<const CatalogSnapshot*>& current,
                        std::function<void()> wake)
    : current_(current),
      wake_(std::move(wake)),
      // sync[catalog.current]: acquire; the snapshot is whole
      snapshot_(current.load(std::memory_order_acquire)),
      told_(snapshot_),
      acknowledged_(snapshot_) {}

void Catalog::Reader::end_turn() noexcept {
  // sync[catalog.current]: acquire; the snapshot is whole, and so are its models' slots and
  // counters
  const CatalogSnapshot* current = current_.load(std::memory_order_acquire);
  if (current == told_) return;
  snapshot_ = current;
  if (current->leaving != CatalogSnapshot::kNobody && held_[current->leaving] > 0) return;
  told_ = current;
  // sync[catalog.acknowledged]: release; the last touch of the snapshot before, and of models that
  // have left it
  acknowledged_.store(current, std::memory_order_release);
  acknowledged_.notify_all();
}

void Catalog::Reader::close() noexcept {
  // sync[catalog.acknowledged]: release; as in end_turn()
  acknowledged_.store(&kClosed, std::memory_order_release);
  acknowledged_.notify_all();
}

bool Catalog::Reader::is_closed() const noexcept {
  // sync[catalog.acknowledged]: acquire; pairs with close()
  return acknowledged_.load(std::memory_order_acquire) == &kClosed;
}

void Catalog::Reader::wait_for(const CatalogSnapshot* snapshot) const noexcept {
  for (;;) {
    // sync[catalog.acknowledged]: acquire; the reader is through with models that have left
    const CatalogSnapshot* seen = acknowledged_.load(std::memory_order_acquire);
    if (seen == snapshot || seen == &kClosed) return;
    // sync[catalog.acknowledged]: acquire; as above
    acknowledged_.wait(seen, std::memory_order_acquire);
  }
}

Catalog::Catalog(models::ModelRepository& repository, engine::Engine& engine, Describe describe,
                 OnAdded on_added, OnRemoved on_removed)
    : repository_(repository),
      engine_(engine),
      describe_(std::move(describe)),
      on_added_(std::move(on_added)),
      on_removed_(std::move(on_removed)) {
  auto first = std::make_shared<CatalogSnapshot>();
  for (const auto& model : repository.models()) {
    mark_unless_steps_are_ready(*model);
    on_added_(*model);
    first->models.push_back(CatalogModel{model, nullptr, ModelNeed(*model)});
  }
  for (const auto& model : repository.models()) describe_all(*first, model->metadata().name);
  first->unready = unready_of(*first);
  snapshot_ = first;
  // sync[catalog.current]: release; pairs with the readers' loads
  current_.store(first.get(), std::memory_order_release);
}

Catalog::Reader& Catalog::add_reader(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  readers_.push_back(std::unique_ptr<Reader>(new Reader(current_, std::move(wake))));
  return *readers_.back();
}

std::shared_ptr<const CatalogSnapshot> Catalog::snapshot() const {
  const std::lock_guard lock(snapshot_mutex_);
  return snapshot_;
}

// All versions of a name are described anew, since each names the others.
void Catalog::describe_all(CatalogSnapshot& snapshot, std::string_view name) const {
  const auto same = std::ranges::equal_range(snapshot.models, name, std::ranges::less(), &name_of);
  std::vector<std::string> versions;
  for (const CatalogModel& entry : same) versions.push_back(entry.model->metadata().version);
  for (CatalogModel& entry : same) {
    entry.documents = std::make_shared<const ModelDocuments>(describe_(*entry.model, versions));
  }
}

void Catalog::publish(const std::shared_ptr<CatalogSnapshot>& next) {
  next->unready = unready_of(*next);
  std::shared_ptr<const CatalogSnapshot> before = next;  // kept until nobody looks at it
  {
    const std::lock_guard lock(snapshot_mutex_);
    std::swap(snapshot_, before);
  }
  // sync[catalog.current]: release; pairs with Reader::end_turn()
  current_.store(next.get(), std::memory_order_release);
  for (const auto& reader : readers_) {
    if (!reader->is_closed()) reader->wake_();
  }
  for (const auto& reader : readers_) reader->wait_for(next.get());
}

Status Catalog::serve(const std::shared_ptr<models::Model>& model,
                      const std::shared_ptr<models::Model>& before) {
  if (model->state() == models::ModelState::kReady) {
    LUMEN_RETURN_IF_ERROR(engine_.add_model(*model));
  }
  try {
    on_added_(*model);
    fit_ensembles(before, model);
    publish_instead(model, before);
  } catch (...) {                   // no memory is left
    fit_ensembles(model, nullptr);  // some may have been made anew for it
    engine_.remove_model(*model);
    on_removed_(*model);
    throw;
  }
  if (before != nullptr) end(before);
  return {};
}

void Catalog::publish_instead(const std::shared_ptr<models::Model>& model,
                              const std::shared_ptr<models::Model>& before) {
  const CatalogModel entry{model, nullptr, ModelNeed(*model)};
  const std::lock_guard lock(mutex_);
  auto next = std::make_shared<CatalogSnapshot>(*snapshot_);
  next->leaving = CatalogSnapshot::kNobody;
  if (before != nullptr) {
    std::ranges::find(next->models, before, &CatalogModel::model)[0] = entry;
    next->leaving = before->index();
  } else {
    next->insert(entry);
  }
  describe_all(*next, name_of(entry));
  publish(next);
}

// No request finds it any more.
void Catalog::leave(const std::shared_ptr<models::Model>& model) {
  fit_ensembles(model, nullptr);
  {
    const std::lock_guard lock(mutex_);
    auto next = std::make_shared<CatalogSnapshot>(*snapshot_);
    std::erase_if(next->models, [&](const CatalogModel& entry) { return entry.model == model; });
    next->leaving = model->index();
    describe_all(*next, model->metadata().name);
    publish(next);
  }
  end(model);
}

// After it has left: its last request is answered. To free a large model takes 10 ms of a CPU.
void Catalog::end(const std::shared_ptr<models::Model>& model) {
  const auto end = [&] {
    engine_.remove_model(*model);
    on_removed_(*model);
    repository_.forget(*model);
  };
  const models::Builders::Job job{.body = end, .near_cpu = std::nullopt};
  // Not by the usual builders: the engine may be waiting for them, with the lock that this needs.
  if (!repository_.background_builders().try_run({&job, 1})) end();
}

Status Catalog::add(std::string_view name, std::string_view version) {
  const std::lock_guard lock(models_mutex_);
  if (is_closed_) return shutting_down();
  if (!version.empty() && snapshot()->find(name, version) != nullptr) {
    return Status::error(Code::kInvalidArgument,
                         "model '%.*s' version '%.*s' is in the catalog already; remove it first",
                         width(name), name.data(), width(version), version.data());
  }
  Result<std::shared_ptr<models::Model>> model = repository_.load(name, version, finder());
  if (!model.ok()) return model.status();
  if ((*model)->state() != models::ModelState::kReady) return model_unavailable(**model);
  return serve(*model, nullptr);
}

Status Catalog::remove(std::string_view name, std::string_view version) {
  const std::lock_guard lock(models_mutex_);
  if (is_closed_) return shutting_down();
  const std::shared_ptr<const CatalogSnapshot> now = snapshot();
  const CatalogModel* found = now->find(name, version);
  if (found == nullptr) {
    return Status::error(Code::kNotFound, "model '%.*s' version '%.*s' is not in the catalog",
                         width(name), name.data(), width(version), version.data());
  }
  leave(found->model);
  return {};
}

Status Catalog::reload_version(const models::ModelRepository::OnDisk& version,
                               const std::string* config) {
  std::shared_ptr<models::Model> before;
  if (const std::shared_ptr<const CatalogSnapshot> now = snapshot();
      const CatalogModel* found = version_in(*now, version.name, version.version)) {
    before = found->model;
  }
  const bool was_ready = before != nullptr && before->state() == models::ModelState::kReady;
  if (was_ready && before->stamp() == version.stamp) return {};
  Result<std::shared_ptr<models::Model>> loaded =
      repository_.load(version.name, version.version, finder(), config);
  if (!loaded.ok()) return loaded.status();
  const std::shared_ptr<models::Model>& model = *loaded;
  Status status;
  if (model->state() != models::ModelState::kReady) status = model_unavailable(*model);
  if (!status.ok() && was_ready) return status;
  const Status served = serve(model, before);
  return status.ok() ? served : status;
}

Status Catalog::reload(std::string_view name, const std::string* config) {
  const std::lock_guard lock(models_mutex_);
  if (is_closed_) return shutting_down();
  bring_steps(name, config);
  return reload_locked(name, config);
}

Status Catalog::reload_locked(std::string_view name, const std::string* config) {
  Result<std::vector<models::ModelRepository::OnDisk>> found = repository_.on_disk(name, config);
  if (!found.ok()) return found.status();
  if (found->empty()) return model_not_found(name, {});
  Status first;
  for (const auto& one : *found) {
    const Status status = one.status.ok() ? reload_version(one, config) : one.status;
    if (first.ok()) first = status;
  }
  // Of a model that can't be read for now it is not known which versions are to leave.
  if (!first.ok()) return first;
  const std::shared_ptr<const CatalogSnapshot> now = snapshot();
  for (const CatalogModel& entry : now->models) {
    if (name_of(entry) != name) continue;
    const std::string& version = entry.model->metadata().version;
    if (std::ranges::find(*found, version, &models::ModelRepository::OnDisk::version) ==
        found->end()) {
      leave(entry.model);
    }
  }
  return first;
}

Status Catalog::unload(std::string_view name) {
  const std::lock_guard lock(models_mutex_);
  if (is_closed_) return shutting_down();
  const std::shared_ptr<const CatalogSnapshot> now = snapshot();
  const auto same = std::ranges::equal_range(now->models, name, std::ranges::less(), &name_of);
  if (same.empty()) return model_not_found(name, {});
  for (const CatalogModel& entry : same) leave(entry.model);
  return {};
}

Status Catalog::add_region(const std::shared_ptr<SharedRegion>& region) {
  const std::lock_guard lock(mutex_);
  if (snapshot_->find_region(region->name()) != nullptr) {
    return Status::error(Code::kAlreadyExists,
                         "region '%.*s' is registered already; unregister it first",
                         width(region->name()), region->name().data());
  }
  if (snapshot_->regions.size() == limits::kMaxSharedRegions) {
    return Status::error(Code::kResourceExhausted,
                         "%zu regions of shared memory are registered, and no more can be; "
                         "unregister those that are not used",
                         limits::kMaxSharedRegions);
  }
  // The lowest that is free: a region that has left is held by nobody.
  std::vector<bool> taken(limits::kMaxSharedRegions);
  for (const auto& other : snapshot_->regions) taken[other->index()] = true;
  region->set_index(static_cast<uint32_t>(std::ranges::find(taken, false) - taken.begin()));
  auto next = std::make_shared<CatalogSnapshot>(*snapshot_);
  next->leaving = CatalogSnapshot::kNobody;
  next->regions.insert(std::ranges::lower_bound(next->regions, std::string_view(region->name()),
                                                std::ranges::less(), &region_name),
                       region);
  publish(next);
  return {};
}

Status Catalog::remove_region(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const SharedRegion* const region = snapshot_->find_region(name);
  if (region == nullptr) return region_not_found(name);
  const uint32_t place = place_of(*region);
  auto next = std::make_shared<CatalogSnapshot>(*snapshot_);
  std::erase_if(next->regions, [&](const auto& one) { return one.get() == region; });
  next->leaving = place;
  publish(next);
  return {};
}

// A snapshot like the one before is acknowledged as any other.
void Catalog::wait_for_turns() {
  const std::lock_guard lock(mutex_);
  auto next = std::make_shared<CatalogSnapshot>(*snapshot_);
  next->leaving = CatalogSnapshot::kNobody;
  publish(next);
}

void Catalog::close() {
  const std::lock_guard lock(models_mutex_);
  is_closed_ = true;
}

}  // namespace lumen::service
