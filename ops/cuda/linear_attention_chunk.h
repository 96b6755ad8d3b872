// Chunks and states of linear attention on tensor cores, for bfloat16 tensors. phi is the feature map, and dn
// is the gradient of the numerator of the attention result. linear_attention.cu describes chunks and states.
#pragma once

#include "ops/cuda/linear_attention_head.h"
#include "ops/cuda/tensor_tiles.h"

namespace tapeformer::cuda {

// The kind of an operand, which determines its elements:
//   features   phi(x) for queries and keys
//   values     the unchanged elements of the tensor
//   gradients  dn: the rows of the tensor, each multiplied by the multiplier of the row
enum class ChunkOperand { features, values, gradients };

// The rows of one operand for the tokens of a chunk, in shared memory. Each element is represented as the sum
// of kParts bfloat16 numbers. Elements outside the operand are 0.
template <int kWidth, ChunkOperand kOperand, int kParts>
class ChunkRows {
 public:
  // RowLayout is used for products that sum over the elements of a row. TokenLayout is used for products that
  // sum over the tokens of a chunk.
  using RowLayout = SliceLayout<kAlongDepth, kTileTokens, kWidth>;
  using TokenLayout = SliceLayout<kAlongTile, kWidth, kTileTokens>;
  static constexpr int kPartCount = kParts;
  static constexpr int kPairs = kParts * RowLayout::kPartStride;  // size in bfloat16 pairs
  // Each thread copies one Pack of every kTokenStep-th token.
  static constexpr int kTokenStep = kTensorCoreThreads * Pack<BFloat16>::kSize / kWidth;

  __device__ explicit ChunkRows(uint32_t* memory) : pairs_(memory) {}

  // The data that a thread copies to shared memory: pairs of elements of the tensor, and the multipliers of
  // the rows of the tensor.
  struct Packs {
    Pack<uint32_t> packs[kTileTokens / kTokenStep];
    float multipliers[kOperand == ChunkOperand::gradients ? kTileTokens / kTokenStep : 1];
  };
  // Loads the rows of tokens [begin, begin + kTileTokens) into registers. All threads of the block must call
  // fetch(). A kernel fetches several operands before it stores the first operand, so that the kernel waits
  // for global memory only once.
  __device__ static Packs fetch(const HeadRows<BFloat16>& rows, int64_t begin) {
    const int count = count_valid_tokens(rows, begin);
    const BFloat16* source = rows.data + (begin + token(0)) * rows.stride + feature();
    Packs result;
#pragma unroll
    for (int n = 0; n < kTileTokens / kTokenStep; ++n, source += kTokenStep * rows.stride) {
      const bool is_valid = token(n) < count;
      result.packs[n] = {};
      if (is_valid) result.packs[n] = Pack<uint32_t>::load(reinterpret_cast<const uint32_t*>(source));
      if constexpr (kOperand == ChunkOperand::gradients)
        result.multipliers[n] = is_valid ? rows.multipliers[begin + token(n)] : 0;
    }
    return result;
  }
  // Converts the result of fetch() and writes it to shared memory. All threads of the block must call
  // store(), and must synchronise before they read the rows.
  __device__ void store(const Packs& source, const HeadRows<BFloat16>& rows, int64_t begin) const {
    const int count = count_valid_tokens(rows, begin);
#pragma unroll
    for (int n = 0; n < kTileTokens / kTokenStep; ++n) {
      uint32_t* const target = pairs_ + RowLayout::offset(token(n), feature());
      if constexpr (kOperand == ChunkOperand::values) {
        static_assert(kParts == 1);
        source.packs[n].store(target);
        continue;
      }
      ConvertedPack<BFloat16> elements = unpack_pairs(source.packs[n]);
      if constexpr (kOperand == ChunkOperand::gradients) elements.multiply(source.multipliers[n]);
      if constexpr (kOperand == ChunkOperand::features) {
        if (token(n) < count)
          apply_feature_map(rows.feature_map, elements);
        else
          elements = {};
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        extract_pack_part(elements, part).store(target + part * RowLayout::kPartStride);
    }
  }
  // Returns the rows from token `token` onwards, as the right operand of a matrix product.
  __device__ const uint32_t* operand(int token = 0) const {
    return pairs_ + RowLayout::offset(token, 0);
  }
  // Sets `values` to elements `feature` and `feature` + 1 of token `token`. `feature` must be even.
  __device__ void load_pair(int token, int feature, float (&values)[2]) const {
    const uint32_t* const source = pairs_ + RowLayout::offset(token, feature);
    values[0] = unpack_first(source[0]);
    values[1] = unpack_second(source[0]);
    if constexpr (kParts > 1) {
      values[0] += unpack_first(source[RowLayout::kPartStride]);
      values[1] += unpack_second(source[RowLayout::kPartStride]);
    }
  }

 private:
  // token(n) returns the token of pack n of the calling thread. feature() returns the first feature of each
  // pack of the calling thread.
  __device__ static int token(int n) {
    return static_cast<int>(threadIdx.x / (kWidth / Pack<BFloat16>::kSize)) + n * kTokenStep;
  }
  __device__ static int feature() {
    return static_cast<int>(threadIdx.x % (kWidth / Pack<BFloat16>::kSize)) * Pack<BFloat16>::kSize;
  }
  // Returns the number of valid tokens in the chunk that begins at `begin`. Returns 0 if feature() is not
  // less than the width of the rows.
  __device__ static int count_valid_tokens(const HeadRows<BFloat16>& rows, int64_t begin) {
    const int64_t count = feature() < rows.width ? rows.count - begin : 0;
    return count < kTileTokens ? static_cast<int>(count) : kTileTokens;
  }

  uint32_t* pairs_;
};

// The rows of the tokens of a warp, as left operands of matrix products. Warp w of a thread block holds the
// rows of tokens [16 * w, 16 * w + 16) of a chunk.
template <int kWidth, int kParts>
struct WarpRows {
  LeftFragment fragments[kParts][kWidth / 16];

