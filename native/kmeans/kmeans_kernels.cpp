// SPDX-License-Identifier: Apache-2.0
// k-means: nearest centres of sparse and dense rows, and the two ways in which centres move.
//
// A sparse row needs |x|^2 + |c|^2 - 2 x.c, which costs its non-zeros only; a row of which more than half is
// not zero is spread out, and four of them together are compared by sum (x - c)^2, which has no cancellation.
// Which way is taken, and the order of additions, depend on the row alone: never on its neighbours, the
// chunk, or the thread. Hamerly (2010): a row whose bounds show that its centre is still the nearest is
// passed over. The bounds allow for every rounding error of the search, so the labels are those of the plain
// search, bit for bit.
//
// Compiled once per instruction set; no standard library templates, see linear_kernels.cpp.
#include <math.h>

#include "core/simd.h"
#include "kmeans/kmeans_table.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr double kEpsilon = 6e-8;  // of float32, rounded up
constexpr int64_t kPrefetchBytes = int64_t{1} << 20;
constexpr int64_t kAhead = 6;  // entries between a prefetch and its use

static inline bool is_dense(const Row& row, int64_t n_features) { return 2 * row.n > n_features; }

// |c|^2 - 2 x.c for P vectors of clusters. U independent sums hide the latency of the additions where P alone
// is too small for that.
template <int P, int U>
static void sparse_panels(const Row& row, const Centres& centres, int64_t first, bool far, float* out) {
  Float8 sums[U][P];
  for (int u = 0; u < U; ++u)
    for (int p = 0; p < P; ++p) sums[u][p] = all(0.0f);
  const float* const table = centres.table + first;
  const int64_t stride = centres.stride;
  int64_t e = 0;
  for (; e + U <= row.n; e += U) {
    if (far && e + U + kAhead <= row.n)
      for (int u = 0; u < U; ++u)
        for (int p = 0; p < P; p += 2) PREFETCH(table + row.index[e + u + kAhead] * stride + p * kLanes);
    for (int u = 0; u < U; ++u) {
      const float* const c = table + row.index[e + u] * stride;
      const Float8 x = all(row.value[e + u]);
      for (int p = 0; p < P; ++p) sums[u][p] = fma(x, load(c + p * kLanes), sums[u][p]);
    }
  }
  for (; e < row.n; ++e) {
    const float* const c = table + row.index[e] * stride;
    const Float8 x = all(row.value[e]);
    for (int p = 0; p < P; ++p) sums[0][p] = fma(x, load(c + p * kLanes), sums[0][p]);
  }
  for (int p = 0; p < P; ++p) {
    Float8 total = sums[0][p];
    for (int u = 1; u < U; ++u) total = add(total, sums[u][p]);
    const int64_t at = first + p * kLanes;
    const Float8 twice = mul(all(-2.0f), load(centres.scale + at));
    store(out + at, fma(twice, total, load(centres.norm + at)));
  }
}

constexpr int kSums[9] = {0, 4, 4, 3, 2, 2, 2, 1, 1};  // of so many vectors

template <int P>
static void sparse_group(int64_t n, const Row& row, const Centres& centres, int64_t first, bool far,
                         float* out) {
  if constexpr (P < 8)
    if (n > P) return sparse_group<P + 1>(n, row, centres, first, far, out);
  sparse_panels<P, kSums[P]>(row, centres, first, far, out);
}

static void sparse_row(const Row& row, const Centres& centres, bool far, float* out) {
  const int64_t panels = centres.stride / kLanes, groups = (panels + 7) / 8;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = panels * g / groups, end = panels * (g + 1) / groups;
    sparse_group<1>(end - begin, row, centres, begin * kLanes, far, out);
  }
}

// sum (x - c)^2 for four dense rows and P vectors of clusters.
template <int P>
static void dense_panels(const float* tile, int64_t n_features, const Centres& centres, int64_t first,
                         float* out) {
  Float8 sums[kTileRows][P], scale[P];
  for (int p = 0; p < P; ++p) {
    scale[p] = load(centres.scale + first + p * kLanes);
    for (int r = 0; r < kTileRows; ++r) sums[r][p] = all(0.0f);
  }
  for (int64_t j = 0; j < n_features; ++j) {
    Float8 c[P];
    for (int p = 0; p < P; ++p)
      c[p] = mul(scale[p], load(centres.table + j * centres.stride + first + p * kLanes));
    for (int r = 0; r < kTileRows; ++r) {
      const Float8 x = all(tile[r * n_features + j]);
      for (int p = 0; p < P; ++p) {
        const Float8 gap = sub(x, c[p]);
        sums[r][p] = fma(gap, gap, sums[r][p]);
      }
    }
  }
  for (int r = 0; r < kTileRows; ++r)
    for (int p = 0; p < P; ++p) store(out + r * centres.stride + first + p * kLanes, sums[r][p]);
}

