# liblumen_c.so: the C face of the libraries, for other runtimes; and what proves that it is one: a C
# program that includes its headers, and a Lisp program that calls it.
enable_language(C)

function(lumen_c_abi)
  add_library(lumen_c SHARED ${PROJECT_SOURCE_DIR}/src/memory/shared_buffer_c.cc
                             ${PROJECT_SOURCE_DIR}/src/bus/bus_c.cc)
  target_link_libraries(lumen_c PUBLIC lumen::c PRIVATE lumen::memory lumen::bus)
  # Only what the C headers declare: whoever loads it brings a C++ library of its own.
  set_target_properties(lumen_c PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 1)
  target_link_options(lumen_c PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/tools/cmake/lumen_c.map -Wl,--exclude-libs,ALL)
  set_target_properties(lumen_c PROPERTIES LINK_DEPENDS
    ${PROJECT_SOURCE_DIR}/tools/cmake/lumen_c.map)
  if(NOT LUMEN_TESTS)
    return()
  endif()
  find_package(Threads REQUIRED)
  # filled_ring: a helper of tests/integration/test_bus_top.py.
  foreach(program shared_buffer_test bus_test filled_ring)
    string(REPLACE "_test" "" name c_abi_${program})
    add_executable(${name} ${PROJECT_SOURCE_DIR}/tests/c_abi/${program}.c)
    set_target_properties(${name} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON)
    target_link_libraries(${name} PRIVATE lumen_c Threads::Threads)
    if(program MATCHES "_test$")
      add_test(NAME ${name} COMMAND ${name})
    endif()
  endforeach()
  add_executable(example_bus_c ${PROJECT_SOURCE_DIR}/examples/bus_c/prices.c)
  target_link_libraries(example_bus_c PRIVATE lumen_c)
  add_test(NAME example_bus_c COMMAND example_bus_c)
  # A sanitized library cannot be loaded into a runtime that was built without the sanitizer.
  find_program(LUMEN_SBCL sbcl)
  if(LUMEN_SBCL AND NOT LUMEN_SANITIZE)
    add_test(NAME example_lisp
             COMMAND ${LUMEN_SBCL} --script ${PROJECT_SOURCE_DIR}/examples/lisp/main.lisp
                     $<TARGET_FILE:lumen_c>)
  endif()
endfunction()
