// SPDX-License-Identifier: Apache-2.0
// Many outputs of one feature at once: where their weights stand, and the sums over a row's features.
//
// The outputs are taken in windows of 64. A feature's weights for a window are neighbours in the table,
// wherever that is: at [feature][output], or where the class hash says. Inside a window the loops run over
// whole vectors of outputs; the last vector may overlap the one before it, computes the same there, and so
// needs no mask.
#pragma once
#include <string.h>

#include "class_hash.h"
#include "kernel_table.h"

namespace steepest {
namespace STEEPEST_ISA {

#if defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kMostVectors = 8;  // sums that fit into the registers
constexpr int kSpots = 32;       // features whose places are found at once

#if defined(__GNUC__)
template <typename W>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float Type __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorOf<double> {
  typedef double Type __attribute__((vector_size(kVectorBytes)));
};
#define UNROLL _Pragma("GCC unroll 8")
#else
template <typename W>
struct PlainVector {
  W lane[kVectorBytes / sizeof(W)];
  PlainVector operator*(W x) const {
    PlainVector r;
    for (int k = 0; k < static_cast<int>(kVectorBytes / sizeof(W)); ++k) r.lane[k] = lane[k] * x;
    return r;
  }
  PlainVector operator+(const PlainVector& other) const {
    PlainVector r;
    for (int k = 0; k < static_cast<int>(kVectorBytes / sizeof(W)); ++k) r.lane[k] = lane[k] + other.lane[k];
    return r;
  }
};
template <typename W>
struct VectorOf {
  typedef PlainVector<W> Type;
};
#define UNROLL
#endif

// Some features of a row: where their weights for a window start, and their values, with the sign of the
// hash.
template <typename W>
struct Spots {
  int64_t at[kSpots];
  W x[kSpots];
  int64_t n;
};

// Where the entries of the table stand.
struct Layout {
  int64_t stride;  // entries a feature; 0: all features share the table
  uint64_t mask;   // of the shared table
  int64_t second;  // from the first accumulator of an output to its second

  explicit Layout(const Rows& rows) {
    const bool shared = rows.table_bits > 0;
    stride = shared ? 0 : rows.stride;
    mask = (uint64_t{1} << rows.table_bits) - 1;
    second = shared ? table_entries(rows.table_bits) : rows.width;
  }

