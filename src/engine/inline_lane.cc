// See the header for threads, memory and errors.
#include "engine/inline_lane.h"

#include <thread>

namespace lumen::engine {

InlineLane::InlineLane(const LaneContext& context, ModelFilter serves, bool are_pinned,
                       FairShares* shares)
    : Lane(context, Threads::kSubmitters, context.options.submitter_count,
           Admission::Order::kOfArrival),
      serves_(serves),
      config_(context.config) {
  config_.queue_type = models::QueueType::kInline;
  const EngineOptions& options = context.options;
  if (are_pinned) {
    pinned_ = pin_cpus(options.pin_threads, options.submitter_count, options.cpu_claims);
  }
  for (uint32_t i = 0; i < options.submitter_count; ++i) {
    auto place = std::make_unique<Place>();
    const RunnerLoad load{.outstanding = nullptr, .admission = &admission_, .shares = shares};
    place->runner = std::make_unique<Runner>(RunnerOptions{.index = i,
                                                           .config = config_,
                                                           .capacity = config_.queue_capacity,
                                                           .load = load,
                                                           .regions = options.regions,
                                                           .listener = place.get(),
                                                           .counters = &context.counters});
    // The I/O thread pins itself when it first runs a model; whether it may is known, and told,
    // now.
    if (const auto cpu = pinned_.of(i)) {
      Status pin_status;
      std::thread([&] { pin_status = pin_this_thread(*cpu); }).join();
      warn_of_pin(pin_status);
    }
    runners_.push_back(place->runner.get());
    places_.push_back(std::move(place));
  }
}

bool InlineLane::push(uint32_t submitter, models::InferRequest& request) noexcept {
  Runner& own = runner(submitter);
  if (!own.has_space()) return false;
  own.add(request);
  return true;
}

size_t InlineLane::end_turn(uint32_t submitter) noexcept {
  Runner& own = runner(submitter);
  const size_t done = own.run(Runner::Pass::kOneCall);
  // The caller looks at completions itself after each call; other owners of completions are told.
  own.wake_sinks();
  return done;
}

Status InlineLane::add(std::span<models::Model* const> models, models::Builders& builders,
                       Runner::OnFailure on_failure) {
  std::vector<models::Model*> served;
  for (models::Model* model : models) {
    if (serves_(*model)) served.push_back(model);
  }
  if (served.empty()) return {};
  std::vector<RunnerModels> all;
  all.reserve(runners_.size());
  for (uint32_t i = 0; i < runners_.size(); ++i) {
    all.push_back({runners_[i], pinned_.of(i), served});
  }
  return make_instances(all, config_, builders, on_failure);
}

void InlineLane::finish(uint32_t submitter) noexcept {
  Runner& own = runner(submitter);
  while (true) {
    const uint64_t completions = own.completions();
    while (own.run(Runner::Pass::kAll) > 0) {
    }
    own.wake_sinks();
    if (own.is_done()) return;
    // Waiting requests have no room before a call comes back. A deadline may pass meanwhile: it is
    // then answered that much later.
    own.wait_for_completion(completions);
  }
}

void InlineLane::set_wake_sink(uint32_t submitter, models::CompletionSink* sink) noexcept {
  // sync[inline_lane.wake_sink]: release; pairs with on_room()
  places_[submitter]->wake_sink.store(sink, std::memory_order_release);
}

}  // namespace lumen::engine
