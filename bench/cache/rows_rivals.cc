// The rows of the rivals in bench_chronocache.
// Threads: one. Memory: as loops.h says. Errors: none.
#include "rivals.h"

#include "loops.h"

namespace lumen::bench {

void add_rivals() {
  add_contender<StdMap>("std_map", Rows::kAll);
  add_contender<Naive>("naive", Rows::kAll);
#ifdef LUMEN_BENCH_FLAT_BOOST
  add_contender<BoostFlat>("boost_flat", Rows::kAll);
  add_contender<MutexFlat>("mutex_flat", Rows::kAll);
  add_contender<SharedMutexFlat>("shared_mutex_flat", Rows::kAll);
#endif
#ifdef LUMEN_BENCH_ABSL
  add_contender<AbslFlat>("absl_flat", Rows::kAll);
#endif
#ifdef LUMEN_BENCH_TBB
  add_contender<TbbMap>("tbb", Rows::kAll);
#endif
}

}  // namespace lumen::bench
