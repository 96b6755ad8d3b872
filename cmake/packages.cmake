# Debian packages: `cpack` in a build folder of the preset "debian" makes `tapeformer` and `libtapeformer-dev`.
# The variables DEBFULLNAME and DEBEMAIL of the environment name their maintainer.
if(NOT PROJECT_IS_TOP_LEVEL OR NOT CMAKE_INSTALL_PREFIX STREQUAL /usr)
  return()
endif()
set(maintainer "Tapeformer authors")
set(address maintainers@tapeformer.invalid)
if(DEFINED ENV{DEBFULLNAME})
  set(maintainer $ENV{DEBFULLNAME})
endif()
if(DEFINED ENV{DEBEMAIL})
  set(address $ENV{DEBEMAIL})
endif()

# Sets RESULT to the packages in an array of scripts/install-packages.sh.
function(tapeformer_debian_packages array result)
  file(READ ${PROJECT_SOURCE_DIR}/scripts/install-packages.sh script)
  string(REGEX MATCH "\n${array}=\\(\n([^)]*)\\)" found "${script}")
  string(REGEX REPLACE "#[^\n]*" "" packages "${CMAKE_MATCH_1}")
  string(REGEX MATCHALL "[^ \n]+" packages "${packages}")
  set(${result} ${packages} PARENT_SCOPE)
endfunction()
tapeformer_debian_packages(required libraries)
list(FILTER libraries INCLUDE REGEX "-dev$")
tapeformer_debian_packages(optional suggested)
list(FILTER suggested EXCLUDE REGEX "-dev$")
list(APPEND libraries ${found_libraries})
list(JOIN libraries ", " libraries)
list(JOIN suggested ", " suggested)

# Files that only packages need.
set(folder ${PROJECT_BINARY_DIR}/debian)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${folder}/changelog "tapeformer (${PROJECT_VERSION}) unstable; urgency=medium

  * CHANGELOG.md lists the changes.

 -- ${maintainer} <${address}>  ${date}
")
execute_process(COMMAND gzip -9nf ${folder}/changelog COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${folder}/overrides "# OpenBLAS must be the build with OpenMP and MPI must be Open MPI, whose folders differ from those of the default libraries.
tapeformer: custom-library-search-path
")
file(CREATE_LINK tapeformer ${folder}/libtapeformer-dev SYMBOLIC)
install(FILES ${folder}/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES ${folder}/overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides RENAME tapeformer COMPONENT program)
install(FILES ${folder}/libtapeformer-dev DESTINATION ${CMAKE_INSTALL_DATADIR}/doc COMPONENT development)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "${maintainer} <${address}>")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${library_folder})
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME tapeformer)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS libopenblas0-openmp)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "${suggested}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtapeformer-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "tapeformer (= ${PROJECT_VERSION}), ${libraries}")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "Trains, evaluates and samples Transformers for images, text and
speech with linear, LSH, softmax and other attention.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "Headers, libraries and CMake package: tensors, automatic
differentiation, attention, models and a trainer.")
include(CPack)
