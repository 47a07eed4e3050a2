# The project's warnings, as errors, for both languages. Of sources compiled together GCC 12 warns of what is not there,
# and who builds to use must neither fail by it nor read it. BRAID_STRICT: of other warnings it fails.
if(BRAID_UNITY)
  set(strictness -Wno-array-bounds -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow
      -Wno-stringop-overread)
  if(BRAID_STRICT)
    list(APPEND strictness -Werror)
  endif()
else()
  set(strictness -Werror)
endif()
set(BRAID_WARNINGS
  $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> "$<$<COMPILE_LANGUAGE:CXX>:${strictness}>"
  $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall>
  $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda> $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)

# braid_library(NAME SOURCES... [COLD sources...] [PUBLIC libs...] [PRIVATE libs...] [APART headers...]): a static
# library with the project's warnings; includes are spelled from the root ("engine/ir/graph.h"). COLD: sources for
# which braid_cold() holds. APART: its sources are never compiled together, but after these headers.
function(braid_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;COLD;PUBLIC;PRIVATE;APART" ${ARGN})
  if(arg_COLD)
    add_library(${name}_cold OBJECT ${arg_COLD})
    braid_sources(${name}_cold "${arg_PUBLIC}" "${arg_PRIVATE}" "")
    braid_cold(${name}_cold)
    list(APPEND arg_SOURCES $<TARGET_OBJECTS:${name}_cold>)
  endif()
  add_library(${name} STATIC ${arg_SOURCES})
  braid_sources(${name} "${arg_PUBLIC}" "${arg_PRIVATE}" "${arg_APART}")
  braid_export(${name})
endfunction()

function(braid_sources name public private apart)
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${BRAID_INSTALL_HEADERS}>)
  target_compile_options(${name} PRIVATE ${BRAID_WARNINGS})
  target_link_libraries(${name} PUBLIC ${public} Threads::Threads PRIVATE ${private})
  if(BRAID_UNITY AND apart)
    braid_headers_ahead(${name} ${apart})
  else()
    braid_unity(${name})
  endif()
endfunction()

# braid_unity(TARGET): with BRAID_UNITY its sources are compiled several at a time, after headers that are compiled once
# for all of Braid: most of what headers cost. Sources with flags of their own (kernels) are compiled alone, and so is
# what needs CUDA, which few machines can check. Names in anonymous namespaces must differ within a target.
function(braid_unity name)
  if(NOT BRAID_UNITY)
    return()
  endif()
  braid_sources_together(${name})
  braid_headers_shared(${name})
endfunction()

function(braid_sources_together name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${BRAID_UNITY})
  # A class may have members of types of its own source, which GCC takes for a header here.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  get_target_property(sources ${name} SOURCES)
  list(FILTER sources INCLUDE REGEX "(^|[/_])(cuda|nccl|mpi)[/_]")
  if(sources)
    set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# What most sources include is compiled once, with BRAID_UNITY. GCC takes it whatever -O the sources have, but not with
# other flags: those need SKIP_PRECOMPILE_HEADERS.
set(BRAID_SHARED_HEADERS <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint>
  <cstring> <deque> <exception> <filesystem> <fstream> <functional> <limits> <list> <map> <memory> <mutex> <numeric>
  <optional> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <unordered_map> <unordered_set> <utility>
  <variant> <vector> <fmt/format.h> <nlohmann/json.hpp> <google/protobuf/message.h> <google/protobuf/map_entry.h>
  <google/protobuf/map_field_inl.h> <engine/ir/graph.h> <engine/ir/op.h>)
