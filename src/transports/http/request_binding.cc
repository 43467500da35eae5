// An infer request's tensors to the call: its JSON is checked against the model, and the bytes get
// their places. I/O thread only; allocates nothing but from the request's memory.
#include "transports/http/http_transport.h"
#include "transports/http/request_handler.h"

#include <lumen/service/binder.h>

#include <algorithm>
#include <cstring>

namespace lumen::http {

// An input in a region is read where it lies; one at an address that no load of its elements takes
// is copied.
Status RequestHandler::bind_shared(RequestContext& context, service::Binder& binder,
                                   const wire::InferInput& input) noexcept {
  const Result<uid_t> user = region_user(context);
  if (!user.ok()) return user.status();
  const Result<std::span<std::byte>> place =
      host_.thread().intake.use_region(context.call, input.shared, *user);
  if (!place.ok()) return place.status();
  TensorView tensor = input.tensor;
  tensor.data = place->data();
  const size_t alignment = std::max<size_t>(element_size(tensor.type), 1);
  if (reinterpret_cast<uintptr_t>(tensor.data) % alignment != 0) {
    auto* const copy =
        static_cast<std::byte*>(context.memory.allocate(tensor.byte_size, kCacheLine));
    if (copy == nullptr) {
      return Status::error(Code::kTooLarge, "the request's memory has no room for its inputs");
    }
    std::memcpy(copy, place->data(), tensor.byte_size);
    tensor.data = copy;
  }
  return binder.input(input.name, tensor, service::InputBytes::kShared);
}

// Where outputs go that the client wants in a region.
Status RequestHandler::take_output_places(RequestContext& context) noexcept {
  const std::span<wire::InferOutput> outputs = context.infer_head.outputs;
  const auto is_shared = [](const wire::InferOutput& one) { return one.shared.is_there(); };
  if (std::ranges::none_of(outputs, is_shared)) return {};
  context.output_places = context.memory.allocate_array<std::span<std::byte>>(outputs.size());
  if (context.output_places.size() != outputs.size()) {
    return Status::error(Code::kTooLarge, "the request's memory has no room for its outputs");
  }
  const Result<uid_t> user = region_user(context);
  if (!user.ok()) return user.status();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_shared(outputs[i])) continue;
    const Result<std::span<std::byte>> place =
        host_.thread().intake.use_region(context.call, outputs[i].shared, *user);
    if (!place.ok()) return place.status();
    context.output_places[i] = *place;
  }
  return {};
}

// Checks the text against the model, and gives each tensor that is to come a place.
Status RequestHandler::bind(RequestContext& context, size_t tensor_bytes) noexcept {
  models::Model& model = *context.call.infer.model;
  wire::InferHead& head = context.infer_head;
  if (head.binary_bytes != tensor_bytes) {
    return Status::error(Code::kInvalidArgument,
                         "body of model '%s': the binary_data_size of all inputs add up to %zu "
                         "bytes, but %zu bytes follow the JSON; check "
                         "Inference-Header-Content-Length and Content-Length",
                         model.metadata().name.c_str(), head.binary_bytes, tensor_bytes);
  }
  context.call.set_timeout(head.timeout_us);
  context.call.infer.priority = head.priority;
  context.call.cache_wishes = {.is_off = head.no_cache || head.is_of_sequence,
                               .has_shared_input = false,
                               .ttl_ms = head.ttl_ms,
                               .parameters = head.parameters};
  service::Binder binder(context.call, model);
  for (const wire::InferInput& input : head.inputs) {
    if (input.shared.is_there()) {
      LUMEN_RETURN_IF_ERROR(bind_shared(context, binder, input));
      continue;
    }
    LUMEN_RETURN_IF_ERROR(binder.input(
        input.name, input.tensor,
        input.is_binary ? service::InputBytes::kToReceive : service::InputBytes::kPresent));
  }
  LUMEN_RETURN_IF_ERROR(binder.inputs_named());
  for (const wire::InferOutput& output : head.outputs) {
    LUMEN_RETURN_IF_ERROR(binder.output(output.name));
  }
  return take_output_places(context);
}

}  // namespace lumen::http
