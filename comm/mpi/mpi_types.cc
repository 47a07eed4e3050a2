#include "comm/mpi/mpi_types.h"

namespace braid::comm {

MPI_Datatype reduction_type(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return MPI_FLOAT;
    case DType::Float64:
      return MPI_DOUBLE;
    case DType::Int32:
      return MPI_INT32_T;
    default:
      return MPI_INT64_T;
  }
}

MPI_Datatype plain_type(DType dtype) {
  switch (dtype_size(dtype)) {
    case 1:
      return MPI_INT8_T;
    case 2:
      return MPI_INT16_T;
    case 4:
      return MPI_INT32_T;
    default:
      return MPI_INT64_T;
  }
}

MPI_Op reduction(ReduceOp op) {
  switch (op) {
    case ReduceOp::Max:
      return MPI_MAX;
    case ReduceOp::Min:
      return MPI_MIN;
    case ReduceOp::Sum:
      break;
  }
  return MPI_SUM;
}

}  // namespace braid::comm
