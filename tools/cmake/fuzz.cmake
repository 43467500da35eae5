# Fuzz targets: tests/fuzz/<name>_fuzz.cc becomes fuzz_<name>. With clang and LUMEN_FUZZ it is a
# libFuzzer program; else replay_main.cc runs the corpus and seeded mutations of it, and takes the
# same arguments. Either way the test fuzz_replay_<name> runs the corpus.
set(LUMEN_LIBFUZZER OFF)
if(LUMEN_FUZZ AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(LUMEN_LIBFUZZER ON)
  # Before the modules: their code is what coverage must guide through.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Parsers outside of wire.
set(LUMEN_FUZZED_bus_ring src/bus/publisher.cc src/bus/subscriber.cc src/bus/subscriber_link.cc src/bus/peer.cc
    src/bus/segments.cc src/bus/stream_memory.cc)
set(LUMEN_FUZZED_model_config src/models/model_config.cc src/models/ensemble_config.cc src/models/picture_config.cc
    src/models/sequence_config.cc src/models/triton_keys.cc src/models/triton_values.cc
    src/models/warm_up_config.cc)
set(LUMEN_FUZZED_region_request src/server/region_request.cc src/server/job_json.cc src/service/shared_region.cc
    src/memory/truncation_guard.cc)
set(LUMEN_FUZZED_repository_scan src/models/repository_scan.cc src/models/scan_files.cc src/models/model_config.cc
    src/models/initial_states.cc
    src/models/ensemble_config.cc src/models/picture_config.cc src/models/sequence_config.cc
    src/models/triton_keys.cc src/models/triton_values.cc src/models/warm_up_config.cc)
set(LUMEN_FUZZED_picture src/pictures/decode.cc src/pictures/jpeg.cc src/pictures/png.cc src/pictures/resize.cc)
set(LUMEN_FUZZED_npy src/client/npy_file.cc)
set(LUMEN_FUZZED_reply_head src/client/reply_head.cc)
set(LUMEN_FUZZED_route src/transports/http/route.cc)
set(LUMEN_FUZZED_settings src/server/settings.cc src/server/settings_file.cc src/server/memory_limits.cc
    src/models/execution_provider.cc src/transports/http/host_check.cc src/transports/http/cors.cc
    src/engine/engine_config.cc src/net/socket.cc src/otlp/endpoint.cc)

function(lumen_fuzz)
  if((NOT LUMEN_FUZZ AND NOT LUMEN_TESTS) OR "fuzz" IN_LIST LUMEN_TESTS_LEFT_OUT)
    return()
  endif()
  if(NOT LUMEN_LIBFUZZER)
    add_library(lumen_fuzz_replay OBJECT tests/fuzz/replay_main.cc)
    target_include_directories(lumen_fuzz_replay PRIVATE ${PROJECT_SOURCE_DIR}/tests)
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
    target_link_libraries(${target} PRIVATE lumen::wire simdjson::simdjson)
    if(name STREQUAL "picture")
      target_link_libraries(${target} PRIVATE JPEG::JPEG ${LUMEN_LIBSPNG})
      target_include_directories(${target} SYSTEM PRIVATE ${LUMEN_INCLUDE_OF_spng})
    endif()
    if(name MATCHES "^(control|http1|http2|tls)$")  # a whole server
      target_sources(${target} PRIVATE tests/support/fake_backend.cc)
      target_link_libraries(${target} PRIVATE lumen::server)
    elseif(LUMEN_FUZZ)
      # Of these modules the parser alone: clang builds nothing else of them.
      target_sources(${target} PRIVATE ${LUMEN_FUZZED_${name}})
      get_property(roots GLOBAL PROPERTY LUMEN_INCLUDE_ROOTS)
      target_include_directories(${target} PRIVATE ${roots})
      target_link_libraries(${target} PRIVATE nlohmann_json::nlohmann_json)
    else()
      target_link_libraries(${target} PRIVATE lumen::server lumen::client lumen::cache)
    endif()
    if(LUMEN_LIBFUZZER)
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      set(arguments -runs=0 ${corpus})
    else()
      target_link_libraries(${target} PRIVATE lumen_fuzz_replay)
      # Each input of control changes the settings and the models of a server twice.
      set(mutations 200)
      if(name STREQUAL "control")
        set(mutations 40)
      endif()
      set(arguments --mutate ${mutations} --seed 1 ${corpus})
    endif()
    if(LUMEN_TESTS)
      add_test(NAME fuzz_replay_${name} COMMAND ${target} ${arguments})
      set_tests_properties(fuzz_replay_${name} PROPERTIES LABELS cpp)
    endif()
  endforeach()
endfunction()
