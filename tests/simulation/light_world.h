// A world of a heavy model, whose runs take milliseconds, and a light one of microseconds. It
// checks that fair shares keep their promise: a light request waits at most for one run of the
// heavy model on each worker.
//
//   light request   submitted ─ its I/O thread ends the turn, has woken workers ─ taken ─ runs
//   each worker                 │◄──────── begins one heavy run at most ────────►│
//
// One, not none: a worker may have taken that heavy request before and begun it after. The check
// ends where a worker takes the light request, which it runs next: the kernel's choice of threads
// decides the runs that other workers begin until it does.
//
// Two histories break the promise and are left out. A thread that the kernel holds for milliseconds
// within a light run makes that run a heavy one, for which the light model pays afterwards. And the
// express lane is one thread: while the kernel holds it, other workers go on with heavy runs.
// Threads: fibers, within run_world(). Memory: the heap. Errors: fail().
#pragma once

#include "simulation/world.h"
#include "support/temp_repository.h"

namespace lumen::sim {

void live_with_light_model(const models::TempRepository& files, Sum& sum);

}  // namespace lumen::sim
