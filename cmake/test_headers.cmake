# How the code of the tests is compiled: that it is there soon matters more than that it is fast.

# What is long, not ours, and in most of their files is read once for all of them. A file includes
# what it uses all the same: -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds it without.
set(FERRY_TEST_HEADERS <gtest/gtest.h> <algorithm> <array> <atomic> <chrono> <cstring> <functional>
  <map> <memory> <mutex> <optional> <span> <string> <thread> <vector>)

# Code under test has the flags that it always has, and so have simulations, which are libraries.
set(FERRY_TEST_FLAGS -O0 -g1 ${FERRY_QUICK_SANITIZE})
if(FERRY_UNITY)
  list(APPEND FERRY_TEST_FLAGS -Wno-shadow)  # names of other files
endif()

# ferry_test_headers(NAME LIBRARY HEADER...): the target NAME compiles the headers, for other targets (REUSE_FROM).
# LIBRARY has the definitions that they need.
function(ferry_test_headers name library)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cc CONTENT "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # gcc wants the same -fPIE
  target_compile_options(${name} PRIVATE ${FERRY_TEST_FLAGS} -fPIE)
  target_link_libraries(${name} PRIVATE GTest::gtest ${library})
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()

# ferry_compile_tests(): for all programs below tests/ that use GoogleTest, when all are there. The property
# FERRY_HEADERS of such a program names headers of its room that most of its files include.
function(ferry_compile_tests)
  ferry_test_headers(test_headers Threads::Threads ${FERRY_TEST_HEADERS})
  if(TARGET ferry_host)
    get_target_property(host_headers ferry_host PRECOMPILE_HEADERS)
    ferry_test_headers(test_headers_of_hosts ferry_host ${FERRY_TEST_HEADERS} ${host_headers})
  endif()
  get_property(folders DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTY SUBDIRECTORIES)
  list(FILTER folders INCLUDE REGEX "^${CMAKE_SOURCE_DIR}/tests/")
  foreach(folder ${folders})
    get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(type ${target} TYPE)
      get_target_property(libraries ${target} LINK_LIBRARIES)
      if(type STREQUAL EXECUTABLE AND libraries MATCHES "GTest::")
        target_compile_options(${target} PRIVATE ${FERRY_TEST_FLAGS})
        set(headers test_headers)
        if(libraries MATCHES "ferry_(host|cli)")
          set(headers test_headers_of_hosts)
        endif()
        get_target_property(own ${target} FERRY_HEADERS)
        if(own)
          # Not by their paths: with that of the clone, ccache would not find the objects of other clones.
          target_include_directories(${target} PRIVATE ${folder})
          list(TRANSFORM own REPLACE "(.+)" "<\\1>")
          target_precompile_headers(${target} PRIVATE ${FERRY_TEST_HEADERS} ${own})
        else()
          target_precompile_headers(${target} REUSE_FROM ${headers})
        endif()
      endif()
    endforeach()
  endforeach()
endfunction()
