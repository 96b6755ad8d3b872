# Rules of cmake --install: the program, the libraries with their public headers, and a package for find_package(tapeformer).
include(CMakePackageConfigHelpers)

# Public headers, relative to the root of the tree. cmake/InstallHeaders.cmake adds the headers that they include.
file(GLOB core_headers RELATIVE ${PROJECT_SOURCE_DIR} autograd/*.h ops/*.h models/*.h models/*/*.h)
set(core_headers
  core/allocator.h core/batch.h core/device.h core/device_control.h core/random/dropout.h core/base/dtype.h core/base/errors.h core/options/options.h core/random/random.h
  core/random/rng.h core/base/shape.h core/tensor.h core/threads/threads.h core/system/log.h core/stopwatch.h
  ${core_headers})
set(other_headers
  data/dataset_kind.h data/sets/directory.h data/batches/loader.h data/audio/audio.h data/audio/filterbank.h
  data/images/images.h data/images/png.h data/speech/dataset.h data/speech/phones/phone_scoring.h data/translation/corpus_scorer.h
  train/build.h train/evaluate.h train/metrics.h train/optimization/optimizer.h train/optimization/schedule.h train/tasks/registry/load_task.h train/tasks/registry/make_task.h train/tasks/dataset_batches.h train/tasks/autoregressive.h train/tasks/speech/task.h train/loop/trainer.h
  train/checkpoint/checkpoint.h train/checkpoint/run_directory.h train/checkpoint/safetensors.h
  train/config/config.h train/config/schema.h train/cli/run.h train/distributed/communicator.h train/distributed/processes.h tests/attention/kind_tests.h)

# Headers for projects that add this tree with add_subdirectory: links to the folders, and the umbrella header.
list(TRANSFORM core_headers REPLACE "(.+)" "#include <tapeformer/\\1>" OUTPUT_VARIABLE umbrella)
list(JOIN umbrella "\n" umbrella)
file(CONFIGURE OUTPUT include/tapeformer/tapeformer.h @ONLY CONTENT
"// All public headers of tapeformer::core: tensors, automatic differentiation, ops, layers and models.
#pragma once

@umbrella@
")
foreach(folder core autograd ops models data train tests)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${PROJECT_BINARY_DIR}/include/tapeformer/${folder} SYMBOLIC)
endforeach()

# Installed headers include each other as <tapeformer/…>.
set(installed_headers ${PROJECT_BINARY_DIR}/installed_headers)
install(CODE "
  set(source_dir \"${PROJECT_SOURCE_DIR}\")
  set(output_dir \"${installed_headers}/tapeformer\")
  set(headers \"${core_headers};${other_headers}\")" COMPONENT development)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/InstallHeaders.cmake COMPONENT development)
install(DIRECTORY ${installed_headers}/tapeformer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/include/tapeformer/tapeformer.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tapeformer
  COMPONENT development)

# Each part has a separate file of targets, so find_package looks only for the dependencies of the requested parts. The
# shared library is in a folder of its own, because each version has another interface.
set(shared_library_dir ${CMAKE_INSTALL_LIBDIR}/tapeformer)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tapeformer)
foreach(part ${tapeformer_parts})
  install(TARGETS tapeformer_${part} EXPORT tapeformer-${part}
    ARCHIVE COMPONENT development
    LIBRARY DESTINATION ${shared_library_dir} COMPONENT program NAMELINK_COMPONENT development)
  install(EXPORT tapeformer-${part} NAMESPACE tapeformer:: DESTINATION ${package_dir} COMPONENT development)
endforeach()
foreach(level ${TAPEFORMER_LEVELS})
  install(TARGETS tapeformer_core_${level} LIBRARY DESTINATION ${shared_library_dir}/glibc-hwcaps/${level} COMPONENT program
    NAMELINK_SKIP)
endforeach()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tapeformerConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tapeformerConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tapeformerConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tapeformerConfig.cmake ${PROJECT_BINARY_DIR}/tapeformerConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindGnuOpenMP.cmake ${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake ${CMAKE_CURRENT_LIST_DIR}/FindOneDNN.cmake ${CMAKE_CURRENT_LIST_DIR}/FindOpenBLASWithOpenMP.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindSentencePiece.cmake ${CMAKE_CURRENT_LIST_DIR}/FindSpeechLibraries.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindUtf8proc.cmake
  ${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake
  DESTINATION ${package_dir} COMPONENT development)

# The OpenMP build of OpenBLAS is in a separate folder, and the system's default OpenBLAS may be another build. The
# installed program keeps the path of the library that it was linked to.
set_target_properties(tapeformer_program PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
if(TAPEFORMER_LEVELS)
  file(RELATIVE_PATH libraries_from_program ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/tapeformer)
  set_target_properties(tapeformer_program PROPERTIES INSTALL_RPATH "$ORIGIN/${libraries_from_program}")
endif()
install(TARGETS tapeformer_program COMPONENT program)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT program)
install(DIRECTORY docs/examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/tapeformer COMPONENT program)
install(CODE "
  set(tapeformer \"$<TARGET_FILE:tapeformer_program>\")
  set(output_dir \"${PROJECT_BINARY_DIR}/share\")" COMPONENT program)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/InstallShellFiles.cmake COMPONENT program)
install(DIRECTORY ${PROJECT_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT program)
