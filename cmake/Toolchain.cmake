# Compiler launcher, linker and sanitizers. Sets nothing that a preset could not override. ccache takes the names of
# headers from what Ninja has the compiler write, so that a source that it does not know is not preprocessed twice.
find_program(BRAID_CCACHE ccache)
if(BRAID_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 ${BRAID_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

find_program(BRAID_MOLD mold)
if(BRAID_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

if(BRAID_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # The compiler looks for memory to use again only beyond 500 MB, which sources together reach sooner: 5 to 10 % of
  # its time.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=500000>)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in `"text" + std::string` once it is inlined (GCC bug 105651).
  add_compile_options($<$<CONFIG:Release>:-Wno-restrict>)
endif()

if(BRAID_NATIVE AND EXISTS /proc/cpuinfo AND NOT BRAID_SANITIZE)
  file(STRINGS /proc/cpuinfo flags LIMIT_COUNT 1 REGEX "^flags")
  foreach(set avx2 avx512f)
    if(flags MATCHES " ${set}( |$)")
      set(BRAID_VECTORS ${set})
    endif()
  endforeach()
  if(BRAID_VECTORS)
    message(STATUS "Kernels for processors with ${BRAID_VECTORS} alone")
    add_compile_definitions(BRAID_VECTORS="${BRAID_VECTORS}")
  endif()
endif()

if(BRAID_SANITIZE)
  add_compile_options(-fsanitize=${BRAID_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${BRAID_SANITIZE})
  add_compile_definitions(BRAID_SANITIZED)
  if(BRAID_SANITIZE MATCHES thread)
    # -Wno-tsan: ThreadSanitizer does not see fences. Asio uses them beside its mutexes, which it does see.
    # -U: protobuf's headers add members to map fields under this macro, which the packaged library does not have;
    # the standard library keeps what it needs it for under a macro of its own.
    add_compile_options(-Wno-tsan -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  endif()
endif()

if(BRAID_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage, which guides libFuzzer
endif()

find_package(Threads REQUIRED)
