// Misuses of ChronoCache that must not compile; run_nocompile.py says how this file is read.
#include <lumen/cache/chrono_cache.h>

#include <memory>
#include <string>

namespace lumen {

using cache::CachedTick;
using cache::OneThread;

struct NoPolicy {};
struct NoKey {};

// At most one policy of a kind, and none of no kind.
template <typename Cache>
bool any(Cache& one) {
  return one.contains(1);
}
#ifdef WRONG
using TwoClocks = ChronoCache<int, int, CachedTick, cache::CoarseClock>;
template bool any(TwoClocks&);  // error: two clocks
using TwoThreads = ChronoCache<int, int, OneThread, cache::Concurrent>;
template bool any(TwoThreads&);  // error: two policies of threads
using NoKind = ChronoCache<int, int, NoPolicy>;
template bool any(NoKind&);  // error: no known kind
using SecondThread = ChronoCache<int, int, OneThread, cache::BackgroundTick>;
template bool any(SecondThread&);  // error: BackgroundTick is a second thread
#else
using OneOfEach = ChronoCache<int, int, CachedTick, OneThread, cache::Lru>;
template bool any(OneOfEach&);
#endif

void a_key_is_asked_for_by_what_its_hash_takes(ChronoCache<std::string, int>& cache) {
#ifdef WRONG
  static_cast<void>(cache.contains(NoKey{}));  // error: don't take this type
#else
  static_cast<void>(cache.contains("key"));
#endif
}
// A reader may be at the value.
void what_cannot_be_copied_is_not_taken(ChronoCache<int, std::unique_ptr<int>>& cache) {
#ifdef WRONG
  static_cast<void>(cache.take(1));  // error: take.. of a Concurrent cache copies
#else
  static_cast<void>(cache.visit(1, [](const std::unique_ptr<int>&) {}));
#endif
}
void an_answer_is_looked_at(ChronoCache<int, int>& cache) {
#ifdef WRONG
  cache.get(1);  // error: ignoring return
#else
  static_cast<void>(cache.get(1));
#endif
}

}  // namespace lumen
