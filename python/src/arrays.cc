#include "python/src/arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "base/error.h"

namespace nb = nanobind;

namespace braid::python {
namespace {

/// Vector loads of kernels may want this much.
constexpr std::uintptr_t kAlignment = 16;

std::mutex dropped_mu;
std::vector<Py_buffer*> dropped;                   // guarded by dropped_mu
std::vector<nb::ndarray<nb::ro>*> dropped_arrays;  // guarded by dropped_mu
std::atomic<bool> any_dropped{false};
std::atomic<std::uint64_t> bytes_shared{0}, bytes_copied{0};

DType dtype_of_format(const char* format, Py_ssize_t size, const std::string& what) {
  const char* code = format ? format : "B";
  if (*code == '<' || *code == '=' || *code == '@') ++code;
  switch (*code) {
    case 'f':
      return DType::Float32;
    case 'd':
      return DType::Float64;
    case 'e':
      return DType::Float16;
    case '?':
      return DType::Bool;
    case 'b':
      return DType::Int8;
    case 'B':
      return DType::UInt8;
    case 'h':
      return DType::Int16;
    case 'H':
      return DType::UInt16;
    case 'i':
    case 'l':
    case 'q':
      return size == 4 ? DType::Int32 : DType::Int64;
    case 'I':
    case 'L':
    case 'Q':
      return size == 4 ? DType::UInt32 : DType::UInt64;
    default:
      throw InvalidArgument(what + ": arrays of type '" + std::string(format ? format : "") +
                            "' are not taken");
  }
}

nb::dlpack::dtype dlpack_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * dtype_size(dtype));
  using Code = nb::dlpack::dtype_code;
  Code code = Code::Int;
  if (is_floating(dtype)) code = dtype == DType::BFloat16 ? Code::Bfloat : Code::Float;
  if (dtype == DType::UInt8 || dtype == DType::UInt16 || dtype == DType::UInt32 || dtype == DType::UInt64)
    code = Code::UInt;
  if (dtype == DType::Bool) code = Code::Bool;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

/// Dropping it puts the buffer aside, on any thread.
std::shared_ptr<std::byte[]> hold(Py_buffer* view) {
  return {static_cast<std::byte*>(view->buf), [view](std::byte*) {
            std::lock_guard lock(dropped_mu);
            dropped.push_back(view);
            any_dropped = true;
          }};
}

Tensor string_tensor(nb::handle shape_and_values) {
  const auto pair = nb::cast<nb::tuple>(shape_and_values);
  std::vector<std::string> values;
  for (nb::handle each : nb::cast<nb::list>(pair[1])) {
    char* bytes = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(each.ptr(), &bytes, &size) != 0) throw nb::python_error();
    values.emplace_back(bytes, static_cast<std::size_t>(size));
  }
  return Tensor::strings(to_shape(pair[0]), values);
}

template <class T>
std::vector<T> list_of(nb::handle value) {
  return nb::cast<std::vector<T>>(value);
}

}  // namespace

namespace {

/// Row-major memory of this machine that somebody else owns.
struct Foreign {
  DType dtype = DType::Invalid;
  Shape shape;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

/// `keep` makes what holds the memory: it is called where the memory is used in place.
template <class Keep>
Tensor share_or_copy(const Foreign& from, Keep keep) {
  if (from.bytes > 0 && reinterpret_cast<std::uintptr_t>(from.data) % kAlignment == 0) {
    bytes_shared += from.bytes;
    return Tensor(from.dtype, from.shape, keep());
  }
  Tensor copy(from.dtype, from.shape);
  if (from.bytes > 0) std::memcpy(copy.raw(), from.data, from.bytes);
  bytes_copied += from.bytes;
  return copy;
}

DType dtype_of_dlpack(nb::dlpack::dtype type, const std::string& what) {
  for (const DType dtype :
       {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Int64, DType::Int32,
        DType::Int16, DType::Int8, DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64, DType::Bool})
    if (dlpack_type(dtype) == type) return dtype;
  throw InvalidArgument(what + ": the array's element type is not taken");
}

/// Tensors of PyTorch, JAX and others that are no buffers.
Tensor from_dlpack(nb::handle array, const std::string& what) {
  using Array = nb::ndarray<nb::ro>;
  auto kept = std::make_unique<Array>();
  if (!nb::try_cast(array, *kept))
    throw InvalidArgument(what +
                          ": its __dlpack__ gives no array (a tensor that needs gradients must be detached)");
  if (kept->device_type() != nb::device::cpu::value)
    throw InvalidArgument(what + ": the array is on a device: its .cpu() is taken");
  Foreign from{dtype_of_dlpack(kept->dtype(), what), {}, kept->data(), kept->nbytes()};
  std::vector<std::int64_t> dims;
  std::int64_t stride = 1;
  bool row_major = true;
  for (std::size_t i = 0; i < kept->ndim(); ++i) dims.push_back(static_cast<std::int64_t>(kept->shape(i)));
  for (std::size_t i = kept->ndim(); i-- > 0;) {
    row_major &= dims[i] == 1 || kept->stride(i) == stride;
    stride *= dims[i];
  }
  if (!row_major && stride > 0)
    throw InvalidArgument(what + ": not an array in row-major order (.contiguous() is one)");
  from.shape = Shape(std::move(dims));
  return share_or_copy(from, [&] {
    void* const data = const_cast<void*>(kept->data());
    return std::shared_ptr<std::byte[]>(static_cast<std::byte*>(data), [array = kept.release()](std::byte*) {
      std::lock_guard lock(dropped_mu);
      dropped_arrays.push_back(array);
      any_dropped = true;
    });
  });
}

}  // namespace

Tensor to_tensor(nb::handle array, const std::string& what) {
  if (nb::isinstance<nb::tuple>(array)) return string_tensor(array);
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(array.ptr(), view.get(), PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    if (!PyObject_CheckBuffer(array.ptr()) && nb::hasattr(array, "__dlpack__"))
      return from_dlpack(array, what);
    throw InvalidArgument(what + ": not an array in row-major order that can be read");
  }
  const auto release = [](Py_buffer* held) {
    PyBuffer_Release(held);
    delete held;
  };
  std::unique_ptr<Py_buffer, decltype(release)> held(view.release(), release);
  const Foreign from{dtype_of_format(held->format, held->itemsize, what),
                     Shape(std::vector<std::int64_t>(held->shape, held->shape + held->ndim)), held->buf,
                     static_cast<std::size_t>(held->len)};
  return share_or_copy(from, [&] { return hold(held.release()); });
}

nb::object to_array(const Tensor& tensor) {
  if (tensor.dtype() == DType::String) {
    nb::list values;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const std::string_view text = tensor.string_at(i);
      values.append(nb::bytes(text.data(), text.size()));
    }
    return nb::make_tuple(from_shape(tensor.shape()), values);
  }
  auto* const kept = new Tensor(tensor);
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  std::vector<std::size_t> dims;
  for (const std::int64_t dim : tensor.shape().dims()) dims.push_back(static_cast<std::size_t>(dim));
  return nb::cast(nb::ndarray<nb::numpy>(kept->raw(), dims.size(), dims.data(), owner, nullptr,
                                         dlpack_type(tensor.dtype())));
}

