#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(einsum) {
  const auto add = [&](const char* equation, std::vector<Tensor> inputs, bool differentiable = true) {
    OpCase c{.label = equation, .inputs = std::move(inputs), .attrs = {{"equation", equation}}};
    c.numeric_gradient = differentiable;
    table.add("Einsum", std::move(c));
  };
  const auto x = [](Shape shape, std::uint64_t seed = 1) { return random_f64(std::move(shape), seed); };
  add("ij,jk->ik", {x({2, 3}), x({3, 4}, 2)});
  add("ji,kj->ki", {x({3, 2}), x({4, 3}, 2)});
  add("bij,bjk->bik", {x({2, 2, 3}), x({2, 3, 4}, 2)});
  add("bhqd,bkhd->bhqk", {x({2, 2, 3, 2}), x({2, 4, 2, 2}, 2)});
  add("abc,cde->abde", {x({2, 2, 3}), x({3, 2, 2}, 2)});
  add("abcd,cde->abe", {x({2, 1, 3, 2}), x({3, 2, 2}, 2)});
  add("bij,bkj->bik", {x({2, 2, 3}), x({2, 4, 3}, 2)});
  add("bji,bjk->bki", {x({2, 3, 2}), x({2, 3, 4}, 2)});
  add("...ji,kj->...ki", {x({2, 3, 2}), x({4, 3}, 2)});
  add("i,j->ij", {x({3}), x({2}, 2)});
  add("i,i->", {x({5}), x({5}, 2)});
  add("ij,jk", {x({2, 3}), x({3, 4}, 2)});
  add("...ij,...jk->...ik", {x({2, 2, 3}), x({2, 3, 4}, 2)});
  add("...ij,jk->...ik", {x({2, 3, 2, 3}), x({3, 2}, 2)});
  add("...ij,...jk->...ik", {x({2, 1, 2, 3}), x({3, 3, 2}, 2)});
  add("ij->ji", {x({2, 3})});
  add("abc->b", {x({2, 3, 2})});
  add("...ab->b...", {x({2, 3, 2})});
  add("abc->b", {x({30, 3, 50})}, false);
  add("abc->ca", {x({3, 40, 20})}, false);
  add("abc->cab", {x({2, 3, 4})});
  add("aab->ba", {x({3, 3, 2})});
  add("bii->b", {x({2, 3, 3})});
  add("...iji->j...", {x({2, 3, 2, 3})});
  add("ij,kl->ik", {x({2, 3}), x({2, 2}, 2)});
  add("bii,bj->j", {x({2, 3, 3}), x({2, 2}, 2)});
  add("iij,jk->ik", {x({2, 2, 3}), x({3, 2}, 2)});
  add("...ij,ijk->...k", {x({2, 2, 3}), x({2, 3, 4}, 2)});
  add("...ijm,jj->...i", {x({2, 2, 3, 2}), x({3, 3}, 2)});
  add("ij,kj->ik", {i32({2, 2}, {1, -2, 3, 4}), i32({3, 2}, {1, 2, 3, 4, 5, 6})}, false);
  add("ab->a", {i32({2, 3}, {1, 2, 3, 4, 5, -6})}, false);
  add("ij,jk->ik", {x({0, 3}), x({3, 4}, 2)});
  add("bqhd,bkhd->bhqk", {x({40, 6, 16, 8}), x({40, 7, 16, 8}, 2)}, false);  // many small products
  add("bij,bjk->bki", {x({20, 40, 50}), x({20, 50, 40}, 2)}, false);  // several blocks: too many differences
}

}  // namespace braid::testing
