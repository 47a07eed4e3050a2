#include "engine/ops/common/dnnl_engine.h"

#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

namespace braid {

dnnl::engine& dnnl_cpu_engine() {
  thread_local const bool limited = (omp_set_num_threads(1), true);
  static_cast<void>(limited);
  static auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives every program
  return *engine;
}

struct DnnlCall::Impl {
  dnnl::primitive primitive;
  dnnl::stream stream;
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;  // of `memories`, in their order
};

DnnlCall::DnnlCall(const dnnl::primitive& primitive,
                   std::initializer_list<std::pair<int, dnnl::memory>> arguments)
    : impl_(std::make_unique<Impl>()) {
  impl_->primitive = primitive;
  impl_->stream = dnnl::stream(dnnl_cpu_engine());
  for (const auto& [index, memory] : arguments) {
    impl_->memories.push_back(memory);
    impl_->arguments.push_back({index, memory.get()});
  }
}

DnnlCall::~DnnlCall() = default;
DnnlCall::DnnlCall(DnnlCall&&) noexcept = default;
DnnlCall& DnnlCall::operator=(DnnlCall&&) noexcept = default;

void DnnlCall::execute(std::initializer_list<const void*> pointers) const {
  dnnl_cpu_engine();
  std::size_t k = 0;
  for (const void* pointer : pointers)
    impl_->memories[k++].set_data_handle(const_cast<void*>(pointer), impl_->stream);
  dnnl::error::wrap_c_api(
      dnnl_primitive_execute(impl_->primitive.get(), impl_->stream.get(),
                             static_cast<int>(impl_->arguments.size()), impl_->arguments.data()),
      "could not execute a oneDNN primitive");
}

}  // namespace braid
