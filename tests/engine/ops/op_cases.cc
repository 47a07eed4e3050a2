#include "tests/engine/ops/op_cases.h"

#include <cstdio>
#include <cstdlib>

#include "base/init.h"
#include "engine/ops/common/dispatch.h"

namespace braid::testing {

namespace {

/// By stem.
std::map<std::string, AddOpCases>& listed() {
  static std::map<std::string, AddOpCases> all;
  return all;
}

}  // namespace

bool list_op_cases(const char* stem, AddOpCases add) {
  if (listed().emplace(stem, add).second) return true;
  std::fprintf(stderr, "BRAID_OP_CASES(%s) stands twice\n", stem);
  std::abort();
}

const std::vector<OpCase>& OpCaseTable::of(const std::string& op) const {
  static const std::vector<OpCase> none;
  auto it = cases_.find(op);
  return it == cases_.end() ? none : it->second;
}

const OpCaseTable& all_op_cases() {
  static const OpCaseTable table = [] {
    OpCaseTable t;
    for (const auto& [stem, add] : listed()) add(t);
    return t;
  }();
  return table;
}

namespace {

template <class T>
Tensor tensor_of(Shape shape, std::initializer_list<T> values) {
  return Tensor::from<T>(std::move(shape), {values.begin(), values.size()});
}

}  // namespace

Tensor f64(Shape shape, std::initializer_list<double> values) { return tensor_of(std::move(shape), values); }
Tensor f32(Shape shape, std::initializer_list<float> values) { return tensor_of(std::move(shape), values); }
Tensor i32(Shape shape, std::initializer_list<std::int32_t> values) {
  return tensor_of(std::move(shape), values);
}
Tensor i64(Shape shape, std::initializer_list<std::int64_t> values) {
  return tensor_of(std::move(shape), values);
}
Tensor bools(Shape shape, std::initializer_list<bool> values) { return tensor_of(std::move(shape), values); }

Tensor axes(std::initializer_list<std::int32_t> values) {
  return i32({static_cast<std::int64_t>(values.size())}, values);
}

Tensor text(const std::vector<std::string>& words) {
  return Tensor::strings({static_cast<std::int64_t>(words.size())}, words);
}
Tensor word(const std::string& one) { return Tensor::strings({}, {&one, 1}); }

Tensor random_f64(Shape shape, std::uint64_t seed, double low, double high) {
  Tensor t(DType::Float64, std::move(shape));
  std::vector<float> uniform(static_cast<std::size_t>(t.elements()));
  fill_uniform01(RngKey{seed}, 0, uniform);
  for (std::size_t i = 0; i < uniform.size(); ++i) t.data<double>()[i] = low + (high - low) * uniform[i];
  return t;
}

Tensor random_i64(Shape shape, std::uint64_t seed, std::int64_t low, std::int64_t high) {
  Tensor t(DType::Int64, std::move(shape));
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(t.elements()));
  fill_bits(RngKey{seed}, 0, bits);
  for (std::size_t i = 0; i < bits.size(); ++i)
    t.data<std::int64_t>()[i] =
        low + static_cast<std::int64_t>(bits[i] % static_cast<std::uint64_t>(high - low));
  return t;
}

Tensor converted(const Tensor& tensor, DType dtype) {
  Tensor result(dtype, tensor.shape());
  with_number_or_bool("converted", tensor.dtype(), [&]<class From>() {
    with_number_or_bool("converted", dtype, [&]<class To>() {
      const auto from = tensor.data<From>();
      for (std::size_t i = 0; i < from.size(); ++i) result.data<To>()[i] = static_cast<To>(from[i]);
    });
  });
  return result;
}

std::vector<double> to_doubles(const Tensor& tensor) {
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  with_number_or_bool("to_doubles", tensor.dtype(), [&]<class T>() {
    const auto data = tensor.data<T>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(data[i]);
  });
  return values;
}

std::vector<std::string> to_strings(const Tensor& tensor) {
  std::vector<std::string> values;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) values.emplace_back(tensor.string_at(i));
  return values;
}

}  // namespace braid::testing
