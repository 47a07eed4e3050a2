// Runs a fuzz target without libFuzzer: on files, or on inputs drawn from seeds, which are the same on every
// machine. What libFuzzer adds is guidance by coverage; what this adds is that any compiler will do.
//
//   TARGET FILE...                              runs the files' bytes
//   TARGET [--seeds N] [--first S] [--seconds T]   seeds S, S+1, ...: N of them, or as many as T seconds take
//   TARGET --write-seeds DIR                    the inputs that a target begins with, e.g. for libFuzzer
//
// A seed that fails is named, and its input is written to fuzz-<seed>.bin.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

namespace {

constexpr unsigned kSecondsForOneInput = 120;
constexpr std::size_t kLongestGrammarInput = 1024;

std::string g_input;  // what runs now
std::uint64_t g_seed = 0;

std::uint64_t next_random(std::uint64_t& state) {  // SplitMix64
  std::uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

extern "C" void report_input(int signal) {
  char text[160];
  const int length = std::snprintf(
      text, sizeof(text), "fuzz driver: seed %llu ended by signal %d (%s); fuzz-%llu.bin\n",
      static_cast<unsigned long long>(g_seed), signal, signal == SIGALRM ? "it took too long" : "crash",
      static_cast<unsigned long long>(g_seed));
  if (::write(2, text, static_cast<std::size_t>(length)) < 0) ::_exit(3);
  std::snprintf(text, sizeof(text), "fuzz-%llu.bin", static_cast<unsigned long long>(g_seed));
  if (std::FILE* file = std::fopen(text, "wb")) {
    std::fwrite(g_input.data(), 1, g_input.size(), file);
    std::fclose(file);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::string drawn(std::uint64_t& state, std::size_t longest) {
  std::string bytes(next_random(state) % (longest + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(next_random(state));
  return bytes;
}

/// One change as they happen to files: bits, bytes, numbers of many sizes, parts that are lost, doubled or
/// swapped.
void mutate(std::string& bytes, const std::vector<std::string>& seeds, std::uint64_t& state) {
  const auto below = [&](std::size_t count) { return count == 0 ? 0 : next_random(state) % count; };
  const std::size_t at = below(bytes.size() + 1);
  const std::size_t count = below(std::min<std::size_t>(bytes.size() - at, 64) + 1);
  static const char* const kTexts[] = {"",  "-1", "0",  "nan", "inf", "1e400", "99999999999999999999",
                                       "(", ")",  "[",  "]",   "{",   "}",     "\"",
                                       "'", ",",  "\n", ":",   "\t",  "%s",    "\xff"};
  static const std::int64_t kNumbers[] = {0,
                                          1,
                                          -1,
                                          127,
                                          128,
                                          255,
                                          65535,
                                          65536,
                                          INT32_MAX,
                                          INT32_MIN,
                                          std::int64_t{1} << 32,
                                          INT64_MAX,
                                          INT64_MIN,
                                          4,
                                          8,
                                          std::int64_t{1} << 40};
  switch (below(9)) {
    case 0:
      if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      break;
    case 1:
      if (at < bytes.size()) bytes[at] = static_cast<char>(next_random(state));
      break;
    case 2: {
      const std::int64_t number = kNumbers[below(std::size(kNumbers))];
      const std::size_t width = std::min<std::size_t>(std::size_t{1} << below(4), bytes.size() - at);
      std::memcpy(bytes.data() + at, &number, width);
      break;
    }
    case 3:
      bytes.erase(at, count);
      break;
    case 4:
      bytes.insert(at, bytes.substr(at, count));
      break;
    case 5:
      bytes.resize(at);
      break;
    case 6:
      bytes.insert(at, kTexts[below(std::size(kTexts))]);
      break;
    case 7: {
      const std::string& other = seeds[below(seeds.size())];
      const std::size_t from = below(other.size() + 1);
      bytes.replace(at, count, other.substr(from, below(64)));
      break;
    }
    default: {
      std::size_t digit = bytes.find_first_of("0123456789", at);
      if (digit != std::string::npos) bytes[digit] = static_cast<char>('0' + below(10));
    }
  }
}

std::string input_of(std::uint64_t seed, const std::vector<std::string>& seeds) {
  std::uint64_t state = seed;
  if (seeds.empty()) return drawn(state, kLongestGrammarInput);
  std::string bytes = seeds[next_random(state) % seeds.size()];
  for (std::uint64_t changes = next_random(state) % 6; changes-- > 0;) mutate(bytes, seeds, state);
  return bytes;
}

void run(std::string input, std::uint64_t seed) {
  g_input = std::move(input);
  g_seed = seed;
  ::alarm(kSecondsForOneInput);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(g_input.data()), g_input.size());
  ::alarm(0);
}

/// Memory that a hostile size may take, beyond what there is already. AddressSanitizer has its own limit.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit limit{rlim_t{6} << 30, rlim_t{6} << 30};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

}  // namespace

// Refused allocations come back, as they do without the sanitizer; what is undefined ends the process.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=2048:detect_leaks=0:handle_abort=0:abort_on_"
         "error=1";
}
extern "C" const char* __ubsan_default_options() {
  return "halt_on_error=1:print_stacktrace=1:abort_on_error=1";
}

int main(int argc, char** argv) {
  std::uint64_t count = 1000, first = 1;
  double seconds = 0;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) std::exit(2);
      return std::string(argv[++i]);
    };
    if (option == "--seeds") {
      count = std::stoull(value());
    } else if (option == "--first") {
      first = std::stoull(value());
    } else if (option == "--seconds") {
      seconds = std::stod(value());
      count = ~std::uint64_t{0};
    } else if (option == "--write-seeds") {
      const std::filesystem::path directory = value();
      std::filesystem::create_directories(directory);
      int number = 0;
      for (const std::string& seed : braid::fuzz::seeds())
        std::ofstream(directory / std::to_string(number++), std::ios::binary) << seed;
      return 0;
    } else {
      files.push_back(option);
    }
  }
  limit_memory();
  for (const int signal : {SIGABRT, SIGALRM}) std::signal(signal, report_input);
#if !defined(BRAID_SANITIZED)  // sanitizers tell more of these, and abort then
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, report_input);
#endif
  const auto begin = std::chrono::steady_clock::now();
  const auto so_far = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::uint64_t inputs = 0;
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      std::fprintf(stderr, "%s: cannot be read\n", file.c_str());
      return 2;
    }
    run(std::string(std::istreambuf_iterator<char>(in), {}), inputs++);
  }
  const std::vector<std::string> seeds = braid::fuzz::seeds();
  if (files.empty())
    for (; inputs < count && (seconds <= 0 || so_far() < seconds); ++inputs)
      run(input_of(first + inputs, seeds), first + inputs);
  const braid::fuzz::Tally& tally = braid::fuzz::tally();
  std::printf(
      "%llu inputs in %.1f s: %llu accepted, %llu refused, %llu without the memory that they ask for\n",
      static_cast<unsigned long long>(inputs), so_far(), static_cast<unsigned long long>(tally.accepted),
      static_cast<unsigned long long>(tally.refused), static_cast<unsigned long long>(tally.no_memory));
  constexpr std::uint64_t kEnough = 300;
  if (files.empty() && inputs >= kEnough && tally.accepted == 0) {
    std::fprintf(stderr, "not one input was accepted: what lies behind the first checks has not been run\n");
    return 1;
  }
  return 0;
}
