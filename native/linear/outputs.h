// SPDX-License-Identifier: Apache-2.0
// Many outputs of one feature at once: where their weights are, and the sums over a row's features.
//
// The outputs are taken in windows of 64. A feature's weights for a window are neighbours in the table,
// wherever that is: at [feature][output], or where the class hash says. Inside a window the loops run over
// whole vectors of outputs; the last vector may overlap the one before it, computes the same there, and so
// needs no mask.
#pragma once
#include "core/simd.h"
#include "linear/class_hash.h"
#include "linear/linear_table.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr int kMostVectors = 8 / kVectorRegisters;  // sums that fit into the registers
constexpr int kSpots = 32;                          // features whose places are found at once

// Some features of a row: where their weights for a window start, and their values, with the sign of the
// hash.
template <typename W>
struct Spots {
  int64_t at[kSpots];
  W x[kSpots];
  int64_t n;
};

// Where the entries of the table are.
struct Layout {
  int64_t stride;  // entries per feature; 0: all features share the table
  uint64_t mask;   // of the shared table
  int64_t second;  // from the first accumulator of an output to its second

  explicit Layout(const TableShape& shape)
      : stride(shape.table_bits ? 0 : shape.stride),
        mask((uint64_t{1} << shape.table_bits) - 1),
        second(shape.table_bits ? table_entries(shape.table_bits) : shape.width) {}

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

  // Calls work(spots) for all features of a row, some at a time.
  template <typename W, typename Work>
  inline void each(const Row& row, int64_t window, Work work) const {
    Spots<W> spots;
    for (int64_t e = 0; e < row.n; e += kSpots) {
      find(row.index + e, row.value + e, smaller(kSpots, row.n - e), window, spots);
      work(spots);
    }
  }
};

// sum[lane] += V[at + lane] x, for lanes in kVectors vectors of which the last starts at `last`.
struct DotVectors {
  template <int kVectors, typename W>
  static inline void run(const W* v, const Spots<W>& spots, int64_t offset, int64_t last, W* sum) {
    typedef decltype(load(sum)) V;
    constexpr int64_t N = kVectorBytes / sizeof(W);
    V total[kVectors];
    UNROLL for (int a = 0; a < kVectors - 1; ++a) total[a] = load(sum + a * N);
    total[kVectors - 1] = load(sum + last);
    for (int64_t e = 0; e < spots.n; ++e) {
      const W* w = v + spots.at[e] + offset;
      const V x = all(spots.x[e]);
      UNROLL for (int a = 0; a < kVectors - 1; ++a) total[a] = add(total[a], mul(load(w + a * N), x));
      total[kVectors - 1] = add(total[kVectors - 1], mul(load(w + last), x));
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

// V[at + lane] += gradient[lane] x. All loads of a feature come before its stores, so that the overlap is
// right.
struct AddVectors {
  template <int kVectors, typename W>
  static inline void run(W* v, const Spots<W>& spots, int64_t offset, int64_t last, const W* gradient) {
    typedef decltype(load(gradient)) V;
    constexpr int64_t N = kVectorBytes / sizeof(W);
    V step[kVectors];
    UNROLL for (int a = 0; a < kVectors - 1; ++a) step[a] = load(gradient + a * N);
    step[kVectors - 1] = load(gradient + last);
    for (int64_t e = 0; e < spots.n; ++e) {
      W* w = v + spots.at[e] + offset;
      const V x = all(spots.x[e]);
      V moved[kVectors];
      UNROLL for (int a = 0; a < kVectors - 1; ++a) moved[a] = add(load(w + a * N), mul(step[a], x));
      moved[kVectors - 1] = add(load(w + last), mul(step[kVectors - 1], x));
      UNROLL for (int a = 0; a < kVectors - 1; ++a) store(w + a * N, moved[a]);
      store(w + last, moved[kVectors - 1]);
    }
  }
  template <int kLanes, typename W>
  static inline void run_few(W* v, const Spots<W>& spots, int64_t offset, const W* gradient) {
    for (int64_t e = 0; e < spots.n; ++e) {
      W* w = v + spots.at[e] + offset;
      for (int lane = 0; lane < kLanes; ++lane) w[lane] += gradient[lane] * spots.x[e];
    }
  }
};

// The loop whose number of vectors (or of lanes, if they do not fill one) is known when it is compiled.
template <typename Work, typename Pointer, typename W, typename Lanes>
static inline void run_stripe(Pointer v, const Spots<W>& spots, int64_t offset, int64_t n, Lanes lanes) {
  constexpr int64_t N = kVectorBytes / sizeof(W);
#define FEW(lanes_left) \
  case lanes_left:      \
    return Work::template run_few<lanes_left, W>(v, spots, offset, lanes);
#define FULL(vectors) \
  case vectors:       \
    return Work::template run<vectors, W>(v, spots, offset, n - N, lanes);
  // clang-format off
  if (n < N) {
    switch (n) { FEW(1) FEW(2) FEW(3) FEW(4) FEW(5) FEW(6) FEW(7) }
  }
  switch ((n + N - 1) / N) { FULL(1) FULL(2) FULL(3) FULL(4) FULL(5) FULL(6) FULL(7) FULL(8) }
  // clang-format on
#undef FEW
#undef FULL
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
