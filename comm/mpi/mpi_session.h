// MPI in this process: started once with MPI_THREAD_SERIALIZED, ended when the last user lets go. All calls
// of MPI, by whomever, are made with the session's lock held, and none of them blocks: operations are begun,
// then tested with a back-off until their deadline, since MPI itself knows no deadlines.
//
// After an operation was given up MPI may still refer to its memory, so the session is poisoned: nothing is
// called any more, MPI_Finalize neither, and the process should end (exit code 138). mpirun then ends the
// others.
//
// Without MPI at configure time (no_mpi.cc) start() throws InvalidArgument that says so.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/wait_context.h"

namespace braid::comm {

class MpiSession {
 public:
  /// The process's session; started by the first call. Throws: Unavailable with MPI's text, InvalidArgument.
  static std::shared_ptr<MpiSession> start();
  /// Ends MPI if all other ranks come to the same point within a few seconds; logs and leaves it otherwise.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  /// In MPI_COMM_WORLD.
  int rank() const;
  int size() const;
  /// "rank 2 (host-a)".
  const std::string& name_of(int rank) const;

  /// Every rank's text, by rank; a collective operation of all ranks. Texts are cut after 255 bytes.
  std::vector<std::string> exchange(const std::string& text, const WaitContext& wait);

  std::mutex& mutex();
  void poison();

 private:
  MpiSession();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether this build has MPI.
bool mpi_available();

}  // namespace braid::comm
