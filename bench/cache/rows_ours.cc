// The rows of ChronoCache in bench_chronocache, and the floor's.
// Threads: one. Memory: as loops.h says. Errors: none.
#include "loops.h"
#include "ours.h"

namespace lumen::bench {

void add_ours() {
#ifdef LUMEN_BENCH_OURS
  add_contender<Ours>("", Rows::kAll);
  add_contender<OursDefault>("default", Rows::kAll);
  add_contender<OursConcurrentTick>("concurrent_tick", Rows::kFive);
  add_contender<OursBackground>("background_tick", Rows::kFive);
#endif
  add_contender<Floor>("floor", Rows::kAll);
}

}  // namespace lumen::bench
