# bench_memory: one round of bench/memory.py. mimalloc and jemalloc come by LD_PRELOAD, so nothing is
# linked. Included by bench/CMakeLists.txt.
add_executable(bench_memory ${CMAKE_CURRENT_LIST_DIR}/memory_bench.cc)
target_link_libraries(bench_memory PRIVATE lumen::memory)
set_target_properties(bench_memory PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
