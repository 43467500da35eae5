# `cmake --install`: the libraries that need no server, for find_package(lumen), pkg-config and C. As a
# subproject (add_subdirectory, FetchContent) the targets lumen::queue and its like are the same.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Component of find_package -> module of tools/layers.toml; what these use comes along.
set(LUMEN_PACKAGE base c queue memory cache bus)

function(lumen_package)
  set(archives "")
  foreach(module ${LUMEN_PACKAGE})
    set(target lumen_mod_${module})
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${module} OUTPUT_NAME lumen_${module})
    target_compile_features(${target} INTERFACE cxx_std_20)
    install(TARGETS ${target} EXPORT lumen-targets COMPONENT lumen_dev
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(DIRECTORY include/lumen/${module} COMPONENT lumen_dev
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lumen)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      string(PREPEND archives " -llumen_${module}")  # a library before those that it uses
    endif()
  endforeach()
  set_target_properties(lumen_c PROPERTIES EXPORT_NAME c_abi)
  install(TARGETS lumen_c EXPORT lumen-targets COMPONENT lumen_dev
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

  list(JOIN LUMEN_PACKAGE ", " components)
  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/lumen)
  install(EXPORT lumen-targets NAMESPACE lumen:: DESTINATION ${folder} COMPONENT lumen_dev)
  configure_package_config_file(tools/cmake/lumen-config.cmake.in
                                ${PROJECT_BINARY_DIR}/lumen-config.cmake
                                INSTALL_DESTINATION ${folder})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/lumen-config-version.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/lumen-config.cmake
                ${PROJECT_BINARY_DIR}/lumen-config-version.cmake
          DESTINATION ${folder} COMPONENT lumen_dev)

  lumen_pkg_config(lumen "Queues, memory, a cache and a bus, in C++20" "${archives} -lpthread")
  lumen_pkg_config(lumen_c "The bus and the shared buffer, from C" "-llumen_c")
endfunction()

function(lumen_pkg_config NAME DESCRIPTION LIBS)
  string(STRIP "${LIBS}" LIBS)
  configure_file(tools/cmake/package.pc.in ${PROJECT_BINARY_DIR}/${NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${NAME}.pc COMPONENT lumen_dev
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
