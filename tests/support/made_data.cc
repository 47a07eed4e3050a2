#include "tests/support/made_data.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_dir.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

/// Draws that are the same with every standard library.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : bits_(seed) {}

  /// In [0, 1).
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  /// In [0, count).
  int below(int count) { return static_cast<int>(uniform() * count); }
  /// In [0, count), the smaller the likelier.
  int skewed(int count) { return static_cast<int>(uniform() * uniform() * count); }

 private:
  std::mt19937_64 bits_;
};

constexpr std::array<std::string_view, 8> kWorkClasses{"Private",     "Self-emp-not-inc", "Local-gov",
                                                       "?",           "State-gov",        "Self-emp-inc",
                                                       "Federal-gov", "Without-pay"};
constexpr std::array<std::string_view, 16> kEducation{
    "Preschool", "1st-4th", "5th-6th",     "7th-8th",      "9th",        "10th",
    "11th",      "12th",    "HS-grad",     "Some-college", "Assoc-acdm", "Assoc-voc",
    "Bachelors", "Masters", "Prof-school", "Doctorate"};
constexpr std::array<std::string_view, 5> kMarriage{"Married-civ-spouse", "Never-married", "Divorced",
                                                    "Separated", "Widowed"};
constexpr std::array<std::string_view, 10> kOccupations{
    "Prof-specialty",  "Craft-repair",  "Exec-managerial",   "Adm-clerical",
    "Sales",           "Other-service", "Machine-op-inspct", "?",
    "Farming-fishing", "Tech-support"};
constexpr std::array<double, 10> kPay{1.0, 0.0, 1.2, -0.2, 0.4, -1.2, -0.6, 0.0, -0.9, 0.6};
constexpr std::array<std::string_view, 5> kRelations{"Husband", "Not-in-family", "Own-child", "Unmarried",
                                                     "Wife"};
constexpr std::array<std::string_view, 4> kRaces{"White", "Black", "Asian-Pac-Islander", "Other"};
constexpr std::array<std::string_view, 6> kCountries{"United-States", "Mexico", "?",
                                                     "Germany",       "India",  "Cuba"};

std::string census_row(Draws& draw, std::string_view end) {
  const int age = 17 + draw.below(60), weight = 20000 + draw.below(400000),
            schooling = 4 + draw.below(6) + draw.below(7);
  const int work = draw.skewed(8), married = draw.skewed(5), job = draw.below(10), race = draw.skewed(4);
  const int hours = 20 + draw.below(20) + draw.below(20), land = draw.skewed(6), woman = draw.below(2);
  const int gain = draw.uniform() < 0.08 ? 1000 + draw.below(20000) : 0;
  const int loss = draw.uniform() < 0.05 ? 200 + draw.below(2000) : 0;
  const int relation = married == 0 ? (woman != 0 ? 4 : 0) : 1 + draw.below(3);
  const double score = 0.04 * (std::min(age, 55) - 38) + 0.35 * (schooling - 9.5) +
                       (married == 0 ? 1.4 : -1.4) + kPay[static_cast<std::size_t>(job)] +
                       0.04 * (hours - 40) + gain / 3000.0 + loss / 1500.0 - 1.3;
  const bool rich = draw.uniform() < 1 / (1 + std::exp(-1.5 * score));
  std::string row = std::to_string(age);
  const auto add = [&row](std::string_view field) { row.append(", ").append(field); };
  const auto of = [](const auto& names, int i) { return names[static_cast<std::size_t>(i)]; };
  add(of(kWorkClasses, work));
  add(std::to_string(weight));
  add(of(kEducation, schooling - 1));
  add(std::to_string(schooling));
  add(of(kMarriage, married));
  add(of(kOccupations, job));
  add(of(kRelations, relation));
  add(of(kRaces, race));
  add(woman != 0 ? "Female" : "Male");
  for (const int number : {gain, loss, hours}) add(std::to_string(number));
  add(of(kCountries, land));
  add(rich ? ">50K" : "<=50K");
  return row.append(end);
}

constexpr int kSide = 28, kClasses = 10, kMargin = 2;
using Image = std::array<std::uint8_t, kSide * kSide>;

