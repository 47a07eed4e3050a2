// What a skipped test says of what this machine or build lacks, and how to get it.
#pragma once

namespace braid::missing {

inline constexpr const char* kCudaDevice =
    "there is no CUDA device, or this build has no CUDA: needs an NVIDIA GPU and `cmake --preset cuda`";
inline constexpr const char* kCudaKernels =
    "this build has no CUDA kernels: `cmake --preset cuda` with the CUDA Toolkit builds them, without a GPU "
    "too";
inline constexpr const char* kMpirun = "there is no mpirun: apt-get install openmpi-bin";
inline constexpr const char* kDevFull = "there is no /dev/full: mknod -m 666 /dev/full c 1 7, as root";

}  // namespace braid::missing
