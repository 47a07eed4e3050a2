// What the files of the module add to it. Thread rule: at import.
#pragma once

#include <nanobind/nanobind.h>

namespace braid::python {

void bind_errors(nanobind::module_& module);
void bind_bundles(nanobind::module_& module);
void bind_graph(nanobind::module_& module);
void bind_session(nanobind::module_& module);
void bind_training(nanobind::module_& module);

/// True while this process is a child that was forked after the import: threads of the engine are not there.
bool is_forked_child();
/// Throws: Internal in such a child.
void refuse_forked_child();

}  // namespace braid::python
