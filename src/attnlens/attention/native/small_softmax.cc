// Softmax attention of many small sets, and its gradient, in single precision.
//
//   p_ij = exp(q_i·k_j − m_i)/Σ_j …,   o_i = Σ_j p_ij v_j
//   dv_j = Σ_i p_ij do_i,   e_ij = do_i·v_j,   s_ij = p_ij (e_ij − Σ_j p_ij e_ij)
//   dq_i = Σ_j s_ij k_j,    dk_j = Σ_i s_ij q_i
//
// A set fits into the first-level cache of a core, so sets are computed one after the other, from
// inputs to outputs. Sums over queries or features are held in registers, sixteen tokens per vector
// (or, where a set has few tokens, sixteen sets per vector: few_tokens.h). Masked tokens and tokens
// that pad a vector have weight 0. The result of a set depends on that set only. A NaN in a row
// makes that row NaN.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "few_tokens.h"
#include "vectors.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
namespace {

// The sizes of one set, and memory for its intermediate results.
struct Set {
  int queries, length, dim, value_dim;  // Lq, L, d, dv
  int padded, wide_dim, wide_value;     // L rounded up to a multiple of 16, d and dv of 8
  std::vector<float> key, value, other, rows, more;

  Set(int queries, int length, int dim, int value_dim)
      : queries(queries), length(length), dim(dim), value_dim(value_dim),
        padded(round_up(length, kWide)), wide_dim(round_up(dim, kHalf)),
        wide_value(round_up(value_dim, kHalf)), key(dim * padded), value(value_dim * padded),
        other(padded * std::max(wide_dim, wide_value)), rows(queries * padded),
        more(queries * padded) {}
};

// (length, features) -> (features, padded), padded with zeros.
inline void transpose(const float* from, int length, int features, int padded, float* to) {
  for (int f = 0; f < features; ++f) {
    for (int j = 0; j < length; ++j) to[f * padded + j] = from[j * features + f];
    for (int j = length; j < padded; ++j) to[f * padded + j] = 0;
  }
}

inline void transpose_back(const float* from, int length, int features, int padded, float* to) {
  for (int j = 0; j < length; ++j)
    for (int f = 0; f < features; ++f) to[j * features + f] = from[f * padded + j];
}

// to[i, j] = Σ_f a[i, f] b[f, j]; a is (rows, features), b and `to` are padded in j.
template <int kFeatures>
inline void times(const float* a, const float* b, int rows, int given, int padded, float* to) {
  const int features = kFeatures ? kFeatures : given;
  for (int j = 0; j < padded; j += kWide) {
    int i = 0;
    for (; i + 4 <= rows; i += 4) {
      const float* row = a + i * features;
      Wide sums[4] = {};
      for (int f = 0; f < features; ++f) {
        const Wide column = load<Wide>(b + f * padded + j);
        for (int r = 0; r < 4; ++r) sums[r] += row[r * features + f] * column;
      }
      for (int r = 0; r < 4; ++r) store(to + (i + r) * padded + j, sums[r]);
    }
    for (; i < rows; ++i) {
      Wide total = {};
      for (int f = 0; f < features; ++f) total += a[i * features + f] * load<Wide>(b + f * padded + j);
      store(to + i * padded + j, total);
    }
  }
}

// to[f, j] = Σ_i a[i, f] b[i, j]; b and `to` are padded in j.
template <int kFeatures>
inline void outer(const float* a, const float* b, int rows, int given, int padded, float* to) {
  const int features = kFeatures ? kFeatures : given;
  for (int j = 0; j < padded; j += kWide) {
    int f = 0;
    for (; f + 4 <= features; f += 4) {
      Wide sums[4] = {};
      for (int i = 0; i < rows; ++i) {
        const Wide row = load<Wide>(b + i * padded + j);
        for (int r = 0; r < 4; ++r) sums[r] += a[i * features + f + r] * row;
      }
      for (int r = 0; r < 4; ++r) store(to + (f + r) * padded + j, sums[r]);
    }
    for (; f < features; ++f) {
      Wide total = {};
      for (int i = 0; i < rows; ++i) total += a[i * features + f] * load<Wide>(b + i * padded + j);
      store(to + f * padded + j, total);
    }
  }
}

// to[i, f] = Σ_j weights[i, j] tokens[j, f]: with few features as dot products over the tokens
// (`across` is the transpose of tokens, (features, padded)), otherwise eight features per vector.
template <int kFeatures>
inline void mix(const float* weights, const float* tokens, const float* across, int rows,
                int length, int given, int padded, float* spread, float* to) {
  const int features = kFeatures ? kFeatures : given;
  if (features < 4) {
    for (int i = 0; i < rows; ++i)
      for (int f = 0; f < features; ++f) {
        Wide total = {};
        for (int j = 0; j < padded; j += kWide)
          total += load<Wide>(weights + i * padded + j) * load<Wide>(across + f * padded + j);
        to[i * features + f] = sum(total);
      }
    return;
  }
  const int wide = round_up(features, kHalf);
  const float* from = tokens;
  if (wide != features) {
    for (int j = 0; j < length; ++j) {
      std::memcpy(spread + j * wide, tokens + j * features, 4 * features);
      std::memset(spread + j * wide + features, 0, 4 * (wide - features));
    }
    from = spread;
  }
  float result[kHalf];
  for (int f = 0; f < wide; f += kHalf) {
    const int count = std::min(kHalf, features - f);
    int i = 0;
    for (; i + 4 <= rows; i += 4) {
      Half sums[4] = {};
      for (int j = 0; j < length; ++j) {
        const Half token = load<Half>(from + j * wide + f);
        for (int r = 0; r < 4; ++r) sums[r] += weights[(i + r) * padded + j] * token;
      }
      for (int r = 0; r < 4; ++r) {
        store(result, sums[r]);
        std::memcpy(to + (i + r) * features + f, result, 4 * count);
      }
    }
    for (; i < rows; ++i) {
      Half total = {};
      for (int j = 0; j < length; ++j) total += weights[i * padded + j] * load<Half>(from + j * wide + f);
      store(result, total);
      std::memcpy(to + i * features + f, result, 4 * count);
    }
  }
}

template <int kDim, int kValue>
void forward(Set& set, const float* query, const float* key, const float* value, const bool* seen,
             float* output, float* weights) {
  const int padded = set.padded, length = set.length;
  transpose(key, length, set.dim, padded, set.key.data());
  if (set.value_dim < 4) transpose(value, length, set.value_dim, padded, set.value.data());
  times<kDim>(query, set.key.data(), set.queries, set.dim, padded, set.rows.data());
  const float least = -std::numeric_limits<float>::max();
  for (int i = 0; i < set.queries; ++i) {
    float* row = set.rows.data() + i * padded;
    for (int j = length; j < padded; ++j) row[j] = least;
    if (seen)
      for (int j = 0; j < length; ++j) row[j] = seen[j] ? row[j] : least;
    Wide tops = Wide{} + least;
    for (int j = 0; j < padded; j += kWide) {
      const Wide own = load<Wide>(row + j);
      tops = own > tops ? own : tops;
    }
    const float top = largest(tops);
    Wide totals = {};
    for (int j = 0; j < padded; j += kWide) {
      const Wide own = exponential(load<Wide>(row + j) - top);
      store(row + j, own);
      totals += own;
    }
    // Where all tokens are masked every weight is exp(least − least) = 1: set them to 0 instead.
    const float scale = top == least ? 0.0f : 1.0f / sum(totals);
    for (int j = 0; j < padded; j += kWide) store(row + j, load<Wide>(row + j) * scale);
    std::memcpy(weights + i * length, row, 4 * length);
  }
  mix<kValue>(set.rows.data(), value, set.value.data(), set.queries, length, set.value_dim, padded,
              set.other.data(), output);
}

// `given` holds the gradients do_i.
template <int kDim, int kValue>
void backward(Set& set, const float* query, const float* key, const float* value,
              const float* weights, const float* given, float* d_query, float* d_key,
              float* d_value) {
  const int padded = set.padded, length = set.length, queries = set.queries;
  float *rows = set.rows.data(), *more = set.more.data();
  for (int i = 0; i < queries; ++i) {
    std::memcpy(rows + i * padded, weights + i * length, 4 * length);
    for (int j = length; j < padded; ++j) rows[i * padded + j] = 0;
  }
  outer<kValue>(given, rows, queries, set.value_dim, padded, set.value.data());
  transpose_back(set.value.data(), length, set.value_dim, padded, d_value);
  transpose(value, length, set.value_dim, padded, set.value.data());
  times<kValue>(given, set.value.data(), queries, set.value_dim, padded, more);
  for (int i = 0; i < queries; ++i) {
    Wide totals = {};
    for (int j = 0; j < padded; j += kWide)
      totals += load<Wide>(rows + i * padded + j) * load<Wide>(more + i * padded + j);
    const float mean = sum(totals);
    for (int j = 0; j < padded; j += kWide) {
      const Wide own = load<Wide>(rows + i * padded + j);
      store(rows + i * padded + j, own * (load<Wide>(more + i * padded + j) - mean));
    }
  }
  outer<kDim>(query, rows, queries, set.dim, padded, set.key.data());
  transpose_back(set.key.data(), length, set.dim, padded, d_key);
  if (set.dim < 4) transpose(key, length, set.dim, padded, set.key.data());
  mix<kDim>(rows, key, set.key.data(), queries, length, set.dim, padded, set.other.data(), d_query);
}

using Floats = ffi::Buffer<ffi::F32>;
using Result = ffi::Result<Floats>;

// The last two axes are tokens and features; all leading axes together count the sets.
struct Shape {
  int64_t sets = 1;
  int queries, length, dim, value_dim;
  Shape(const Floats& query, const Floats& key, const Floats& value) {
    auto axes = query.dimensions();
    const size_t rank = axes.size();
    for (size_t i = 0; i + 2 < rank; ++i) sets *= axes[i];
    queries = axes[rank - 2], dim = axes[rank - 1];
    length = key.dimensions()[rank - 2], value_dim = value.dimensions()[rank - 1];
  }
  bool few() const { return queries <= kFew && length <= kFew; }
};

template <int kDim, int kValue, typename Run>
bool run_as(int dim, int value_dim, Run run) {
  if (dim != kDim || value_dim != kValue) return false;
  run(std::integral_constant<int, kDim>(), std::integral_constant<int, kValue>());
  return true;
}

// Frequent sizes are compile-time constants, so that loops are unrolled; other sizes use the
// general code (0).
template <typename Run>
void choose(int dim, int value_dim, Run run) {
  if (run_as<1, 1>(dim, value_dim, run) || run_as<2, 1>(dim, value_dim, run) ||
      run_as<2, 2>(dim, value_dim, run) || run_as<3, 3>(dim, value_dim, run) ||
      run_as<4, 4>(dim, value_dim, run) || run_as<5, 5>(dim, value_dim, run) ||
      run_as<8, 8>(dim, value_dim, run) || run_as<16, 16>(dim, value_dim, run))
    return;
  run(std::integral_constant<int, 0>(), std::integral_constant<int, 0>());
}

ffi::Error Forward(Floats query, Floats key, Floats value, ffi::Buffer<ffi::PRED> seen,
                   Result output, Result weights) {
  const Shape shape(query, key, value);
  Set set(shape.queries, shape.length, shape.dim, shape.value_dim);
  Few few(shape.queries, shape.length, shape.dim, shape.value_dim);
  const bool masked = seen.element_count() > 0;  // an empty mask means that no token is masked
  choose(shape.dim, shape.value_dim, [&](auto dim, auto value_dim) {
    for (int64_t s = 0; shape.few() && s < shape.sets; s += kWide)
      forward_few<dim.value, value_dim.value>(
          few, std::min<int64_t>(kWide, shape.sets - s),
          query.typed_data() + s * shape.queries * shape.dim,
          key.typed_data() + s * shape.length * shape.dim,
          value.typed_data() + s * shape.length * shape.value_dim,
          masked ? seen.typed_data() + s * shape.length : nullptr,
          output->typed_data() + s * shape.queries * shape.value_dim,
          weights->typed_data() + s * shape.queries * shape.length);
    for (int64_t s = 0; !shape.few() && s < shape.sets; ++s)
      forward<dim.value, value_dim.value>(
          set, query.typed_data() + s * shape.queries * shape.dim,
          key.typed_data() + s * shape.length * shape.dim,
          value.typed_data() + s * shape.length * shape.value_dim,
          masked ? seen.typed_data() + s * shape.length : nullptr,
          output->typed_data() + s * shape.queries * shape.value_dim,
          weights->typed_data() + s * shape.queries * shape.length);
  });
  return ffi::Error::Success();
}

ffi::Error Backward(Floats query, Floats key, Floats value, Floats weights, Floats given,
                    Result d_query, Result d_key, Result d_value) {
  const Shape shape(query, key, value);
  Set set(shape.queries, shape.length, shape.dim, shape.value_dim);
  Few few(shape.queries, shape.length, shape.dim, shape.value_dim);
  choose(shape.dim, shape.value_dim, [&](auto dim, auto value_dim) {
    for (int64_t s = 0; shape.few() && s < shape.sets; s += kWide)
      backward_few<dim.value, value_dim.value>(
          few, std::min<int64_t>(kWide, shape.sets - s),
          query.typed_data() + s * shape.queries * shape.dim,
          key.typed_data() + s * shape.length * shape.dim,
          value.typed_data() + s * shape.length * shape.value_dim,
          weights.typed_data() + s * shape.queries * shape.length,
          given.typed_data() + s * shape.queries * shape.value_dim,
          d_query->typed_data() + s * shape.queries * shape.dim,
          d_key->typed_data() + s * shape.length * shape.dim,
          d_value->typed_data() + s * shape.length * shape.value_dim);
    for (int64_t s = 0; !shape.few() && s < shape.sets; ++s)
      backward<dim.value, value_dim.value>(
          set, query.typed_data() + s * shape.queries * shape.dim,
          key.typed_data() + s * shape.length * shape.dim,
          value.typed_data() + s * shape.length * shape.value_dim,
          weights.typed_data() + s * shape.queries * shape.length,
          given.typed_data() + s * shape.queries * shape.value_dim,
          d_query->typed_data() + s * shape.queries * shape.dim,
          d_key->typed_data() + s * shape.length * shape.dim,
          d_value->typed_data() + s * shape.length * shape.value_dim);
  });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(attnlens_small_softmax, Forward,
                              ffi::Ffi::Bind()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<ffi::Buffer<ffi::PRED>>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(attnlens_small_softmax_gradient, Backward,
                              ffi::Ffi::Bind()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>()
                                  .Ret<Floats>());
