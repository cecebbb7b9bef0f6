# played_stock(TARGET SYMBOLS): a library in the place of the stock libibverbs. Of each ibv_* symbol of ours it has one
# of the same name and version, which hands its name and arguments to played_call() of the program and returns what that
# returns.
function(played_stock target symbols)
  file(STRINGS ${symbols} all REGEX "IBVERBS_")
  set(code "  .text\nplayed:\n")
  foreach(register r9 r8 rcx rdx rsi rdi)
    string(APPEND code "  push %${register}\n")
  endforeach()
  string(APPEND code "  sub $8, %rsp\n  mov %rax, %rdi\n  lea 8(%rsp), %rsi\n  call played_call@PLT\n"
                     "  add $56, %rsp\n  ret\n")
  foreach(symbol ${all})
    string(REGEX MATCH "^([^@]+)@@(.+)$" symbol ${symbol})
    set(name ${CMAKE_MATCH_1})
    list(APPEND names_${CMAKE_MATCH_2} ${name})
    list(APPEND versions ${CMAKE_MATCH_2})
    string(APPEND code "  .globl ${name}\n  .type ${name}, @function\n"
                       "${name}: lea 1f(%rip), %rax\n  jmp played\n1: .string \"${name}\"\n")
  endforeach()
  string(APPEND code "  .section .note.GNU-stack,\"\",@progbits\n")
  list(REMOVE_DUPLICATES versions)
  set(map "")
  foreach(version ${versions})
    string(JOIN "; " names ${names_${version}})
    string(APPEND map "${version} { global: ${names}; };\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}.s CONTENT "${code}" @ONLY)
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}.map CONTENT "${map}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${symbols})
  add_custom_command(OUTPUT ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/lib${target}.so
    DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/${target}.s
    COMMAND ${CMAKE_C_COMPILER} -shared -nostdlib -Wl,--unresolved-symbols=ignore-all
            -Wl,--version-script=${CMAKE_CURRENT_BINARY_DIR}/${target}.map
            -o ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/lib${target}.so ${CMAKE_CURRENT_BINARY_DIR}/${target}.s)
  add_custom_target(${target} ALL DEPENDS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/lib${target}.so)
endfunction()
