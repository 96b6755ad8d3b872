#include "data/speech/kaldi_archive.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

// Number of rows by which a range may exceed its matrix, as in Kaldi. Times of segments are rounded, and
// frames at the edges of a recording are left out.
constexpr int64_t kMaxCutRows = 3;

// Sequential reader of a file. Throws DataError at the end of the file.
class Cursor {
 public:
  Cursor(const File& file, int64_t position, std::string location)
      : file_(file),
        position_(position),
        size_(static_cast<int64_t>(file.size())),
        location_(std::move(location)) {}

  int64_t left() const { return size_ - position_; }
  void read(void* target, int64_t bytes) {
    if (bytes > left()) fail(concat_text("outside of the file of ", size_, " bytes"));
    file_.read_at(target, static_cast<size_t>(bytes), static_cast<size_t>(position_));
    position_ += bytes;
  }
  template <class T>
  T value() {
    T result{};
    read(&result, sizeof(result));
    return result;
  }
  // Reads the characters up to and including the next space. Returns the characters without the space.
  std::string token() {
    constexpr size_t kMaxLength = 8;
    std::string text;
    for (char letter = value<char>(); letter != ' '; letter = value<char>()) {
      text += letter;
      if (text.size() > kMaxLength) fail("expected a matrix");
    }
    return text;
  }
  [[noreturn]] void fail(const std::string& message) const { throw DataError(location_ + ": " + message); }

  // Throws DataError if `rows` or `columns` is negative, or if the rest of the file is shorter than rows *
  // columns * value_bytes + extra bytes. This check must precede the allocation of memory for the matrix,
  // because the sizes in a damaged file can be arbitrarily large.
  void require(int64_t rows, int64_t columns, int64_t value_bytes, int64_t extra = 0) const {
    int64_t bytes = 0;
    if (rows < 0 || columns < 0 || __builtin_mul_overflow(rows * columns, value_bytes, &bytes) ||
        __builtin_add_overflow(bytes, extra, &bytes) || bytes > left())
      fail(concat_text("truncated: a matrix of ", rows, " x ", columns, " does not fit into ", size_,
                       " bytes"));
  }

 private:
  const File& file_;
  int64_t position_;
  const int64_t size_;
  const std::string location_;
};

Tensor read_plain(Cursor& cursor, DType dtype) {
  // Each size is stored as a byte with the value 4, followed by an int32.
  const auto size = [&] {
    if (cursor.value<char>() != 4) cursor.fail("expected sizes of 4 bytes");
    return int64_t{cursor.value<int32_t>()};
  };
  const int64_t rows = size(), columns = size();
  cursor.require(rows, columns, dtype == DType::float32 ? 4 : 8);
  const Tensor matrix = Tensor::empty({rows, columns}, dtype);
  cursor.read(matrix.raw_data(), matrix.bytes());
  return matrix.to(DType::float32);
}

// Decodes an 8-bit code. `percentile` contains the percentiles 0, 25, 75 and 100 of the column. The codes 0,
// 64, 192 and 255 stand for these values, and other codes are interpolated.
float interpolate_percentiles(uint8_t code, const float (&percentile)[4]) {
  const auto c = static_cast<float>(code);
  if (code <= 64) return percentile[0] + (percentile[1] - percentile[0]) * c / 64;
  if (code <= 192) return percentile[1] + (percentile[2] - percentile[1]) * (c - 64) / 128;
  return percentile[2] + (percentile[3] - percentile[2]) * (c - 192) / 63;
}

