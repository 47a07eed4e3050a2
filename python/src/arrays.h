// Python arrays and braid::Tensor, both ways, without copies. In: whatever has the buffer protocol (NumPy),
// in row-major order; the memory is held until the last tensor over it is dropped, by whichever thread: the
// object itself is released by the next call from Python (release_dropped), as threads of the engine never
// take the interpreter's lock. Out: NumPy views of the tensor's memory. Strings are copied, as lists of
// bytes. Thread rule: the lock is held, but where it is said.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/ir/attr.h"

namespace braid::python {

/// `array`: an object with a buffer, or for strings the tuple (shape, list of bytes).
/// Throws: InvalidArgument (a type that tensors do not have, another order than row-major).
Tensor to_tensor(nanobind::handle array, const std::string& what);
/// A NumPy array over the tensor's memory; for strings the tuple (shape, list of bytes).
nanobind::object to_array(const Tensor& tensor);

/// (kind, value): "i", "f", "b", "s", "type", "shape", "tensor", and lists of them as "li", "lf", ...
Attr to_attr(const std::string& name, nanobind::handle kind_and_value);
nanobind::object from_attr(const Attr& attr);

/// None for an unknown rank, else dimensions, of which unknown ones are -1.
nanobind::object from_shape(const Shape& shape);
Shape to_shape(nanobind::handle shape);

/// Releases the objects of tensors that have been dropped.
void release_dropped();
/// Bytes of feeds that were taken without and with a copy, since the start.
std::pair<std::uint64_t, std::uint64_t> bytes_in();

}  // namespace braid::python
