# hufu_module(<name> SOURCES ... HEADERS ... DEPS ... LIBS ... TESTS ... FUZZ ...)
#
# One folder of src/ is one static library. DEPS are other modules, LIBS are outside libraries.
# Its headers are compiled on their own (all_verify_interface_header_sets), each *_test.cc becomes
# one ctest entry with the label "unit", and each *_fuzz.cc a libFuzzer program where the compiler
# is clang and the preset asks for it (HUFU_FUZZ), else a ctest entry that replays its seeds.
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
    if(HUFU_FUZZ)
      add_executable(${name}_${stem} ${fuzz})
      target_link_options(${name}_${stem} PRIVATE -fsanitize=fuzzer)
      target_link_libraries(${name}_${stem} PRIVATE hufu_${name})
      set_property(GLOBAL APPEND PROPERTY HUFU_FUZZERS ${name}_${stem})
    endif()
  endforeach()
endfunction()
