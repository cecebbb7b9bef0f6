# How tests are registered: unit tests in shards, end-to-end tests each with a lab of its own.

# For programs with Debian's gRPC, which is built without the thread sanitizer and hands objects from thread to thread
# by atomics that the sanitizer does not see: the sanitizer reports races of code that is built with it only. Children
# that tests have forked start threads, which the sanitizer would refuse.
set(FERRY_TSAN_OPTIONS ignore_noninstrumented_modules=1:die_after_fork=0)

# All GoogleTest programs. They are no part of `all`, unless pages run them: a whole run has them under sanitizers only.
add_custom_target(unit_tests)
# Those that are run on request only.
add_custom_target(seldom_tests)

# ferry_unit_test(TARGET [GRPC] [ONE_THREAD] [SELDOM_TSAN] [SHOWN] [SHARDS COUNT] [TIMEOUT SECONDS] [LOCK NAME]
#                 [NEEDS FILE...])
# registers the GoogleTest program TARGET as the tests TARGET.1 to TARGET.COUNT (1). Each is one process that runs its
# share of the program's tests.
#   GRPC     the program runs gRPC, or its forked children start threads (FERRY_TSAN_OPTIONS)
#   ONE_THREAD  neither the program nor what it tests has a second thread: the thread sanitizer, which can find nothing
#            there, does not run it
#   SELDOM_TSAN  the thread sanitizer runs it on request only (scripts/test --only seldom): it takes long
#   SHOWN    pages run the program: it is part of `all`
#   TIMEOUT  of a shard (300)
#   LOCK     shards of tests with the same LOCK do not run at the same time
#   NEEDS    what it runs or reads, and `scripts/test --changed` would not find by itself
function(ferry_unit_test target)
  cmake_parse_arguments(PARSE_ARGV 1 unit "GRPC;ONE_THREAD;SELDOM_TSAN;SHOWN" "SHARDS;TIMEOUT;LOCK" "NEEDS")
  if(NOT unit_SHOWN)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  if(unit_ONE_THREAD AND FERRY_SANITIZE MATCHES thread)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  set(labels unit gtest)
  if(unit_SELDOM_TSAN AND FERRY_SANITIZE MATCHES thread)
    list(APPEND labels seldom)
    add_dependencies(seldom_tests ${target})
  else()
    add_dependencies(unit_tests ${target})
  endif()
  if(NOT unit_SHARDS)
    set(unit_SHARDS 1)
  endif()
  if(NOT unit_TIMEOUT)
    set(unit_TIMEOUT 300)
  endif()
  set(options)
  if(unit_GRPC)
    set(options "TSAN_OPTIONS=${FERRY_TSAN_OPTIONS}")
  endif()
  math(EXPR last "${unit_SHARDS} - 1")
  foreach(index RANGE ${last})
    math(EXPR number "${index} + 1")
    set(name ${target}.${number})
    add_test(NAME ${name} COMMAND ${target})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${unit_TIMEOUT}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${unit_SHARDS};GTEST_SHARD_INDEX=${index};${options}")
    if(unit_NEEDS)
      set_tests_properties(${name} PROPERTIES REQUIRED_FILES "${unit_NEEDS}")
    endif()
    if(unit_LOCK)
      set_tests_properties(${name} PROPERTIES RESOURCE_LOCK ${unit_LOCK})
    endif()
  endforeach()
endfunction()

# ferry_e2e_test(NAME COMMAND WORD... [ALONE REASON] [LONG] [TIMEOUT SECONDS] [ENVIRONMENT NAME=VALUE...]
#                [COST SECONDS] [LOCK NAME] [NEEDS FILE...])
# registers a test with real programs, which runs as root. The test finds the binaries in FERRY_BIN, and names its lab
# FERRY_LAB, as no other test does; several tests run at the same time. A test exits with 77 when it lacks something:
# then it is skipped, and its last line says why.
#   ALONE    nothing else may run meanwhile, and why
#   LONG     it is run on request only (scripts/test --only long): it takes long, and is about what seldom changes
#   TIMEOUT  900 unless given: three on a busy machine
#   LOCK     of tests with the same NAME one runs at a time
#   COST     about how long it takes, if long: ctest starts with such tests, so that nobody waits for them at the end
#   NEEDS    as above
# Sanitizer builds have none: a sanitizer's runtime cannot be preloaded into programs that are built without it.
function(ferry_e2e_test name)
  if(FERRY_SANITIZE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 e2e "LONG" "ALONE;TIMEOUT;COST;LOCK" "COMMAND;ENVIRONMENT;NEEDS")
  if(NOT e2e_TIMEOUT)
    set(e2e_TIMEOUT 900)
  endif()
  get_property(number GLOBAL PROPERTY ferry_labs)
  if(NOT number)
    set(number 0)
  endif()
  math(EXPR number "${number} + 1")
  set_property(GLOBAL PROPERTY ferry_labs ${number})
  add_test(NAME ${name} COMMAND ${e2e_COMMAND})
  set_tests_properties(${name} PROPERTIES LABELS e2e TIMEOUT ${e2e_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT
      "FERRY_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};FERRY_LAB=e${number};FERRY_DEVICE=;${e2e_ENVIRONMENT}")
  if(e2e_NEEDS)
    set_tests_properties(${name} PROPERTIES REQUIRED_FILES "${e2e_NEEDS}")
  endif()
  if(e2e_COST)
    set_tests_properties(${name} PROPERTIES COST ${e2e_COST})
  endif()
  if(e2e_LOCK)
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK ${e2e_LOCK})
  endif()
  if(e2e_ALONE)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
  if(e2e_LONG)
    set_tests_properties(${name} PROPERTIES LABELS "e2e;long")
  endif()
endfunction()

# ferry_e2e_groups(PREFIX SCRIPT [LONG] GROUP...) registers PREFIX.GROUP for each group, which runs `SCRIPT GROUP`.
# SCRIPT lies in the current folder. LONG as above.
function(ferry_e2e_groups prefix script)
  cmake_parse_arguments(PARSE_ARGV 2 groups "LONG" "" "")
  set(long)
  if(groups_LONG)
    set(long LONG)
  endif()
  foreach(group ${groups_UNPARSED_ARGUMENTS})
    ferry_e2e_test(${prefix}.${group} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${group} ${long})
  endforeach()
endfunction()
