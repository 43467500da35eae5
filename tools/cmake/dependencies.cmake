# What Lumen is built on: Debian packages, OpenVINO and ONNX Runtime from their PyPI wheels (docs/adr/0002).
set(LUMEN_VENV "${PROJECT_SOURCE_DIR}/.venv" CACHE PATH "virtual environment with the wheels")

# Sets `result` to the folder of a Python package, or leaves it empty.
function(lumen_find_wheel PACKAGE result)
  set(found "")
  if(SKBUILD)
    # pip builds in an environment of its own, where pyproject.toml has put the wheel.
    execute_process(
      COMMAND ${Python_EXECUTABLE} -c
              "import importlib.util as u; print(u.find_spec('${PACKAGE}').submodule_search_locations[0])"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  else()
    file(GLOB found "${LUMEN_VENV}/lib/python3*/site-packages/${PACKAGE}")
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

if(SKBUILD)
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
endif()
if(LUMEN_WITH_OPENVINO)
  lumen_find_wheel(openvino LUMEN_OPENVINO_DIR)
  if(NOT LUMEN_OPENVINO_DIR AND LUMEN_VENV STREQUAL "${PROJECT_SOURCE_DIR}/.venv")
    message(STATUS "no openvino wheel in ${LUMEN_VENV}: running ./dev setup")
    execute_process(COMMAND ${PROJECT_SOURCE_DIR}/dev setup)
    lumen_find_wheel(openvino LUMEN_OPENVINO_DIR)
  endif()
  if(NOT LUMEN_OPENVINO_DIR)
    message(FATAL_ERROR "no openvino wheel in ${LUMEN_VENV}\n  Run ./dev setup, then this again.")
  endif()
endif()

# After the wheel, because ./dev setup installs these too.
find_package(Threads REQUIRED)
find_package(simdjson REQUIRED)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)

find_path(LUMEN_INCLUDE_OF_libdeflate libdeflate.h)
find_library(LUMEN_LIBDEFLATE deflate)
if(NOT LUMEN_INCLUDE_OF_libdeflate OR NOT LUMEN_LIBDEFLATE)
  message(FATAL_ERROR "no libdeflate (Debian: libdeflate-dev)\n  Run ./dev setup, then this again.")
endif()

find_path(LUMEN_INCLUDE_OF_nghttp2 nghttp2/nghttp2.h)
find_library(LUMEN_LIBNGHTTP2 nghttp2)
if(NOT LUMEN_INCLUDE_OF_nghttp2 OR NOT LUMEN_LIBNGHTTP2)
  message(FATAL_ERROR "no nghttp2 (Debian: libnghttp2-dev)\n  Run ./dev setup, then this again.")
endif()

find_package(JPEG)
find_path(LUMEN_INCLUDE_OF_spng spng.h)
find_library(LUMEN_LIBSPNG spng)
if(NOT JPEG_FOUND OR NOT LUMEN_INCLUDE_OF_spng OR NOT LUMEN_LIBSPNG)
  message(FATAL_ERROR "no libjpeg-turbo or no libspng (Debian: libjpeg-dev, libspng-dev)\n"
                      "  Run ./dev setup, then this again.")
endif()

find_package(OpenSSL 3.0)
if(NOT OPENSSL_FOUND)
  message(FATAL_ERROR "no OpenSSL (Debian: libssl-dev)\n  Run ./dev setup, then this again.")
endif()

# protobuf's library for gRPC's messages that no request waits for: documents, changes, reflection.
find_package(Protobuf)
if(NOT Protobuf_FOUND OR NOT Protobuf_PROTOC_EXECUTABLE)
  message(FATAL_ERROR "no protobuf (Debian: libprotobuf-dev, protobuf-compiler)\n"
                      "  Run ./dev setup, then this again.")
endif()

# Headers alone: nothing of them is linked.
foreach(header xxhash.h highwayhash/highwayhash.h)
  cmake_path(GET header STEM stem)
  find_path(LUMEN_INCLUDE_OF_${stem} ${header})
  if(NOT LUMEN_INCLUDE_OF_${stem})
    message(FATAL_ERROR "no ${header} (Debian: lib${stem}-dev)\n  Run ./dev setup, then this again.")
  endif()
  list(APPEND LUMEN_HASH_INCLUDES ${LUMEN_INCLUDE_OF_${stem}})
endforeach()
list(REMOVE_DUPLICATES LUMEN_HASH_INCLUDES)

if(LUMEN_WITH_OPENVINO)
  find_package(OpenVINO REQUIRED CONFIG PATHS "${LUMEN_OPENVINO_DIR}/cmake" NO_DEFAULT_PATH)
  list(APPEND CMAKE_BUILD_RPATH "${LUMEN_OPENVINO_DIR}/libs")
endif()

# ONNX Runtime: the library out of its wheel, opened when a model first needs it; the headers are here
# (tools/onnxruntime_c_api/README.md). The build goes on without the library.
set(LUMEN_ONNXRUNTIME_INCLUDE ${PROJECT_SOURCE_DIR}/tools/onnxruntime_c_api)
function(lumen_find_onnxruntime)
  lumen_find_wheel(onnxruntime wheel)
  file(GLOB library "${wheel}/capi/libonnxruntime.so.*")
  if(library)
    set(LUMEN_ONNXRUNTIME_LIBRARY ${library} PARENT_SCOPE)
    return()
  endif()
  set(LUMEN_WITH_ONNXRUNTIME OFF PARENT_SCOPE)
  message(STATUS "building without ONNX Runtime, so its models will be UNAVAILABLE: no onnxruntime wheel in"
                 " ${LUMEN_VENV}. ./dev setup installs it")
endfunction()

if(LUMEN_WITH_ONNXRUNTIME)
  lumen_find_onnxruntime()
endif()
if(LUMEN_WITH_ONNXRUNTIME)
  cmake_path(GET LUMEN_ONNXRUNTIME_LIBRARY PARENT_PATH folder)
  cmake_path(GET LUMEN_ONNXRUNTIME_LIBRARY FILENAME LUMEN_ONNXRUNTIME_FILE)
  list(APPEND CMAKE_BUILD_RPATH "${folder}")
endif()
