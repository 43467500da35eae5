// See the header for threads, memory and errors.
#include "engine/model_queues.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lumen::engine {
namespace {

// Classes of `deadline`: requests that may wait less than each of these, and those without a
// deadline. Within a class they are taken in the order in which they came, so that one may pass
// another that is due earlier by less than the class is wide.
constexpr std::array<uint64_t, ModelQueues::kDeadlineClasses - 1> kClassEndsNs = {
    8'000'000, 128'000'000, UINT64_MAX / 2};

}  // namespace

void ModelQueues::add(const models::Model& model, std::span<const uint32_t> workers) {
  const uint32_t index = model.index();
  shares_.reset(index, model.scheduling().weight, model.service_time().mean_ns());
  // relaxed: only the control plane writes it
  Queue* queue = queues_[index].load(std::memory_order_relaxed);
  if (queue == nullptr) {
    owned_.push_back(std::make_unique<Queue>(capacity_, classes()));
    queue = owned_.back().get();
  }
  queue->is_for_any = workers.empty();
  queue->workers.fill(0);
  for (const uint32_t worker : workers) queue->workers[worker / 64] |= uint64_t{1} << (worker % 64);
  // A thread that takes a request sees the masks that were there before it was pushed.
  set(for_any_, index, workers.empty());
  for (uint32_t worker = 0; worker < may_take_.size(); ++worker) {
    set(may_take_[worker], index,
        workers.empty() || std::ranges::find(workers, worker) != workers.end());
  }
  // relaxed: as above
  words_.store(std::max(words_.load(std::memory_order_relaxed), index / 64 + 1),
               std::memory_order_relaxed);
  // sync[model_queues.queue]: release; the rings are whole
  queues_[index].store(queue, std::memory_order_release);
}

void ModelQueues::set(ModelMask& mask, uint32_t model, bool value) noexcept {
  const uint64_t bit = uint64_t{1} << (model % 64);
  // relaxed, both: see add()
  if (value) mask[model / 64].fetch_or(bit, std::memory_order_relaxed);
  if (!value) mask[model / 64].fetch_and(~bit, std::memory_order_relaxed);
}

ModelQueues::Place ModelQueues::place_of(const models::InferRequest& request) const noexcept {
  const uint32_t model = request.model->index();
  const uint32_t priority = request.model->scheduling().priority_of(request.priority) - 1;
  if (policy_ != Policy::kDeadline) return {model, priority};
  const uint64_t begun_ns = request.times.parsed_ns;
  const uint64_t left_ns = request.deadline_ns > begun_ns ? request.deadline_ns - begun_ns : 0;
  const auto* end = std::ranges::upper_bound(kClassEndsNs, left_ns);
  return {model, priority * kDeadlineClasses + static_cast<uint32_t>(end - kClassEndsNs.begin())};
}

uint64_t ModelQueues::key_of(const models::InferRequest& request) const noexcept {
  return policy_ == Policy::kDeadline ? request.deadline_ns : request.times.parsed_ns;
}

bool ModelQueues::has_room(const models::Model& model) const noexcept {
  const Queue& queue = queue_of(model.index());
  const uint32_t count = classes_of_a_priority();
  const uint32_t first = (model.scheduling().priority - 1) * count;
  for (uint32_t i = first; i < first + count; ++i) {
    if (queue.rings[i]->size_was() < capacity_) return true;
  }
  return false;
}

bool ModelQueues::push(models::InferRequest& request, Pushed& pushed) noexcept {
  const Place place = place_of(request);
  Queue& queue = queue_of(place.model);
  if (!queue.rings[place.class_index]->try_push(request, key_of(request))) return false;
  if (queue.is_for_any) {
    ++pushed.for_any;
  } else {
    pushed.has_some = true;
    for (size_t i = 0; i < pushed.some.size(); ++i) pushed.some[i] |= queue.workers[i];
  }
  pushed.bits[place.word()] |= place.mask();
  std::atomic<uint64_t>& word = bits_[place.word()];
  // For a worker that is awake. relaxed: one that is just cleared is set by announce().
  if ((word.load(std::memory_order_relaxed) & place.mask()) == 0) {
    // sync[model_queues.bits]: release; the request is in the ring
    word.fetch_or(place.mask(), std::memory_order_acq_rel);
  }
  return true;
}

void ModelQueues::announce(Pushed& pushed) noexcept {
  // relaxed: it covers each model that was pushed to
  const uint32_t words = words_.load(std::memory_order_relaxed);
  for (uint32_t class_index = 0; class_index < classes(); ++class_index) {
    for (size_t i = class_index * kWordsOfAClass; i < class_index * kWordsOfAClass + words; ++i) {
      const uint64_t bits = std::exchange(pushed.bits[i], 0);
      // sync[model_queues.bits]: a read-modify-write though the bit may be set, see the header
      if (bits != 0) bits_[i].fetch_or(bits, std::memory_order_acq_rel);
    }
  }
}

