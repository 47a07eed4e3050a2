// Errors of the engine as Python exceptions: braid.Error, and below it one class for each code, which is also
// the built-in exception that Python programs catch for that reason.
#include <array>

#include "base/error.h"
#include "python/src/bind.h"

namespace nb = nanobind;

namespace braid::python {
namespace {

struct Kind {
  ErrorCode code;
  const char* name;
  PyObject** also;
};

std::array<PyObject*, 10> exceptions{};  // by code; live as long as the process

PyObject* make_exception(nb::module_& module, const char* name, nb::handle bases) {
  const std::string full = std::string("braid.") + name;
  PyObject* const made = PyErr_NewException(full.c_str(), bases.ptr(), nullptr);
  if (!made) throw nb::python_error();
  module.attr(name) = nb::handle(made);
  return made;
}

/// "[MatMul] node 'dense/MatMul': ..." has the op and the node.
void add_place(nb::object& error, const std::string& message) {
  error.attr("op") = nb::none();
  error.attr("node") = nb::none();
  const std::size_t end = message.find("] node '");
  if (end == std::string::npos) return;
  const std::size_t begin = message.rfind('[', end), last = message.find('\'', end + 8);
  if (begin == std::string::npos || last == std::string::npos) return;
  error.attr("op") = nb::str(message.data() + begin + 1, end - begin - 1);
  error.attr("node") = nb::str(message.data() + end + 8, last - end - 8);
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    const auto code = static_cast<std::size_t>(error.code());
    const nb::handle type(exceptions[code < exceptions.size() ? code : 0]);
    nb::object made = type(nb::str(error.message().data(), error.message().size()));
    add_place(made, error.message());
    PyErr_SetObject(type.ptr(), made.ptr());
  }
}

}  // namespace

void bind_errors(nb::module_& module) {
  PyObject* const base = make_exception(module, "Error", nb::handle(PyExc_Exception));
  exceptions.fill(base);
  const Kind kinds[] = {{ErrorCode::InvalidArgument, "InvalidArgument", &PyExc_ValueError},
                        {ErrorCode::Unavailable, "Unavailable", &PyExc_ConnectionError},
                        {ErrorCode::DeadlineExceeded, "DeadlineExceeded", &PyExc_TimeoutError},
                        {ErrorCode::OutOfMemory, "OutOfMemory", &PyExc_MemoryError},
                        {ErrorCode::DeviceError, "DeviceError", &PyExc_RuntimeError},
                        {ErrorCode::DataLoss, "DataLoss", &PyExc_OSError},
                        {ErrorCode::Internal, "Internal", &PyExc_RuntimeError},
                        {ErrorCode::Cancelled, "Cancelled", &PyExc_RuntimeError},
                        {ErrorCode::OutOfRange, "OutOfRange", &PyExc_EOFError}};
  for (const Kind& kind : kinds) {
    const nb::tuple bases = nb::make_tuple(nb::handle(base), nb::handle(*kind.also));
    exceptions[static_cast<std::size_t>(kind.code)] = make_exception(module, kind.name, bases);
  }
  nb::register_exception_translator(translate);
}

}  // namespace braid::python
