// run_load: carries out a plan with its threads and sums up their counts. run_loads: several at
// once.
// Threads: called by one control thread, which waits; makes plan.threads others.
// Memory: control plane, before the load begins. Errors: never; a tally of failures is a result.
#pragma once

#include <lumen/client/load_plan.h>
#include <lumen/client/tally.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

namespace lumen::client {

// `stop` ends the run early; the counts until then are returned. `at_begin` is called by this
// thread when a timed plan's window begins (if requests are counted out: before the first one).
[[nodiscard]] std::unique_ptr<Tally> run_load(const LoadPlan& plan, const std::atomic<bool>& stop,
                                              const std::function<void()>& at_begin = {});

struct LoadResult {
  std::vector<std::unique_ptr<Tally>>
      parts;                   // of each plan in turn, one or one for each of its mix
  std::unique_ptr<Tally> all;  // and the threads' CPU time
};

// Each thread polls the connections of all plans, of which the first says how many threads there
// are, whether they poll, and when the window begins and ends. Over HTTP and by time alone.
[[nodiscard]] LoadResult run_loads(const std::vector<LoadPlan>& plans,
                                   const std::atomic<bool>& stop,
                                   const std::function<void()>& at_begin = {});

}  // namespace lumen::client
