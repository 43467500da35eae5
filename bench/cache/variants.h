// The steps of the story, from the naive cache to the library, each a contender: name and type.
// Threads: v1 and v2 one, v3 any. Memory: theirs. Errors: bad_alloc ends the bench.
#pragma once

#include "variants/flat_table.h"
#include "variants/v1.h"
#include "variants/v3.h"

namespace lumen::bench {

// add.template operator()<V1_0_00>("v1.0.00") and so on, in the story's order.
template <typename Add>
void for_one_thread_variants(Add add) {
  add.template operator()<V1_0_00>("v1.0.00");
  add.template operator()<V1_0_01>("v1.0.01");
  add.template operator()<V1_0_02>("v1.0.02");
  add.template operator()<V2_0_00>("v2.0.00");
  add.template operator()<V2_1_00>("v2.1.00");
  add.template operator()<V2_2_00Lru>("v2.2.00-lru");
  add.template operator()<V2_2_00Lfu>("v2.2.00-lfu");
  add.template operator()<V2_3_00>("v2.3.00");
}

template <typename Add>
void for_concurrent_variants(Add add) {
  add.template operator()<V3_0_00Mutex>("v3.0.00-mutex");
  add.template operator()<V3_0_00Striped>("v3.0.00-striped");
  add.template operator()<V3_0_01>("v3.0.01");
#ifdef LUMEN_BENCH_OURS
  add.template operator()<V3_1_00>("v3.1.00");
  add.template operator()<V3_2_00>("v3.2.00");
#endif
}

}  // namespace lumen::bench
