// Misuses of the queues that must not compile; run_nocompile.py says how this file is read.
#include <lumen/queue/mpmc_queue.h>
#include <lumen/queue/mutex_queue.h>
#include <lumen/queue/spsc_queue.h>
#include <lumen/queue/thread_pipeline.h>

#include <memory>

namespace lumen {

using Spsc = SpscQueue<int>;

// A role is a handle: it is taken from its queue, has one holder, and is handed on by a move.
void a_role_has_one_holder(Spsc& queue) {
  Spsc::Producer producer = queue.producer();
  Spsc::Consumer consumer = queue.consumer();
#ifdef WRONG
  Spsc::Producer second = producer;   // error: deleted
  Spsc::Consumer another = consumer;  // error: deleted
#else
  Spsc::Producer second = std::move(producer);
  Spsc::Consumer another = std::move(consumer);
#endif
}
void a_role_is_not_replaced(Spsc& one, Spsc& two) {
  Spsc::Producer producer = one.producer();
#ifdef WRONG
  producer = two.producer();  // error: deleted
#else
  Spsc::Producer other = two.producer();
#endif
}
void a_role_comes_from_its_queue(Spsc& queue) {
#ifdef WRONG
  Spsc::Producer producer(queue);  // error: private
#else
  Spsc::Producer producer = queue.producer();
#endif
}
void a_role_that_nobody_holds_is_a_mistake(Spsc& queue) {
#ifdef WRONG
  queue.producer();  // error: ignoring return
#else
  const auto producer = queue.producer();
#endif
}
void only_its_role_pushes(Spsc& queue) {
#ifdef WRONG
  queue.try_push(1);             // error: no member named
  queue.consumer().try_push(1);  // error: no member named
#else
  static_cast<void>(queue.producer().try_push(1));
#endif
}

// Items cross threads that could tell nobody of an exception.
struct Throws {
  Throws() = default;
  Throws(Throws&&) noexcept(false) {}
  Throws& operator=(Throws&&) noexcept(false) { return *this; }
};
struct Moves {
  std::unique_ptr<int> value;
};
#ifdef WRONG
using OfThrows = SpscQueue<Throws>;       // error: constraint
using SharedThrows = MpmcQueue<Throws>;   // error: constraint
using LockedThrows = MutexQueue<Throws>;  // error: constraint
#else
using OfMoves = SpscQueue<Moves>;
using SharedMoves = MpmcQueue<Moves>;
using LockedMoves = MutexQueue<Moves>;
#endif

// A refused item is not lost by oversight.
void a_push_that_may_fail_is_looked_at(MpmcQueue<int>& queue, int& value) {
#ifdef WRONG
  queue.try_push(1);     // error: ignoring return
  queue.try_pop(value);  // error: ignoring return
#else
  if (queue.try_push(1) && queue.try_pop(value)) value = 0;
#endif
}
void a_copy_is_pushed_on_purpose(MpmcQueue<int>& queue, int value) {
#ifdef WRONG
  static_cast<void>(queue.try_push(value));  // error: cannot bind
#else
  static_cast<void>(queue.try_push(std::move(value)));
#endif
}
void how_a_wait_ended_is_looked_at(MutexQueue<int>& queue) {
#ifdef WRONG
  queue.push(1);  // error: ignoring return
#else
  static_cast<void>(queue.push(1));
#endif
}

// A queue without doorbells can't wait, and moves that are no copies of bytes are not made in
// place.
void only_a_queue_with_doorbells_waits(MpmcQueue<int>& polled,
                                       MpmcQueue<int, Padding::kNone, Waiting::kDoorbell>& waiting,
                                       IdleStrategy& idle) {
#ifdef WRONG
  static_cast<void>(polled.push(1, idle));  // error: constraint|invalid reference
  static_cast<void>(waiting);
#else
  static_cast<void>(polled);
  static_cast<void>(waiting.push(1, idle));
#endif
}
void only_bytes_are_filled_in_place(MpmcQueue<Moves>& objects, MpmcQueue<int>& numbers) {
#ifdef WRONG
  objects.reserve(1).done();  // error: constraint|invalid reference
  static_cast<void>(numbers);
#else
  static_cast<void>(objects);
  numbers.reserve(1).done();
#endif
}
void claimed_places_have_one_holder(MpmcQueue<int>& queue) {
  MpmcQueue<int>::Run run = queue.reserve(1);
#ifdef WRONG
  MpmcQueue<int>::Run second = run;  // error: deleted
#else
  MpmcQueue<int>::Run second = std::move(run);
#endif
}
void a_queue_stays_where_it_is(Spsc& spsc, MpmcQueue<int>& mpmc) {
#ifdef WRONG
  const Spsc moved = std::move(spsc);                    // error: deleted
  const MpmcQueue<int> moved_as_well = std::move(mpmc);  // error: deleted
#else
  static_cast<void>(spsc.capacity() + mpmc.capacity());
#endif
}

// The threads of a pipeline have no caller that would catch a handler's exception.
struct MayThrow {
  void operator()(int&) {}
};
struct Quiet {
  void operator()(int&) noexcept {}
};
template <typename Handler>
void take_one(Pipeline<int, Producers::kOne, Stage<Handler>>& pipeline) {
  pipeline.template runner<0>().poll();
}
#ifdef WRONG
template void take_one(Pipeline<int, Producers::kOne, Stage<MayThrow>>&);  // error: is noexcept
using NoThread =
    Pipeline<int, Producers::kOne, Stage<Quiet, 0>>::StageAt<0>::Gate;  // error: assertion failed
#else
template void take_one(Pipeline<int, Producers::kOne, Stage<Quiet>>&);
#endif

}  // namespace lumen
