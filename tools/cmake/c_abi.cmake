# liblumen_c.so: the C face of the libraries, for other runtimes; and what proves that it is one: a C
# program that includes its headers, and a Lisp program that calls it.
enable_language(C)

function(lumen_c_abi)
  add_library(lumen_c SHARED ${PROJECT_SOURCE_DIR}/src/memory/shared_buffer_c.cc)
  target_link_libraries(lumen_c PUBLIC lumen::c PRIVATE lumen::memory)
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
  add_executable(c_abi_shared_buffer ${PROJECT_SOURCE_DIR}/tests/c_abi/shared_buffer_test.c)
  set_target_properties(c_abi_shared_buffer PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON
                                                       C_EXTENSIONS OFF)
  target_link_libraries(c_abi_shared_buffer PRIVATE lumen_c Threads::Threads)
  add_test(NAME c_abi_shared_buffer COMMAND c_abi_shared_buffer)
  # A sanitized library cannot be loaded into a runtime that was built without the sanitizer.
  find_program(LUMEN_SBCL sbcl)
  if(LUMEN_SBCL AND NOT LUMEN_SANITIZE)
    add_test(NAME example_lisp
             COMMAND ${LUMEN_SBCL} --script ${PROJECT_SOURCE_DIR}/examples/lisp/main.lisp
                     $<TARGET_FILE:lumen_c>)
  endif()
endfunction()
