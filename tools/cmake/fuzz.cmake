# Fuzz targets: tests/fuzz/<name>_fuzz.cc becomes fuzz_<name>. With clang and LUMEN_FUZZ it is a
# libFuzzer program; else replay_main.cc runs the corpus and seeded mutations of it, and takes the
# same arguments. Either way the test fuzz_replay_<name> runs the corpus.
set(LUMEN_LIBFUZZER OFF)
if(LUMEN_FUZZ AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(LUMEN_LIBFUZZER ON)
  # Before the modules: their code is what coverage must guide through.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

function(lumen_fuzz)
  if(NOT LUMEN_FUZZ AND NOT LUMEN_TESTS)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cc)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "_fuzz$" "" name ${name})
    set(target fuzz_${name})
    set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
    add_executable(${target} ${source})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests
                                                 ${PROJECT_SOURCE_DIR}/src)
    # Whatever reads bytes that somebody else made: the codecs, a model's config.json, .npy files.
    target_link_libraries(${target} PRIVATE lumen::wire lumen::engine lumen_client
                                            simdjson::simdjson)
    if(LUMEN_LIBFUZZER)
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      set(arguments -runs=0 ${corpus})
    else()
      target_sources(${target} PRIVATE tests/fuzz/replay_main.cc)
      set(arguments --mutate 100 --seed 1 ${corpus})
    endif()
    if(LUMEN_TESTS)
      add_test(NAME fuzz_replay_${name} COMMAND ${target} ${arguments})
      set_tests_properties(fuzz_replay_${name} PROPERTIES LABELS cpp)
    endif()
  endforeach()
endfunction()
