# How a module, a test folder, a bench and an app become targets. Sources are globbed: a new file in
# the right folder needs no line here.

# Without a backend (the TSan build has none), its folder src/backends/NAME and files whose name begins
# with NAME_ are left out; the tests bring a fake backend.
set(LUMEN_BACKENDS openvino onnxruntime)
macro(lumen_drop_backends SOURCES)
  foreach(backend ${LUMEN_BACKENDS})
    string(TOUPPER ${backend} upper)
    if(NOT LUMEN_WITH_${upper})
      list(FILTER ${SOURCES} EXCLUDE REGEX "/${backend}(_[^/]*|/[^/]*)$")
    endif()
  endforeach()
endmacro()

# The row of NAME in tools/layers.toml, the one place that says what a module may use.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/layers.toml)
function(lumen_layer NAME USES FOLDERS)
  file(READ ${PROJECT_SOURCE_DIR}/tools/layers.toml layers)
  set(list "\\[([^]]*)\\]")
  if(NOT layers MATCHES "\n${NAME} = {floor = [0-9]+, uses = ${list}(, folders = ${list})?}\n")
    message(FATAL_ERROR "tools/layers.toml has no row for the module ${NAME}")
  endif()
  set(uses ${CMAKE_MATCH_1})
  set(folders ${CMAKE_MATCH_3})
  if(NOT folders)
    set(folders src/${NAME})
  endif()
  string(REGEX REPLACE "[\" ]*,[\" ]*" ";" uses "${uses}")
  string(REGEX REPLACE "[\" ]*,[\" ]*" ";" folders "${folders}")
  string(REPLACE "\"" "" uses "${uses}")
  string(REPLACE "\"" "" folders "${folders}")
  set(${USES} ${uses} PARENT_SCOPE)
  set(${FOLDERS} ${folders} PARENT_SCOPE)
endfunction()

# The face of a module stands where its first folder does: src/transports/http has include/lumen/transports/http.
function(lumen_face FOLDERS FACE)
  list(GET FOLDERS 0 first)
  string(REGEX MATCH "/.*" below ${first})
  set(${FACE} lumen${below} PARENT_SCOPE)
endfunction()

# Makes roots/NAME/include, which holds its face and nothing else, and roots/NAME/src, which holds its
# folders (src/engine as engine) and nothing else. Sets ROOT to what others include it by: the first, or
# the second where it has no face under include/.
set(LUMEN_ROOTS ${PROJECT_BINARY_DIR}/roots)
function(lumen_make_roots NAME FOLDERS ROOT)
  set(${ROOT} ${LUMEN_ROOTS}/${NAME}/src PARENT_SCOPE)
  lumen_face("${FOLDERS}" face)
  if(EXISTS ${PROJECT_SOURCE_DIR}/include/${face})
    lumen_link(include/${face} ${NAME}/include/${face})
    set(${ROOT} ${LUMEN_ROOTS}/${NAME}/include PARENT_SCOPE)
  endif()
  foreach(folder ${FOLDERS})
    string(REGEX MATCH "/.*" below ${folder})
    lumen_link(${folder} ${NAME}/src${below})
  endforeach()
endfunction()

function(lumen_link FOLDER LINK)
  cmake_path(GET LINK PARENT_PATH parent)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${FOLDER} AND NOT EXISTS ${LUMEN_ROOTS}/${LINK})
    file(MAKE_DIRECTORY ${LUMEN_ROOTS}/${parent})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${FOLDER} ${LUMEN_ROOTS}/${LINK} SYMBOLIC)
  endif()
endfunction()

# TARGET is compiled with the faces of NAME and of what NAME uses, and finds no other.
function(lumen_compile_as TARGET NAME)
  lumen_layer(${NAME} uses folders)
  if(TARGET lumen_mod_${NAME})
    list(PREPEND uses ${NAME})
  endif()
  foreach(module ${uses})
    get_target_property(root lumen_mod_${module} LUMEN_ROOT)
    target_include_directories(${TARGET} PRIVATE ${root})
  endforeach()
endfunction()

