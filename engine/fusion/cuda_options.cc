#include "engine/fusion/cuda_source.h"

namespace braid::fusion {

std::span<const char* const> CudaSource::options() const {
  static constexpr const char* kExact[] = {"--std=c++17", "--fmad=false",
                                           "--device-as-default-execution-space"};
  static constexpr const char* kOfHalves[] = {"--std=c++17",       "--fmad=true",
                                              "--prec-div=false",  "--prec-sqrt=false",
                                              "-DBRAID_OF_HALVES", "--device-as-default-execution-space"};
  return is_of_halves ? std::span<const char* const>(kOfHalves) : std::span<const char* const>(kExact);
}

}  // namespace braid::fusion
