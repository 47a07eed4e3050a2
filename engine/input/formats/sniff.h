// Tells formats of data files from their first bytes. Private to engine/input. Thread rule: pure functions.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/input/files/file_piece.h"
#include "engine/input/formats/record_file.h"

namespace braid {

/// Binary files that are nothing else count as TFRecord, whose reader then says where they are damaged.
/// Lines of text that begin with `comment` say nothing. Throws: InvalidArgument (cannot open; an empty file
/// whose name says nothing; a binary file of a kind that is known and not read), DataLoss (damaged packing).
FileFormat sniff_format(const std::filesystem::path& file, std::string_view comment = {});

/// Whether a file that is text or TFRecord is the latter, be it damaged: by its first CRC, by its name, or
/// because it is no text.
bool holds_tfrecords(const std::filesystem::path& file);

struct TextShape {
  char separator = 0;  // of fields; 0: there are none
  std::size_t fields = 1;
  bool has_header = false;  // the first line has names where the second has numbers
};
/// `separator` 0: the one of tab, comma and semicolon that cuts most lines into equally many fields.
TextShape text_shape(std::string_view head, std::string_view comment, char separator = 0);

/// The first bytes of a file, unpacked.
std::string read_head(const std::filesystem::path& file);
std::string read_head(const FilePiece& piece);

}  // namespace braid
