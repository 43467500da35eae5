// run_load: carries out a plan with its threads and sums up what they counted.
// Threads: called by one control thread, which waits; makes plan.threads others.
// Memory: control plane, before the load begins. Errors: never; a tally of failures is a result.
#pragma once

#include "load/load_plan.h"
#include "load/tally.h"

#include <atomic>
#include <functional>
#include <memory>

namespace lumen::load {

// `stop` ends the run early; what was counted until then is returned. `at_begin` is called by this
// thread when a timed plan's window begins (where requests are counted out: before the first one).
[[nodiscard]] std::unique_ptr<Tally> run_load(const LoadPlan& plan, const std::atomic<bool>& stop,
                                              const std::function<void()>& at_begin = {});

}  // namespace lumen::load
