// The threads of this process that wait for a computation of get_or_compute(), so that no circle of
// them waits for ever: a thread that would close one is told so before it waits. One graph for all
// caches, since a computation of one cache may ask another. Modelled in
// tests/spin/get_or_compute.pml. Source: Coffman, Elphick, Shoshani, "System Deadlocks", 1971 (a
// circle of waits, one holder a resource).
// Threads: any. Memory: none; a node lies on the stack of its thread. Errors: none.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

namespace lumen::cache {

// The graph's data of a computation. `over` is set by the leader before it does anything else, so
// an edge to a flight that is over is none, though its thread has not woken yet.
struct FlightState {
  const std::thread::id leader = std::this_thread::get_id();
  std::atomic<bool> over{false};
};

// That this thread waits for `flight`; ends with the object's life. The flight outlives it.
class WaitEdge {
 public:
  // Adds the edge unless it closes a circle.
  explicit WaitEdge(const FlightState& flight) noexcept : flight_(&flight) {
    Graph& graph = shared_graph();
    const std::lock_guard lock(graph.mutex);
    if (closes_circle(graph)) return;
    next_ = graph.first;
    if (next_ != nullptr) next_->previous_ = this;
    graph.first = this;
    is_added_ = true;
  }
  ~WaitEdge() {
    if (!is_added_) return;
    Graph& graph = shared_graph();
    const std::lock_guard lock(graph.mutex);
    (previous_ != nullptr ? previous_->next_ : graph.first) = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
  }
  WaitEdge(const WaitEdge&) = delete;
  WaitEdge& operator=(const WaitEdge&) = delete;

  // False: the flight's leader waits, perhaps through others, for this thread.
  [[nodiscard]] bool is_added() const noexcept { return is_added_; }

 private:
  struct Graph {
    std::mutex mutex;
    WaitEdge* first = nullptr;
  };
  static Graph& shared_graph() noexcept {
    static Graph graph;
    return graph;
  }
  // Each thread waits for one flight at most, so from a flight there is one way on. It ends, since
  // no circle was ever added.
  [[nodiscard]] bool closes_circle(const Graph& graph) const noexcept {
    const FlightState* flight = flight_;
    while (flight != nullptr) {
      if (flight->leader == thread_) return true;
      flight = waited_for_by(graph, flight->leader);
    }
    return false;
  }
  static const FlightState* waited_for_by(const Graph& graph, std::thread::id thread) noexcept {
    for (const WaitEdge* edge = graph.first; edge != nullptr; edge = edge->next_) {
      // relaxed: a leader that waits again has taken the graph's lock since it set `over`
      const bool is_over = edge->flight_->over.load(std::memory_order_relaxed);
      if (edge->thread_ == thread && !is_over) return edge->flight_;
    }
    return nullptr;
  }

  const std::thread::id thread_ = std::this_thread::get_id();
  const FlightState* const flight_;
  WaitEdge* next_ = nullptr;
  WaitEdge* previous_ = nullptr;
  bool is_added_ = false;
};

}  // namespace lumen::cache
