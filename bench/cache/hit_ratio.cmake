# bench_hit_ratio: one trace through the policies, for bench/hit_ratio.py. Included by bench/CMakeLists.txt.
add_executable(bench_hit_ratio ${CMAKE_CURRENT_LIST_DIR}/hit_ratio.cc)
target_include_directories(bench_hit_ratio PRIVATE ${CMAKE_CURRENT_LIST_DIR}/..)
target_link_libraries(bench_hit_ratio PRIVATE lumen::cache)
set_target_properties(bench_hit_ratio PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