  template <typename W>
  inline void find(const int32_t* index, const float* value, int64_t n, int64_t window,
                   Spots<W>& spots) const {
    spots.n = n;
    if (stride) {
      for (int64_t e = 0; e < n; ++e) {
        spots.at[e] = index[e] * stride + window * kWindow;
        spots.x[e] = static_cast<W>(value[e]);
      }
      return;
    }
    for (int64_t e = 0; e < n; ++e) {
      const ClassPlace place =
          place_classes(static_cast<uint32_t>(index[e]), static_cast<uint32_t>(window), mask);
      spots.at[e] = place.first;
      spots.x[e] = static_cast<W>(place.negative ? -value[e] : value[e]);
    }
  }
};

template <typename V, typename W>
static inline V load(const W* from) {
  V v;
  memcpy(&v, from, sizeof v);
  return v;
}
template <typename V, typename W>
static inline void store(W* to, const V& v) {
  memcpy(to, &v, sizeof v);
}

// sum[lane] += V[at + lane] x, for lanes in kVectors vectors of which the last starts at `last`.
struct DotVectors {
  template <int kVectors, typename W>
  static inline void run(const W* v, const Spots<W>& spots, int64_t offset, int64_t last, W* sum) {
    typedef typename VectorOf<W>::Type V;
    constexpr int64_t N = kVectorBytes / sizeof(W);
    V total[kVectors];
    UNROLL for (int a = 0; a < kVectors - 1; ++a) total[a] = load<V>(sum + a * N);
    total[kVectors - 1] = load<V>(sum + last);
    for (int64_t e = 0; e < spots.n; ++e) {
      const W* w = v + spots.at[e] + offset;
      const W x = spots.x[e];
      UNROLL for (int a = 0; a < kVectors - 1; ++a) total[a] = total[a] + load<V>(w + a * N) * x;
      total[kVectors - 1] = total[kVectors - 1] + load<V>(w + last) * x;
    }
    UNROLL for (int a = 0; a < kVectors - 1; ++a) store(sum + a * N, total[a]);
    store(sum + last, total[kVectors - 1]);
  }
  template <int kLanes, typename W>
  static inline void run_few(const W* v, const Spots<W>& spots, int64_t offset, W* sum) {
    for (int64_t e = 0; e < spots.n; ++e) {
      const W* w = v + spots.at[e] + offset;
      for (int lane = 0; lane < kLanes; ++lane) sum[lane] += w[lane] * spots.x[e];
    }
  }
};

// V[at + lane] += slope[lane] x. All loads of a feature come before its stores, so that the overlap is right.
struct AddVectors {
  template <int kVectors, typename W>
  static inline void run(W* v, const Spots<W>& spots, int64_t offset, int64_t last, const W* slope) {
    typedef typename VectorOf<W>::Type V;
    constexpr int64_t N = kVectorBytes / sizeof(W);
    V step[kVectors];
    UNROLL for (int a = 0; a < kVectors - 1; ++a) step[a] = load<V>(slope + a * N);
    step[kVectors - 1] = load<V>(slope + last);
    for (int64_t e = 0; e < spots.n; ++e) {
      W* w = v + spots.at[e] + offset;
      const W x = spots.x[e];
      V moved[kVectors];
      UNROLL for (int a = 0; a < kVectors - 1; ++a) moved[a] = load<V>(w + a * N) + step[a] * x;
      moved[kVectors - 1] = load<V>(w + last) + step[kVectors - 1] * x;
      UNROLL for (int a = 0; a < kVectors - 1; ++a) store(w + a * N, moved[a]);
      store(w + last, moved[kVectors - 1]);
    }
  }
  template <int kLanes, typename W>
  static inline void run_few(W* v, const Spots<W>& spots, int64_t offset, const W* slope) {
    for (int64_t e = 0; e < spots.n; ++e) {
      W* w = v + spots.at[e] + offset;
      for (int lane = 0; lane < kLanes; ++lane) w[lane] += slope[lane] * spots.x[e];
    }
  }
};

// The loop whose number of vectors (or of lanes, if they do not fill one) is known when it is compiled.
template <typename Work, typename Pointer, typename W, typename Lanes>
static inline void run_stripe(Pointer v, const Spots<W>& spots, int64_t offset, int64_t n, Lanes lanes) {
  constexpr int64_t N = kVectorBytes / sizeof(W);
  if (n < N) {
    switch (n) {
      case 1:
        return Work::template run_few<1, W>(v, spots, offset, lanes);
      case 2:
        return Work::template run_few<2, W>(v, spots, offset, lanes);
      case 3:
        return Work::template run_few<3, W>(v, spots, offset, lanes);
      case 4:
        return Work::template run_few<4, W>(v, spots, offset, lanes);
      case 5:
        return Work::template run_few<5, W>(v, spots, offset, lanes);
      case 6:
        return Work::template run_few<6, W>(v, spots, offset, lanes);
      default:
        return Work::template run_few<7, W>(v, spots, offset, lanes);
    }
  }
  switch ((n + N - 1) / N) {
    case 1:
      return Work::template run<1, W>(v, spots, offset, n - N, lanes);
    case 2:
      return Work::template run<2, W>(v, spots, offset, n - N, lanes);
    case 3:
      return Work::template run<3, W>(v, spots, offset, n - N, lanes);
    case 4:
      return Work::template run<4, W>(v, spots, offset, n - N, lanes);
    case 5:
      return Work::template run<5, W>(v, spots, offset, n - N, lanes);
    case 6:
      return Work::template run<6, W>(v, spots, offset, n - N, lanes);
    case 7:
      return Work::template run<7, W>(v, spots, offset, n - N, lanes);
    default:
      return Work::template run<8, W>(v, spots, offset, n - N, lanes);
  }
}

// All outputs of a window, n of them, for the features in `spots`.
template <typename Work, typename Pointer, typename W, typename Lanes>
static inline void run_window(Pointer v, const Spots<W>& spots, int64_t n, Lanes lanes) {
  constexpr int64_t kStripe = kMostVectors * kVectorBytes / static_cast<int64_t>(sizeof(W));
  for (int64_t first = 0; first < n; first += kStripe)
    run_stripe<Work>(v, spots, first, n - first < kStripe ? n - first : kStripe, lanes + first);
}

}  // namespace STEEPEST_ISA
}  // namespace steepest
