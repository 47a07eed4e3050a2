// A model that counts how often each row of the data is used: a table has a row for each of them, and each
// use takes a whole number from it. Its sums are of whole numbers, so they do not depend on their order, nor
// on the number of workers.
#pragma once

#include <string>
#include <vector>

namespace braid::integration {

/// A GraphDef as text. loss = the mean over the batch of table[id], on the way through a product with ones of
/// [1, columns], which can be made slow. "id": int64, below `rows`. The table begins with `first`, else with
/// zeros; "w" is to be frozen. With SGD and a learning rate that is the global batch's size each use takes 1
/// from its row. REQUIRES: for exact losses, batches of a power of two, columns 1, and values whose sums over
/// a batch are below 2^24.
std::string count_graph(int rows, int columns = 16, const std::vector<int>& first = {});

}  // namespace braid::integration