// Dense rows wait here until there are enough of them to share one reading of the centres.
struct Tile {
  float* rows;       // kTileRows x n_features
  float* distances;  // kTileRows x stride
  int64_t n_features;
  int64_t visit[kTileRows];  // which visits wait
  int n;
};

static inline void put(Tile& tile, const Row& row, int64_t q) {
  float* const x = tile.rows + tile.n * tile.n_features;
  for (int64_t j = 0; j < tile.n_features; ++j) x[j] = 0;
  for (int64_t e = 0; e < row.n; ++e) x[row.index[e]] += row.value[e];
  tile.visit[tile.n++] = q;
}

static void measure(Tile& tile, const Centres& centres) {
  for (int r = tile.n; r < kTileRows; ++r)
    for (int64_t j = 0; j < tile.n_features; ++j) tile.rows[r * tile.n_features + j] = 0;
  int64_t first = 0;
  for (; first + 2 * kLanes <= centres.stride; first += 2 * kLanes)
    dense_panels<2>(tile.rows, tile.n_features, centres, first, tile.distances);
  if (first < centres.stride) dense_panels<1>(tile.rows, tile.n_features, centres, first, tile.distances);
}

// How far the computed squared distances may be from the true ones: |error| <= share * distance + most.
struct Error {
  double share;
  double most;
};

static inline Error error_of(const Row& row, int64_t n_features, double row_norm, double longest_norm) {
  if (is_dense(row, n_features)) return {kEpsilon * static_cast<double>(n_features + 16), 0.0};
  const double terms = static_cast<double>(row.n + 16);
  return {0.0, kEpsilon * (2 * terms * sqrt(row_norm * longest_norm) + 8 * (row_norm + longest_norm))};
}

// Moves the bounds with the centres; whether they show that no other centre can have come nearer.
static inline bool stays(const Bounds& bounds, const Row& row, int64_t n_features, int64_t q, int32_t label) {
  if (label < 0) return false;
  const double upper = bounds.upper[q] += bounds.drift[label];
  const double lower = bounds.lower[q] -= label == bounds.fastest ? bounds.other_drift : bounds.most_drift;
  if (!(upper < lower)) return false;
  const Error error = error_of(row, n_features, bounds.row_norm[q], bounds.longest_norm);
  return upper * upper * (1 + 2 * error.share) + 2 * error.most < lower * lower * (1 - 2 * error.share);
}

// The smallest and second smallest of k numbers, and which the smallest is.
static inline int32_t smallest_two(const float* distance, int64_t k, float& best, float& second) {
  int32_t label = -1;
  best = second = INFINITY;
  for (int64_t c = 0; c < k; ++c) {
    if (!(distance[c] < second)) continue;
    if (distance[c] < best) {
      second = best;
      best = distance[c];
      label = static_cast<int32_t>(c);
    } else {
      second = distance[c];
    }
  }
  return label;
}

// Measures the distances of those rows that `is_needed` and hands them to `use(q, row, distances, is_dense)`;
// those of a sparse row lack its own square. Stops where an index is out of range or `use` says so; returns
// that visit, or n.
template <typename IsNeeded, typename Use>
static int64_t measure_rows(const Rows& rows, const Centres& centres, float* scratch,
                            const IsNeeded& is_needed, const Use& use) {
  Tile tile = {scratch + kTileRows * centres.stride, scratch, rows.n_features, {}, 0};
  const bool far = rows.n_features * centres.stride * 4 > kPrefetchBytes;
  for (int64_t q = 0; q <= rows.n; ++q) {
    if (tile.n == kTileRows || (q == rows.n && tile.n)) {
      measure(tile, centres);
      for (int r = 0; r < tile.n; ++r) {
        const int64_t visit = tile.visit[r];
        if (!use(visit, row_in_turn(rows, visit), tile.distances + r * centres.stride, true)) return visit;
      }
      tile.n = 0;
    }
    if (q == rows.n) break;
    const Row row = row_in_turn(rows, q);
    if (!is_needed(q, row)) continue;
    if (!indices_fit(row, rows.n_features)) return q;
    if (is_dense(row, rows.n_features)) {
      put(tile, row, q);
      continue;
    }
    sparse_row(row, centres, far, tile.distances);
    if (!use(q, row, tile.distances, false)) return q;
  }
  return rows.n;
}

