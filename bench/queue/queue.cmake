# bench_queue and bench_pipeline, with whatever rivals are packaged here; one that is missing is
# left out with a message. Included by bench/CMakeLists.txt.
find_package(TBB QUIET)
find_path(LUMEN_BENCH_BOOST_DIR boost/lockfree/spsc_queue.hpp)
find_path(LUMEN_BENCH_MOODYCAMEL_DIR concurrentqueue/concurrentqueue.h)
find_path(LUMEN_BENCH_READERWRITER_DIR readerwriterqueue/readerwriterqueue.h)
foreach(rival "TBB_FOUND;libtbb-dev" "LUMEN_BENCH_BOOST_DIR;libboost1.81-dev"
        "LUMEN_BENCH_MOODYCAMEL_DIR;libconcurrentqueue-dev"
        "LUMEN_BENCH_READERWRITER_DIR;libreaderwriterqueue-dev")
  list(GET rival 0 found)
  list(GET rival 1 package)
  if(NOT ${found})
    message(STATUS "bench queue: a rival is left out, apt-get install ${package}")
  endif()
endforeach()
foreach(program queue pipeline)
  add_executable(bench_${program} ${CMAKE_CURRENT_LIST_DIR}/${program}_bench.cc)
  target_link_libraries(bench_${program} PRIVATE lumen::queue)
  # The rivals' headers are not ours to keep free of warnings.
  target_compile_options(bench_${program} PRIVATE -Wno-error)
  if(TBB_FOUND)
    target_link_libraries(bench_${program} PRIVATE TBB::tbb)
    target_compile_definitions(bench_${program} PRIVATE LUMEN_BENCH_TBB)
  endif()
  set_target_properties(bench_${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
endforeach()
