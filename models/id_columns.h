// Categorical columns of a batch: the tables that they need, and what their ids become. A column has an id a
// row, a list of `length` ids, which 0 fills, or is ragged: as many ids as the row has, side by side with
// those of the other rows.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/common.h"

namespace braid {

/// The placeholders of a ragged column "sparse/tags".
struct RaggedInput {
  IdField field;
  Output ids;                     // [room] int64
  Output offsets;                 // [B + 1] int32
  std::optional<Output> weights;  // [room] float32
};

/// Those of an input column: lists and single ids stand side by side in one.
struct IdInputs {
  IdInputs() = default;
  IdInputs(Output ids) : lists(std::move(ids)) {}  // NOLINT: ids alone are inputs
  std::optional<Output> lists;                     // [B, width] ids
  std::vector<RaggedInput> ragged;
  std::vector<std::string> columns;  // names of all of them, in order

  /// What a model reads: these columns between others.
  std::vector<std::string> read_between(std::vector<std::string> before,
                                        const std::vector<std::string>& behind) const;
};

/// The numeric columns of a batch, of which models of tables need none.
struct NumericInput {
  std::optional<Output> values;  // [B, width] float32; none without such columns
  std::int64_t width = 0;

  /// What a model reads: the input column, if it is there, and `besides`.
  std::vector<std::string> read_beside(std::vector<std::string> besides = {}) const;
  /// The values, if they are there, and behind them `parts` [B, ...], side by side. REQUIRES: a part.
  Output beside(GraphBuilder& builder, std::vector<Output> parts) const;
};

/// The placeholder of input column "dense", if the data has one.
NumericInput numeric_input(GraphBuilder& builder, const ModelConfig& config, const std::string& model);

/// `type`: of single ids and lists. Throws: InvalidArgument when the data has no such column.
IdInputs id_inputs(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                   const std::string& column, DType type = DType::Int64);

/// Tables that several columns share, by their names.
using SharedTables = std::map<std::string, Output>;

/// One categorical column of a batch, and the table that it needs.
struct IdColumn {
  std::string name;         // of its variables: the column's, with '_' for what no name of a node has
  std::string former_name;  // that they had before they were named after columns
  Output ids;               // [B] int64; of a list [B, length], which 0 fills; of a ragged one [room]
  DType id_type = DType::Int64;
  std::int64_t length = 1;
  std::int64_t rows = 0;  // of the table
  bool filled = true;     // 0 stands for no id of a list
  bool ragged = false;
  Output offsets = {};                         // of a ragged one
  std::optional<Output> weights = {};          // of a ragged one
  ColumnTable table = {};                      // as the job has it
  std::shared_ptr<SharedTables> sharing = {};  // of all columns of a model; null: of none
  std::shared_ptr<const IdColumn> query = {};  // of pooling Attention; null: a learned vector
};

/// Those of the input column `column`. `rows`: of tables of fields whose number of ids is not known. Before
/// they were named after columns, tables were named after their position: `former_prefix` "c" for "c3".
/// Throws: InvalidArgument where the fields do not have the width of the batch.
std::vector<IdColumn> id_columns(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                                 const std::string& column, const IdInputs& ids, std::int64_t rows,
                                 const std::string& former_prefix = "c");

/// The same for models that pool lists: `ids` is [B, length] of every column, also where that is 1.
std::vector<IdColumn> list_columns(GraphBuilder& builder, const ModelConfig& config, const std::string& model,
                                   const std::string& column, const IdInputs& ids, std::int64_t rows);

/// Of the ids of an input column: int64 unless the data has int32.
DType id_type(const ModelConfig& config, const std::string& column);

/// Ids of the input column, whatever its fields, are below this; `unknown` where that is not known.
std::int64_t ids_of(const ModelConfig& config, const std::string& column, std::int64_t unknown);

/// The table of a column, "<name>/table" [rows, dim], or the one that it shares, which is made once: for
/// lookups of single ids by b.gather().
Output column_table(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column,
                    std::int64_t dim, const InitSpec& init);

/// Of the rows of a list's ids, where the column says nothing.
enum class Combiner { Mean, Sum };

/// A table "<name>/table" and a row of it for each row of the batch, the combined ones of a list: [B, dim].
/// Throws: InvalidArgument for a pooling that the column cannot have.
Output embedded(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column, std::int64_t dim,
                const InitSpec& init, Combiner combiner = Combiner::Mean);

/// The same for a list [B, length], by one node that reads rows and writes their sum or mean (braid.Bag).
Output pooled(GraphBuilder& builder, const ModelConfig& config, const IdColumn& column, std::int64_t dim,
              const InitSpec& init, Combiner combiner);

/// 1 where `ids` [B, L] are not 0, as [B, 1, L].
Output list_mask(GraphBuilder& builder, const Output& ids, std::int64_t length, DType type = DType::Int64);

/// How the initial values of a table [rows, dim] follow from its size.
using TableInit = InitSpec (*)(std::int64_t rows, std::int64_t dim);

/// The width of a column's rows: its own, else `dim`.
std::int64_t width_of(const IdColumn& column, std::int64_t dim);
/// Of all columns side by side.
std::int64_t width_of(const std::vector<IdColumn>& columns, std::int64_t dim);
/// Throws: InvalidArgument where a column asks for another width than `dim`, which the model cannot use; from
/// now on none asks for any.
void require_one_width(const std::string& model, std::vector<IdColumn>& columns, std::int64_t dim);

/// The tables of queries (pooling Attention), before those who ask: with initial values by their own rows.
void make_query_tables(GraphBuilder& builder, const ModelConfig& config, const std::vector<IdColumn>& columns,
                       std::int64_t dim, TableInit init);

/// All columns, each of its own width or `dim`, with the initial values that the job says, or `init`.
std::vector<Output> column_embeddings(GraphBuilder& builder, const ModelConfig& config,
                                      const std::vector<IdColumn>& columns, std::int64_t dim, TableInit init);

}  // namespace braid
