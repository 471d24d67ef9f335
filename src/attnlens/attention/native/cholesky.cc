// Cholesky factors of many short symmetric matrices, and solves with them.
//
//   A = Rᵀ R with R upper triangular:   R_kk = chol(A_kk − Σ_{j<k} R_jkᵀ R_jk),
//                                       R_kc = R_kk⁻ᵀ (A_kc − Σ_{j<k} R_jkᵀ R_jc)
//   A x = b:   y_k = R_kk⁻ᵀ (b_k − Σ_{j<k} R_jkᵀ y_j),   x_k = R_kk⁻¹ (y_k − Σ_{j>k} R_kj x_j)
//
// by tiles of sixteen rows (blocked Cholesky: Golub and Van Loan, Matrix Computations, 2013,
// section 4.2). Indices k, c and j count tiles. A matrix fits into the second-level cache of a
// core, and one thread factorises it while other threads factorise other matrices. LAPACK would use
// one thread: a matrix of this size is too small for several, and LAPACK has no call for many
// matrices. A matrix that is not positive definite gives NaN.

#include <cmath>
#include <vector>

#include "threads.h"
#include "vectors.h"

namespace ffi = xla::ffi;
namespace {

constexpr int kTile = 16;
#ifdef __AVX512F__
constexpr int kRows = 8, kVectors = 2;  // 16 of the 32 registers hold sums
#else
constexpr int kRows = 4, kVectors = 1;
#endif

template <typename T>
struct Of {
  typedef T Vector __attribute__((vector_size(64)));
  static constexpr int kWidth = 64 / sizeof(T);
};

// to[r, :] −= Σ_k a_kr b[k, :] for kRows rows and N vectors; a_kr = a[k, r] if kDown, else a[r, k].
template <typename T, int N, bool kDown>
inline void subtract(const T* a, int64_t a_row, const T* b, int64_t b_row, int64_t depth, T* to,
                     int64_t to_row) {
  using V = typename Of<T>::Vector;
  constexpr int kWidth = Of<T>::kWidth;
  V sums[kRows][N];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < N; ++v) sums[r][v] = load<V>(to + r * to_row + v * kWidth);
  for (int64_t k = 0; k < depth; ++k) {
    V row[N];
#pragma GCC unroll 2
    for (int v = 0; v < N; ++v) row[v] = load<V>(b + k * b_row + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < N; ++v)
        sums[r][v] -= (kDown ? a[k * a_row + r] : a[r * a_row + k]) * row[v];
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < N; ++v) store(to + r * to_row + v * kWidth, sums[r][v]);
}

// `subtract` for sixteen rows and the columns from `first` to `last`, whose number is a multiple of
// a vector's width.
template <typename T, bool kDown>
inline void subtract_all(const T* a, int64_t a_row, const T* b, int64_t b_row, int64_t depth, T* to,
                         int64_t to_row, int64_t first, int64_t last) {
  constexpr int kWidth = Of<T>::kWidth;
  if (depth == 0) return;
  for (int64_t c = first; c < last;) {
    const bool several = c + kVectors * kWidth <= last;
    for (int r = 0; r < kTile; r += kRows) {
      const T* own = kDown ? a + r : a + r * a_row;
      if (several)
        subtract<T, kVectors, kDown>(own, a_row, b + c, b_row, depth, to + r * to_row + c, to_row);
      else
        subtract<T, 1, kDown>(own, a_row, b + c, b_row, depth, to + r * to_row + c, to_row);
    }
    c += several ? kVectors * kWidth : kWidth;
  }
}

// A matrix padded to whole tiles; padded rows are zero but for a 1 on the diagonal. The distance
// between rows in memory is a little larger than their length: at a power of two all rows would map
// to the same lines of the cache.
template <typename T>
struct Matrix {
  int64_t length, padded, row;
  std::vector<T> numbers;
  std::vector<T> inverse;  // 1/R_ii

  explicit Matrix(int64_t length)
      : length(length), padded(round_up(length, kTile)), row(padded + kTile),
        numbers(padded * row), inverse(padded) {}

  T* at(int64_t i, int64_t j) { return numbers.data() + i * row + j; }

  // Reads the upper triangle.
  void read(const T* from) {
    for (int64_t i = 0; i < length; ++i)
      std::memcpy(at(i, i), from + i * length + i, sizeof(T) * (length - i));
    for (int64_t i = length; i < padded; ++i) *at(i, i) = 1;
    for (int64_t i = 0; i < padded; ++i) inverse[i] = 1 / *at(i, i);
  }

  void write(T* to) {
    for (int64_t i = 0; i < length; ++i) {
      std::memset(to + i * length, 0, sizeof(T) * i);
      std::memcpy(to + i * length + i, at(i, i), sizeof(T) * (length - i));
    }
  }
};

