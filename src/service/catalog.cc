// See the header for the protocol, threads, memory and errors.
#include <lumen/service/catalog.h>

#include <lumen/engine/engine.h>

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

uint64_t number_of(const CatalogModel& entry) noexcept {
  const std::string& version = entry.model->metadata().version;
  uint64_t number = 0;
  (void)std::from_chars(version.data(), version.data() + version.size(), number);
  return number;
}

int width(std::string_view text) noexcept {
  return static_cast<int>(std::min(text.size(), limits::kMaxNameBytes));
}

Status shutting_down() { return Status::error(Code::kUnavailable, "the server is shutting down"); }

}  // namespace

const CatalogModel* CatalogSnapshot::find(std::string_view name,
                                          std::string_view version) const noexcept {
  const auto same = std::ranges::equal_range(models, name, std::ranges::less(), &name_of);
  if (same.empty()) return nullptr;
  if (version.empty()) return &same.back();
  for (const CatalogModel& entry : same) {
    if (entry.model->metadata().version == version) return &entry;
  }
  return nullptr;
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
    on_added_(*model);
    first->models.push_back(CatalogModel{model, nullptr, ModelNeed(model->metadata())});
  }
  for (const auto& model : repository.models()) describe_all(*first, model->metadata().name);
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

Status Catalog::add(std::string_view name, std::string_view version) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return shutting_down();
  if (!version.empty() && snapshot_->find(name, version) != nullptr) {
    return Status::error(Code::kInvalidArgument,
                         "model '%.*s' version '%.*s' is in the catalog already; remove it first",
                         width(name), name.data(), width(version), version.data());
  }
  Result<std::shared_ptr<models::Model>> model = repository_.load(name, version);
  if (!model.ok()) return model.status();
  const CatalogModel entry{*model, nullptr, ModelNeed((*model)->metadata())};
  Status made = engine_.add_model(**model);
  if (!made.ok()) {
    repository_.forget(**model);
    return made;
  }
  on_added_(**model);
  auto next = std::make_shared<CatalogSnapshot>();
  next->models = snapshot_->models;
  const auto before = [](const CatalogModel& a, const CatalogModel& b) {
    return std::pair(name_of(a), number_of(a)) < std::pair(name_of(b), number_of(b));
  };
  next->models.insert(std::ranges::upper_bound(next->models, entry, before), entry);
  describe_all(*next, name);
  publish(next);
  return {};
}

Status Catalog::remove(std::string_view name, std::string_view version) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return shutting_down();
  const CatalogModel* found = snapshot_->find(name, version);
  if (found == nullptr) {
    return Status::error(Code::kNotFound, "model '%.*s' version '%.*s' is not in the catalog",
                         width(name), name.data(), width(version), version.data());
  }
  const std::shared_ptr<models::Model> model = found->model;
  auto next = std::make_shared<CatalogSnapshot>();
  next->models = snapshot_->models;
  std::erase_if(next->models, [&](const CatalogModel& entry) { return entry.model == model; });
  next->leaving = model->index();
  describe_all(*next, name);
  publish(next);
  engine_.remove_model(*model);
  on_removed_(*model);
  repository_.forget(*model);
  return {};
}

// A snapshot like the one before is acknowledged as any other.
void Catalog::wait_for_turns() {
  const std::lock_guard lock(mutex_);
  auto next = std::make_shared<CatalogSnapshot>();
  next->models = snapshot_->models;
  publish(next);
}

void Catalog::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
}

}  // namespace lumen::service
