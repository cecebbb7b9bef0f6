# How the code of the tests is compiled: that it is there soon matters more than that it is fast.

# What is long, not ours, and in most of their files is read once for all of them. A file includes
# what it uses all the same: -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds it without.
set(FERRY_TEST_HEADERS <gtest/gtest.h> <algorithm> <array> <atomic> <chrono> <cstring> <functional>
  <map> <memory> <mutex> <optional> <span> <string> <thread> <vector>)

# Code under test has the flags that it always has, and so have simulations, which are libraries.
set(FERRY_TEST_FLAGS -O0 -g1)

# ferry_compile_tests(): for all programs below tests/ that use GoogleTest, when all are there.
function(ferry_compile_tests)
  # Others take the headers from this one, by REUSE_FROM. gcc wants the same -fPIE.
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cc CONTENT "")
  add_library(test_headers OBJECT ${CMAKE_BINARY_DIR}/test_headers.cc)
  set_target_properties(test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(test_headers PRIVATE ${FERRY_TEST_FLAGS} -fPIE)
  target_link_libraries(test_headers PRIVATE GTest::gtest)  # its definitions
  target_precompile_headers(test_headers PRIVATE ${FERRY_TEST_HEADERS})
  get_property(folders DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTY SUBDIRECTORIES)
  list(FILTER folders INCLUDE REGEX "^${CMAKE_SOURCE_DIR}/tests/")
  foreach(folder ${folders})
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(type ${target} TYPE)
      get_target_property(libraries ${target} LINK_LIBRARIES)
      if(type STREQUAL EXECUTABLE AND libraries MATCHES "GTest::")
        target_compile_options(${target} PRIVATE ${FERRY_TEST_FLAGS})
        target_precompile_headers(${target} REUSE_FROM test_headers)
      endif()
    endforeach()
  endforeach()
endfunction()