void ModelQueues::announce_all() noexcept {
  for (uint32_t model = 0; model < queues_.size(); ++model) {
    // relaxed: only the control plane writes it
    if (queues_[model].load(std::memory_order_relaxed) == nullptr) continue;
    for (uint32_t i = 0; i < classes(); ++i) {
      const Place place{model, i};
      // sync[model_queues.bits]: release; the requests are in the rings
      bits_[place.word()].fetch_or(place.mask(), std::memory_order_acq_rel);
    }
  }
}

template <typename Visit>
void ModelQueues::for_each_marked(const ModelMask& mask, Visit&& visit) const noexcept {
  // relaxed, both: they cover each model that a request was pushed to before its bit was set
  const uint32_t words = words_.load(std::memory_order_relaxed);
  for (uint32_t class_index = 0; class_index < classes(); ++class_index) {
    for (uint32_t group = 0; group < words; ++group) {
      // sync[model_queues.bits]: acquire; the request that it was set for
      uint64_t bits = bits_[class_index * kWordsOfAClass + group].load(std::memory_order_acquire);
      if (bits != 0) bits &= mask[group].load(std::memory_order_relaxed);  // relaxed: as above
      for (; bits != 0; bits &= bits - 1) {
        const uint32_t model = group * 64 + static_cast<uint32_t>(std::countr_zero(bits));
        const Place place{model, class_index};
        if (!visit(place, *queue_of(model).rings[class_index])) return;
      }
    }
  }
}

FairShares::Start ModelQueues::rank_of(Place place, const RequestRing& ring) const noexcept {
  if (policy_ == Policy::kFair) return shares_.start_of(place.model);
  return {ring.oldest_key_was(), 0};
}

std::optional<ModelQueues::Place> ModelQueues::choose(uint32_t worker,
                                                      const Tried& tried) const noexcept {
  std::optional<Place> chosen;
  FairShares::Start least;
  for_each_marked(may_take_[worker], [&](Place place, const RequestRing& ring) {
    const uint32_t classes = classes_of_a_priority();
    if (chosen && place.class_index / classes > chosen->class_index / classes) return false;
    if (ring.was_empty() || tried.has(place)) return true;
    const FairShares::Start rank = rank_of(place, ring);
    if (chosen && !(rank < least)) return true;
    least = rank;
    chosen = place;
    return true;
  });
  return chosen;
}

models::InferRequest* ModelQueues::try_pop(uint32_t worker) noexcept {
  // The ring that is chosen may have been emptied by another worker meanwhile, or its oldest
  // request be claimed and not yet there; then the next is taken, and each is tried once.
  Tried tried;
  while (const std::optional<Place> chosen = choose(worker, tried)) {
    if (models::InferRequest* request = take_from(chosen->model, chosen->class_index)) {
      shares_.charge(chosen->model, request->share_ns);
      return request;
    }
    tried.add(*chosen);
  }
  return nullptr;
}

models::InferRequest* ModelQueues::try_pop_like(const models::InferRequest& request) noexcept {
  const uint32_t model = request.model->index();
  for (uint32_t i = 0; i < classes(); ++i) {
    if (models::InferRequest* next = take_from(model, i)) {
      shares_.join(model, next->share_ns);
      return next;
    }
  }
  return nullptr;
}

models::InferRequest* ModelQueues::take_from(uint32_t model, uint32_t class_index) noexcept {
  models::InferRequest* request = queue_of(model).rings[class_index]->try_pop();
  if (request == nullptr) return nullptr;
  request->share_ns = std::max<uint64_t>(request->expected_ns, 1);
  return request;
}

ModelQueues::WorkerSet ModelQueues::tidy(uint32_t worker) noexcept {
  WorkerSet misled{};
  for_each_marked(may_take_[worker], [&](Place place, const RequestRing& ring) {
    if (!ring.was_empty()) return true;
    std::atomic<uint64_t>& word = bits_[place.word()];
    // sync[model_queues.bits]: see the header
    word.fetch_and(~place.mask(), std::memory_order_acq_rel);
    if (ring.was_empty()) return true;
    // sync[model_queues.bits]: as above
    word.fetch_or(place.mask(), std::memory_order_acq_rel);
    const Queue& queue = queue_of(place.model);
    for (size_t i = 0; !queue.is_for_any && i < misled.size(); ++i) misled[i] |= queue.workers[i];
    return true;
  });
  misled[worker / 64] &= ~(uint64_t{1} << (worker % 64));
  return misled;
}

bool ModelQueues::was_empty(uint32_t worker) const noexcept {
  bool is_empty = true;
  for_each_marked(may_take_[worker], [&](Place, const RequestRing& ring) {
    is_empty = ring.was_empty();
    return is_empty;
  });
  return is_empty;
}

size_t ModelQueues::size_was() const noexcept {
  size_t size = 0;
  for_each_marked(for_any_, [&](Place, const RequestRing& ring) {
    size += ring.size_was();
    return true;
  });
  return size;
}

}  // namespace lumen::engine