/// Four discs of different brightness on black, none nearer to the edge than an image is moved.
Image pattern(Draws& draw) {
  Image image{};
  for (int disc = 0; disc < 4; ++disc) {
    const int radius = 2 + draw.below(4), light = 90 + draw.below(110);
    const int room = kSide - 2 * (radius + kMargin);
    const int x = radius + kMargin + draw.below(room), y = radius + kMargin + draw.below(room);
    for (int dy = -radius; dy <= radius; ++dy)
      for (int dx = -radius; dx <= radius; ++dx)
        if (dx * dx + dy * dy <= radius * radius)
          image[static_cast<std::size_t>((y + dy) * kSide + x + dx)] = static_cast<std::uint8_t>(light);
  }
  return image;
}

Image drawn(const Image& pattern, Draws& draw) {
  Image image{};
  const int right = draw.below(2 * kMargin + 1) - kMargin, down = draw.below(2 * kMargin + 1) - kMargin;
  const double bright = 0.7 + 0.5 * draw.uniform();
  for (int y = kMargin; y < kSide - kMargin; ++y)
    for (int x = kMargin; x < kSide - kMargin; ++x) {
      const int light = pattern[static_cast<std::size_t>(y * kSide + x)];
      if (light == 0) continue;
      const double noisy = bright * light + 40 * (draw.uniform() - 0.5);
      image[static_cast<std::size_t>((y + down) * kSide + x + right)] =
          static_cast<std::uint8_t>(std::clamp(noisy, 1.0, 255.0));
    }
  return image;
}

/// IDX of unsigned bytes: two zeros, type 8, the number of dimensions, each as a big-endian u32, the bytes.
void write_idx(const fs::path& file, std::initializer_list<int> dims, std::span<const std::uint8_t> bytes) {
  std::string head{'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (const int dim : dims)
    for (int shift = 24; shift >= 0; shift -= 8) head.push_back(static_cast<char>(dim >> shift & 0xFF));
  const gzFile out = gzopen(file.c_str(), "wb1");
  const bool written = out != nullptr && gzwrite(out, head.data(), static_cast<unsigned>(head.size())) > 0 &&
                       gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size())) > 0;
  if (out == nullptr || gzclose(out) != Z_OK || !written)
    throw std::runtime_error("cannot write " + file.string());
}

}  // namespace

void write_census(const fs::path& folder, RowCounts rows, std::uint64_t seed) {
  Draws draw(seed);
  fs::create_directories(folder);
  std::ofstream train(folder / "adult.data"), test(folder / "adult.test");
  for (int i = 0; i < rows.train; ++i) train << census_row(draw, "\n");
  train << "\n";
  test << "|1x3 Cross validator\n";
  for (int i = 0; i < rows.test; ++i) test << census_row(draw, ".\n");
  test << "\n";
  if (!train.flush() || !test.flush()) throw std::runtime_error("cannot write to " + folder.string());
}

void write_images(const fs::path& folder, RowCounts images, std::uint64_t seed) {
  Draws draw(seed);
  fs::create_directories(folder);
  std::vector<Image> patterns;
  for (int c = 0; c < kClasses; ++c) patterns.push_back(pattern(draw));
  const auto write = [&](const std::string& part, int count) {
    std::vector<std::uint8_t> pixels, labels;
    for (int i = 0; i < count; ++i) {
      const int shown = draw.below(kClasses);
      const int label = draw.uniform() < 0.15 ? draw.below(kClasses) : shown;
      const Image image = drawn(patterns[static_cast<std::size_t>(shown)], draw);
      pixels.insert(pixels.end(), image.begin(), image.end());
      labels.push_back(static_cast<std::uint8_t>(label));
    }
    write_idx(folder / (part + "-images-idx3-ubyte.gz"), {count, kSide, kSide}, pixels);
    write_idx(folder / (part + "-labels-idx1-ubyte.gz"), {count}, labels);
  };
  write("train", images.train);
  write("t10k", images.test);
}

const fs::path& census_folder() {
  static const TempDir folder;
  static const bool made = (write_census(folder.path(), kCensus), true);
  static_cast<void>(made);
  return folder.path();
}

const fs::path& image_folder() {
  static const TempDir folder;
  // Of seed 1 the MLP job has a value before a ReLU that is 0 to rounding in its fifth step. Which side it is
  // on decides on a whole update of Adam, so no two ways to add would train alike.
  static const bool made = (write_images(folder.path(), kImages, 2), true);
  static_cast<void>(made);
  return folder.path();
}

}  // namespace braid
