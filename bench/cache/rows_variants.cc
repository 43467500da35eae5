// The rows of the story's steps in bench_chronocache.
// Threads: one; the last steps have one of their own beside it. Memory: as loops.h says. Errors:
// none.
#include "loops.h"
#include "variants.h"

namespace lumen::bench {

void add_variants() {
  const auto add = []<template <typename, typename> typename C>(const char* name) {
    add_contender<C>(name, Rows::kFive);
  };
  for_one_thread_variants(add);
  for_concurrent_variants(add);
}

}  // namespace lumen::bench
