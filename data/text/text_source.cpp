#include "data/text/text_source.h"

#include <glob.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "core/base/errors.h"
#include "data/files/file.h"
#include "data/files/gzip.h"
#include "data/files/text_encoding.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxUnpackedBytes = int64_t{1} << 36;
// Minimum size of mapped files, in bytes. Smaller files are read into memory, because Linux limits the number
// of mappings of a process (vm.max_map_count).
constexpr int64_t kMinMappedBytes = int64_t{1} << 18;

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

std::vector<fs::path> files_below(const std::string& folder) {
  std::vector<fs::path> files;
  int64_t hidden_count = 0;
  for (const fs::directory_entry& entry : list_folder_tree(folder)) {
    const fs::path name = entry.path().lexically_relative(folder);
    std::error_code ignored;
    if (entry.is_directory(ignored)) continue;
    if (std::none_of(name.begin(), name.end(), is_hidden))
      files.push_back(entry.path());
    else
      ++hidden_count;
  }
  if (files.empty())
    throw DataError(concat_text(
        folder, ": the folder contains no files",
        hidden_count == 0 ? "" : concat_text(" except ", hidden_count, " hidden files, which are not read")));
  return files;
}

std::vector<fs::path> files_matching(const std::string& pattern) {
  glob_t found{};
  const int status = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<fs::path> files;
  const size_t found_count = found.gl_pathc;
  for (size_t i = 0; i < found_count; ++i)
    if (!is_folder(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  if (status == GLOB_NOSPACE) throw std::bad_alloc();
  if (files.empty())
    throw DataError(
        pattern +
        (found_count == 0
             ? ": matches no file"
             : ": matches only folders, expected files; name the files, for example with /* at the end"));
  return files;
}

void check_size(const std::vector<fs::path>& files, int64_t bytes) {
  if (bytes == 0)
    throw DataError(concat_text(files.empty() ? "no file" : files.front().string(),
                                files.size() > 1 ? concat_text(" and ", files.size() - 1, " more files") : "",
                                ": no text: the size is 0 bytes"));
}

}  // namespace

std::vector<fs::path> list_text_files(const std::string& path) {
  if (is_folder(path)) return files_below(path);
  if (!path_exists(path) && path.find_first_of("*?[") != std::string::npos) return files_matching(path);
  return {path};
}

void require_text_files(const std::string& path) {
  const std::vector<fs::path> files = list_text_files(path);
  int64_t bytes = 0;
  for (const fs::path& file : files) bytes += static_cast<int64_t>(open_data_file(file).size());
  check_size(files, bytes);
}

// The contents of one file of a TextSource.
class TextSource::Part {
 public:
  Part(const fs::path& path, int64_t first) : first_(first), name_(path.string()) {
    if (is_compressed(path))
      contents_ = read_unpacked(path, kMaxUnpackedBytes);
    else
      read_or_map();
    encoding_ = detect_text_encoding({start(), static_cast<size_t>(file_bytes())});
    if (encoding_.is_utf8()) skipped_bytes_ = static_cast<int64_t>(encoding_.mark_bytes);
  }
  ~Part() {
    if (mapping_) munmap(mapping_, static_cast<size_t>(mapped_bytes_));
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  int64_t first() const { return first_; }
  int64_t bytes() const { return file_bytes() - skipped_bytes_; }
  int64_t last() const { return first_ + bytes(); }
  const char* data() const { return start() + skipped_bytes_; }
  const std::string& name() const { return name_; }
  const TextEncoding& encoding() const { return encoding_; }
  int64_t skipped_bytes() const { return skipped_bytes_; }

  // Throws DataError if a mapped file is shorter than its mapping, because an access to a mapped page after
  // the end of the file raises SIGBUS. Does not detect a truncation during the access.
  void check_not_truncated() const {
    struct stat now {};
    if (!mapping_ || ::stat(name_.c_str(), &now) != 0 || now.st_dev != device_ || now.st_ino != inode_)
      return;
    if (now.st_size < mapped_bytes_)
      throw DataError(concat_text(name_, ": expected ", mapped_bytes_, " bytes, found ", now.st_size,
                                  "; the file was truncated while it was in use"));
  }

 private:
  const char* start() const {
    return mapping_ ? static_cast<const char*>(mapping_) : reinterpret_cast<const char*>(contents_.data());
  }
  int64_t file_bytes() const { return mapping_ ? mapped_bytes_ : static_cast<int64_t>(contents_.size()); }

  void read_or_map() {
    if (read_file_size(name_) < kMinMappedBytes) {
      contents_ = read_bytes(name_, kMinMappedBytes);
      return;
    }
    const File file = open_data_file(name_);
    struct stat status {};
    void* memory = MAP_FAILED;
    if (fstat(file.descriptor(), &status) == 0)
      memory =
          mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file.descriptor(), 0);
    if (memory == MAP_FAILED)
      throw DataError(name_ + ": cannot be mapped into memory: " + std::strerror(errno));
    mapping_ = memory;
    mapped_bytes_ = status.st_size;
    device_ = status.st_dev;
    inode_ = status.st_ino;
  }

  int64_t first_;
  std::string name_;
  dev_t device_ = 0;  // device and inode of a mapped file
  ino_t inode_ = 0;
  void* mapping_ = nullptr;
  int64_t mapped_bytes_ = 0;
  Bytes contents_;  // of a compressed or small file
  TextEncoding encoding_;
  int64_t skipped_bytes_ = 0;  // size of a UTF-8 byte order mark at the start of the file
};

TextSource::TextSource(const std::vector<fs::path>& files) {
  for (const fs::path& file : files) {
    parts_.push_back(std::make_unique<const Part>(file, size_));
    size_ += parts_.back()->bytes();
  }
  check_size(files, size_);
}

TextSource::~TextSource() = default;

std::string TextSource::describe_encoding_problem() const {
  for (const auto& part : parts_)
    if (!part->encoding().is_utf8())
      return part->name() + ": " + tapeformer::describe_encoding_problem(part->encoding());
  return "";
}

const TextSource::Part& TextSource::find_part(int64_t offset) const {
  check(offset >= 0 && offset < size_, "TextSource", "byte ", offset, " of ", size_);
  const auto after = std::upper_bound(parts_.begin(), parts_.end(), offset,
                                      [](int64_t at, const auto& part) { return at < part->last(); });
  return **after;
}

std::string_view TextSource::view(int64_t offset, int64_t count) const {
  const Part& part = find_part(offset);
  part.check_not_truncated();
  return {part.data() + (offset - part.first()), static_cast<size_t>(std::min(count, part.last() - offset))};
}

void TextSource::read(int64_t offset, int64_t count, uint8_t* out) const {
  while (count > 0) {
    const std::string_view text = view(offset, count);
    std::memcpy(out, text.data(), text.size());
    const auto done = static_cast<int64_t>(text.size());
    offset += done;
    out += done;
    count -= done;
  }
}

const std::string& TextSource::file_name(int64_t offset) const {
  return find_part(offset).name();
}

std::string TextSource::location(int64_t offset) const {
  const Part& part = find_part(offset);
  const int64_t at = offset - part.first();
  const int64_t line = 1 + std::count(part.data(), part.data() + at, '\n');
  return concat_text(part.name(), ":", line, " (byte ", at + part.skipped_bytes() + 1, ")");
}

}  // namespace tapeformer
