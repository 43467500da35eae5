# The model that config.json speaks of and that is too large for the tree: models/squeezenet, made where
# it is missing. Included by CMakeLists.txt for the target; run as a script (cmake -P) by that target.
#
# No rule with the file as its OUTPUT: `ninja clean` would remove it, and it may hold weights that its
# user has trained. So the target runs each time, and looks: 10 ms.
if(CMAKE_SCRIPT_MODE_FILE)
  if(NOT EXISTS "${MODELS}/squeezenet/1/model.onnx")
    execute_process(COMMAND "${PYTHON}" "${MODELS}/squeezenet/make.py" --if-missing
                    RESULT_VARIABLE failed)
    if(failed)
      # The server is built and serves every other model: no reason to fail.
      message(WARNING "models/squeezenet is not made, ${PYTHON} failed (${failed})\n"
                      "  Run ./dev setup, then this again.")
    endif()
  endif()
  return()
endif()

function(lumen_models)
  # A wheel carries no models.
  if(SKBUILD OR NOT TARGET lumen_engine)
    return()
  endif()
  add_custom_target(lumen_models ALL
    COMMAND ${CMAKE_COMMAND} -DMODELS=${PROJECT_SOURCE_DIR}/models -DPYTHON=${LUMEN_VENV}/bin/python
            -P ${PROJECT_SOURCE_DIR}/tools/cmake/models.cmake
    COMMENT "Looking for models/squeezenet" VERBATIM)
  add_dependencies(lumen_engine lumen_models)
endfunction()
