#include "worker/input/npy_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/npy.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/half.h"

namespace braid::worker {

Tensor read_npy_tensor(const std::filesystem::path& file) {
  const std::string bytes = read_file(file);
  NpyArray array = parse_npy(std::as_bytes(std::span(bytes)), file.string());
  auto memory = allocate_aligned(array.data.size());
  std::copy(array.data.begin(), array.data.end(), memory.get());
  return {array.dtype, Shape(array.shape), std::move(memory)};
}

namespace {

template <class F>
void with_any_float(DType dtype, F&& f) {
  if (dtype == DType::Float16) return f.template operator()<Float16>();
  if (dtype == DType::BFloat16) return f.template operator()<BFloat16>();
  with_float("feed", dtype, static_cast<F&&>(f));
}

/// Among floats, where one of the two is half: each is a float32 on the way.
Tensor converted_half(const Tensor& tensor, DType dtype) {
  Tensor result(dtype, tensor.shape());
  with_any_float(tensor.dtype(), [&]<class From>() {
    with_any_float(dtype, [&]<class To>() {
      const From* from = reinterpret_cast<const From*>(tensor.raw());
      To* to = reinterpret_cast<To*>(result.raw());
      for (std::int64_t i = 0; i < tensor.elements(); ++i) to[i] = To(static_cast<float>(from[i]));
    });
  });
  return result;
}

bool is_half(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

}  // namespace

Tensor converted(const Tensor& tensor, DType dtype, const std::string& what) {
  if (tensor.dtype() == dtype) return tensor;
  if ((is_half(tensor.dtype()) || is_half(dtype)) && is_floating(tensor.dtype()) && is_floating(dtype))
    return converted_half(tensor, dtype);
  const auto refuse = [&](const std::string& why) {
    throw InvalidArgument(fmt::format("{}: the array holds {}, the graph expects {}{}", what,
                                      dtype_name(tensor.dtype()), dtype_name(dtype), why));
  };
  const auto is_plain = [](DType t) { return is_integer(t) || t == DType::Float32 || t == DType::Float64; };
  if (!is_plain(tensor.dtype()) || !is_plain(dtype) || (is_floating(tensor.dtype()) && is_integer(dtype)))
    refuse("");
  Tensor result(dtype, tensor.shape());
  with_number_or_bool("feed", tensor.dtype(), [&]<class From>() {
    with_number_or_bool("feed", dtype, [&]<class To>() {
      const From* from = reinterpret_cast<const From*>(tensor.raw());
      To* to = reinterpret_cast<To*>(result.raw());
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        to[i] = static_cast<To>(from[i]);
        if constexpr (std::is_integral_v<From> && std::is_integral_v<To>)
          if (static_cast<From>(to[i]) != from[i]) refuse(fmt::format("; element {} does not fit", i));
      }
    });
  });
  return result;
}

}  // namespace braid::worker
