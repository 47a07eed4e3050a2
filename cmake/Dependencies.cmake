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

# Debian's RE2 has no CMake configuration.
find_path(BRAID_RE2_INCLUDE re2/re2.h REQUIRED)
find_library(BRAID_RE2_LIBRARY re2 REQUIRED)
add_library(braid_re2 INTERFACE)
target_include_directories(braid_re2 SYSTEM INTERFACE ${BRAID_RE2_INCLUDE})
target_link_libraries(braid_re2 INTERFACE ${BRAID_RE2_LIBRARY})

set(BRAID_PROTOC ${Protobuf_PROTOC_EXECUTABLE})
find_program(BRAID_GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

set(BRAID_HAVE_MPI OFF)
if(BRAID_MPI)
  find_package(MPI COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    set(BRAID_HAVE_MPI ON)
  endif()
endif()

# BRAID_CUDA=AUTO builds for what the machine has. The toolkit's compiler is looked for where Debian's and NVIDIA's
# packages put it, besides PATH.
set(BRAID_HAVE_CUDA OFF)
if(BRAID_CUDA STREQUAL ON OR (BRAID_CUDA STREQUAL AUTO AND EXISTS /dev/nvidiactl))
  find_program(BRAID_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDACXX} /usr/local/cuda/bin)
  if(BRAID_NVCC)
    set(CMAKE_CUDA_COMPILER ${BRAID_NVCC})
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80 90)
    endif()
    enable_language(CUDA)
    # CMake 3.25 does not know these flags of CUDA 13's compiler.
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA_STANDARD 20)
    find_package(CUDAToolkit REQUIRED)
    find_path(BRAID_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
    find_library(BRAID_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib REQUIRED)
    find_path(BRAID_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(BRAID_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
    find_path(BRAID_CUPTI_INCLUDE cupti.h
      HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include)
    find_library(BRAID_CUPTI_LIBRARY cupti
      HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/lib64)
    set(BRAID_HAVE_CUDA ON)
  elseif(BRAID_CUDA STREQUAL ON)
    message(FATAL_ERROR "BRAID_CUDA=ON, but there is no nvcc: set CUDA_HOME, or leave BRAID_CUDA at AUTO")
  else()
    message(STATUS "A GPU, but no CUDA Toolkit: only the CPU parts are built")
  endif()
endif()

if(BRAID_TESTS)
  find_package(GTest REQUIRED)
endif()
if(BRAID_BENCH)
  find_package(benchmark CONFIG REQUIRED)
endif()
