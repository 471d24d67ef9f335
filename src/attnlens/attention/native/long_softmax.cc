// Softmax attention of long sequences, in single precision, tile by tile.
//
//   o_i = Σ_j e^{s_ij} v_j / Σ_j e^{s_ij},   c_i = log Σ_j e^{s_ij},   s_ij = q_i·k_j
//
// One task is a tile of queries. It goes through the keys tile by tile and keeps the largest score
// so far (formulas: normalised.py). Both matrix products use one routine, which holds six rows by a
// panel of columns in registers; the scores of a tile stay in the second-level cache. The result of
// a tile of queries depends only on its queries, keys and values, so it does not depend on the
// number of threads. A NaN in a row makes that row NaN.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "threads.h"
#include "vectors.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
namespace {

#ifdef __AVX512F__
constexpr int kVectors = 4;  // sums take 6 · 4 of the 32 registers
#else
constexpr int kVectors = 1;  // sums take 6 · 2 of the 16 registers, which hold eight numbers each
#endif
constexpr int kRows = 6, kColumns = kVectors * kWide;
constexpr int kQueries = 16 * kRows, kKeys = 256;  // a tile of scores takes 96 KB

// sums[r, :] = start[r] · to[r, :] + Σ_k a[r, k] b[k, :], for kRows rows and N vectors.
template <int N>
inline void product(const float* a, int64_t a_row, const float* b, int64_t b_row, int depth,
                    const float* start, float* to, int64_t to_row) {
  Wide sums[kRows][N];
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v)
      sums[r][v] = start ? load<Wide>(to + r * to_row + v * kWide) * start[r] : Wide{};
  for (int k = 0; k < depth; ++k) {
    Wide columns[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) columns[v] = load<Wide>(b + k * b_row + v * kWide);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) sums[r][v] += a[r * a_row + k] * columns[v];
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) store(to + r * to_row + v * kWide, sums[r][v]);
}

// `product` for all columns: panels of kColumns columns, then the rest, which is a multiple of 16.
inline void products(const float* a, int64_t a_row, const float* b, int64_t b_row, int depth,
                     const float* start, float* to, int64_t to_row, int64_t columns) {
  int64_t c = 0;
  for (; c + kColumns <= columns; c += kColumns)
    product<kVectors>(a, a_row, b + c, b_row, depth, start, to + c, to_row);
  for (; c + 2 * kWide <= columns; c += 2 * kWide)
    product<2>(a, a_row, b + c, b_row, depth, start, to + c, to_row);
  for (; c < columns; c += kWide)
    product<1>(a, a_row, b + c, b_row, depth, start, to + c, to_row);
}

struct Sizes {
  int64_t sets = 1, queries, length, dim, value_dim, padded, wide_value;
};

// Replaces the scores of one row by the weights e^{s − top} and updates the row's largest score
// `top` and the sum `total`. Returns e^{old top − new top}, the factor for everything summed
// before.
inline float weigh(float* row, float& top, float& total) {
  Wide tops = Wide{} + top;
  for (int j = 0; j < kKeys; j += kWide) {
    const Wide own = load<Wide>(row + j);
    tops = own > tops ? own : tops;
  }
  const float new_top = largest(tops), shrink = std::exp(top - new_top);
  Wide totals = {};
  for (int j = 0; j < kKeys; j += kWide) {
    const Wide own = exponential(load<Wide>(row + j) - new_top);
    store(row + j, own);
    totals += own;
  }
  top = new_top, total = total * shrink + sum(totals);
  return shrink;
}