// x = R_kk⁻ᵀ x (or R_kk⁻¹ x) for sixteen rows and one vector of columns, in registers.
template <typename T, bool kTransposed>
inline void substitute(Matrix<T>& matrix, int64_t k, T* to, int64_t to_row) {
  using V = typename Of<T>::Vector;
  V x[kTile];
#pragma GCC unroll 16
  for (int i = 0; i < kTile; ++i) x[i] = load<V>(to + i * to_row);
#pragma GCC unroll 16
  for (int step = 0; step < kTile; ++step) {
    const int j = kTransposed ? step : kTile - 1 - step;
    x[j] *= matrix.inverse[k + j];
#pragma GCC unroll 16
    for (int i = kTransposed ? j + 1 : 0; i < (kTransposed ? kTile : j); ++i)
      x[i] -= (kTransposed ? *matrix.at(k + j, k + i) : *matrix.at(k + i, k + j)) * x[j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTile; ++i) store(to + i * to_row, x[i]);
}

template <typename T>
void factorise(Matrix<T>& matrix) {
  const int64_t row = matrix.row;
  for (int64_t k = 0; k < matrix.padded; k += kTile) {
    subtract_all<T, true>(matrix.at(0, k), row, matrix.at(0, 0), row, k, matrix.at(k, 0), row, k,
                          matrix.padded);
    T diagonal[kTile][kTile];
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kTile; ++j) diagonal[i][j] = *matrix.at(k + i, k + j);
    for (int j = 0; j < kTile; ++j) {
      const T inverse = 1 / std::sqrt(diagonal[j][j]);
      matrix.inverse[k + j] = inverse;
      for (int c = 0; c < kTile; ++c) diagonal[j][c] *= inverse;
      for (int i = j + 1; i < kTile; ++i) {
        const T factor = diagonal[j][i];
        for (int c = 0; c < kTile; ++c) diagonal[i][c] -= factor * diagonal[j][c];
      }
    }
    for (int i = 0; i < kTile; ++i)
      for (int j = i; j < kTile; ++j) *matrix.at(k + i, k + j) = diagonal[i][j];
    for (int64_t c = k + kTile; c < matrix.padded; c += Of<T>::kWidth)
      substitute<T, true>(matrix, k, matrix.at(k, c), row);
  }
}

// `columns` has the shape (padded, width), with width a multiple of a vector's width.
template <typename T>
void solve(Matrix<T>& matrix, T* columns, int64_t width) {
  const int64_t padded = matrix.padded, row = matrix.row;
  for (int64_t k = 0; k < padded; k += kTile) {
    T* own = columns + k * width;
    subtract_all<T, true>(matrix.at(0, k), row, columns, width, k, own, width, 0, width);
    for (int64_t c = 0; c < width; c += Of<T>::kWidth)
      substitute<T, true>(matrix, k, own + c, width);
  }
  for (int64_t k = padded - kTile; k >= 0; k -= kTile) {
    const int64_t next = k + kTile;
    T* own = columns + k * width;
    subtract_all<T, false>(matrix.at(k, next), row, columns + next * width, width, padded - next,
                           own, width, 0, width);
    for (int64_t c = 0; c < width; c += Of<T>::kWidth)
      substitute<T, false>(matrix, k, own + c, width);
  }
}

template <ffi::DataType kType>
ffi::Error Factor(ffi::ThreadPool pool, ffi::Buffer<kType> matrices,
                  ffi::Result<ffi::Buffer<kType>> factors) {
  using T = ffi::NativeType<kType>;
  const int64_t length = matrices.dimensions().back(), size = length * length;
  parallel_for(pool, matrices.element_count() / size, [&](int64_t i) {
    Matrix<T> matrix(length);
    matrix.read(matrices.typed_data() + i * size);
    factorise(matrix);
    matrix.write(factors->typed_data() + i * size);
  });
  return ffi::Error::Success();
}

template <ffi::DataType kType>
ffi::Error Solve(ffi::ThreadPool pool, ffi::Buffer<kType> factors, ffi::Buffer<kType> right,
                 ffi::Result<ffi::Buffer<kType>> solutions) {
  using T = ffi::NativeType<kType>;
  const int64_t length = factors.dimensions().back(), size = length * length;
  const int64_t count = right.dimensions().back(), width = round_up(count, Of<T>::kWidth);
  parallel_for(pool, factors.element_count() / size, [&](int64_t i) {
    Matrix<T> matrix(length);
    matrix.read(factors.typed_data() + i * size);
    std::vector<T> columns(matrix.padded * width);
    const T* from = right.typed_data() + i * length * count;
    T* to = solutions->typed_data() + i * length * count;
    for (int64_t j = 0; j < length; ++j)
      std::memcpy(columns.data() + j * width, from + j * count, sizeof(T) * count);
    solve(matrix, columns.data(), width);
    for (int64_t j = 0; j < length; ++j)
      std::memcpy(to + j * count, columns.data() + j * width, sizeof(T) * count);
  });
  return ffi::Error::Success();
}

}  // namespace

#define FACTOR(name, type)                                              \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, Factor<type>,                     \
                                ffi::Ffi::Bind()                        \
                                    .Ctx<ffi::ThreadPool>()             \
                                    .Arg<ffi::Buffer<type>>()           \
                                    .Ret<ffi::Buffer<type>>())
#define SOLVE(name, type)                                               \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, Solve<type>,                      \
                                ffi::Ffi::Bind()                        \
                                    .Ctx<ffi::ThreadPool>()             \
                                    .Arg<ffi::Buffer<type>>()           \
                                    .Arg<ffi::Buffer<type>>()           \
                                    .Ret<ffi::Buffer<type>>())

FACTOR(attnlens_factor_float32, ffi::F32);
FACTOR(attnlens_factor_float64, ffi::F64);
SOLVE(attnlens_solve_float32, ffi::F32);
SOLVE(attnlens_solve_float64, ffi::F64);
