# cmake -D HEADERS=... -D OUT=FILE -D VERSION=... -P write_op_contract.cmake
# Writes the header that says what an op library was compiled against: the version, and a sum over the headers.
set(sums)
list(SORT HEADERS)
foreach(header ${HEADERS})
  file(SHA256 ${header} sum)
  string(APPEND sums ${sum})
endforeach()
string(SHA256 sum "${sums}")
string(SUBSTRING ${sum} 0 16 sum)
file(CONFIGURE OUTPUT ${OUT} CONTENT "// Made by cmake/write_op_contract.cmake.\n#pragma once\n#define BRAID_OP_CONTRACT \"${VERSION} ${sum}\"\n")
