#include "python/src/rows.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/input/formats/readers.h"
#include "python/src/arrays.h"
#include "python/src/bind.h"
#include "worker/input/data.h"
#include "worker/input/input_files.h"
#include "worker/input/open_rows.h"
#include "worker/job/job.h"

namespace nb = nanobind;

namespace braid::python {

proto::Job job_of(const std::string& text) { return worker::load_job_text(text, "job", {}, {}); }

namespace {

constexpr std::int64_t kTextRows = 65536;  // that are read at a time

Rows rows_of_arrays(const nb::dict& arrays) {
  release_dropped();
  std::vector<std::pair<std::string, Tensor>> columns;
  for (const auto& [name, value] : arrays) {
    const auto key = nb::cast<std::string>(name);
    columns.emplace_back(key, to_tensor(value, "array '" + key + "'"));
  }
  return {table_of_arrays(std::move(columns))};
}

Rows rows_of_files(const std::string& job_text, const std::string& data_dir, bool test) {
  const nb::gil_scoped_release released;
  proto::Job job = job_of(job_text);
  job.mutable_input()->set_read(proto::Input::MEMORY);  // the arrays are asked for
  const worker::JobData data = worker::load_data(job, data_dir, test);
  if (test && !data.test) throw InvalidArgument("the job has no test files");
  return {test ? data.test : data.train};
}

/// The text that a field of the job's files has in each row, also one that the schema skips.
nb::list texts_of_files(const std::string& job_text, const std::string& data_dir, bool test,
                        const std::string& field) {
  std::vector<std::string> texts;
  {
    const nb::gil_scoped_release released;
    const proto::Job job = job_of(job_text);
    ReadOptions read;
    read.key_column = field;
    read.max_bad_records = job.input().max_bad_records();
    const auto files = test ? worker::test_files(job, data_dir) : worker::train_files(job, data_dir);
    const auto rows =
        worker::open_rows(job, data_dir, test ? "input.test_files" : "input.train_files", files, read);
    for (std::shared_ptr<Table> table = rows->next(kTextRows); table->rows > 0; table = rows->next(kTextRows))
      std::move(table->keys.begin(), table->keys.end(), std::back_inserter(texts));
  }
  nb::list result;
  for (const std::string& text : texts) result.append(nb::bytes(text.data(), text.size()));
  return result;
}

/// The columns that the job's files have, of which no row is read where a schema says them.
Rows columns_of_files(const std::string& job_text, const std::string& data_dir) {
  const nb::gil_scoped_release released;
  const proto::Job job = job_of(job_text);
  std::vector<std::filesystem::path> files;
  for (const std::string& file : job.input().train_files())
    files.push_back(std::filesystem::path(data_dir) / file);
  return {worker::empty_rows(job, data_dir, files)};
}

nb::dict arrays_of_rows(const Rows& rows) {
  nb::dict result;
  for (const TableColumn& column : rows.table->columns) {
    result[column.name.c_str()] = to_array(column.data);
    if (column.ragged()) result[(column.name + "/offsets").c_str()] = to_array(column.offsets);
    if (column.weights.defined()) result[(column.name + "/weights").c_str()] = to_array(column.weights);
  }
  return result;
}

}  // namespace

void bind_rows(nb::module_& module) {
  nb::class_<Rows>(module, "Rows", "Rows of columns, in memory.")
      .def_static("of_arrays", rows_of_arrays, nb::arg("arrays"))
      .def_static("of_files", rows_of_files, nb::arg("job"), nb::arg("data_dir"), nb::arg("test"))
      .def_static("columns_of_files", columns_of_files, nb::arg("job"), nb::arg("data_dir"))
      .def("arrays", arrays_of_rows)
      .def("__len__", [](const Rows& rows) { return rows.table->rows; });
  module.def("texts_of_files", texts_of_files, nb::arg("job"), nb::arg("data_dir"), nb::arg("test"),
             nb::arg("field"));
}

}  // namespace braid::python
