# hufu_module(<name> SOURCES ... HEADERS ... DEPS ... LIBS ... TESTS ... FUZZ ...)
#
# One folder of src/ is one static library. DEPS are other modules, LIBS are outside libraries.
# Its headers are compiled on their own (all_verify_interface_header_sets) and each *_test.cc becomes
# one ctest entry with the label "unit". Each *_fuzz.cc is a libFuzzer program in the preset fuzz
# (HUFU_FUZZ); elsewhere a ctest entry replays the inputs in tests/fuzz/<module>_<file>/: what was
# once found stays found.
function(hufu_module name)
  cmake_parse_arguments(arg "" "" "SOURCES;HEADERS;DEPS;LIBS;TESTS;FUZZ" ${ARGN})
  if(arg_SOURCES)
    add_library(hufu_${name} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(hufu_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_sources(hufu_${name} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/src
                                       FILES ${arg_HEADERS})
  target_include_directories(hufu_${name} ${scope} ${PROJECT_SOURCE_DIR}/include)
  list(TRANSFORM arg_DEPS PREPEND hufu_)
  target_link_libraries(hufu_${name} ${scope} hufu_options ${arg_DEPS} ${arg_LIBS})
  set_target_properties(hufu_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)

  foreach(test IN LISTS arg_TESTS)
    cmake_path(GET test STEM stem)
    add_executable(${name}_${stem} ${test})
    target_link_libraries(${name}_${stem} PRIVATE hufu_${name} GTest::gtest_main)
    add_test(NAME ${name}/${stem} COMMAND ${name}_${stem})
    set_tests_properties(${name}/${stem} PROPERTIES LABELS unit)
  endforeach()

  foreach(fuzz IN LISTS arg_FUZZ)
    cmake_path(GET fuzz STEM stem)
    add_executable(${name}_${stem} ${fuzz})
    target_link_libraries(${name}_${stem} PRIVATE hufu_${name})
    if(HUFU_FUZZ)
      target_link_options(${name}_${stem} PRIVATE -fsanitize=fuzzer)
      set_property(GLOBAL APPEND PROPERTY HUFU_FUZZERS ${name}_${stem})
    else()
      target_sources(${name}_${stem} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay.cc)
      add_test(NAME ${name}/${stem}
        COMMAND ${name}_${stem} ${PROJECT_SOURCE_DIR}/tests/fuzz/${name}_${stem})
      set_tests_properties(${name}/${stem} PROPERTIES LABELS unit)
    endif()
  endforeach()
endfunction()

# hufu_fuzzers builds them all; fuzzers.txt in the build tree lists them for tools/fuzz.sh. To be
# called when all modules are known.
function(hufu_fuzzers)
  get_property(fuzzers GLOBAL PROPERTY HUFU_FUZZERS)
  add_custom_target(hufu_fuzzers DEPENDS ${fuzzers})
  list(JOIN fuzzers "\n" lines)
  file(WRITE ${PROJECT_BINARY_DIR}/fuzzers.txt "${lines}\n")
endfunction()
