// See the header for threads, memory and errors.
#include <lumen/models/backends.h>

#include <lumen/base/check.h>
#include <lumen/base/nearest_name.h>

#include <algorithm>

namespace lumen::models {

void Backends::add(std::unique_ptr<Backend> backend) {
  for (const auto& entry : entries_) LUMEN_CHECK(entry->backend->name() != backend->name());
  entries_.push_back(std::make_unique<Entry>());
  entries_.back()->backend = std::move(backend);
}

Result<Backends::Entry*> Backends::find(std::string_view name) const {
  if (entries_.empty()) {
    return Status::error(Code::kUnsupported,
                         "this server has no backend to run a model with; build it with one "
                         "(LUMEN_WITH_... options of CMake)");
  }
  if (name.empty()) return entries_.front().get();
  std::vector<std::string_view> names;
  std::string known;
  for (const auto& entry : entries_) {
    if (entry->backend->name() == name) return entry.get();
    names.push_back(entry->backend->name());
    known.append(known.empty() ? "\"" : ", \"").append(names.back()).append("\"");
  }
  const std::string_view nearest = nearest_name(name, names);
  std::string hint;
  if (!nearest.empty()) hint.append("; did you mean \"").append(nearest).append("\"?");
  return Status::error(Code::kUnsupported,
                       "config.json: key \"backend\": got \"%.*s\", wanted one that this server "
                       "has: %s%s",
                       static_cast<int>(std::min<size_t>(name.size(), 60)), name.data(),
                       known.c_str(), hint.c_str());
}

Status Backends::use(Entry& entry) {
  const std::lock_guard lock(*memory_mutex_);
  if (entry.is_in_use) return {};
  for (size_t i = 0; i < regions_.size(); ++i) {
    Status status = entry.backend->register_memory(regions_[i]);
    if (status.ok()) continue;
    while (i-- > 0) entry.backend->unregister_memory(regions_[i]);
    return status;
  }
  entry.is_in_use = true;
  return {};
}

Status Backends::register_memory(std::span<std::byte> region) {
  const std::lock_guard lock(*memory_mutex_);
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!entries_[i]->is_in_use) continue;
    Status status = entries_[i]->backend->register_memory(region);
    if (status.ok()) continue;
    while (i-- > 0) {
      if (entries_[i]->is_in_use) entries_[i]->backend->unregister_memory(region);
    }
    return status;
  }
  regions_.push_back(region);
  return {};
}

void Backends::unregister_memory(std::span<std::byte> region) noexcept {
  const std::lock_guard lock(*memory_mutex_);
  const auto known =
      std::ranges::find(regions_, region.data(), [](const auto& one) { return one.data(); });
  if (known == regions_.end()) return;
  regions_.erase(known);
  for (const auto& entry : entries_) {
    if (entry->is_in_use) entry->backend->unregister_memory(region);
  }
}

bool Backends::loads_in_parallel() const noexcept {
  return std::ranges::any_of(
      entries_, [](const auto& entry) { return entry->backend->traits().loads_in_parallel; });
}

std::vector<Backends::Entry*> Backends::available() const {
  std::vector<Entry*> found;
  for (const auto& entry : entries_) {
    const Backend& backend = *entry->backend;
    if (backend.traits().reads_graphs && backend.availability().ok()) found.push_back(entry.get());
  }
  return found;
}

std::string Backends::description() const {
  std::string text;
  for (const Entry* entry : available()) {
    text.append(text.empty() ? "" : ", ").append(entry->backend->description());
  }
  return text.empty() ? "no backend" : text;
}

}  // namespace lumen::models
