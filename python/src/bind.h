// What the files of the module add to it. Thread rule: at import.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

namespace braid::python {

void bind_errors(nanobind::module_& module);
void bind_bundles(nanobind::module_& module);
void bind_graph(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
void bind_session(nanobind::module_& module);
void bind_training(nanobind::module_& module);

/// True while this process is a child that was forked after the import: threads of the engine are not there.
bool is_forked_child();
/// Throws: Internal in such a child.
void refuse_forked_child();

/// Ends what has threads, which may want the interpreter's lock. In such a child nothing is done: they are
/// its parent's, and waiting for them would take for ever.
template <class T>
void end_without_lock(std::unique_ptr<T>& owned) {
  if (is_forked_child()) {
    static_cast<void>(owned.release());
    return;
  }
  const nanobind::gil_scoped_release released;
  owned.reset();
}

}  // namespace braid::python
