#include "engine/import/onnx/type_attrs.h"

#include <map>

namespace braid::onnx {
namespace {

struct TypeOf {
  const char* attr;
  int input;  // -1: the last one
};

using Rules = std::map<std::string, std::vector<TypeOf>, std::less<>>;

/// Ops that are not here have one type, T, that of input 0.
const Rules& rules() {
  static const Rules table = [] {
    Rules t;
    for (const char* op : {"Const", "Placeholder", "Cast", "LogicalAnd", "LogicalOr", "LogicalNot",
                           "StringJoin", "StringToNumber"})
      t[op] = {};
    for (const char* op : {"Sum", "Mean", "Max", "Min", "Prod", "ArgMax", "ArgMin", "Cumsum", "Cumprod",
                           "ReverseV2", "BroadcastTo"})
      t[op] = {{"T", 0}, {"Tidx", 1}};
    for (const char* op : {"All", "Any"}) t[op] = {{"Tidx", 1}};
    for (const char* op : {"TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub"})
      t[op] = {{"T", 0}, {"Tindices", 1}};
    for (const char* op :
         {"UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"})
      t[op] = {{"T", 0}, {"Tindices", 1}, {"Tnumsegments", 2}};
    for (const char* op : {"StridedSlice", "Slice"}) t[op] = {{"T", 0}, {"Index", 1}};
    for (const char* op : {"PadV2", "MirrorPad"}) t[op] = {{"T", 0}, {"Tpaddings", 1}};
    t["Reshape"] = {{"T", 0}, {"Tshape", 1}};
    t["Transpose"] = {{"T", 0}, {"Tperm", 1}};
    t["ExpandDims"] = {{"T", 0}, {"Tdim", 1}};
    t["ConcatV2"] = {{"T", 0}, {"Tidx", -1}};
    t["SplitV"] = {{"T", 0}, {"Tlen", 1}};
    t["Tile"] = {{"T", 0}, {"Tmultiples", 1}};
    t["GatherV2"] = {{"Tparams", 0}, {"Tindices", 1}, {"Taxis", 2}};
    t["GatherNd"] = {{"Tparams", 0}, {"Tindices", 1}};
    t["ScatterNd"] = {{"T", 1}, {"Tindices", 0}};
    t["SelectV2"] = {{"T", 1}};
    t["OneHot"] = {{"T", 2}, {"TI", 0}};
    t["TopKV2"] = {{"T", 0}, {"Tk", 1}};
    t["Range"] = {{"Tidx", 0}};
    t["FusedBatchNormV3"] = {{"T", 0}, {"U", 1}};
    return t;
  }();
  return table;
}

}  // namespace

void add_type_attrs(const std::string& op, const std::vector<DType>& inputs, AttrMap& attrs) {
  static const std::vector<TypeOf> usual{{"T", 0}};
  const auto it = rules().find(op);
  for (const TypeOf& type : it == rules().end() ? usual : it->second) {
    const std::size_t input = type.input < 0 ? inputs.size() - 1 : static_cast<std::size_t>(type.input);
    if (input < inputs.size() && !attrs.has(type.attr)) attrs.set(type.attr, inputs[input]);
  }
  if (op == "Einsum" && !attrs.has("N")) attrs.set("N", static_cast<std::int64_t>(inputs.size()));
}

}  // namespace braid::onnx