nb::object from_shape(const Shape& shape) {
  if (!shape.has_rank()) return nb::none();
  nb::list dims;
  for (const std::int64_t dim : shape.dims()) dims.append(dim);
  return nb::tuple(dims);
}

Shape to_shape(nb::handle shape) {
  if (shape.is_none()) return Shape::unknown_rank();
  std::vector<std::int64_t> dims;
  for (nb::handle dim : shape) dims.push_back(dim.is_none() ? Shape::kUnknown : nb::cast<std::int64_t>(dim));
  return Shape(std::move(dims));
}

Attr to_attr(const std::string& name, nb::handle kind_and_value) {
  const auto pair = nb::cast<nb::tuple>(kind_and_value);
  const auto kind = nb::cast<std::string>(pair[0]);
  const nb::object value = pair[1];
  if (kind == "i") return nb::cast<std::int64_t>(value);
  if (kind == "f") return nb::cast<double>(value);
  if (kind == "b") return nb::cast<bool>(value);
  if (kind == "s") return nb::cast<std::string>(value);
  if (kind == "type") return static_cast<DType>(nb::cast<int>(value));
  if (kind == "shape") return to_shape(value);
  if (kind == "tensor") return to_tensor(value, "attribute '" + name + "'").clone();
  if (kind == "li") return list_of<std::int64_t>(value);
  if (kind == "lf") return list_of<double>(value);
  if (kind == "lb") return list_of<bool>(value);
  if (kind == "ls") return list_of<std::string>(value);
  if (kind == "ltype") {
    std::vector<DType> types;
    for (const int type : list_of<int>(value)) types.push_back(static_cast<DType>(type));
    return types;
  }
  throw InvalidArgument("attribute '" + name + "': no kind '" + kind + "'");
}

nb::object from_attr(const Attr& attr) {
  return std::visit(
      [](const auto& value) -> nb::object {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, DType>)
          return nb::cast(static_cast<int>(value));
        else if constexpr (std::is_same_v<T, Shape>)
          return from_shape(value);
        else if constexpr (std::is_same_v<T, Tensor>)
          return to_array(value);
        else if constexpr (std::is_same_v<T, std::vector<DType>> || std::is_same_v<T, std::vector<Shape>>)
          return nb::none();
        else
          return nb::cast(value);
      },
      static_cast<const AttrValue_&>(attr));
}

void release_dropped() {
  if (!any_dropped.exchange(false)) return;
  std::vector<Py_buffer*> mine;
  std::vector<nb::ndarray<nb::ro>*> arrays;
  {
    std::lock_guard lock(dropped_mu);
    mine.swap(dropped);
    arrays.swap(dropped_arrays);
  }
  for (const auto* array : arrays) delete array;
  for (Py_buffer* view : mine) {
    PyBuffer_Release(view);
    delete view;
  }
}

std::pair<std::uint64_t, std::uint64_t> bytes_in() { return {bytes_shared.load(), bytes_copied.load()}; }

}  // namespace braid::python