  template <ChunkOperand kOperand, int kStoredParts>
  __device__ explicit WarpRows(const ChunkRows<kWidth, kOperand, kStoredParts>& rows) {
    using Layout = typename ChunkRows<kWidth, kOperand, kStoredParts>::RowLayout;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int k = 0; k < kWidth; k += 16)
        fragments[part][k / 16] = TensorCoreTile<kTileTokens, kWidth>::template load_fragment<Layout>(
            rows.operand() + part * Layout::kPartStride, k);
  }
};

// Returns elements [first, first + 16) of a vector as a right operand with 16 rows. Column 0 contains the
// elements rounded to bfloat16, and column 1 contains the rounding errors. The other columns are 0. Element i
// of the vector is vector[i * kStride].
template <int kStride>
__device__ RightFragment make_vector_fragment(const float* vector, int first) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, column = lane / 4;
  if (column > 1) return {};
  const float* const v = vector + (first + lane % 4 * 2) * kStride;
  return {{extract_bfloat16_part(v[0], v[kStride], column),
           extract_bfloat16_part(v[8 * kStride], v[9 * kStride], column)}};
}
// Returns a right operand with 16 rows. Column 0 of the operand contains ones, and the other columns contain
// zeros.
__device__ inline RightFragment make_ones_fragment() {
  constexpr uint32_t kOnes = 0x3F803F80;  // two bfloat16 numbers
  const uint32_t pair = static_cast<int>(threadIdx.x) % kWarpSize < 4 ? kOnes : 0;
  return {{pair, pair}};
}

// The product of a (16, k) matrix and a vector. The right operand represents the vector as the sum of columns
// 0 and 1. All other columns of the right operand are 0.
struct VectorProduct {
  float sums[4] = {};

