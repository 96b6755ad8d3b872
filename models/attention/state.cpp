#include "models/attention/state.h"

#include <stdexcept>

#include "ops/view.h"

namespace tapeformer {

void copy_rows(const Tensor& from, const Tensor& to, std::span<const RowCopy> rows, int64_t count) {
  Shape a = from.shape(), b = to.shape();
  const bool fits = from.rank() == to.rank() && (count < 0 || (count <= a[1] && count <= b[1]));
  for (Shape* const shape : {&a, &b}) {
    (*shape)[0] = 1;
    if (count >= 0 && fits) (*shape)[1] = count;
  }
  check(fits && a == b, "copy_rows", "rows of ", from.shape(), " and ", to.shape(), " differ");
  const auto view_row = [&](const Tensor& x, int64_t row) {
    const Tensor all = slice(x, 0, row, row + 1);
    return count < 0 ? all : slice(all, 1, 0, count);
  };
  const auto has_row = [](const Tensor& x, int64_t row) { return row >= 0 && row < x.size(0); };
  for (const RowCopy& row : rows) {
    check(has_row(from, row.from) && has_row(to, row.to), "copy_rows", "row ", row.from, " of ", from.shape(),
          " or row ", row.to, " of ", to.shape(), " does not exist");
    if (a.numel() > 0) view_row(to, row.to).copy_from(view_row(from, row.from));
  }
}

Tensor select_rows(const Tensor& from, std::span<const int64_t> rows) {
  Shape shape = from.shape();
  shape[0] = static_cast<int64_t>(rows.size());
  const Tensor result = Tensor::empty(shape, from.dtype(), from.device());
  std::vector<RowCopy> copies;
  for (const int64_t row : rows) copies.push_back({row, static_cast<int64_t>(copies.size())});
  copy_rows(from, result, copies);
  return result;
}

void AttentionState::copy_rows(const AttentionState& /*from*/, std::span<const RowCopy> rows) {
  if (rows.empty()) return;
  throw std::invalid_argument(
      "a state of this kind of attention cannot be copied, which a beam search needs");
}

}  // namespace tapeformer
