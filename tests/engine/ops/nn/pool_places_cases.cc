// Max pooling that keeps its places, and its gradient: of the shapes that MaxPool has, with ties, NaN and
// infinities. window_ops_test.cc and volume_ops_test.cc have the values.
#include <cmath>
#include <limits>

#include "tests/engine/ops/op_cases.h"
#include "tests/engine/ops/op_runner.h"

namespace braid::testing {
namespace {

using Ints = std::vector<std::int64_t>;

/// Numbers of which many are equal, in a float of any kind.
Tensor with_ties(const Shape& shape, std::uint64_t seed) {
  Tensor x = random_f64(shape, seed);
  for (double& value : x.data<double>()) value = std::round(value * 3) / 2;
  return x;
}

void add_pool(OpCaseTable& table, const std::string& label, const Tensor& x, const AttrMap& attrs) {
  const bool volumes = x.shape().rank() == 5;
  const std::string of = volumes ? "3D" : "";
  OpCase forward{.label = label, .inputs = {x}, .attrs = attrs};
  table.add("braid.MaxPoolPlaces" + of, forward);
  AttrMap without = attrs;
  without.set("keeps", false);
  table.add("braid.MaxPoolPlaces" + of, {.label = label + ", none kept", .inputs = {x}, .attrs = without});
  const std::vector<Tensor> made = run_op("braid.MaxPoolPlaces" + of, {x}, attrs);
  AttrMap of_gradient = attrs;
  of_gradient.set("image_shape", Ints(x.shape().dims().begin(), x.shape().dims().end()));
  table.add("braid.MaxPoolPlacesGrad" + of,
            {.label = label, .inputs = {made[1], random_f64(made[0].shape(), 7)}, .attrs = of_gradient});
}

}  // namespace

BRAID_OP_CASES(pool_places) {
  const AttrMap quarters{{"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 1}}};
  const AttrMap same{{"ksize", Ints{1, 3, 3, 1}}, {"strides", Ints{1, 2, 2, 1}}, {"padding", "SAME"}};
  add_pool(table, "quarters", with_ties({2, 4, 4, 3}, 1), quarters);
  add_pool(table, "quarters, odd sizes", with_ties({2, 5, 7, 5}, 1), quarters);
  add_pool(table, "quarters, packs", with_ties({2, 6, 8, 16}, 1), quarters);
  add_pool(table, "overlapping, same", with_ties({1, 4, 5, 2}, 2), same);
  add_pool(table, "overlapping, packs", with_ties({3, 7, 9, 24}, 2), same);
  add_pool(table, "wide", with_ties({2, 17, 18, 8}, 2), {{"ksize", Ints{1, 15, 17, 1}}, {"padding", "SAME"}});
  add_pool(table, "explicit", with_ties({1, 3, 3, 1}, 3),
           {{"ksize", Ints{1, 2, 3, 1}},
            {"padding", "EXPLICIT"},
            {"explicit_paddings", Ints{0, 0, 0, 0, 1, 2, 0, 0}}});
  add_pool(table, "NCHW", with_ties({2, 3, 4, 6}, 4),
           {{"ksize", Ints{1, 1, 2, 2}}, {"strides", Ints{1, 1, 2, 2}}, {"data_format", "NCHW"}});
  add_pool(table, "strides beyond the window", with_ties({2, 8, 7, 4}, 5),
           {{"ksize", Ints{1, 1, 2, 1}}, {"strides", Ints{1, 3, 3, 1}}, {"padding", "SAME"}});
  add_pool(table, "long strides", with_ties({1, 23, 20, 4}, 5),
           {{"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 7, 9, 1}}});
  add_pool(table, "no images", Tensor(DType::Float64, Shape{0, 4, 4, 2}), quarters);
  Tensor special = with_ties({1, 4, 6, 8}, 6);
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < special.elements(); ++i)
    if (i % 5 < 3)
      special.data<double>()[static_cast<std::size_t>(i)] = i % 5 == 0 ? nan : i % 7 == 0 ? inf : nan;
  for (const AttrMap& attrs : {quarters, same}) add_pool(table, "NaN and infinities", special, attrs);
  add_pool(table, "volumes", with_ties({2, 4, 5, 6, 3}, 8),
           {{"ksize", Ints{1, 2, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 2, 1}}});
  add_pool(table, "volumes that overlap, packs", with_ties({1, 4, 5, 4, 16}, 8),
           {{"ksize", Ints{1, 3, 2, 3, 1}}, {"strides", Ints{1, 1, 2, 2, 1}}, {"padding", "SAME"}});
  add_pool(table, "NCDHW", with_ties({1, 2, 3, 4, 2}, 8),
           {{"ksize", Ints{1, 1, 2, 2, 2}}, {"strides", Ints{1, 1, 1, 2, 1}}, {"data_format", "NCDHW"}});
}

}  // namespace braid::testing