  __device__ void add(const LeftFragment& left, const RightFragment& vector) {
    add_matrix_product(sums[0], sums[1], sums[2], sums[3], left, vector);
  }
  // If lane % 4 is 0, returns row lane / 4 + 8 * i of the product. Returns 0 in the other lanes.
  __device__ float terms(int i) const { return sums[2 * i] + sums[2 * i + 1]; }
};

// The state of a head: a matrix and a vector (linear_attention.cu). The threads of a block keep the state in
// registers, and shared memory contains a copy of the state for matrix products. In the copy, each element of
// the matrix is represented as the sum of kParts bfloat16 numbers. The vector is stored as float32 numbers in
// the padding between the rows of the matrix.
template <int kWidth, int kParts>
class ChunkState {
 public:
  // FeatureLayout is used for products that sum over the `dim` rows of the matrix. ValueLayout is used for
  // products that sum over the `value_dim` columns of the matrix.
  using FeatureLayout = SliceLayout<kAlongTile, kWidth, kWidth>;
  using ValueLayout = SliceLayout<kAlongDepth, kWidth, kWidth>;
  static_assert(FeatureLayout::kPartStride == ValueLayout::kPartStride);
  static constexpr int kPairs = kParts * FeatureLayout::kPartStride;  // size in bfloat16 pairs
  static constexpr int kVectorStride = FeatureLayout::kLineStride;

  __device__ explicit ChunkState(uint32_t* memory) : pairs_(memory) {}

  // Adds states [first, last) of a head to this state. `states` points to the states of the head in
  // LinearAttentionSegments::states.
  __device__ void add_states(const LinearAttentionInputs<BFloat16>& in, const float* states, int64_t first,
                             int64_t last) {
    const auto stride = static_cast<int>(in.state_stride());
#pragma unroll 1
    for (int64_t c = first; c < last; ++c) {
      const float* const state = states + c * in.state_size();
#pragma unroll
      for (int i = 0; i < Matrix::kRowsPerThread; ++i) {
        if (Matrix::row(i) >= in.s.dim) continue;
        const float* const row = state + Matrix::row(i) * stride;
#pragma unroll
        for (int j = 0; j < Matrix::kColumnsPerThread; ++j)
          if (Matrix::column(j) < in.s.value_dim) matrix_.elements[i][j] += row[Matrix::column(j)];
        if (is_vector_lane()) vector_[i] += row[in.s.value_dim];
      }
    }
  }
  // Writes the state to `target`, which has the layout of LinearAttentionSegments::states.
  __device__ void store(const LinearAttentionInputs<BFloat16>& in, float* target) const {
#pragma unroll
    for (int i = 0; i < Matrix::kRowsPerThread; ++i) {
      if (Matrix::row(i) >= in.s.dim) continue;
      float* const row = target + Matrix::row(i) * in.state_stride();
#pragma unroll
      for (int j = 0; j < Matrix::kColumnsPerThread; ++j)
        if (Matrix::column(j) < in.s.value_dim) row[Matrix::column(j)] = matrix_.elements[i][j];
      if (is_vector_lane()) row[in.s.value_dim] = vector_[i];
    }
  }

