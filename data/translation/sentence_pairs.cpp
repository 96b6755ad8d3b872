#include "data/translation/sentence_pairs.h"

#include <algorithm>
#include <numeric>

#include "core/base/errors.h"
#include "data/files/text_lines.h"
#include "data/translation/unicode.h"

namespace tapeformer {
namespace {

void require_equal_lines(const std::string& path, int64_t count, const std::string& other_path,
                         int64_t other_count) {
  if (count != other_count)
    throw DataError(concat_text(path, " has ", count, " lines, and ", other_path, " has ", other_count,
                                "; expected one line in each file for each pair of sentences"));
}

// Returns the path and, if it selects several files, their number and the first and last one.
std::string describe_files(const SentenceFile& text) {
  const auto& files = text.files();
  if (files.size() == 1) return files.front().first;
  return concat_text(text.path(), " (", files.size(), " files from ", files.front().first, " to ",
                     files.back().first, ")");
}

// Compares file by file if there are equally many files, because lines of the wrong file are not translations
// even if the sums are equal.
void require_parallel(const SentenceFile& a, const SentenceFile& b) {
  if (a.files().size() == b.files().size())
    for (size_t i = 0; i < a.files().size(); ++i)
      require_equal_lines(a.files()[i].first, a.files()[i].second, b.files()[i].first, b.files()[i].second);
  require_equal_lines(describe_files(a), a.size(), describe_files(b), b.size());
}

}  // namespace

bool is_blank(std::string_view line) {
  constexpr char32_t kZeroWidthSpace = 0x200B, kByteOrderMark = 0xFEFF;
  const std::u32string characters = decode_utf8(line);
  return std::all_of(characters.begin(), characters.end(), [&](char32_t c) {
    return is_unicode_space(c) || c == kZeroWidthSpace || c == kByteOrderMark;
  });
}

SentenceFile::SentenceFile(const std::string& path) : path_(path), text_(list_text_files(path)) {
  if (const std::string problem = text_.describe_encoding_problem(); !problem.empty())
    throw DataError(problem);
  for (int64_t at = 0; at < text_.size();) {
    const std::string_view file = text_.view(at, text_.size() - at);
    files_.emplace_back(text_.file_name(at), 0);
    auto& [name, count] = files_.back();
    for (size_t begin = 0, end = 0; begin < file.size(); begin = end) {
      end = std::min(file.find('\n', begin), file.size() - 1) + 1;
      const std::string_view line = file.substr(begin, end - begin);
      ++count;
      if (find_invalid_utf8(line) != std::string_view::npos)
        require_utf8(line, concat_text(name, ":", count));
      starts_.push_back(at + static_cast<int64_t>(begin));
    }
    at += static_cast<int64_t>(file.size());
  }
  starts_.push_back(text_.size());
}

std::string_view SentenceFile::line(int64_t i) const {
  check(i >= 0 && i < size(), "SentenceFile", "line ", i, " of ", size());
  const int64_t begin = starts_[static_cast<size_t>(i)], end = starts_[static_cast<size_t>(i) + 1];
  std::string_view text = text_.view(begin, end - begin);
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

std::string SentenceFile::location(int64_t i) const {
  check(i >= 0 && i < size(), "SentenceFile", "line ", i, " of ", size());
  for (const auto& [name, count] : files_) {
    if (i < count) return concat_text(name, ":", i + 1);
    i -= count;
  }
  return path_;
}

SentencePairs::SentencePairs(const SentencePairPaths& paths) : source_(paths.source), target_(paths.target) {
  require_parallel(source_, target_);
  if (paths.places.empty()) {
    first_lines_.resize(static_cast<size_t>(source_.size()) + 1);
    std::iota(first_lines_.begin(), first_lines_.end(), 0);
    return;
  }
  const SentenceFile places(paths.places);
  require_parallel(source_, places);
  std::string_view previous;
  for (int64_t i = 0; i < places.size(); ++i) {
    const std::string_view place = places.line(i), chapter = place.substr(0, place.rfind(':'));
    if (i == 0 || chapter != previous) first_lines_.push_back(i);
    previous = chapter;
  }
  first_lines_.push_back(places.size());
}

std::string SentencePairs::join_lines(const SentenceFile& file, int64_t i) const {
  check(i >= 0 && i < size(), "SentencePairs", "sentence ", i, " of ", size());
  std::string text(file.line(first_line(i)));
  for (int64_t k = first_line(i) + 1; k < first_line(i + 1); ++k) {
    const std::string_view line = file.line(k);
    if (!text.empty() && !line.empty()) text += ' ';
    text += line;
  }
  return text;
}

}  // namespace tapeformer
