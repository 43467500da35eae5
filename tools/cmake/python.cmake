# The extension lumen_engine._bus, by nanobind out of its wheel. Built where that is there: in ./dev build and
# in `pip install .`, not in the sanitizers' builds, whose library Python can't load. It keeps to Python's
# stable ABI, so that one wheel serves all versions from 3.11 on; what is left to each version is in the package
# nanobind-backend.
function(lumen_python)
  if(LUMEN_SANITIZE)
    return()
  endif()
  lumen_find_wheel(nanobind nanobind_dir)
  if(NOT nanobind_dir)
    message(STATUS "no nanobind wheel in ${LUMEN_VENV}: building without lumen_engine.bus")
    return()
  endif()
  if(NOT SKBUILD)
    set(Python_EXECUTABLE ${LUMEN_VENV}/bin/python)
  endif()
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
  find_package(nanobind CONFIG REQUIRED PATHS "${nanobind_dir}/cmake" NO_DEFAULT_PATH)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/bus/*.cc)
  nanobind_add_module(lumen_python_bus BACKEND_MODULE nanobind_backend STABLE_ABI_VERSION 3.11
                      NOMINSIZE NB_SUPPRESS_WARNINGS ${sources})
  set_target_properties(lumen_python_bus PROPERTIES OUTPUT_NAME _bus)
  target_link_libraries(lumen_python_bus PRIVATE lumen::bus lumen::bus_client)
  if(SKBUILD)
    install(TARGETS lumen_python_bus LIBRARY DESTINATION lumen_engine COMPONENT lumen)
  else()
    # The tree's own package finds it there; git does not look at it. One that was made for a single version of
    # Python, as they were before, would be found first.
    file(GLOB old ${PROJECT_SOURCE_DIR}/python/lumen_engine/_bus.cpython-*.so)
    if(old)
      file(REMOVE ${old})
    endif()
    add_custom_command(TARGET lumen_python_bus POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E create_symlink $<TARGET_FILE:lumen_python_bus>
              ${PROJECT_SOURCE_DIR}/python/lumen_engine/$<TARGET_FILE_NAME:lumen_python_bus>)
  endif()
endfunction()