// At most kQueries queries of one set; `key` is stored as panels (dim, kColumns), `value` as rows.
void attend(const Sizes& sizes, const float* query, int64_t queries, const float* key,
            const float* value, float* output, float* normaliser) {
  const int64_t dim = sizes.dim, wide = sizes.wide_value;
  const int64_t rows = round_up(queries, kRows);
  const float least = -std::numeric_limits<float>::max();
  std::vector<float> padded_query(rows * dim), scores(rows * kKeys), summed(rows * wide);
  std::vector<float> tops(rows, least), totals(rows), shrink(rows);
  std::memcpy(padded_query.data(), query, 4 * queries * dim);
  for (int64_t first = 0; first < sizes.padded; first += kKeys) {
    for (int64_t c = 0; c < kKeys; c += kColumns)
      for (int64_t r = 0; r < rows; r += kRows)
        product<kVectors>(padded_query.data() + r * dim, dim, key + (first + c) * dim, kColumns, dim,
                          nullptr, scores.data() + r * kKeys + c, kKeys);
    const int64_t count = std::min<int64_t>(kKeys, sizes.length - first);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = scores.data() + r * kKeys;
      for (int64_t j = count; j < kKeys; ++j) row[j] = -std::numeric_limits<float>::infinity();
      shrink[r] = weigh(row, tops[r], totals[r]);
    }
    for (int64_t r = 0; r < rows; r += kRows)
      products(scores.data() + r * kKeys, kKeys, value + first * wide, wide, count,
               shrink.data() + r, summed.data() + r * wide, wide, wide);
  }
  for (int64_t i = 0; i < queries; ++i) {
    const float scale = totals[i] == 0 ? 0.0f : 1.0f / totals[i];
    for (int64_t f = 0; f < sizes.value_dim; ++f)
      output[i * sizes.value_dim + f] = summed[i * wide + f] * scale;
    normaliser[i] = totals[i] == 0 ? 0.0f : tops[i] + std::log(totals[i]);
  }
}

using Floats = ffi::Buffer<ffi::F32>;
using Result = ffi::Result<Floats>;

ffi::Error LongSoftmax(ffi::ThreadPool pool, Floats query, Floats key, Floats value, Result output,
                       Result normaliser) {
  Sizes sizes;
  auto axes = query.dimensions();
  const size_t rank = axes.size();
  for (size_t i = 0; i + 2 < rank; ++i) sizes.sets *= axes[i];
  sizes.queries = axes[rank - 2], sizes.dim = axes[rank - 1];
  sizes.length = key.dimensions()[rank - 2], sizes.value_dim = value.dimensions()[rank - 1];
  sizes.padded = round_up(sizes.length, kKeys), sizes.wide_value = round_up(sizes.value_dim, kWide);
  const int64_t length = sizes.length, dim = sizes.dim, wide = sizes.wide_value;
  const bool copied = wide != sizes.value_dim;
  std::unique_ptr<float[]> panels(new float[sizes.sets * sizes.padded * dim]);
  std::unique_ptr<float[]> values(new float[copied ? sizes.sets * length * wide : 1]);

  // Keys are transposed into panels, and values padded to whole vectors.
  const int64_t tiles = sizes.padded / kKeys;
  parallel_for(pool, sizes.sets * tiles, [&](int64_t task) {
    const int64_t set = task / tiles, first = task % tiles * kKeys;
    const float* from = key.typed_data() + set * length * dim;
    float* to = panels.get() + (set * sizes.padded + first) * dim;
    for (int64_t j = 0; j < kKeys; ++j) {
      float* column = to + j / kColumns * kColumns * dim + j % kColumns;
      const bool exists = first + j < length;
      for (int64_t f = 0; f < dim; ++f)
        column[f * kColumns] = exists ? from[(first + j) * dim + f] : 0;
    }
    if (!copied) return;
    for (int64_t j = first; j < std::min(first + kKeys, length); ++j) {
      float* row = values.get() + (set * length + j) * wide;
      const float* own = value.typed_data() + (set * length + j) * sizes.value_dim;
      for (int64_t f = 0; f < wide; ++f) row[f] = f < sizes.value_dim ? own[f] : 0;
    }
  });

  const int64_t parts = (sizes.queries + kQueries - 1) / kQueries;
  parallel_for(pool, sizes.sets * parts, [&](int64_t task) {
    const int64_t set = task / parts, first = task % parts * kQueries;
    const int64_t row = set * sizes.queries + first;
    const float* own = copied ? values.get() : value.typed_data();
    attend(sizes, query.typed_data() + row * dim,
           std::min<int64_t>(kQueries, sizes.queries - first),
           panels.get() + set * sizes.padded * dim, own + set * length * wide,
           output->typed_data() + row * sizes.value_dim, normaliser->typed_data() + row);
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(attnlens_long_softmax, LongSoftmax,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());