  // Adds the tokens of a chunk to the state. The matrix product features^T * values is added to the matrix of
  // the state. The sum of the rows of `features`, each multiplied by the multiplier of its token, is added to
  // the vector of the state. If `multipliers` is null, all multipliers are 1.
  template <int kFeatureParts, ChunkOperand kValues, int kValueParts>
  __device__ void add_tokens(const ChunkRows<kWidth, ChunkOperand::features, kFeatureParts>& features,
                             const ChunkRows<kWidth, kValues, kValueParts>& values,
                             const float* multipliers) {
    using Layout = typename ChunkRows<kWidth, kValues, kValueParts>::TokenLayout;
    constexpr int kLeftParts = kFeatureParts < kParts ? kFeatureParts : kParts;
    // Tensor cores truncate sums. If the operands have two parts, the truncation error of a long sum exceeds
    // the rounding error of the operands. Operands with two parts are therefore summed on tensor cores only
    // within each chunk. The sums of the chunks are added with float32 additions, which round to nearest.
    constexpr bool kAddsChunks = kParts > 1;
    Matrix chunk_matrix;
    Matrix& matrix = kAddsChunks ? chunk_matrix : matrix_;
    VectorProduct product;
#pragma unroll
    for (int token = 0; token < kTileTokens; token += 16) {
      const RightFragment vector =
          multipliers ? make_vector_fragment<1>(multipliers, token) : make_ones_fragment();
      LeftFragment fragments[kLeftParts];
#pragma unroll
      for (int part = 0; part < kLeftParts; ++part) {
        fragments[part] =
            Matrix::template load_fragment<Layout>(features.operand() + part * Layout::kPartStride, token);
        product.add(fragments[part], vector);
      }
      add_part_products<Layout, kLeftParts, kValueParts>(
          matrix, [&](int part) { return fragments[part]; }, values.operand(), token);
    }
#pragma unroll
    for (int i = 0; i < Matrix::kRowsPerThread; ++i) {
      vector_[i] += product.terms(i);
      if constexpr (kAddsChunks)
#pragma unroll
        for (int j = 0; j < Matrix::kColumnsPerThread; ++j)
          matrix_.elements[i][j] += chunk_matrix.elements[i][j];
    }
  }

  // Copies the state to shared memory. All threads of the block must call publish(), and must synchronise
  // before they read the copy.
  __device__ void publish() const {
#pragma unroll
    for (int i = 0; i < Matrix::kRowsPerThread; ++i) {
#pragma unroll
      for (int j = 0; j < Matrix::kColumnsPerThread; j += 2)
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          pairs_[part * FeatureLayout::kPartStride +
                 FeatureLayout::offset(Matrix::row(i), Matrix::column(j))] =
              extract_bfloat16_part(matrix_.elements[i][j], matrix_.elements[i][j + 1], part);
      if (is_vector_lane()) vector()[Matrix::row(i) * kVectorStride] = vector_[i];
    }
  }
  // Returns the address of the copy of the vector in shared memory. Element i of the vector is vector()[i *
  // kVectorStride].
  __device__ float* vector() const {
    return reinterpret_cast<float*>(pairs_ + kWidth / 2);
  }
  // Adds the product of `rows` and the copy of the matrix in shared memory to `sums`. Layout is FeatureLayout
  // or ValueLayout.
  template <class Layout, int kRowParts, class Sums>
  __device__ void add_product(Sums& sums, const WarpRows<kWidth, kRowParts>& rows) const {
#pragma unroll
    for (int k = 0; k < kWidth; k += 16)
      add_part_products<Layout, kRowParts, kParts>(
          sums, [&](int part) { return rows.fragments[part][k / 16]; }, pairs_, k);
  }
  // Returns the product of `rows` and the copy of the vector.
  template <int kRowParts>
  __device__ VectorProduct multiply_vector(const WarpRows<kWidth, kRowParts>& rows) const {
    VectorProduct product;
#pragma unroll
    for (int k = 0; k < kWidth; k += 16) {
      const RightFragment fragment = make_vector_fragment<kVectorStride>(vector(), k);
#pragma unroll
      for (int part = kRowParts - 1; part >= 0; --part) product.add(rows.fragments[part][k / 16], fragment);
    }
    return product;
  }

 private:
  using Matrix = TensorCoreTile<kWidth, kWidth>;  // (dim, value_dim)
  // Each element of the vector of the state is held by several threads. is_vector_lane() returns true in
  // exactly one of the threads that hold an element.
  __device__ static bool is_vector_lane() {
    return Matrix::column(0) == 0;
  }

  uint32_t* pairs_;
  Matrix matrix_;
  // vector_[i] is element Matrix::row(i) of the vector of the state. The elements of vector_ are valid only
  // if is_vector_lane() is true.
  float vector_[Matrix::kRowsPerThread] = {};
};

}  // namespace tapeformer::cuda
