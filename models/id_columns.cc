#include "models/id_columns.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "engine/input/schema/column_spec.h"
#include "models/list_attention.h"

namespace braid {
namespace {

constexpr const char* kNumericColumn = "dense";

/// `name` as a part of a node's name, another one than those that are taken.
std::string node_name(const std::string& name, std::set<std::string>& taken) {
  const std::string clean = plain_name(name);
  std::string unique = clean;
  for (int i = 2; !taken.insert(unique).second; ++i) unique = clean + "_" + std::to_string(i);
  return unique;
}

std::vector<IdField> known_fields(const ModelConfig& config, const std::string& column, bool ragged) {
  std::vector<IdField> fields;
  const auto known = config.fields.find(column);
  if (known == config.fields.end()) return fields;
  std::ranges::copy_if(known->second, std::back_inserter(fields),
                       [&](const IdField& field) { return field.input.empty() != ragged; });
  return fields;
}

/// The fields of an input column of `width` ids; `former_prefix` as id_columns() has it.
std::vector<IdField> fields_of(const ModelConfig& config, const std::string& model, const std::string& column,
                               std::int64_t width, const std::string& former_prefix) {
  std::vector<IdField> fields = known_fields(config, column, false);
  if (fields.empty())
    for (std::int64_t c = 0; c < width; ++c) fields.push_back({former_prefix + std::to_string(c)});
  std::int64_t positions = 0;
  for (const IdField& field : fields) positions += field.length;
  if (positions != width)
    throw InvalidArgument("model '" + model + "': the columns of '" + column + "' have " +
                          std::to_string(positions) + " values a row, its batches " + std::to_string(width));
  return fields;
}

/// What all kinds of columns have in common.
IdColumn column_of(const IdField& field, std::int64_t rows, std::set<std::string>& taken) {
  IdColumn to;
  to.name = node_name(field.name, taken);
  to.length = field.length;
  to.rows = field.ids > 0 ? field.ids : rows;
  to.filled = field.filled;
  to.table = field.table;
  if (!to.table.shared.empty()) to.table.shared = plain_name(to.table.shared);
  return to;
}

void add_ragged(const IdInputs& inputs, std::int64_t rows, std::set<std::string>& taken,
                std::vector<IdColumn>& columns) {
  for (const RaggedInput& input : inputs.ragged) {
    IdColumn to = column_of(input.field, rows, taken);
    to.ids = input.ids;
    to.offsets = input.offsets;
    to.weights = input.weights;
    to.ragged = true;
    columns.push_back(std::move(to));
  }
}

/// A column that asks is looked up for each column that it asks, in one table.
void share_with_queries(const std::string& model, std::vector<IdColumn>& columns,
                        const std::shared_ptr<SharedTables>& tables) {
  for (const IdColumn& column : columns) {
    if (column.table.pooling != ListPooling::Attention || column.table.query.empty()) continue;
    IdColumn& query = query_of(model, columns, column);
    query.sharing = tables;
  }
}

/// Columns of one word have one table, which has a row for each id of any of them.
void share_tables(const std::string& model, std::vector<IdColumn>& columns) {
  const auto tables = std::make_shared<SharedTables>();
  std::map<std::string, const IdColumn*> first;
  std::map<std::string, std::int64_t> rows;
  for (const IdColumn& column : columns) {
    if (column.table.shared.empty()) continue;
    std::int64_t& most = rows[column.table.shared];
    most = std::max(most, column.rows);
    const IdColumn& other = *first.try_emplace(column.table.shared, &column).first->second;
    if (other.table.dim != column.table.dim || other.table.init != column.table.init)
      throw InvalidArgument("model '" + model + "': columns '" + other.name + "' and '" + column.name +
                            "' share table '" + column.table.shared +
                            "', so their embedding_dim and embedding_init must be the same");
  }
  share_with_queries(model, columns, tables);
  for (IdColumn& column : columns) {
    if (column.table.shared.empty()) continue;
    for (const IdColumn& other : columns)
      if (other.table.shared.empty() && other.name == column.table.shared)
        throw InvalidArgument("model '" + model + "': table '" + column.table.shared +
                              "' is the name of a column that has a table of its own");
    column.rows = rows[column.table.shared];
    column.sharing = tables;
    column.former_name.clear();
  }
  for (IdColumn& column : columns)
    if (column.table.pooling == ListPooling::Attention && !column.table.query.empty())
      column.query = std::make_shared<const IdColumn>(query_of(model, columns, column));
}

ListPooling pooling_of(const IdColumn& column, Combiner combiner) {
  if (column.table.pooling != ListPooling::ModelsOwn && column.table.pooling != ListPooling::Attention)
    return column.table.pooling;
  return combiner == Combiner::Sum ? ListPooling::Sum : ListPooling::Mean;
}

std::string pooling_name(ListPooling pooling) {
  switch (pooling) {
    case ListPooling::Mean:
      return "mean";
    case ListPooling::SqrtN:
      return "sqrtn";
    case ListPooling::Max:
      return "max";
    default:
      return "sum";
  }
}

[[noreturn]] void refuse_max(const IdColumn& column, const char* why) {
  throw InvalidArgument("column '" + column.name + "': pooling MAX " + why);
}

Output ragged_bag(GraphBuilder& builder, const IdColumn& column, const Output& table, Combiner combiner) {
  const ListPooling pooling = pooling_of(column, combiner);
  if (pooling == ListPooling::Max && column.weights) refuse_max(column, "has no weights");
  AttrMap attrs{{"dtype", DType::Float32}, {"pooling", pooling_name(pooling)}, {"ragged", true}};
  std::vector<Output> inputs{table, column.ids, column.offsets};
  if (column.weights) {
    inputs.push_back(*column.weights);
    attrs.set("weighted", true);
  }
  return builder.op("braid.Bag", inputs, attrs, "bag");
}

}  // namespace

Output column_table(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column,
                    std::int64_t dim, const InitSpec& models_init) {
  const InitSpec init = column.table.init > 0 ? uniform_init(column.table.init) : models_init;
  const auto make = [&](const std::string& name, const std::string& former_name) {
    return embedding_table(builder, name, column.rows, dim, config.sparse_tables, init, former_name);
  };
  if (!column.sharing) return make(column.name, column.former_name == column.name ? "" : column.former_name);
  const bool shared = !column.table.shared.empty();
  const std::string& name = shared ? column.table.shared : column.name;
  const auto [table, fresh] = column.sharing->try_emplace(builder.full_name(name));
  if (fresh) table->second = make(name, shared || column.former_name == name ? "" : column.former_name);
  return table->second;
}

std::vector<std::string> IdInputs::read_between(std::vector<std::string> before,
                                                const std::vector<std::string>& behind) const {
  before.insert(before.end(), columns.begin(), columns.end());
  before.insert(before.end(), behind.begin(), behind.end());
  return before;
}

std::vector<std::string> NumericInput::read_beside(std::vector<std::string> besides) const {
  if (values) besides.emplace_back(kNumericColumn);
  return besides;
}

Output NumericInput::beside(GraphBuilder& builder, std::vector<Output> parts) const {
  if (values) parts.insert(parts.begin(), *values);
  return parts.size() == 1 ? parts[0] : builder.concat(parts, 1);
}

NumericInput numeric_input(GraphBuilder& builder, const ModelConfig& config, const std::string& model) {
  if (!config.columns.contains(kNumericColumn)) return {};
  return {column_placeholder(builder, config, model, kNumericColumn, DType::Float32),
          row_shape(config, model, kNumericColumn)[0]};
}

IdInputs id_inputs(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                   const std::string& column, DType type) {
  IdInputs inputs;
  const std::vector<IdField> ragged = known_fields(config, column, true);
  if (config.columns.contains(column) || ragged.empty()) {
    inputs.lists = column_placeholder(builder, config, model, column, type);
    inputs.columns.push_back(column);
  }
  for (const IdField& field : ragged) {
    const Shape unknown{Shape::kUnknown};
    RaggedInput input{field, builder.placeholder(field.input, DType::Int64, unknown),
                      builder.placeholder(field.input + "/offsets", DType::Int32, unknown), std::nullopt};
    inputs.columns.insert(inputs.columns.end(), {field.input, field.input + "/offsets"});
    if (field.weighted) {
      input.weights = builder.placeholder(field.input + "/weights", DType::Float32, unknown);
      inputs.columns.push_back(field.input + "/weights");
    }
    inputs.ragged.push_back(std::move(input));
  }
  return inputs;
}

std::vector<IdColumn> id_columns(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                                 const std::string& column, const IdInputs& ids, std::int64_t rows,
                                 const std::string& former_prefix) {
  std::vector<IdColumn> columns;
  std::set<std::string> taken{"items"};  // of din
  if (ids.lists) {
    const std::int64_t width = row_shape(config, model, column)[0];
    const std::vector<IdField> fields = fields_of(config, model, column, width, former_prefix);
    const Output split = builder.op("Unpack", {*ids.lists}, {{"num", width}, {"axis", 1}}, "columns");
    std::int64_t position = 0;
    for (const IdField& field : fields) {
      IdColumn to = column_of(field, rows, taken);
      to.ids = {split.node, static_cast<int>(position)};
      if (field.length == 1) {
        to.former_name = former_prefix + std::to_string(position);
      } else {
        std::vector<Output> parts;
        for (std::int64_t i = 0; i < field.length; ++i)
          parts.push_back({split.node, static_cast<int>(position + i)});
        to.ids = builder.op("Pack", parts, {{"N", field.length}, {"axis", 1}}, to.name + "/ids");
      }
      position += field.length;
      columns.push_back(std::move(to));
    }
  }
  add_ragged(ids, rows, taken, columns);
  share_tables(model, columns);
  return columns;
}

std::vector<IdColumn> list_columns(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                                   const std::string& column, const IdInputs& ids, std::int64_t rows) {
  std::vector<IdColumn> columns;
  std::set<std::string> taken;
  if (ids.lists) {
    const std::vector<IdField> fields =
        fields_of(config, model, column, row_shape(config, model, column)[0], "c");
    std::vector<std::int64_t> lengths;
    for (const IdField& field : fields) lengths.push_back(field.length);
    const auto count = static_cast<std::int64_t>(lengths.size());
    Output split = *ids.lists;
    if (count > 1)
      split = builder.op(
          "SplitV",
          {*ids.lists, builder.constant(Tensor::from<std::int64_t>(Shape{count}, lengths), "lengths"),
           builder.constant(Tensor::scalar<std::int32_t>(1), "length_axis")},
          {{"num_split", count}}, "columns");
    for (const IdField& field : fields) {
      IdColumn to = column_of(field, rows, taken);
      to.filled = field.filled && field.length > 1;
      to.id_type = id_type(config, column);
      to.ids = {split.node, split.index + static_cast<int>(columns.size())};
      columns.push_back(std::move(to));
    }
  }
  add_ragged(ids, rows, taken, columns);
  share_tables(model, columns);
  return columns;
}

DType id_type(const ModelConfig& config, const std::string& column) {
  const auto known = config.types.find(column);
  return known == config.types.end() ? DType::Int64 : known->second;
}

std::int64_t ids_of(const ModelConfig& config, const std::string& column, std::int64_t unknown) {
  const auto known = config.fields.find(column);
  if (known == config.fields.end() || known->second.empty()) return unknown;
  std::int64_t most = 0;
  for (const IdField& field : known->second) most = std::max(most, field.ids > 0 ? field.ids : unknown);
  return most;
}

Output pooled(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column, std::int64_t dim,
              const InitSpec& init, Combiner combiner) {
  if (pools_by_attention(column, dim)) return attended(builder, config, column, dim, init);
  const Output table = column_table(builder, config, column, dim, init);
  const NameScope scope(builder, column.name);
  if (column.ragged) return ragged_bag(builder, column, table, combiner);
  const ListPooling pooling = pooling_of(column, combiner);
  AttrMap attrs{{"dtype", DType::Float32}, {"pooling", pooling_name(pooling)}};
  if (!column.filled) return builder.op("braid.Bag", {table, column.ids}, attrs, "bag");
  if (pooling == ListPooling::Max) refuse_max(column, "is for ragged columns");
  const bool narrow = column.id_type == DType::Int32;
  const Output filler =
      builder.constant(narrow ? Tensor::scalar<std::int32_t>(0) : Tensor::scalar<std::int64_t>(0), "filler");
  const Output present = builder.op("Cast", {builder.op("NotEqual", {column.ids, filler})},
                                    {{"SrcT", DType::Bool}, {"DstT", DType::Float32}});
  attrs.set("weighted", true);
  return builder.op("braid.Bag", {table, column.ids, present}, attrs, "bag");
}

Output list_mask(GraphBuilder& builder, const Output& ids, std::int64_t length, DType type) {
  const bool narrow = type == DType::Int32;
  const Output filler =
      builder.constant(narrow ? Tensor::scalar<std::int32_t>(0) : Tensor::scalar<std::int64_t>(0), "filler");
  const Output present = builder.op("NotEqual", {ids, filler});
  return builder.reshape(builder.op("Cast", {present}, {{"SrcT", DType::Bool}, {"DstT", DType::Float32}}),
                         {-1, 1, length});
}

Output embedded(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column, std::int64_t dim,
                const InitSpec& init, Combiner combiner) {
  if (pools_by_attention(column, dim)) return attended(builder, config, column, dim, init);
  const Output table = column_table(builder, config, column, dim, init);
  const NameScope scope(builder, column.name);
  if (column.ragged) return ragged_bag(builder, column, table, combiner);
  if (column.length == 1) return builder.gather(table, column.ids);
  const ListPooling pooling = pooling_of(column, combiner);
  if (pooling == ListPooling::Max) refuse_max(column, "is for ragged columns");
  const Output rows = builder.gather(table, builder.reshape(column.ids, {-1}));
  Output weights = list_mask(builder, column.ids, column.length);
  if (pooling != ListPooling::Sum) {
    const Output last = builder.constant(Tensor::from<std::int32_t>(Shape{1}, std::vector{2}), "last");
    Output count = builder.op("Sum", {weights, last}, {{"keep_dims", true}});
    const Output one = builder.constant(Tensor::scalar(1.0F), "one");  // of an empty list
    count = builder.op("Maximum", {count, one});
    if (pooling == ListPooling::SqrtN) count = builder.op("Sqrt", {count});
    weights = builder.op("RealDiv", {weights, count});
  }
  const Output lists = builder.reshape(rows, {-1, column.length, dim});
  return builder.reshape(builder.op("BatchMatMulV2", {weights, lists}), {-1, dim});
}

std::int64_t width_of(const IdColumn& column, std::int64_t dim) {
  return column.table.dim > 0 ? column.table.dim : dim;
}

std::int64_t width_of(const std::vector<IdColumn>& columns, std::int64_t dim) {
  std::int64_t width = 0;
  for (const IdColumn& column : columns) width += width_of(column, dim);
  return width;
}

void require_one_width(const std::string& model, std::vector<IdColumn>& columns, std::int64_t dim) {
  for (IdColumn& column : columns) {
    if (width_of(column, dim) != dim)
      throw InvalidArgument("model '" + model + "': embedding_dim of column '" + column.name + "' is " +
                            std::to_string(column.table.dim) +
                            ", but it multiplies embeddings with each other, so " + "all must have " +
                            std::to_string(dim) + " (model.embedding_dim)");
    column.table.dim = 0;
  }
}

void make_query_tables(GraphBuilder& builder, const ModelConfig& config, const std::vector<IdColumn>& columns,
                       std::int64_t dim, TableInit init) {
  for (const IdColumn& column : columns) {
    if (!column.query) continue;
    const std::int64_t width = width_of(column, dim);
    column_table(builder, config, *column.query, width, table_init(config, init(column.query->rows, width)));
  }
}

std::vector<Output> column_embeddings(GraphBuilder& builder, const ModelConfig& config,
                                      const std::vector<IdColumn>& columns, std::int64_t dim,
                                      TableInit init) {
  make_query_tables(builder, config, columns, dim, init);
  std::vector<Output> rows;
  for (const IdColumn& column : columns) {
    const std::int64_t width = width_of(column, dim);
    rows.push_back(embedded(builder, config, column, width, table_init(config, init(column.rows, width))));
  }
  return rows;
}

}  // namespace braid
