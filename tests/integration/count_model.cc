#include "tests/integration/count_model.h"

namespace braid::integration {
namespace {

std::string type(const std::string& name) { return "attr { key: \"T\" value { type: " + name + " } } "; }

std::string constant(const std::string& name, const std::string& type, const std::string& shape,
                     const std::string& value) {
  return "node { name: \"" + name + "\" op: \"Const\" attr { key: \"dtype\" value { type: " + type +
         " } } attr { key: \"value\" value { tensor { dtype: " + type + " tensor_shape {" + shape + "} " +
         value + " } } } }\n";
}

std::string variable(const std::string& name, const std::string& shape, const std::string& values) {
  return "node { name: \"" + name +
         "\" op: \"VariableV2\" attr { key: \"dtype\" value { type: DT_FLOAT } } " +
         "attr { key: \"shape\" value { shape {" + shape + "} } } }\n" +
         constant(name + "/value", "DT_FLOAT", shape, values) + "node { name: \"" + name +
         "/Assign\" op: \"Assign\" input: \"" + name + "\" input: \"" + name + "/value\" " +
         type("DT_FLOAT") + "}\nnode { name: \"" + name + "/read\" op: \"Identity\" input: \"" + name +
         "\" " + type("DT_FLOAT") + "}\n";
}

std::string dims(int rows, int columns) {
  return " dim { size: " + std::to_string(rows) + " } dim { size: " + std::to_string(columns) + " } ";
}

}  // namespace

std::string count_graph(int rows, int columns, const std::vector<int>& first) {
  std::string values = first.empty() ? "float_val: 0" : "";
  for (const int value : first) values += "float_val: " + std::to_string(value) + " ";
  return "node { name: \"id\" op: \"Placeholder\" attr { key: \"dtype\" value { type: DT_INT64 } } "
         "attr { key: \"shape\" value { shape { dim { size: -1 } } } } }\n" +
         variable("table", dims(rows, 1), values) + variable("w", dims(1, columns), "float_val: 1") +
         constant("axis", "DT_INT32", "", "int_val: 0") +
         "node { name: \"rows\" op: \"GatherV2\" input: \"table/read\" input: \"id\" input: \"axis\" "
         "attr { key: \"Tparams\" value { type: DT_FLOAT } } attr { key: \"Tindices\" value { type: DT_INT64 "
         "} } "
         "attr { key: \"Taxis\" value { type: DT_INT32 } } }\n"
         "node { name: \"product\" op: \"MatMul\" input: \"rows\" input: \"w/read\" " +
         type("DT_FLOAT") + "}\n" +
         constant("axes", "DT_INT32", " dim { size: 2 } ", "int_val: 0 int_val: 1") +
         "node { name: \"loss\" op: \"Mean\" input: \"product\" input: \"axes\" " + type("DT_FLOAT") +
         "attr { key: \"Tidx\" value { type: DT_INT32 } } }\n";
}

}  // namespace braid::integration
