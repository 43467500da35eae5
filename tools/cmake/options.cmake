# Language, warnings, architecture and sanitizers: everything that changes how a file is compiled.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# Off by default: who types `cmake .. && make` wants the server. The presets turn them on.
option(LUMEN_SERVER "build the server; OFF, as in other projects: its libraries alone, which need no package"
       ${PROJECT_IS_TOP_LEVEL})
option(LUMEN_TESTS "build the tests" OFF)
option(LUMEN_BENCHES "build the benches" OFF)
option(LUMEN_EXAMPLES "build the examples" OFF)
option(LUMEN_FUZZ "build the fuzz targets" OFF)
# ./dev sets it in the environment of CI, so that the builds inside of tests share ccache's objects.
set(LUMEN_STRICT OFF)
if(DEFINED ENV{LUMEN_WARNINGS_AS_ERRORS})
  set(LUMEN_STRICT $ENV{LUMEN_WARNINGS_AS_ERRORS})
endif()
option(LUMEN_WARNINGS_AS_ERRORS "-Werror, as CI builds" ${LUMEN_STRICT})
option(LUMEN_WITH_OPENVINO "build the OpenVINO backend" ON)
option(LUMEN_WITH_ONNXRUNTIME "build the ONNX Runtime backend, where its headers are found" ON)
set(LUMEN_ARCH "x86-64-v2" CACHE STRING "-march: x86-64-v2 runs anywhere, x86-64-v3, native")
set(LUMEN_SANITIZE "" CACHE STRING "empty, address,undefined or thread")
# Tests of code that has one thread, in which TSan has nothing to see.
set(LUMEN_TESTS_LEFT_OUT "")
set(LUMEN_TEST_FILES_LEFT_OUT "")
if(LUMEN_SANITIZE STREQUAL "thread")
  set(LUMEN_TESTS_LEFT_OUT unit_tensor unit_wire unit_onnx unit_doctor fuzz)
  # A minute of compiling and three of running on two CPUs; files with threads stay (see the test in tests/python/test_tooling.py).
  set(LUMEN_TEST_FILES_LEFT_OUT bounds deadlines eviction_conformance failure frequency_sketch growth hash keys lfu lru model
      sweep ttl)
  list(TRANSFORM LUMEN_TEST_FILES_LEFT_OUT PREPEND "tests/unit/cache/")
  list(TRANSFORM LUMEN_TEST_FILES_LEFT_OUT APPEND "_test.cc")
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "g++ is ${CMAKE_CXX_COMPILER_VERSION}, wanted 12 or newer")
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR "clang is ${CMAKE_CXX_COMPILER_VERSION}, wanted 16 or newer")
endif()

add_compile_options(-march=${LUMEN_ARCH} -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
if(LUMEN_WARNINGS_AS_ERRORS)
  add_compile_options(-Werror)
endif()
# The objects go into the shared library, too. Nobody replaces one of its functions by another library's, so the
# compiler may inline across its functions, as clang does without being told.
add_compile_options("$<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>")
if(LUMEN_SANITIZE)
  add_compile_options(-fsanitize=${LUMEN_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LUMEN_SANITIZE})
  if(LUMEN_SANITIZE MATCHES "address.*undefined")
    # AddressSanitizer stops at a null pointer by itself, and UBSan's looks double the code.
    add_compile_options(-fno-sanitize=null)
  endif()
  # gcc 12's own analysis of instrumented code finds faults that aren't there (PR 105562): values used
  # uninitialised, and a test's own operator delete called for its own operator new.
  add_compile_options("$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>"
                      "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-mismatched-new-delete>")
  # ThreadSanitizer does not follow fences, and gcc warns where one is. hazard.h has one for kernels without
  # membarrier; it orders a look at hazard slots, never the access to data that ThreadSanitizer would watch.
  add_compile_options("$<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>")
endif()

find_program(LUMEN_CCACHE ccache)
if(LUMEN_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Two checkouts share what they compiled: paths below the source tree are cached as relative.
  # ccache asks for this sloppiness where a header is precompiled: none of ours tells the time.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
                                  CCACHE_NOHASHDIR=1
                                  CCACHE_SLOPPINESS=pch_defines,time_macros ${LUMEN_CCACHE})
endif()
