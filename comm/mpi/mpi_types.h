// MPI's names of types and reductions. Includes mpi.h: for .cc files only.
#pragma once

#include "base/dtype.h"

#include "comm/communicator.h"
#include "comm/mpi/mpi_call.h"

namespace braid::comm {

/// Of a reduction: float32, float64, int32; any other is int64.
MPI_Datatype reduction_type(DType dtype);

/// An opaque type of the element's size, for what is only moved.
MPI_Datatype plain_type(DType dtype);

MPI_Op reduction(ReduceOp op);

}  // namespace braid::comm
