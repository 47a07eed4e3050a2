# What `cmake --install` and CPack put where, in two components:
#   runtime  the binary, example jobs, proto files, documentation, manual pages, completion of command lines
#   dev      static libraries, headers and the CMake package `braid`, which examples/scorer shows
# `installable` builds all of it and no tests.
include(CMakePackageConfigHelpers)

# Packages are made of what `installable` has built, and do not wait for tests.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(doc ${CMAKE_INSTALL_DATAROOTDIR}/doc/braid)

if(BRAID_HAVE_ARROW)
  file(RELATIVE_PATH below ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/braid)
  set_target_properties(braid PROPERTIES INSTALL_RPATH "$ORIGIN/${below}")
  install(FILES ${BRAID_ARROW_LIBRARIES} DESTINATION ${BRAID_ARROW_INSTALLED} COMPONENT runtime)
  list(GET BRAID_ARROW_LIBRARIES 0 library)
  get_filename_component(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${library} DIRECTORY)
endif()
install(TARGETS braid RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(DIRECTORY examples/jobs DESTINATION ${CMAKE_INSTALL_DATADIR}/braid COMPONENT runtime)
install(DIRECTORY proto DESTINATION ${CMAKE_INSTALL_DATADIR}/braid COMPONENT runtime FILES_MATCHING PATTERN "*.proto")
install(DIRECTORY docs DESTINATION ${doc} COMPONENT runtime)
install(FILES README.md CHANGELOG.md NOTICE DESTINATION ${doc} COMPONENT runtime)
install(FILES LICENSE DESTINATION ${doc} RENAME copyright COMPONENT runtime)

# Written by the binary itself, from the text of --help.
if(NOT BRAID_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
  set(shell ${PROJECT_BINARY_DIR}/shell)
  add_custom_command(OUTPUT ${shell}/done
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${shell}
    COMMAND braid man --out ${shell}/man
    COMMAND sh -c "'$<TARGET_FILE:braid>' completion bash > '${shell}/braid'"
    COMMAND sh -c "'$<TARGET_FILE:braid>' completion zsh > '${shell}/_braid'"
    COMMAND ${CMAKE_COMMAND} -E touch ${shell}/done
    DEPENDS braid COMMENT "Writing manual pages and completion" VERBATIM)
  add_custom_target(braid_shell ALL DEPENDS ${shell}/done)
  install(DIRECTORY ${shell}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
  install(FILES ${shell}/braid DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT runtime)
  # Debian's zsh looks into the one, others into the other.
  if(EXISTS /etc/debian_version)
    set(zsh ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
  else()
    set(zsh ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  endif()
  install(FILES ${shell}/_braid DESTINATION ${zsh} COMPONENT runtime)
endif()

foreach(folder base comm engine launch models ps worker)
  install(DIRECTORY ${folder} DESTINATION ${BRAID_INSTALL_HEADERS} COMPONENT dev FILES_MATCHING PATTERN "*.h")
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/gen/proto DESTINATION ${BRAID_INSTALL_HEADERS} COMPONENT dev
  FILES_MATCHING PATTERN "*.pb.h")
install(FILES ${PROJECT_BINARY_DIR}/gen/engine/ir/op_contract.h DESTINATION ${BRAID_INSTALL_HEADERS}/engine/ir
  COMPONENT dev)
install(FILES cli/run_main.h DESTINATION ${BRAID_INSTALL_HEADERS}/cli COMPONENT dev)
install(DIRECTORY examples/scorer examples/own_op examples/own_model DESTINATION ${doc}/examples COMPONENT dev)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/braid)
install(EXPORT braid NAMESPACE braid:: FILE braid-targets.cmake DESTINATION ${package} COMPONENT dev)
configure_package_config_file(cmake/braid-config.cmake.in ${PROJECT_BINARY_DIR}/braid-config.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/braid-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES cmake/BraidOpLibrary.cmake ${PROJECT_BINARY_DIR}/braid-config.cmake ${PROJECT_BINARY_DIR}/braid-config-version.cmake
  DESTINATION ${package} COMPONENT dev)

get_property(exported GLOBAL PROPERTY BRAID_EXPORTED)
add_custom_target(installable)
add_dependencies(installable braid ${exported})
if(TARGET braid_shell)
  add_dependencies(installable braid_shell)
endif()

set(CPACK_PACKAGE_NAME braid)
set(CPACK_PACKAGE_VENDOR "Braid")
set(CPACK_PACKAGE_CONTACT "the Braid authors <braid@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed training worker for ranking and recommendation models")
set(CPACK_PACKAGE_DESCRIPTION "Trains models with many parallel branches over several streams, on CPUs and GPUs, on one
host or many, with parameter servers or all-reduce.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME braid)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS dataset-fashion-mnist)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS openmpi-bin)
set(CPACK_COMPONENT_DEV_DESCRIPTION "Libraries, headers and the CMake package of Braid.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME braid-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
# What braid-config.cmake looks for, and nothing that only tests need.
file(STRINGS cmake/debian-packages.txt packages REGEX "^lib.*-dev$|^(nlohmann-json3-dev|prometheus-cpp-dev|protobuf-compiler|zlib1g-dev)$")
list(FILTER packages EXCLUDE REGEX "gtest|gmock|benchmark")
list(JOIN packages ", " packages)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "braid (= ${PROJECT_VERSION}), ${packages}")
include(CPack)
