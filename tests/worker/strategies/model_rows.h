// Rows for models of the zoo, made up. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/input/schema/table.h"

namespace braid::worker {

/// image [rows, side, side, 1] in [0, 1) and label [rows] in [0, 4), for mlp, cnn and resnet18.
std::shared_ptr<const Table> made_images(int rows, std::int64_t side);
/// tokens [rows, 6] in [0, 12) and label [rows] in [0, 3), for transformer.
std::shared_ptr<const Table> made_sequences(int rows);
/// history [rows, 4] and item [rows] in [0, 9), two other ids, two numbers and a label, for din.
std::shared_ptr<const Table> made_histories(int rows);

}  // namespace braid::worker
