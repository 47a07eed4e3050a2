// Data for whole jobs, made from a seed in the layouts of public data sets, so that the shipped job files
// read it and nobody has to download anything. Labels follow from the rest, so there is something to learn.
// The same arguments give the same bytes on every machine. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <filesystem>

namespace braid {

struct RowCounts {
  int train = 0, test = 0;
};

/// Rows in the layout of UCI Adult, with its dirt: adult.data, and adult.test, which begins with a comment
/// and has a period behind each label. 15 fields behind ", ", "?" where a category is unknown, about a third
/// ">50K" by age, education, marriage, occupation and hours.
void write_census(const std::filesystem::path& folder, RowCounts rows, std::uint64_t seed = 1);

/// Images of 28 x 28 bytes and labels 0 to 9 under the names of Fashion-MNIST: gzip of IDX. An image is the
/// pattern of its class, moved by up to two pixels, brighter or darker, with noise where it is not 0. One
/// label in seven is any, so that the loss stays well above 0.
void write_images(const std::filesystem::path& folder, RowCounts images, std::uint64_t seed = 1);

/// A folder with kCensus rows, which lasts as long as this process; made by the first call.
const std::filesystem::path& census_folder();
/// The same of kImages images.
const std::filesystem::path& image_folder();

inline constexpr RowCounts kCensus{24000, 12000};
inline constexpr RowCounts kImages{6000, 1000};

}  // namespace braid