Tensor read_compressed(Cursor& cursor, const std::string& kind) {
  const auto minimum = cursor.value<float>(), range = cursor.value<float>();
  const int64_t rows = cursor.value<int32_t>(), columns = cursor.value<int32_t>();
  const bool wide = kind == "CM2", by_column = kind == "CM";
  cursor.require(rows, columns, wide ? 2 : 1, by_column ? 8 * columns : 0);
  const int64_t count = rows * columns;
  const Tensor matrix = Tensor::empty({rows, columns});
  float* out = matrix.data<float>();
  if (wide) {
    std::vector<uint16_t> codes(static_cast<size_t>(count));
    cursor.read(codes.data(), 2 * count);
    for (const uint16_t code : codes) *out++ = minimum + range * static_cast<float>(code) / 65535;
    return matrix;
  }
  std::vector<uint16_t> headers(by_column ? static_cast<size_t>(4 * columns) : 0);
  cursor.read(headers.data(), static_cast<int64_t>(2 * headers.size()));
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  cursor.read(codes.data(), count);
  if (!by_column) {
    for (const uint8_t code : codes) *out++ = minimum + range * static_cast<float>(code) / 255;
    return matrix;
  }
  for (int64_t c = 0; c < columns; ++c) {
    float percentile[4];
    for (size_t i = 0; i < 4; ++i)
      percentile[i] = minimum + range * static_cast<float>(headers[4 * static_cast<size_t>(c) + i]) / 65535;
    for (int64_t r = 0; r < rows; ++r)
      out[r * columns + c] = interpolate_percentiles(codes[static_cast<size_t>(c * rows + r)], percentile);
  }
  return matrix;
}

Tensor read_matrix(Cursor& cursor) {
  if (cursor.value<char>() != '\0' || cursor.value<char>() != 'B') cursor.fail("expected a binary matrix");
  const std::string kind = cursor.token();
  if (kind == "FM") return read_plain(cursor, DType::float32);
  if (kind == "DM") return read_plain(cursor, DType::float64);
  if (kind == "CM" || kind == "CM2" || kind == "CM3") return read_compressed(cursor, kind);
  cursor.fail("expected a matrix (FM, DM, CM, CM2 or CM3)");
}

Tensor select_range(const Tensor& matrix, const MatrixRange& range, const Cursor& cursor, int64_t* cut_rows) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const int64_t last_row = range.last_row.value_or(rows - 1),
                last_column = range.last_column.value_or(columns - 1);
  if (range.first_row > last_row || range.first_row >= rows || last_row >= rows + kMaxCutRows ||
      range.first_column > last_column || last_column >= columns)
    cursor.fail(concat_text("the range [", range.to_string(), "] is outside of the matrix of ", rows, " x ",
                            columns));
  if (cut_rows) *cut_rows = std::max<int64_t>(0, last_row + 1 - rows);
  return matrix
      .view({std::min(last_row + 1, rows) - range.first_row, last_column + 1 - range.first_column},
            {columns, 1}, range.first_row * columns + range.first_column)
      .clone();
}

// Parses "first:last", where both numbers can be missing. Returns whether the text is valid.
bool parse_bounds(std::string_view text, int64_t& first, std::optional<int64_t>& last) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const auto parse = [](std::string_view digits, int64_t& number) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() && end == digits.data() + digits.size() && number >= 0;
  };
  const std::string_view before = text.substr(0, colon), after = text.substr(colon + 1);
  if (!before.empty() && !parse(before, first)) return false;
  if (after.empty()) return true;
  return parse(after, last.emplace()) && first <= *last;
}

}  // namespace

std::string MatrixRange::to_string() const {
  const auto bounds = [](int64_t first, const std::optional<int64_t>& last) {
    return (first > 0 || last ? std::to_string(first) : "") + ":" + (last ? std::to_string(*last) : "");
  };
  return bounds(first_row, last_row) +
         (first_column > 0 || last_column ? "," + bounds(first_column, last_column) : "");
}

std::optional<MatrixRange> parse_matrix_range(const std::string& text) {
  const std::string_view view = text;
  const size_t comma = view.find(',');
  MatrixRange range;
  if (!parse_bounds(view.substr(0, comma), range.first_row, range.last_row)) return std::nullopt;
  if (comma != std::string_view::npos &&
      !parse_bounds(view.substr(comma + 1), range.first_column, range.last_column))
    return std::nullopt;
  return range;
}

Tensor read_ark_matrix(const std::filesystem::path& path, int64_t offset, const MatrixRange& range,
                       int64_t* cut_rows) {
  require_regular_file(path);
  const File file(path.string(), O_RDONLY);
  Cursor cursor(file, offset, concat_text(path.string(), ": offset ", offset));
  if (offset < 0 || cursor.left() < 2)
    cursor.fail(concat_text("outside of the file of ", file.size(), " bytes"));
  const Tensor matrix = read_matrix(cursor);
  return range == MatrixRange() ? matrix : select_range(matrix, range, cursor, cut_rows);
}

}  // namespace tapeformer
