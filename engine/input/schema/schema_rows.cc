// How TableBuilder ends rows, leaves them out, and makes the table.
#include <utility>

#include "engine/input/schema/schema.h"

namespace braid {

void TableBuilder::end_row() {
  ++rows_;
  for (const std::size_t o : ragged_) outputs_[o].ends.push_back(std::ssize(outputs_[o].ints));
}

void TableBuilder::drop_row() {
  for (Output& output : outputs_) {
    const std::int64_t last = output.ends.empty() ? 0 : output.ends.back();
    const auto kept = static_cast<std::size_t>(output.ragged ? last : rows_ * output.width);
    output.floats.resize(output.is_float || output.weighted ? kept : 0);
    output.ints.resize(output.is_float ? 0 : kept);
  }
}

void TableBuilder::add_blank(std::size_t column) {
  if (columns_[column].kind == ColumnKind::Skip || columns_[column].ragged) return;
  const auto length = static_cast<std::size_t>(columns_[column].length);
  if (output(column).is_float)
    output(column).floats.insert(output(column).floats.end(), length, 0.0F);
  else
    output(column).ints.insert(output(column).ints.end(), length, 0);
}

void TableBuilder::blank_row() {
  drop_row();
  for (std::size_t c = 0; c < columns_.size(); ++c) add_blank(c);
  end_row();
}

std::shared_ptr<Table> TableBuilder::finish(std::int64_t skipped) {
  auto table = std::make_shared<Table>();
  table->rows = rows_;
  table->skipped = skipped;
  for (Output& output : outputs_) {
    const Shape shape = output.ragged ? Shape{std::ssize(output.ints)}
                        : output.flat ? Shape{rows_}
                                      : Shape{rows_, output.width};
    TableColumn column{output.name,
                       output.is_float ? Tensor::from<float>(shape, output.floats)
                                       : Tensor::from<std::int64_t>(shape, output.ints),
                       1.0F, output.fields};
    if (output.ragged) {
      output.ends.insert(output.ends.begin(), 0);
      column.offsets = Tensor::from<std::int64_t>(Shape{rows_ + 1}, output.ends);
      column.batch_values = output.batch_values;
      if (output.weighted) column.weights = Tensor::from<float>(shape, output.floats);
    }
    table->columns.push_back(std::move(column));
    output.floats = {};
    output.ints = {};
    output.ends = {};
  }
  rows_ = 0;
  return table;
}

}  // namespace braid
