// `braid ckpt diff`: which values of two checkpoints differ, and by how much.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>

#include "base/error.h"
#include "cli/ckpt_tools.h"
#include "engine/ir/shape.h"
#include "engine/ops/common/half.h"

namespace braid::cli {
namespace {

struct CkptDiffOptions {
  std::string a, b;
  double tolerance = 0;
};

struct Difference {
  std::int64_t elements = 0;  // that are not the same
  double largest = 0;         // of |a - b|
};

template <class T>
double distance(T x, T y) {
  return std::abs(static_cast<double>(static_cast<float>(x)) - static_cast<double>(static_cast<float>(y)));
}
double distance(double x, double y) { return std::abs(x - y); }
/// Not of the doubles nearest to them: large neighbours have one.
template <std::integral T>
double distance(T x, T y) {
  const auto above = static_cast<std::uint64_t>(std::max(x, y)),
             below = static_cast<std::uint64_t>(std::min(x, y));
  return static_cast<double>(above - below);
}

template <class T>
Difference compare(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  Difference difference;
  for (std::size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    if (std::memcmp(a.data() + at, b.data() + at, sizeof(T)) == 0) continue;
    T x, y;
    std::memcpy(&x, a.data() + at, sizeof(T));
    std::memcpy(&y, b.data() + at, sizeof(T));
    const double apart = distance(x, y);
    ++difference.elements;
    difference.largest = std::isnan(apart) ? apart : std::max(difference.largest, apart);
  }
  return difference;
}

Difference difference_of(DType dtype, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  switch (dtype) {
    case DType::Float32:
      return compare<float>(a, b);
    case DType::Float64:
      return compare<double>(a, b);
    case DType::Float16:
      return compare<Float16>(a, b);
    case DType::BFloat16:
      return compare<BFloat16>(a, b);
    case DType::Int8:
      return compare<std::int8_t>(a, b);
    case DType::Int16:
      return compare<std::int16_t>(a, b);
    case DType::UInt16:
      return compare<std::uint16_t>(a, b);
    case DType::Int32:
      return compare<std::int32_t>(a, b);
    case DType::UInt32:
      return compare<std::uint32_t>(a, b);
    case DType::Int64:
      return compare<std::int64_t>(a, b);
    case DType::UInt64:
      return compare<std::uint64_t>(a, b);
    default:
      return compare<std::uint8_t>(a, b);
  }
}

std::string shown(const ValueInfo& info) {
  return std::string(dtype_name(info.dtype)) + " " + Shape(info.shape).to_string();
}

int run_diff(const CkptDiffOptions& options) {
  const auto a = ValueSource::open(options.a), b = ValueSource::open(options.b);
  std::int64_t same = 0, different = 0, close = 0;
  for (const auto& [name, info] : a->values()) {
    const auto other = b->values().find(name);
    if (other == b->values().end()) {
      fmt::print("{:<40} only in {}\n", name, options.a);
      ++different;
    } else if (info.dtype != other->second.dtype || info.shape != other->second.shape) {
      fmt::print("{:<40} {} and {}\n", name, shown(info), shown(other->second));
      ++different;
    } else {
      const std::vector<std::byte> x = a->read(name), y = b->read(name);
      if (x == y) {
        ++same;
        continue;
      }
      if (info.dtype == DType::String) {
        fmt::print("{:<40} {}: texts differ\n", name, shown(info));
        ++different;
        continue;
      }
      const Difference difference = difference_of(info.dtype, x, y);
      const bool near = difference.largest <= options.tolerance;
      (near ? close : different) += 1;
      fmt::print("{:<40} {}: {} elements differ, by at most {:.6g}{}\n", name, shown(info),
                 difference.elements, difference.largest, near ? ", within the tolerance" : "");
    }
  }
  for (const auto& [name, info] : b->values())
    if (!a->values().contains(name)) {
      fmt::print("{:<40} only in {}\n", name, options.b);
      ++different;
    }
  fmt::print("{} the same to the bit, {} within the tolerance, {} different\n", same, close, different);
  return different == 0 ? kExitSuccess : kExitFailed;
}

}  // namespace

void add_ckpt_diff(CLI::App& ckpt, Action& action) {
  auto options = std::make_shared<CkptDiffOptions>();
  CLI::App* sub = ckpt.add_subcommand("diff",
                                      "Compare two checkpoints, .npz files or TensorFlow checkpoints, value "
                                      "by value; exit 1 when they differ");
  sub->add_option("A", options->a,
                  "A step-... directory or a directory of them, FILE.npz, or a TensorFlow prefix")
      ->required();
  sub->add_option("B", options->b, "The same")->required();
  sub->add_option("--tolerance", options->tolerance, "Largest difference of two numbers that counts as none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sub->callback([options, &action] { action = [options] { return run_diff(*options); }; });
}

}  // namespace braid::cli
