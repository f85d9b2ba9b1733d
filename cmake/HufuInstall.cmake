# What `make install PREFIX=...` puts there: a tree that looks like CANN's SDK, so that
# ASCEND_HOME_PATH=<prefix> builds existing clients unchanged. It may be moved afterwards: nothing in
# it knows the prefix. Deferred to the end of the top directory, when all targets are known.
#
#   include/{acl,error_codes,hufu}   lib64/ libraries, pkgconfig   share/cmake/Hufu
#   bin/ hufud, hufu, setenv.bash

include(CMakePackageConfigHelpers)

function(hufu_install_rules)
  # CANN's clients write lib64 out, whatever the distribution calls it.
  set(lib lib64)
  # Not below lib64: find_package does not look there on Debian.
  set(package share/cmake/Hufu)
  get_property(filters GLOBAL PROPERTY HUFU_FILTERS)
  install(DIRECTORY include/acl include/error_codes include/hufu DESTINATION include
          FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
  install(TARGETS hufu EXPORT HufuTargets LIBRARY DESTINATION ${lib})
  install(TARGETS ${filters} LIBRARY DESTINATION ${lib})
  foreach(name IN LISTS filters)
    install(FILES $<TARGET_FILE_DIR:${name}>/lib${name}.so.1 DESTINATION ${lib})
  endforeach()
  set(shipped hufu ${filters})
  foreach(program hufud hufu_cli)
    if(TARGET ${program})
      install(TARGETS ${program} RUNTIME DESTINATION bin)
      list(APPEND shipped ${program})
    endif()
  endforeach()
  add_custom_target(hufu_sdk DEPENDS ${shipped})

  install(EXPORT HufuTargets NAMESPACE Hufu:: DESTINATION ${package})
  configure_file(cmake/HufuConfig.cmake.in ${PROJECT_BINARY_DIR}/HufuConfig.cmake @ONLY)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/HufuConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/HufuConfig.cmake ${PROJECT_BINARY_DIR}/HufuConfigVersion.cmake
          DESTINATION ${package})
  configure_file(cmake/hufu.pc.in ${PROJECT_BINARY_DIR}/hufu.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/hufu.pc DESTINATION ${lib}/pkgconfig)
  install(FILES cmake/setenv.bash DESTINATION bin)
endfunction()

cmake_language(DEFER DIRECTORY ${PROJECT_SOURCE_DIR} CALL hufu_install_rules)