# lumen_module(NAME [LIBS targets...]): the sources in its folders as lumen::NAME. Who links that, a test
# or a program, gets all that it uses; the module itself is compiled with its row alone.
function(lumen_module NAME)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  lumen_layer(${NAME} uses folders)
  lumen_make_roots(${NAME} "${folders}" root)
  set(sources "")
  foreach(folder ${folders})
    file(GLOB found CONFIGURE_DEPENDS ${folder}/*.cc)
    list(APPEND sources ${found})
  endforeach()
  lumen_drop_backends(sources)
  set(target lumen_mod_${NAME})
  if(sources)
    add_library(${target} STATIC ${sources})
    lumen_unity(${target})
    target_link_libraries(${target} PRIVATE ${ARG_LIBS})
    target_include_directories(${target} PRIVATE ${LUMEN_ROOTS}/${NAME}/src)
  else()
    add_library(${target} INTERFACE)
  endif()
  add_library(lumen::${NAME} ALIAS ${target})
  set_property(TARGET ${target} PROPERTY LUMEN_ROOT ${root})
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${root}>
                                                 $<INSTALL_INTERFACE:include>)
  if(sources)
    lumen_compile_as(${target} ${NAME})
  endif()
  list(TRANSFORM uses PREPEND lumen::)
  target_link_libraries(${target} INTERFACE ${uses} Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY LUMEN_MODULES ${NAME})
  set_property(GLOBAL APPEND PROPERTY LUMEN_INCLUDE_ROOTS ${root})
  if(LUMEN_TESTS AND NOT LUMEN_SANITIZE)
    lumen_face("${folders}" face)
    lumen_check_headers(${NAME} ${face} "${folders}")
  endif()
endfunction()

# The messages of FOLDER/*.proto as a library of protobuf's classes.
function(lumen_messages NAME FOLDER)
  set(out ${PROJECT_BINARY_DIR}/messages)
  file(MAKE_DIRECTORY ${out})
  file(GLOB protos CONFIGURE_DEPENDS ${FOLDER}/*.proto)
  set(sources "")
  foreach(proto ${protos})
    cmake_path(GET proto STEM stem)
    add_custom_command(OUTPUT ${out}/${stem}.pb.cc ${out}/${stem}.pb.h
                       COMMAND ${Protobuf_PROTOC_EXECUTABLE} --proto_path=${PROJECT_SOURCE_DIR}/${FOLDER}
                               --cpp_out=${out} ${proto}
                       DEPENDS ${protos} VERBATIM)
    list(APPEND sources ${out}/${stem}.pb.cc)
  endforeach()
  add_library(${NAME} STATIC ${sources})
  target_compile_options(${NAME} PRIVATE -w -O1)
  target_include_directories(${NAME} SYSTEM PUBLIC ${out})
  target_link_libraries(${NAME} PUBLIC protobuf::libprotobuf)
endfunction()

# Part of lumen_headers: each header of a face compiled alone, as its module is. One that needs another
# before it, or a module that its own may not use, is found. A header with a source of its name is
# compiled so in that source, which includes it first (tools/tidy.py).
function(lumen_check_headers NAME FACE FOLDERS)
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include include/${FACE}/*.h
       include/${FACE}/detail/*.h)
  set(sources "")
  list(GET FOLDERS 0 folder)
  foreach(header ${headers})
    cmake_path(GET header STEM name)
    set(source ${PROJECT_SOURCE_DIR}/${folder}/${name})
    if(EXISTS ${source}.cc AND NOT EXISTS ${source}.h)
      continue()
    endif()
    set(source ${PROJECT_BINARY_DIR}/headers/${header}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <${header}>\n")
    list(APPEND sources ${source})
  endforeach()
  if(sources)
    add_library(lumen_headers_${NAME} OBJECT ${sources})
    target_compile_options(lumen_headers_${NAME} PRIVATE -O0)
    lumen_compile_as(lumen_headers_${NAME} ${NAME})
    if(NOT TARGET lumen_headers)
      add_custom_target(lumen_headers)
    endif()
    add_dependencies(lumen_headers lumen_headers_${NAME})
  endif()
endfunction()

# apps/lumen.cc and apps/lumen_engine.cc hold a main() each, over the rest of apps/ as one library.
function(lumen_apps)
  file(GLOB sources CONFIGURE_DEPENDS apps/*.cc)
  list(FILTER sources EXCLUDE REGEX "/apps/lumen(_engine)?\\.cc$")
  if(NOT sources)
    return()
  endif()
  add_library(lumen_app STATIC ${sources})
  lumen_unity(lumen_app)
  lumen_compile_as(lumen_app apps)
  target_link_libraries(lumen_app PRIVATE CLI11::CLI11 spdlog::spdlog nlohmann_json::nlohmann_json
                        INTERFACE lumen::server lumen::backends lumen::bus lumen::client
                                  lumen::doctor)
  target_compile_definitions(lumen_app PUBLIC LUMEN_VERSION="${PROJECT_VERSION}")
  # Of that file alone: ccache keeps the others for all checkouts.
  set(tree "${PROJECT_SOURCE_DIR}")
  if(SKBUILD)
    set(tree "")
  endif()
  set_source_files_properties(apps/python_command.cc PROPERTIES
                              COMPILE_DEFINITIONS LUMEN_SOURCE_TREE="${tree}")
  if(LUMEN_SANITIZE)
    # Reading arguments: the headers for that are a sixth of what ./dev asan compiles.
    target_compile_options(lumen_app PRIVATE -O0)
  endif()
  foreach(app lumen lumen_engine)
    add_executable(${app} apps/${app}.cc)
    target_link_libraries(${app} PRIVATE lumen_app)
  endforeach()
  target_compile_definitions(lumen_engine PRIVATE LUMEN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  lumen_install()
endfunction()

# The wheel: the executable lies in the package, and finds the libraries of the packages beside that one,
# wherever all these are installed.
function(lumen_install)
  if(NOT SKBUILD)
    # OpenVINO and ONNX Runtime stay where they are.
    set_target_properties(lumen PROPERTIES INSTALL_RPATH "${CMAKE_BUILD_RPATH}")
    install(TARGETS lumen RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT lumen_server)
    return()
  endif()
  set(packages "$ORIGIN/../..")
  set_target_properties(lumen PROPERTIES
                        INSTALL_RPATH "${packages}/openvino/libs;${packages}/onnxruntime/capi")
  install(TARGETS lumen RUNTIME DESTINATION lumen_engine/bin COMPONENT lumen)
endfunction()

# GoogleTest and the standard headers that most tests include, compiled once for all programs with the
# same flags: half of the cost of a small test. The library has none, so that each file there names
# the headers that it uses.
function(lumen_precompile_tests OWNER)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cc CONTENT "int main() {}\n")
  add_executable(${OWNER} ${PROJECT_BINARY_DIR}/precompiled.cc)
  target_link_libraries(${OWNER} PRIVATE GTest::gtest GTest::gmock)
  target_precompile_headers(${OWNER} PRIVATE <gtest/gtest.h> <gmock/gmock.h> <array> <atomic> <chrono>
                            <functional> <map> <memory> <optional> <random> <span> <string> <thread>
                            <variant> <vector>)
endfunction()

function(lumen_flags_of_test NAME)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # ccache asks for the first. gcc 12 finds faults in std::string that aren't there (PR 105329), and
    # is silent of them in system headers, but not in those of a precompiled one.
    target_compile_options(${NAME} PRIVATE -fpch-preprocess -Wno-array-bounds -Wno-stringop-overflow
                                           -Wno-restrict)
  endif()
  if(NAME MATCHES "^unit_")
    # Half of a build's cost was optimising unit tests. The programs that look for races by
    # running long (stress, conformance, integration) are compiled as the server is.
    if(LUMEN_SANITIZE)
      target_compile_options(${NAME} PRIVATE -O0)
      if(LUMEN_SANITIZE MATCHES "undefined")
        # A third of a small test's cost; the library and the programs that run long have it.
        target_compile_options(${NAME} PRIVATE -fno-sanitize=alignment)
      endif()
    elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
      target_compile_options(${NAME} PRIVATE -O1)
    endif()
  endif()
endfunction()

# tests/unit/<module>/*_test.cc -> unit_<module>; tests/<kind>/*_test.cc -> <kind>.
function(lumen_test_program NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  if(ARG_SOURCES AND NOT NAME IN_LIST LUMEN_TESTS_LEFT_OUT)
    add_executable(${NAME} ${ARG_SOURCES})
    if(TARGET lumen_test_support AND NOT NAME MATCHES "^unit_(base|queue|memory|tensor|onnx|wire|net)$")
      target_link_libraries(${NAME} PRIVATE lumen_test_support)
    endif()
    target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${NAME} PRIVATE ${ARG_LIBS} lumen_source_dir GTest::gtest GTest::gmock GTest::gtest_main)
    lumen_flags_of_test(${NAME})
    lumen_unity(${NAME})
    if(NAME MATCHES "^unit_")
      target_precompile_headers(${NAME} REUSE_FROM unit_precompiled)
    else()
      target_precompile_headers(${NAME} REUSE_FROM precompiled)
    endif()
    add_test(NAME ${NAME} COMMAND ${NAME})
    # The user's own cache is not for tests.
    set_tests_properties(${NAME} PROPERTIES LABELS cpp ENVIRONMENT "XDG_CACHE_HOME=${PROJECT_BINARY_DIR}/cache")
  endif()
endfunction()

# A device for tests and for bench/device.py: a plugin that ONNX Runtime loads.
function(lumen_test_device)
  if(LUMEN_WITH_ONNXRUNTIME AND (LUMEN_TESTS OR LUMEN_BENCHES))
    file(GLOB sources CONFIGURE_DEPENDS tests/device/*.cc)
    add_library(lumen_test_device MODULE ${sources})
    target_include_directories(lumen_test_device PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_include_directories(lumen_test_device SYSTEM PRIVATE ${LUMEN_ONNXRUNTIME_INCLUDE})
  endif()
endfunction()

function(lumen_tests)
  if(NOT LUMEN_TESTS)
    return()
  endif()
  find_package(GTest REQUIRED)
  # The fake backend and the late loop: what tests of the engine and of all above it share.
  file(GLOB support CONFIGURE_DEPENDS tests/support/*.cc)
  list(FILTER support EXCLUDE REGEX "/source_dir\\.cc$")
  add_library(lumen_test_support STATIC ${support})
  target_include_directories(lumen_test_support PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(lumen_test_support PUBLIC lumen::engine lumen::net)
  add_library(lumen_source_dir STATIC tests/support/source_dir.cc)
  target_include_directories(lumen_source_dir PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(lumen_source_dir PRIVATE LUMEN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(TARGET lumen_test_device)
    target_compile_definitions(lumen_source_dir PUBLIC LUMEN_WITH_TEST_DEVICE)
    # Of that file alone: ccache keeps the others for all checkouts.
    target_compile_definitions(lumen_source_dir PRIVATE
                               LUMEN_TEST_DEVICE="$<TARGET_FILE:lumen_test_device>")
    add_dependencies(lumen_source_dir lumen_test_device)
  endif()
  foreach(owner unit_precompiled precompiled)
    lumen_precompile_tests(${owner})
    lumen_flags_of_test(${owner})
  endforeach()
  get_property(modules GLOBAL PROPERTY LUMEN_MODULES)
  foreach(module ${modules})
    file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} tests/unit/${module}/*_test.cc)
    list(REMOVE_ITEM sources ${LUMEN_TEST_FILES_LEFT_OUT})
    lumen_drop_backends(sources)
    lumen_test_program(unit_${module} SOURCES ${sources} LIBS lumen::${module})
    if(module STREQUAL "grpc")
      target_link_libraries(unit_grpc PRIVATE lumen_grpc_messages)
    endif()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS tests/unit/apps/*_test.cc)
  lumen_test_program(unit_apps SOURCES ${sources} LIBS lumen::client)
  foreach(kind conformance stress integration regression)
    file(GLOB sources CONFIGURE_DEPENDS tests/${kind}/*.cc)
    lumen_drop_backends(sources)
    lumen_test_program(${kind} SOURCES ${sources} LIBS lumen::server lumen::backends lumen::bus_client)
  endforeach()
  # On two CPUs beside `stress` it takes about as long as the presets allow, 300 s.
  set_tests_properties(integration PROPERTIES TIMEOUT 600)
  # The server on a loop whose completions come late, as a kernel ring's do, and on such a ring.
  foreach(loop late uring)
    lumen_test_program(${loop} SOURCES tests/${loop}/make_loop.cc tests/integration/server_test.cc
                       tests/integration/live_swap_test.cc tests/regression/timeout_test.cc
                       LIBS lumen::server)
  endforeach()
endfunction()

# tests/simulation: the server in a simulated world. Its program has threads and a clock of its own, so not with
# TSan, which brings its own too, and links what the library would be asked for.
function(lumen_simulation)
  if(NOT LUMEN_TESTS OR LUMEN_SANITIZE STREQUAL "thread")
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS tests/simulation/*.cc)
  add_executable(simulation ${sources})
  target_include_directories(simulation PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(simulation PRIVATE lumen_test_support lumen::server ${LUMEN_LIBNGHTTP2} ${CMAKE_DL_LIBS})
  add_test(NAME simulation COMMAND simulation)
  set_tests_properties(simulation PROPERTIES LABELS cpp)
  if(LUMEN_SANITIZE)
    set_tests_properties(simulation PROPERTIES ENVIRONMENT "LUMEN_SIM_HISTORIES=10000")
    return()
  endif()
  # Each of these faults is found within a minute, and the seed that shows it is told.
  foreach(fault lost_wake_up double_completion early_reuse fifo_policy)
    add_test(NAME simulation_finds_${fault} COMMAND simulation --fault ${fault})
    set_tests_properties(simulation_finds_${fault} PROPERTIES LABELS cpp TIMEOUT 60
                         PASS_REGULAR_EXPRESSION "see it again by --seed")
  endforeach()
endfunction()

# tests/spin/NAME.pml -> the test spin_NAME: the model holds, and each broken variant is found to fail. Run where the
# model or a file that it cites has changed since it was checked (tests/spin/checked.tsv); ./dev soak runs all.
function(lumen_spin_models)
  if(NOT LUMEN_TESTS OR LUMEN_SANITIZE)
    return()
  endif()
  find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
  file(GLOB models CONFIGURE_DEPENDS tests/spin/*.pml)
  foreach(model ${models})
    get_filename_component(name ${model} NAME_WE)
    add_test(NAME spin_${name}
             COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/spin/run_spin.py --changed ${model})
  endforeach()
endfunction()

# tests/nocompile/MODULE.cc -> nocompile_MODULE: misuses of its faces that must not compile, with the
# flags that its headers are checked with; nocompile_includes: what each module can't include.
function(lumen_nocompile)
  if(NOT LUMEN_TESTS OR LUMEN_SANITIZE)
    return()
  endif()
  find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
  set(run ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/nocompile/run_nocompile.py)
  add_test(NAME nocompile_includes
           COMMAND ${run} includes ${PROJECT_BINARY_DIR}/compile_commands.json)
  file(GLOB sources CONFIGURE_DEPENDS tests/nocompile/*.cc)
  foreach(source ${sources})
    get_filename_component(module ${source} NAME_WE)
    set(roots $<TARGET_PROPERTY:lumen_headers_${module},INCLUDE_DIRECTORIES>)
    add_test(NAME nocompile_${module}
             COMMAND ${run} misuses ${source} -- ${CMAKE_CXX_COMPILER} -std=c++20 -march=${LUMEN_ARCH}
                     "-I$<JOIN:${roots},;-I>"
             COMMAND_EXPAND_LISTS)
  endforeach()
endfunction()

# bench/micro/NAME.cc -> bench_NAME; what needs more than that stands in bench/CMakeLists.txt. Run by
# bench/<name>.py. A plain release build has bench_chronocache where Google Benchmark is found, as a user of the
# header alone measures it.
function(lumen_benches)
  if(NOT LUMEN_BENCHES)
    if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT SKBUILD AND NOT LUMEN_SANITIZE)
      find_package(benchmark QUIET)
      if(benchmark_FOUND)
        include(bench/cache/cache.cmake)
      endif()
    endif()
    return()
  endif()
  find_package(benchmark REQUIRED)
  if(EXISTS ${PROJECT_SOURCE_DIR}/bench/CMakeLists.txt)
    add_subdirectory(bench)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS bench/micro/*.cc)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(bench_${name} ${source})
    target_include_directories(bench_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(bench_${name} PRIVATE lumen::server benchmark::benchmark)
    if(LUMEN_TESTS)
      target_compile_options(bench_${name} PRIVATE -O0)  # only compiled: bench/CMakeLists.txt
    endif()
  endforeach()
endfunction()

# examples/NAME/*.cc -> example_NAME, run by the tests with the models of the tree as its argument.
function(lumen_examples)
  if(NOT LUMEN_EXAMPLES)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS examples/*/*.cc)
  foreach(source ${sources})
    get_filename_component(folder ${source} DIRECTORY)
    get_filename_component(name ${folder} NAME)
    if(NOT TARGET example_${name})
      file(GLOB own CONFIGURE_DEPENDS ${folder}/*.cc)
      add_executable(example_${name} ${own})
      target_link_libraries(example_${name} PRIVATE lumen::server lumen::backends lumen::bus lumen::cache)
      add_test(NAME example_${name} COMMAND example_${name} ${PROJECT_SOURCE_DIR}/models)
    endif()
  endforeach()
endfunction()
