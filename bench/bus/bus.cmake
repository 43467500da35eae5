# bench_bus: Lumen's bus and what the system has. The rivals from packages are built by
# bench/rivals/build_bus.py. Included by bench/CMakeLists.txt.
find_path(LUMEN_BENCH_INTERPROCESS_DIR boost/interprocess/ipc/message_queue.hpp)
if(NOT LUMEN_BENCH_INTERPROCESS_DIR)
  message(STATUS "bench bus: a rival is left out, apt-get install libboost1.81-dev")
endif()
add_executable(bench_bus ${CMAKE_CURRENT_LIST_DIR}/bus_bench.cc)
target_link_libraries(bench_bus PRIVATE lumen::bus)
# The rivals' headers are not ours to keep free of warnings.
target_compile_options(bench_bus PRIVATE -Wno-error)
set_target_properties(bench_bus PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
