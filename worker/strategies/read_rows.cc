#include "worker/strategies/read_rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/device/gather_rows.h"

namespace braid::worker {

void read_rows(VariableStore& store, Accelerator* device, const std::string& variable, const Shape& shape,
               std::span<const std::int64_t> rows, float* to) {
  if (!store.contains(variable)) throw Internal("there is no variable '" + variable + "' to be read");
  for (const std::int64_t row : rows)
    if (row < 0 || row >= shape[0])
      throw Internal(fmt::format("variable '{}' {} has no row {}", variable, shape.to_string(), row));
  const Domain domain = store.domain(variable);
  const Tensor& values = store.get_or_create(variable, DType::Float32, shape, domain);
  const std::int64_t width = shape[1];
  if (domain == Domain::Device) {
    if (!device) throw Internal("variable '" + variable + "' is on a device that is not there");
    gather_rows_now(*device, to, values.raw(), rows, static_cast<std::uint64_t>(width) * sizeof(float));
    return;
  }
  for (const std::int64_t row : rows) to = std::copy_n(values.data<float>().data() + row * width, width, to);
}

}  // namespace braid::worker
