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
  # Debian's folder of libraries is two below the prefix.
  file(RELATIVE_PATH to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  configure_file(tools/cmake/package.pc.in ${PROJECT_BINARY_DIR}/${NAME}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${NAME}.pc COMPONENT lumen_dev
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# `cpack` in a build folder of -DLUMEN_SERVER=OFF -DCMAKE_INSTALL_PREFIX=/usr: liblumen-dev_VERSION_ARCH.deb.
# The server is no Debian package: OpenVINO and ONNX Runtime, which it needs, are none. Its package is the
# wheel. Folders get the builder's umask: wanted 022. No mail reaches the maintainer that dpkg wants to be named.
function(lumen_debian_package)
  set(package liblumen-dev)
  set(folder ${PROJECT_BINARY_DIR}/debian)
  set(CPACK_GENERATOR DEB)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_ALL lumen_dev)
  set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
  set(CPACK_DEBIAN_LUMEN_DEV_PACKAGE_NAME ${package})
  set(CPACK_COMPONENT_LUMEN_DEV_DESCRIPTION "queues, memory, a cache and a bus for C++20 and C
Queues without locks that sleep when idle, arenas and a shared buffer,
a cache with deadlines, and rings in shared memory between processes.
For find_package() of CMake and pkg-config.")
  set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The authors of Lumen <lumen@localhost>")
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  # The shared library of the C interface: its name for dpkg-shlibdeps of others, and ldconfig's turn.
  file(WRITE ${folder}/shlibs "liblumen_c 1 ${package} (>= ${PROJECT_VERSION})\n")
  file(WRITE ${folder}/triggers "activate-noawait ldconfig\n")
  set(CPACK_DEBIAN_LUMEN_DEV_PACKAGE_CONTROL_EXTRA ${folder}/shlibs ${folder}/triggers)
  file(WRITE ${folder}/copyright "Lumen ${PROJECT_VERSION}

Copyright: the authors of Lumen
License: Apache-2.0, whose text is in /usr/share/common-licenses/Apache-2.0.
")
  file(WRITE ${folder}/changelog "${package} (${PROJECT_VERSION}) unstable; urgency=medium

  * docs/CHANGELOG.md of the sources tells what has changed.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  Sun, 29 Nov 2026 00:00:00 +0000
")
  execute_process(COMMAND gzip -9nf ${folder}/changelog COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${folder}/copyright ${folder}/changelog.gz COMPONENT lumen_dev
          DESTINATION share/doc/${package})
  include(CPack)
endfunction()
