// See the header.
#include <lumen/models/load_progress.h>

#include <cstdio>
#include <string>

namespace lumen::models {

void LoadProgress::on_loaded(const Model& model, size_t number, size_t count, uint64_t now_ns) {
  if (now_ns < next_ns_) return;
  next_ns_ = now_ns + kPeriodNs;
  const bool is_ready = model.state() == ModelState::kReady;
  const BackendChoice& choice = model.choice();
  std::string text = "models: " + std::to_string(number) + " of " + std::to_string(count);
  text += " loaded in " + std::to_string((now_ns - begin_ns_) / kPeriodNs) + " s, the last is ";
  text += model.metadata().name + "/" + model.metadata().version + ": ";
  text += is_ready ? choice.backend + ", " + choice.why : "unavailable";
  say_(text);
}

}  // namespace lumen::models
