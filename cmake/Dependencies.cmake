# Every outside library, found once. Required ones stop the configuration; optional ones set BRAID_HAVE_X,
# by which a folder chooses between its backend and its no_x.cc.
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Eigen3 CONFIG REQUIRED)
find_package(OpenMP REQUIRED)

# Debian's dnnl-config.cmake asks for OpenCL's headers, which oneDNN's CPU engine does not need.
find_path(BRAID_DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(BRAID_DNNL_LIBRARY dnnl REQUIRED)
add_library(braid_dnnl INTERFACE)
target_include_directories(braid_dnnl SYSTEM INTERFACE ${BRAID_DNNL_INCLUDE})
target_link_libraries(braid_dnnl INTERFACE ${BRAID_DNNL_LIBRARY} OpenMP::OpenMP_CXX)

set(BRAID_PROTOC ${Protobuf_PROTOC_EXECUTABLE})
find_program(BRAID_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

set(BRAID_HAVE_MPI OFF)
if(BRAID_MPI)
  find_package(MPI COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(BRAID_HAVE_MPI ON)
  endif()
endif()

if(BRAID_TESTS)
  find_package(GTest REQUIRED)
endif()
if(BRAID_BENCH)
  find_package(benchmark CONFIG REQUIRED)
endif()
