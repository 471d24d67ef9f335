// Vectors of sixteen numbers in single precision, used by the sources of this folder.

#pragma once

#include <cstdint>
#include <cstring>

namespace {

constexpr int kWide = 16, kHalf = 8;
typedef float Wide __attribute__((vector_size(4 * kWide)));
typedef int32_t WideInt __attribute__((vector_size(4 * kWide)));
typedef float Half __attribute__((vector_size(4 * kHalf)));

template <typename V, typename T>
inline V load(const T* from) {
  V vector;
  std::memcpy(&vector, from, sizeof(V));
  return vector;
}

template <typename V, typename T>
inline void store(T* to, V vector) {
  std::memcpy(to, &vector, sizeof(V));
}

// exp(x) for x ≤ 0, as 2^n e^r with |r| ≤ ln 2 / 2. e^r is the Taylor series up to r^7, whose
// remainder is below 2^-27. The result is 0 where it would be subnormal.
inline Wide exponential(Wide x) {
  const Wide shifted = x * 1.44269504f + 12582912.0f;  // adding 1.5 · 2^23 rounds to a whole number
  const Wide n = shifted - 12582912.0f;
  const Wide r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 as a sum of two numbers
  Wide series = r * (1.0f / 5040) + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const WideInt power = ((WideInt)shifted << 23) + 0x3f800000;
  const Wide result = series * (Wide)power;
  return x < -87.0f ? Wide{} : result;
}

// Reduction of the entries of a vector in pairs: four dependent operations instead of fifteen.
template <typename Join>
inline float reduce(Wide x, Join join) {
  typedef float Quarter __attribute__((vector_size(16)));
  float all[kWide];
  store(all, x);
  const Half half = join(load<Half>(all), load<Half>(all + 8));
  store(all, half);
  const Quarter quarter = join(load<Quarter>(all), load<Quarter>(all + 4));
  const float left = join(quarter[0], quarter[2]), right = join(quarter[1], quarter[3]);
  return join(left, right);
}

inline float sum(Wide x) {
  return reduce(x, [](auto a, auto b) { return a + b; });
}

inline float largest(Wide x) {
  return reduce(x, [](auto a, auto b) { return a > b ? a : b; });
}

inline int64_t round_up(int64_t number, int64_t to) { return (number + to - 1) / to * to; }

}  // namespace
