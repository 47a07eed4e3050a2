// In place of the importer of ONNX, where BRAID_GRAPHS is off.
#include <fmt/format.h>

#include "base/error.h"
#include "engine/import/onnx/onnx.h"
#include "engine/ir/left_out.h"

namespace braid {
namespace {

[[noreturn]] void refuse(const std::string& source) {
  throw InvalidArgument(fmt::format("{}: ONNX is not read{}", source, left_out_text()));
}

}  // namespace

OnnxImport try_import_onnx(const std::filesystem::path& file, const OnnxInputShapes&, OwnNodes, OnnxUse) {
  refuse(file.string());
}

OnnxImport try_parse_onnx(std::string_view, const std::string& source, const std::filesystem::path&,
                          const OnnxInputShapes&, OwnNodes, OnnxUse) {
  refuse(source);
}

OnnxImport import_onnx(const std::filesystem::path& file, const OnnxInputShapes&, OwnNodes, OnnxUse) {
  refuse(file.string());
}

}  // namespace braid
