# cmake --install: the program, the library with its headers, and a CMake package for find_package(tapeformer).
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tapeformer)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tapeformerConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tapeformerConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tapeformerConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)

# The build with OpenMP lies in a folder of its own, and the system's default OpenBLAS may be another: the
# installed program keeps the path of the one it was linked to.
set_target_properties(tapeformer_program PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS tapeformer_program)
install(TARGETS tapeformer EXPORT tapeformerTargets)
install(EXPORT tapeformerTargets NAMESPACE tapeformer:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/tapeformerConfig.cmake ${PROJECT_BINARY_DIR}/tapeformerConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindOpenBLASWithOpenMP.cmake ${CMAKE_CURRENT_LIST_DIR}/FindSpeechLibraries.cmake
  DESTINATION ${package_dir})

# All headers but those of the machines and of the program. Those of core/cpu depend on the instruction set that
# the library was compiled for.
install(DIRECTORY core autograd ops models data train DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tapeformer
  FILES_MATCHING PATTERN "*.h"
  PATTERN cpu EXCLUDE PATTERN cuda EXCLUDE PATTERN emulation EXCLUDE PATTERN cli EXCLUDE PATTERN bench EXCLUDE
  PATTERN reproduce EXCLUDE)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/tapeformer)