function(braid_headers_shared name)
  if(NOT BRAID_UNITY)
    return()
  endif()
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-pthread>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  target_compile_definitions(${name} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
  braid_shared_headers()
  target_precompile_headers(${name} REUSE_FROM braid_shared_headers)
endfunction()

function(braid_shared_headers)
  if(TARGET braid_shared_headers)
    return()
  endif()
  set(source ${PROJECT_BINARY_DIR}/gen/shared_headers.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// The headers that sources compiled together share.\n")
  add_library(braid_shared_headers OBJECT ${source})
  target_include_directories(braid_shared_headers PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(braid_shared_headers PRIVATE -pthread)
  target_link_libraries(braid_shared_headers PRIVATE fmt::fmt)
  braid_headers_ahead(braid_shared_headers ${BRAID_SHARED_HEADERS})
endfunction()

# braid_headers_ahead(TARGET HEADERS...): these are compiled once for the target, for sources that cannot be compiled
# together. The code of the sources is the same to the byte. REQUIRES: all sources have the target's flags.
function(braid_headers_ahead name)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  foreach(header ${ARGN})
    string(REPLACE ">" "$<ANGLE-R>" header ${header})
    target_precompile_headers(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${header}>")
  endforeach()
  # With these two ccache knows such sources.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endfunction()

# braid_export(TARGET): another project gets it as braid::NAME, NAME without "braid_", from an installed Braid or with
# add_subdirectory. What only this project's tests, benchmarks and examples share is not exported.
function(braid_export name)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  if(folder MATCHES "^(tests|bench|examples)(/|$)")
    return()
  endif()
  string(REGEX REPLACE "^braid_" "" short ${name})
  add_library(braid::${short} ALIAS ${name})
  set_target_properties(${name} PROPERTIES EXPORT_NAME ${short})
  if(PROJECT_IS_TOP_LEVEL)
    install(TARGETS ${name} EXPORT braid ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/braid COMPONENT dev)
    set_property(GLOBAL APPEND PROPERTY BRAID_EXPORTED ${name})
  endif()
endfunction()

# braid_cold(TARGET [LOOPS]): code that runs once or waits for others. Release optimises it lightly, which a whole build
# notices: templates of the standard library are most of it. With BRAID_UNITY by -Og, which is a sixth quicker than -O1
# and leaves loops as they stand, but for sources with LOOPS over the values of a step.
function(braid_cold name)
  set(level -O1)
  if(BRAID_UNITY AND NOT "LOOPS" IN_LIST ARGN)
    set(level -Og)
  endif()
  target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:${level}>)
endfunction()

# braid_proto(NAME PROTOS... [GRPC] [DEPENDS libs...]): generated code as a library; headers are
# included as "proto/x.pb.h".
function(braid_proto name)
  cmake_parse_arguments(arg "GRPC" "" "PROTOS;DEPENDS" ${ARGN})
  set(out ${PROJECT_BINARY_DIR}/gen/proto)
  file(MAKE_DIRECTORY ${out})
  set(sources)
  foreach(proto ${arg_PROTOS})
    get_filename_component(stem ${proto} NAME_WE)
    set(produced ${out}/${stem}.pb.cc ${out}/${stem}.pb.h)
    set(args --cpp_out=${PROJECT_BINARY_DIR}/gen)
    if(arg_GRPC)
      list(APPEND produced ${out}/${stem}.grpc.pb.cc ${out}/${stem}.grpc.pb.h)
      list(APPEND args --grpc_out=${PROJECT_BINARY_DIR}/gen --plugin=protoc-gen-grpc=${BRAID_GRPC_CPP_PLUGIN})
    endif()
    add_custom_command(
      OUTPUT ${produced}
      COMMAND ${BRAID_PROTOC} -I ${PROJECT_SOURCE_DIR} ${args} ${PROJECT_SOURCE_DIR}/proto/${proto}
      DEPENDS ${PROJECT_SOURCE_DIR}/proto/${proto}
      VERBATIM)
    list(APPEND sources ${produced})
  endforeach()
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} SYSTEM PUBLIC
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/gen> $<INSTALL_INTERFACE:${BRAID_INSTALL_HEADERS}>)
  braid_export(${name})
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf ${arg_DEPENDS} Threads::Threads)
  braid_cold(${name})
  braid_headers_shared(${name})
  if(arg_GRPC)
    target_link_libraries(${name} PUBLIC gRPC::grpc++)
  endif()
endfunction()

# The headers of GoogleTest, compiled once for all tests: a third of what most of them take; with BRAID_UNITY those that
# Braid's sources share, too. REQUIRES: the flags of braid_test(), which take them.
function(braid_test_headers)
  if(TARGET braid_test_headers)
    return()
  endif()
  set(source ${PROJECT_BINARY_DIR}/gen/test_headers.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}  // a program, as tests are, for its flags\n")
  add_executable(braid_test_headers ${source})
  target_compile_options(braid_test_headers PRIVATE ${BRAID_WARNINGS})
  target_link_libraries(braid_test_headers PRIVATE GTest::gtest GTest::gmock)
  braid_cold(braid_test_headers)
  set(headers <gmock/gmock.h> <gtest/gtest.h>)
  if(BRAID_UNITY)
    list(PREPEND headers ${BRAID_SHARED_HEADERS})
    target_include_directories(braid_test_headers PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(braid_test_headers PRIVATE fmt::fmt)
  endif()
  braid_headers_ahead(braid_test_headers ${headers})
endfunction()

# braid_test_sources(TARGET): the flags of tests, their headers that are compiled once, and, with BRAID_UNITY, several
# sources at a time.
function(braid_test_sources name)
  target_compile_options(${name} PRIVATE ${BRAID_WARNINGS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  braid_cold(${name})
  braid_test_headers()
  target_precompile_headers(${name} REUSE_FROM braid_test_headers)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
  if(BRAID_UNITY)
    braid_sources_together(${name})
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-error>)  # also where BRAID_STRICT is
    target_compile_definitions(${name} PRIVATE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
  endif()
endfunction()

# braid_test(NAME SOURCES... LIBS libs... [LABELS labels...] [TIMEOUT seconds]): one GoogleTest binary whose
# cases CTest lists one by one. The default label is "unit".
include(GoogleTest)
function(braid_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(BRAID_SANITIZE)
    math(EXPR arg_TIMEOUT "5 * ${arg_TIMEOUT}")
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_compile_definitions(${name} PRIVATE
    BRAID_SOURCE_DIR="${PROJECT_SOURCE_DIR}" BRAID_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  braid_test_sources(${name})
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()

# braid_bench(NAME SOURCES... LIBS libs...): a benchmark program under bench/.
function(braid_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_compile_options(${name} PRIVATE ${BRAID_WARNINGS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
endfunction()
