// What NCCL calls types and reductions. Thread rule: pure functions.
#pragma once

#include <nccl.h>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace braid::comm {

inline ncclDataType_t reduction_type(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return ncclFloat64;
    case DType::Int32:
      return ncclInt32;
    case DType::Int64:
      return ncclInt64;
    case DType::Float16:
      return ncclFloat16;
    case DType::BFloat16:
      return ncclBfloat16;
    default:
      return ncclFloat32;
  }
}

inline ncclRedOp_t reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::Max:
      return ncclMax;
    case ReduceOp::Min:
      return ncclMin;
    case ReduceOp::Sum:
      break;
  }
  return ncclSum;
}

}  // namespace braid::comm
