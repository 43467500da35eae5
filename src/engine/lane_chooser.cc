// See the header for threads, memory and errors.
#include "engine/lane_chooser.h"

#include <lumen/engine/hand_off.h>

#include <charconv>

namespace lumen::engine {
namespace {

void note_cost(models::InferRequest& request, uint64_t input_bytes) noexcept {
  request.expected_ns = request.model->run_costs().expect_ns(input_bytes);
  request.priority = request.model->scheduling().priority_of(request.priority);
}

// Its runs cost no more than a hand-off may. Models that share the workers' threads are left to
// these.
bool is_light(const models::Model& model) noexcept {
  const models::ModelScheduling& scheduling = model.scheduling();
  if (scheduling.is_on_some_workers() || scheduling.queue_type != models::QueueType::kAuto)
    return false;
  const uint64_t ns = model.service_time().mean_ns();
  return model.state() == models::ModelState::kReady && ns != 0 &&
         ns <= InlineChoice::kMostInlineNs && !model.traits().shares_instances;
}

bool is_inline_only(const models::Model& model) noexcept {
  return model.scheduling().queue_type == models::QueueType::kInline;
}

// "1.9 us", "3.1 ms".
std::string duration_text(uint64_t ns) {
  char text[32];
  const bool is_short = ns < 1'000'000;
  const double value = static_cast<double>(ns) / (is_short ? 1e3 : 1e6);
  const auto end = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed, 1).ptr;
  return std::string(text, end) + (is_short ? " us" : " ms");
}

}  // namespace

Lane& OneLane::choose(uint32_t, models::InferRequest& request, uint64_t input_bytes) noexcept {
  note_cost(request, input_bytes);
  request.queue_type = choice_.type;
  request.is_heavy = request.is_express = false;
  return *choice_.lane;
}

bool AutoChooser::is_for_workers(const models::Model& model) noexcept {
  return !is_inline_only(model);
}

bool AutoChooser::is_for_submitters(const models::Model& model) noexcept {
  return is_inline_only(model) || is_light(model);
}

bool AutoChooser::is_packed_by_workers(const models::Model& model) noexcept {
  return model.scheduling().queue_type == models::QueueType::kAuto && !is_light(model);
}

LaneChooser::Choice AutoChooser::choose_for(uint32_t submitter, const models::Model& model,
                                            uint64_t input_bytes, uint64_t expected_ns) noexcept {
  const bool runs_here =
      is_inline_only(model) || (inline_.has_instance(submitter, model) &&
                                inline_choice_.is_inline(model.index(), input_bytes, expected_ns));
  if (runs_here) return {&inline_, models::QueueType::kInline};
  return {&workers_,
          workers_.gathers(model) ? models::QueueType::kBatched : models::QueueType::kMpmc};
}

LaneChooser::Choice AutoChooser::usual(uint32_t submitter, const models::Model& model) noexcept {
  const uint64_t input_bytes = model.run_costs().usual_bytes();
  return choose_for(submitter, model, input_bytes, model.run_costs().expect_ns(input_bytes));
}

Lane& AutoChooser::choose(uint32_t submitter, models::InferRequest& request,
                          uint64_t input_bytes) noexcept {
  note_cost(request, input_bytes);
  const Choice choice = choose_for(submitter, *request.model, input_bytes, request.expected_ns);
  request.queue_type = choice.type;
  const bool is_for_workers = choice.lane == &workers_;
  // A worker that is for some models alone leaves the others to light requests.
  request.is_heavy = is_for_workers && ExpressLane::is_heavy(request) &&
                     !request.model->scheduling().is_on_some_workers();
  request.is_express = is_for_workers && express_.takes(request);
  return request.is_express ? express_ : *choice.lane;
}

std::string AutoChooser::explain(const models::Model& model) {
  if (model.scheduling().queue_type != models::QueueType::kAuto) {
    return "the queue_type of its config.json";
  }
  if (model.scheduling().is_on_some_workers()) return "its config.json gives it to workers";
  if (model.traits().shares_instances) {
    return "its backend completes requests on threads of its own";
  }
  const uint64_t expected_ns = model.run_costs().expect_ns(model.run_costs().usual_bytes());
  if (expected_ns == 0) return "the time of a run is not known yet";
  std::string why = "a run takes " + duration_text(expected_ns) + ", the hand-off to a worker " +
                    duration_text(hand_off_ns());
  if (usual(0, model).lane != &inline_ && !inline_.has_instance(0, model)) {
    why += "; the I/O threads have no instance of it";
  }
  return why;
}

}  // namespace lumen::engine
