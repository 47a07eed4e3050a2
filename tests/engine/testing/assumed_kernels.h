// A device that is only assumed, so that programs for devices can be compiled, and looked at, in a build
// without CUDA. Nothing can run on it.
#pragma once

namespace braid::testing {

/// Without CUDA: from now on each op with a kernel on the host has one for CUDA, too, products and what lies
/// between them take halves there, and each region's source is taken to compile. With CUDA nothing: ops and
/// regions have the kernels that they have. For a program of tests of its own, since it holds for all of it.
/// Thread rule: one thread, before graphs are made.
void assume_cuda_kernels();

}  // namespace braid::testing
