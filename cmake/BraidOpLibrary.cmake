# braid_op_library(NAME SOURCES... [LIBS libs...]): a shared library with ops of your own, NAME.so, which
# `braid --op-library` loads (docs/user/own_ops.md). It has its own copies of what it uses of Braid, and shows two names.
function(braid_op_library name)
  cmake_parse_arguments(arg "" "" "LIBS" ${ARGN})
  add_library(${name} MODULE ${arg_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES PREFIX "" POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_link_libraries(${name} PRIVATE braid::ir ${arg_LIBS})
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined -Wl,--as-needed)
  if(TARGET braid_ir)  # built with Braid's sources: a header that they make
    target_include_directories(${name} PRIVATE ${braid_BINARY_DIR}/gen)
    add_dependencies(${name} braid_ir)
  endif()
endfunction()
