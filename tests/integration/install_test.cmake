# cmake -D BUILD=... -D WORK=... -D GENERATOR=... -D SOURCE=... -P install_test.cmake
# Installs what `installable` has built below WORK, and builds and starts a project that only knows the installed files.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${code}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect_files)
  foreach(file ${ARGN})
    file(GLOB found ${WORK}/root/${file})
    if(NOT found)
      message(FATAL_ERROR "${file} was not installed")
    endif()
  endforeach()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/root)
expect_files(bin/braid include/braid/base/error.h include/braid/proto/graph.pb.h share/braid/jobs/linear_regression.pbtxt
  share/braid/proto/job.proto share/doc/braid/copyright share/doc/braid/NOTICE)
file(GLOB_RECURSE tests ${WORK}/root/include/*_test.h ${WORK}/root/include/*.cc)
if(tests)
  message(FATAL_ERROR "these are no headers to build against: ${tests}")
endif()
if(MANUAL)
  expect_files(share/man/man1/braid.1 share/man/man1/braid-train.1 share/bash-completion/completions/braid
    share/zsh/*/_braid)
endif()

# The binary stands on its own, wherever it lies.
run(${WORK}/root/bin/braid --version)
if(NOT output MATCHES "${VERSION}")
  message(FATAL_ERROR "--version says ${output}")
endif()
run(${WORK}/root/bin/braid train --job ${WORK}/root/share/braid/jobs/linear_regression.pbtxt --set steps=3)

# The example is copied away, so that it cannot find the sources.
file(COPY ${SOURCE}/examples/scorer DESTINATION ${WORK})
run(${CMAKE_COMMAND} -S ${WORK}/scorer -B ${WORK}/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${WORK}/root)
file(STRINGS ${WORK}/build/CMakeCache.txt from REGEX "^braid_DIR")
if(NOT from MATCHES "${WORK}/root")
  message(FATAL_ERROR "another Braid was found: ${from}")
endif()
run(${CMAKE_COMMAND} --build ${WORK}/build)
execute_process(COMMAND ${WORK}/build/scorer RESULT_VARIABLE code ERROR_VARIABLE output)
if(NOT code EQUAL 2 OR NOT output MATCHES "usage: scorer")
  message(FATAL_ERROR "scorer ended with ${code}: ${output}")
endif()

# An op and a model of one's own.
foreach(example own_op own_model)
  file(COPY ${SOURCE}/examples/${example} DESTINATION ${WORK})
  run(${CMAKE_COMMAND} -S ${WORK}/${example} -B ${WORK}/${example}/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${WORK}/root)
  run(${CMAKE_COMMAND} --build ${WORK}/${example}/build)
endforeach()
set(job ${WORK}/root/share/braid/jobs/wide_deep_generated.pbtxt)
run(${WORK}/root/bin/braid train --job ${WORK}/root/share/braid/jobs/linear_regression.pbtxt --set steps=1
  --op-library ${WORK}/own_op/build/snake.so)
if(NOT output MATCHES "op library .*: Snake")
  message(FATAL_ERROR "--op-library says nothing of the op: ${output}")
endif()
run(${WORK}/own_model/build/own_model train --job ${job} --set model.name=two_towers --set model.hidden=16,8
  --set epochs=0 --set steps=20)
execute_process(COMMAND ${WORK}/root/bin/braid train --job ${job} --set model.name=two_towers RESULT_VARIABLE code
  ERROR_VARIABLE output)
if(NOT code EQUAL 2 OR NOT output MATCHES "no model 'two_towers'")
  message(FATAL_ERROR "braid knows the model of another binary: ${code}: ${output}")
endif()
file(REMOVE_RECURSE ${WORK})
