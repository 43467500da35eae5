// See the header. No memory.
#include <lumen/service/call.h>

#include <lumen/base/limits.h>
#include <lumen/models/model_repository.h>
#include <lumen/service/shared_region.h>
#include <lumen/tensor/bytes_tensor.h>

#include <algorithm>

namespace lumen::service {

void Call::set_timeout(std::optional<uint64_t> timeout_us) noexcept {
  if (!timeout_us) return;
  infer.waits_for_ever = *timeout_us == 0;
  if (*timeout_us == 0) return;
  // The cap keeps the addition from overflowing.
  infer.deadline_ns = infer.times.received_ns + std::min(*timeout_us, limits::kMaxTimeoutUs) * 1000;
}

Status Call::check_regions() const noexcept {
  for (const HeldRegion* held = regions; held != nullptr; held = held->next) {
    if (held->region->was_lost()) return held->region->lost();
  }
  return {};
}

Status inputs_arrived(const Call& call) noexcept {
  const auto& specs = call.infer.model->metadata().inputs;
  for (size_t i = 0; i < call.infer.inputs.size(); ++i) {
    if (call.infer.inputs[i].type != ElementType::kBytes) continue;
    LUMEN_RETURN_IF_ERROR(check_bytes_tensor(specs[i].name, call.infer.inputs[i]));
  }
  return {};
}

}  // namespace lumen::service
