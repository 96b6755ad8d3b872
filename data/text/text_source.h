// Functions that find text files, and a class that reads several files as one sequence of bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

// Returns the files that a path selects, sorted by path. A folder selects all files in the folder and its
// subfolders. Files and folders are skipped if their names begin with a dot. Links to folders are not
// followed. A pattern with *, ? or [...] selects the matching files. Any other path selects one file. Throws
// DataError if a folder or a pattern selects no file.
std::vector<std::filesystem::path> list_text_files(const std::string& path);

// Throws DataError if `path` selects no file, if a selected file is not a readable regular file, or if all
// selected files are empty. Does not read the contents of the files.
void require_text_files(const std::string& path);

// The concatenated contents of files, without separators and without UTF-8 byte order marks. Large plain
// files are mapped into memory. Small files and compressed files (data/files/gzip.h) are read into memory.
// The files must not change while the object exists. read() and view() throw DataError if a mapped file has
// become shorter. If the file becomes shorter while a view is in use, the process can receive SIGBUS.
// Immutable and thread-safe.
class TextSource {
 public:
  // Throws DataError with the path of the file if a file is missing, unreadable or damaged. Also throws
  // DataError if all files are empty.
  explicit TextSource(const std::vector<std::filesystem::path>& files);
  ~TextSource();
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  int64_t size() const { return size_; }
  // Returns a message with a command that converts the first file that is UTF-16 or UTF-32. Returns "" if
  // there is no such file.
  std::string describe_encoding_problem() const;
  // Copies `count` bytes, starting at byte `offset`, to `out`.
  void read(int64_t offset, int64_t count, uint8_t* out) const;
  // Returns the text from `offset` to the end of the file that contains `offset`, at most `count` bytes.
  std::string_view view(int64_t offset, int64_t count) const;
  // Returns the path of the file that contains the byte at `offset`.
  const std::string& file_name(int64_t offset) const;
  // Returns the file and position of the byte at `offset`, as "FILE:LINE (byte N)". Lines and bytes of the
  // file are counted from 1.
  std::string location(int64_t offset) const;

 private:
  class Part;
  const Part& find_part(int64_t offset) const;

  std::vector<std::unique_ptr<const Part>> parts_;
  int64_t size_ = 0;
};

}  // namespace tapeformer
