#include "comm/mpi/mpi_session.h"

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "comm/mpi/mpi_call.h"

namespace braid::comm {
namespace {

using std::chrono::microseconds;

constexpr int kEagerTests =
    2000;  // only yielding in between; an operation among running ranks ends within these
constexpr microseconds kOwnYield{
    50};  // a longer one gave the core to somebody else: naps are shorter than that
constexpr microseconds kFirstNap{20};
constexpr microseconds kLongestNap{1000};
constexpr int kTestsPerPoll = 32;
constexpr std::chrono::seconds kFinalizeTime{5};
constexpr std::size_t kTextBytes = 256;

std::mutex start_mutex;
std::weak_ptr<MpiSession> running;

}  // namespace

bool mpi_available() { return true; }

void check_mpi(int code, const char* call, int rank) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  std::string_view name(call);
  throw Unavailable(fmt::format("[mpi] rank {}: {}: {}", rank, name.substr(0, name.find('(')), text.data()));
}

void wait_request(MpiSession& session, MPI_Request& request, const WaitContext& wait, const std::string& what,
                  const std::function<void()>& poll) {
  auto nap = kFirstNap;
  bool eager = true;
  for (int test = 0;; ++test) {
    {
      std::lock_guard lock(session.mutex());
      int done = 0;
      BRAID_MPI_CHECK(MPI_Test(&request, &done, MPI_STATUS_IGNORE), session.rank());
      if (done) return;
      if (poll && test % kTestsPerPoll == 0) poll();
    }
    wait.check(what);
    if (eager && test < kEagerTests) {
      const auto before = std::chrono::steady_clock::now();
      std::this_thread::yield();
      eager = std::chrono::steady_clock::now() - before < kOwnYield;
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, kLongestNap);
    }
  }
}

struct MpiSession::Impl {
  std::mutex mutex;
  int rank = 0;
  int size = 1;
  std::vector<std::string> names;
  bool poisoned = false;  // guarded by mutex
};

std::shared_ptr<MpiSession> MpiSession::start() {
  std::lock_guard lock(start_mutex);
  auto session = running.lock();
  if (!session) {
    session = std::shared_ptr<MpiSession>(new MpiSession);
    running = session;
  }
  return session;
}

MpiSession::MpiSession() : impl_(std::make_unique<Impl>()) {
  int initialized = 0, finalized = 0, provided = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized || finalized)
    throw InvalidArgument("[mpi] MPI was started before in this process; it starts only once");
  BRAID_MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), -1);
  if (provided < MPI_THREAD_SERIALIZED)
    throw InvalidArgument(fmt::format(
        "[mpi] the library gives thread level {}, and MPI_THREAD_SERIALIZED is needed", provided));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  BRAID_MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &impl_->rank), -1);
  BRAID_MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &impl_->size), impl_->rank);
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  int length = 0;
  MPI_Get_processor_name(host.data(), &length);
  auto hosts = exchange(host.data(), WaitContext::with_timeout(std::chrono::seconds(60)));
  for (int rank = 0; rank < impl_->size; ++rank)
    impl_->names.push_back(fmt::format("rank {} ({})", rank, hosts[static_cast<std::size_t>(rank)]));
}

MpiSession::~MpiSession() {
  if (impl_->poisoned) return;
  try {
    // MPI_Finalize waits for all ranks without a limit, so first see whether they come.
    MPI_Request request;
    {
      std::lock_guard lock(impl_->mutex);
      BRAID_MPI_CHECK(MPI_Ibarrier(MPI_COMM_WORLD, &request), impl_->rank);
    }
    wait_request(*this, request, WaitContext::with_timeout(kFinalizeTime),
                 "[mpi] the other ranks did not end");
    MPI_Finalize();
  } catch (const Error& error) {
    log_warning("{}; MPI is left as it is", error.message());
  }
}

int MpiSession::rank() const { return impl_->rank; }
int MpiSession::size() const { return impl_->size; }
const std::string& MpiSession::name_of(int rank) const {
  return impl_->names[static_cast<std::size_t>(rank)];
}
std::mutex& MpiSession::mutex() { return impl_->mutex; }

void MpiSession::poison() {
  std::lock_guard lock(impl_->mutex);
  impl_->poisoned = true;
}

std::vector<std::string> MpiSession::exchange(const std::string& text, const WaitContext& wait) {
  std::vector<char> all(kTextBytes * static_cast<std::size_t>(impl_->size));
  std::array<char, kTextBytes> own{};
  std::memcpy(own.data(), text.data(), std::min(text.size(), own.size() - 1));
  MPI_Request request;
  {
    std::lock_guard lock(impl_->mutex);
    BRAID_MPI_CHECK(MPI_Iallgather(own.data(), kTextBytes, MPI_CHAR, all.data(), kTextBytes, MPI_CHAR,
                                   MPI_COMM_WORLD, &request),
                    impl_->rank);
  }
  try {
    wait_request(*this, request, wait, fmt::format("[mpi] rank {}: exchange of texts", impl_->rank));
  } catch (...) {
    poison();
    // MPI may still write here.
    new std::vector<char>(std::move(all));
    throw;
  }
  std::vector<std::string> texts;
  for (int rank = 0; rank < impl_->size; ++rank)
    texts.emplace_back(all.data() + kTextBytes * static_cast<std::size_t>(rank));
  return texts;
}

}  // namespace braid::comm