static Searched nearest(const Rows& rows, const Centres& centres, const Nearest& out, const Bounds* bounds,
                        float* scratch) {
  Searched searched = {};
  const auto is_needed = [&](int64_t q, const Row& row) {
    return !bounds || !stays(*bounds, row, rows.n_features, q, out.label[q]);
  };
  const auto note = [&](int64_t q, const Row& row, const float* distances, bool dense) {
    float smallest, next;
    const int32_t label = smallest_two(distances, centres.k, smallest, next);
    const double base = dense ? 0.0 : bounds ? bounds->row_norm[q] : squared_length(row.value, row.n);
    const double best = base + static_cast<double>(smallest), second = base + static_cast<double>(next);
    if (label < 0 || !(best < INFINITY)) return false;
    ++searched.measured;
    searched.changed += out.label[q] != label;
    out.label[q] = label;
    if (out.best) out.best[q] = best > 0 ? best : 0;
    if (bounds) {
      const Error error = error_of(row, rows.n_features, bounds->row_norm[q], bounds->longest_norm);
      const double above = best * (1 + error.share) + error.most,
                   below = second * (1 - error.share) - error.most;
      bounds->upper[q] = sqrt(above > 0 ? above : 0) * (1 + 1e-12);
      bounds->lower[q] = sqrt(below > 0 ? below : 0) * (1 - 1e-12);
    }
    return true;
  };
  searched.rows_done = measure_rows(rows, centres, scratch, is_needed, note);
  return searched;
}

static int64_t distances(const Rows& rows, const Centres& centres, double* out, float* scratch) {
  const int64_t k = centres.k;
  const auto is_needed = [](int64_t, const Row&) { return true; };
  const auto write = [&](int64_t q, const Row& row, const float* distances, bool dense) {
    const double base = dense ? 0.0 : squared_length(row.value, row.n);
    for (int64_t c = 0; c < k; ++c) {
      const double square = base + static_cast<double>(distances[c]);
      out[q * k + c] = square < 0 ? 0 : square;  // not max: what is not a number must stay so
    }
    return true;
  };
  return measure_rows(rows, centres, scratch, is_needed, write);
}

// The square of a sum's length moves by exactly what its float32 values do, so it never drifts away from
// them.
static int64_t add_rows(const Rows& rows, const int32_t* label, int64_t first, int64_t last,
                        const ClusterSums& sums) {
  for (int64_t q = 0; q < rows.n; ++q) {
    const int64_t c = label[q];
    if (c < first || c >= last) continue;
    const double weight = weight_at(rows, row_at(rows, q));
    if (weight == 0) continue;
    const Row row = row_in_turn(rows, q);
    if (!indices_fit(row, rows.n_features)) return q;
    float* const column = sums.table + c;
    if (sums.count[c] == 0) {  // the table holds where the search began, which is not a row's
      for (int64_t j = 0; j < rows.n_features; ++j) column[j * sums.stride] = 0;
      sums.square[c] = 0;
    }
    double gained = 0;
    for (int64_t e = 0; e < row.n; ++e) {
      float* const at = column + row.index[e] * sums.stride;
      const double old = *at;
      *at = static_cast<float>(old + weight * static_cast<double>(row.value[e]));
      gained += (static_cast<double>(*at) - old) * (static_cast<double>(*at) + old);
    }
    sums.square[c] += gained;
    sums.count[c] += weight;
  }
  return rows.n;
}

static Mean mean(const Rows& rows, double* sums, float* table, int64_t stride, int64_t c) {
  Mean result = {};
  for (int64_t q = 0; q < rows.n; ++q) {
    const double weight = weight_at(rows, row_at(rows, q));
    const Row row = row_in_turn(rows, q);
    if (!indices_fit(row, rows.n_features)) continue;  // the search has refused such a row before
    for (int64_t e = 0; e < row.n; ++e) sums[row.index[e]] += weight * static_cast<double>(row.value[e]);
    result.weight += weight;
  }
  const double share = result.weight > 0 ? 1 / result.weight : 0;
  double moved = 0;
  for (int64_t j = 0; j < rows.n_features; ++j) {
    float* const at = table + j * stride + c;
    const double old = *at;
    if (result.weight > 0) *at = static_cast<float>(sums[j] * share);
    sums[j] = 0;
    const double now = *at;
    result.norm += now * now;
    moved += (now - old) * (now - old);
  }
  result.drift = sqrt(moved);
  return result;
}

extern const KMeansTable kmeans_table;
const KMeansTable kmeans_table = {nearest, distances, add_rows, mean};

}  // namespace STEEPEST_ISA
}  // namespace steepest
