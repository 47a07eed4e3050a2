# Apache Arrow, for Parquet and for files in stores. Debian has none; the wheel of pyarrow has headers and libraries.
# BRAID_PARQUET: ON, OFF, or AUTO: where it is found, in BRAID_ARROW_ROOT (the folder `pyarrow`) or beside the packages of
# Python_EXECUTABLE. cmake/arrow-requirements.txt has the version that is tested.
set(BRAID_PARQUET AUTO CACHE STRING "Parquet and stores by Apache Arrow: ON, OFF, or AUTO: where pyarrow is found")
set(BRAID_ARROW_ROOT "" CACHE PATH "The folder of pyarrow's package; empty: that of Python_EXECUTABLE")
set(BRAID_HAVE_ARROW OFF)
if(BRAID_PARQUET STREQUAL OFF OR (BRAID_PARQUET STREQUAL AUTO AND BRAID_SANITIZE))
  return()  # Arrow's own threads and memory are not the sanitizers' to judge
endif()

set(root ${BRAID_ARROW_ROOT})
if(NOT root)
  set(python ${Python_EXECUTABLE})
  if(NOT python)
    find_program(BRAID_PYTHON3 python3)
    set(python ${BRAID_PYTHON3})
  endif()
  if(python)
    execute_process(COMMAND ${python} -c
      "import importlib.util; print(importlib.util.find_spec('pyarrow').submodule_search_locations[0])"
      OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
file(GLOB arrow ${root}/libarrow.so.*)
file(GLOB parquet ${root}/libparquet.so.*)
file(GLOB s3 ${root}/libarrow_s3.so.*)
if(NOT root OR NOT arrow OR NOT parquet OR NOT s3 OR NOT EXISTS ${root}/include/parquet/api/reader.h)
  if(BRAID_PARQUET STREQUAL ON)
    message(FATAL_ERROR "BRAID_PARQUET=ON, but there is no pyarrow with libarrow_s3 in '${root}': "
      "pip install --require-hashes -r cmake/arrow-requirements.txt, then -DPython_EXECUTABLE=... or -DBRAID_ARROW_ROOT=...")
  endif()
  message(STATUS "Parquet and stores: left out, as there is no pyarrow (cmake/arrow-requirements.txt)")
  return()
endif()
set(BRAID_HAVE_ARROW ON)
message(STATUS "Parquet and stores: by Apache Arrow in ${root}")

# `cmake --install` copies the libraries, which find each other by $ORIGIN, behind the binary's own path.
set(BRAID_ARROW_LIBRARIES ${arrow} ${parquet} ${s3})
set(BRAID_ARROW_INSTALLED ${CMAKE_INSTALL_LIBDIR}/braid)
add_library(braid_arrow INTERFACE)
target_include_directories(braid_arrow SYSTEM INTERFACE $<BUILD_INTERFACE:${root}/include>)
foreach(library ${BRAID_ARROW_LIBRARIES})
  get_filename_component(name ${library} NAME)
  target_link_libraries(braid_arrow INTERFACE
    $<BUILD_INTERFACE:${library}> $<INSTALL_INTERFACE:$<INSTALL_PREFIX>/${BRAID_ARROW_INSTALLED}/${name}>)
endforeach()
braid_export(braid_arrow)
