// SPDX-License-Identifier: Apache-2.0
// Networks: the sparse first layer, forward and backward, the update rules, and a product of dense matrices.
//
// A row costs O(non-zeros x units): its features' rows of the table are added up in registers. The gradient
// of a batch is gathered for the features that occur, and only their weights move; penalties are paid when a
// feature is next seen. This file is compiled once per instruction set, as linear_kernels.cpp is, and must
// not use standard library templates either.
#include <math.h>
#include <string.h>

#include "links.h"
#include "losses.h"
#include "network_table.h"
#include "row.h"

namespace steepest {
namespace STEEPEST_ISA {
namespace network {

// Features ahead of the one at work whose weights are fetched; measured on a table of 128 MB.
constexpr int64_t kAhead = 8;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kStampsOfLine = kLineBytes / 8;

static inline float root(float x) { return sqrtf(x); }
static inline double root(double x) { return sqrt(x); }

template <typename T>
static inline void fetch(const T* weights, int64_t n_units) {
  const char* address = reinterpret_cast<const char*>(weights);
  const int64_t bytes = n_units * static_cast<int64_t>(sizeof(T));
  for (int64_t at = 0; at < bytes; at += kLineBytes) PREFETCH(address + at);
}

// ------------------------------------------------------------------------------------------- lazy shrinkage

struct Debt {
  double factor;  // what is left of a weight under l2
  double less;    // and how far l1 then moves it towards zero
};

static inline Debt debt_of(const Shrinkage& s, double length) {
  const double factor = s.l2 > 0 ? exp(-s.l2 * length) : 1.0;
  return {factor, s.l2 > 0 ? s.l1 / s.l2 * (1.0 - factor) : s.l1 * length};
}

template <typename T>
static inline void pay(T* w, int64_t n_units, const Debt& debt) {
  const T factor = static_cast<T>(debt.factor), less = static_cast<T>(debt.less);
  if (less == 0) {
    for (int64_t k = 0; k < n_units; ++k) w[k] *= factor;
    return;
  }
  for (int64_t k = 0; k < n_units; ++k) {
    const T left = static_cast<T>(fabs(w[k])) * factor - less;
    w[k] = static_cast<T>(copysign(left > 0 ? left : 0, w[k]));
  }
}

template <typename T>
static void settle(const Shrinkage& s, const int32_t* features, int64_t n_rows, int64_t n_units,
                   void* table) {
  for (int64_t q = 0; q < n_rows; ++q) {
    const int64_t j = features ? features[q] : q;
    if (s.stamp[j] == s.path) continue;
    pay(static_cast<T*>(table) + j * n_units, n_units, debt_of(s, s.path - s.stamp[j]));
    s.stamp[j] = s.path;
  }
}

// --------------------------------------------------------------------------------- the first layer, forward

#if defined(__AVX2__)
// out[0 .. 8 N) = sum of value * table[index][first ..]: the sums stay in registers.
template <int N>
static inline void add_up_lanes(const float* table, const Row& row, int64_t n_units, float* out) {
  __m256 sum[N];
  for (int l = 0; l < N; ++l) sum[l] = _mm256_setzero_ps();
  for (int64_t k = 0; k < row.n; ++k) {
    const float* w = table + row.index[k] * n_units;
    const __m256 x = _mm256_set1_ps(row.value[k]);
    for (int l = 0; l < N; ++l) sum[l] = _mm256_fmadd_ps(x, _mm256_loadu_ps(w + 8 * l), sum[l]);
  }
  for (int l = 0; l < N; ++l) _mm256_storeu_ps(out + 8 * l, sum[l]);
}
#endif

template <typename T>
static inline void add_up(const T* table, const Row& row, int64_t n_units, T* out, int64_t first) {
  for (int64_t u = first; u < n_units; ++u) out[u] = 0;
  for (int64_t k = 0; k < row.n; ++k) {
    const T* w = table + row.index[k] * n_units;
    const T x = static_cast<T>(row.value[k]);
    for (int64_t u = first; u < n_units; ++u) out[u] += x * w[u];
  }
}

template <typename T>
static inline void row_times_table(const T* table, const Row& row, int64_t n_units, T* out) {
  add_up(table, row, n_units, out, 0);
}

#if defined(__AVX2__)
template <>
inline void row_times_table<float>(const float* table, const Row& row, int64_t n_units, float* out) {
  int64_t first = 0;
  for (; first + 64 <= n_units; first += 64) add_up_lanes<8>(table + first, row, n_units, out + first);
  for (; first + 32 <= n_units; first += 32) add_up_lanes<4>(table + first, row, n_units, out + first);
  for (; first + 8 <= n_units; first += 8) add_up_lanes<1>(table + first, row, n_units, out + first);
  if (first < n_units) add_up(table, row, n_units, out, first);
}
#endif

template <typename T>
static inline void fetch_row(const T* table, const Row& row, int64_t n_units) {
  for (int64_t k = 0; k < row.n; ++k) fetch(table + row.index[k] * n_units, n_units);
}

// Each thread settles features of its own, so that none is paid for twice.
template <typename T>
static int64_t settle_rows(const Rows& rows, const Share& share, const Shrinkage& s, int64_t n_units,
                           void* table) {
  T* w = static_cast<T*>(table);
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = row_in_turn(rows, q);
    if (!indices_fit(row, rows.n_features)) return q;
    for (int64_t k = 0; k < row.n; ++k) PREFETCH(s.stamp + row.index[k]);
    for (int64_t k = 0; k < row.n; ++k) {
      const int64_t j = row.index[k];
      if (j / kStampsOfLine % share.n != share.part || s.stamp[j] == s.path) continue;
      pay(w + j * n_units, n_units, debt_of(s, s.path - s.stamp[j]));
      s.stamp[j] = s.path;
    }
  }
  return rows.n;
}

// The weights of the next row are fetched while this one is added up.
template <typename T>
static int64_t forward(const Rows& rows, const void* table, int64_t n_units, void* out) {
  const T* w = static_cast<const T*>(table);
  if (rows.n == 0) return 0;
  Row row = row_in_turn(rows, 0);
  if (!indices_fit(row, rows.n_features)) return 0;
  fetch_row(w, row, n_units);
  for (int64_t q = 0; q < rows.n; ++q) {
    Row next = row;
    if (q + 1 < rows.n) {
      next = row_in_turn(rows, q + 1);
      if (!indices_fit(next, rows.n_features)) return q + 1;
      fetch_row(w, next, n_units);
    }
    row_times_table(w, row, n_units, static_cast<T*>(out) + q * n_units);
    row = next;
  }
  return rows.n;
}

template <typename T>
static int64_t scores(const Rows& rows, const void* table, int64_t n_units, const Shrinkage& s, void* out) {
  const T* weights = static_cast<const T*>(table);
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = row_in_turn(rows, q);
    if (!indices_fit(row, rows.n_features)) return q;
    T* sum = static_cast<T*>(out) + q * n_units;
    if (!s.stamp) {
      row_times_table(weights, row, n_units, sum);
      continue;
    }
    for (int64_t u = 0; u < n_units; ++u) sum[u] = 0;
    for (int64_t k = 0; k < row.n; ++k) {
      const int64_t j = row.index[k];
      const Debt debt = debt_of(s, s.path - s.stamp[j]);
      const T factor = static_cast<T>(debt.factor), less = static_cast<T>(debt.less);
      const T x = static_cast<T>(row.value[k]);
      const T* w = weights + j * n_units;
      for (int64_t u = 0; u < n_units; ++u) {
        const T left = static_cast<T>(fabs(w[u])) * factor - less;
        sum[u] += x * static_cast<T>(copysign(left > 0 ? left : 0, w[u]));
      }
    }
  }
  return rows.n;
}

// -------------------------------------------------------------------------------- the first layer, backward

template <typename T>
static inline void add_scaled(T* to, const T* from, T x, int64_t n) {
  for (int64_t u = 0; u < n; ++u) to[u] += x * from[u];
}

static int64_t places(const Rows& rows, int32_t* slot, int32_t* features, int32_t* place) {
  int64_t n_features = 0;
  bool fits = true;
  for (int64_t q = 0; q < rows.n && fits; ++q) {
    const Row row = row_in_turn(rows, q);
    fits = indices_fit(row, rows.n_features);
    for (int64_t k = 0; k < row.n && fits; ++k) {
      const int32_t j = row.index[k];
      if (k + kAhead < row.n) PREFETCH(slot + row.index[k + kAhead]);
      if (slot[j] >= 0) {
        *place++ = slot[j];
        continue;
      }
      slot[j] = static_cast<int32_t>(n_features);
      *place++ = ~slot[j];
      features[n_features++] = j;
    }
  }
  for (int64_t q = 0; q < n_features; ++q) slot[features[q]] = -1;
  return fits ? n_features : -1;
}

template <typename T>
static void gather(const Rows& rows, const int32_t* place, const void* slopes, int64_t n_units, int64_t first,
                   int64_t last, void* gradient) {
  T* const sums = static_cast<T*>(gradient) + first;
  const int64_t n = last - first;
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = row_in_turn(rows, q);
    const T* const slope = static_cast<const T*>(slopes) + q * n_units + first;
    for (int64_t k = 0; k < row.n; ++k) {
      const T x = static_cast<T>(row.value[k]);
      const int64_t at = *place++;
      if (at < 0) {
        T* const sum = sums + ~at * n_units;
        for (int64_t u = 0; u < n; ++u) sum[u] = x * slope[u];
      } else {
        add_scaled(sums + at * n_units, slope, x, n);
      }
    }
  }
}

// Plain steps need no sums: each entry of a row moves its feature's weights at once. Threads have features of
// their own, so that each weight is moved by one of them, in the order of the rows.
constexpr int64_t kPiece = 256;  // entries sorted out at a time

template <typename T>
static int64_t descend(const Rows& rows, const void* slopes, int64_t n_units, const Share& share, double eta,
                       void* table) {
  T* const w = static_cast<T*>(table);
  int32_t mine[kPiece];
  float value[kPiece];
  const uint32_t n_shares = static_cast<uint32_t>(share.n), own = static_cast<uint32_t>(share.part);
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = row_in_turn(rows, q);
    if (!indices_fit(row, rows.n_features)) return q;
    const T* const slope = static_cast<const T*>(slopes) + q * n_units;
    for (int64_t from = 0; from < row.n; from += kPiece) {
      const int64_t to = smaller(from + kPiece, row.n);
      int64_t n = 0;
      for (int64_t k = from; k < to; ++k) {  // without a branch that nobody could foresee
        mine[n] = row.index[k];
        value[n] = row.value[k];
        n += n_shares == 1 || static_cast<uint32_t>(row.index[k]) % n_shares == own;
      }
      for (int64_t k = 0; k < smaller(n, kAhead); ++k) fetch(w + mine[k] * n_units, n_units);
      for (int64_t k = 0; k < n; ++k) {
        if (k + kAhead < n) fetch(w + mine[k + kAhead] * n_units, n_units);
        add_scaled(w + mine[k] * n_units, slope, static_cast<T>(-eta * value[k]), n_units);
      }
    }
  }
  return rows.n;
}

template <typename T>
static inline void move(const Update& u, const T* g, T* w, T* first, T* second, int64_t n) {
  const T eta = static_cast<T>(u.eta), epsilon = static_cast<T>(u.epsilon);
  const T keep = static_cast<T>(u.keep_first);
  switch (u.kind) {
    case kPlain:
      for (int64_t k = 0; k < n; ++k) w[k] -= eta * g[k];
      return;
    case kMomentum:
      for (int64_t k = 0; k < n; ++k) {
        first[k] = keep * first[k] + g[k];
        w[k] -= eta * first[k];
      }
      return;
    case kAdaGrad:
      for (int64_t k = 0; k < n; ++k) {
        second[k] += g[k] * g[k];
        w[k] -= eta * g[k] / (root(second[k]) + epsilon);
      }
      return;
    default: {
      const T keep_square = static_cast<T>(u.keep_second);
      const T step = static_cast<T>(u.eta / u.first_seen);
      const T scale = static_cast<T>(1.0 / sqrt(u.second_seen));
      for (int64_t k = 0; k < n; ++k) {
        first[k] = keep * first[k] + (1 - keep) * g[k];
        second[k] = keep_square * second[k] + (1 - keep_square) * (g[k] * g[k]);
        w[k] -= step * first[k] / (root(second[k]) * scale + epsilon);
      }
    }
  }
}

template <typename T>
static void update(const Update& u, const int32_t* features, int64_t n_rows, int64_t n_units,
                   const void* gradient, void* table, void* first, void* second) {
  const T* g = static_cast<const T*>(gradient);
  T *w = static_cast<T*>(table), *mean = static_cast<T*>(first), *square = static_cast<T*>(second);
  if (!features) {
    move(u, g, w, mean, square, n_rows * n_units);
    return;
  }
  for (int64_t q = 0; q < n_rows; ++q) {
    const int64_t at = features[q] * n_units;
    if (q + kAhead < n_rows) {
      const int64_t next = features[q + kAhead] * n_units;
      fetch(w + next, n_units);
      if (mean) fetch(mean + next, n_units);
      if (square) fetch(square + next, n_units);
    }
    move(u, g + q * n_units, w + at, mean ? mean + at : mean, square ? square + at : square, n_units);
  }
}

// ---------------------------------------------------------------------------------------------- the loss

template <typename T>
static void softmax(const void* scores, int64_t n, int64_t k, const int64_t* classes, const double* factor,
                    double* losses, void* slopes) {
  for (int64_t q = 0; q < n; ++q) {
    const T* const s = static_cast<const T*>(scores) + q * k;
    T* const slope = static_cast<T*>(slopes) + q * k;
    double most = s[0], total = 0;
    for (int64_t u = 1; u < k; ++u) most = s[u] > most ? s[u] : most;
    for (int64_t u = 0; u < k; ++u) {
      const double e = exp(s[u] - most);
      slope[u] = static_cast<T>(e);
      total += e;
    }
    const int64_t own = classes[q];
    losses[q] = log(total) - (s[own] - most);
    const double missing = 1.0 - exp(s[own] - most) / total;
    const T share = static_cast<T>(factor[q] / total);
    for (int64_t u = 0; u < k; ++u) slope[u] *= share;
    slope[own] = static_cast<T>(-missing * factor[q]);
  }
}

template <typename T>
static void losses(const Answers& a, int64_t first, int64_t n, const void* outputs, const double* factor,
                   double* losses, void* slopes) {
  const int64_t k = a.n_outputs;
  for (int64_t q = 0; q < n; ++q) {
    losses[q] = 0;
    for (int64_t u = 0; u < k; ++u) {
      const double output = static_cast<const T*>(outputs)[q * k + u], shift = a.shift[u], scale = a.scale[u];
      const double y = !a.classes ? a.y[(first + q) * k + u] : a.classes[first + q] == u ? 1.0 : -1.0;
      const LossAndSlope found = evaluate_loss(a.loss, a.parameter, shift + scale * output, y);
      losses[q] += found.value;
      const double slope =
          a.is_real ? evaluate_loss(a.loss, a.slope_parameter[u], output, (y - shift) / scale).slope
                    : found.slope;
      static_cast<T*>(slopes)[q * k + u] = static_cast<T>(slope * factor[q]);
    }
  }
}

// -------------------------------------------------------------------------------------- links and penalties

template <typename T>
static void activate(int32_t link, const void* bias, int64_t n, int64_t size, void* z, void* h) {
  T* const sums = static_cast<T*>(z);
  for (int64_t q = 0; q < n && bias; ++q)
    for (int64_t u = 0; u < size; ++u) sums[q * size + u] += static_cast<const T*>(bias)[u];
  apply_link(link, sums, n * size, static_cast<T*>(h));
}

template <typename T>
static void pass_back(int32_t link, const void* z, const void* h, int64_t n, void* slope) {
  STEEPEST_ISA::pass_back(link, static_cast<const T*>(z), static_cast<const T*>(h), n,
                          static_cast<T*>(slope));
}

template <typename T>
static void add(const void* from, int64_t n, void* to) {
  for (int64_t k = 0; k < n; ++k) static_cast<T*>(to)[k] += static_cast<const T*>(from)[k];
}

template <typename T>
static void sum_rows(const void* rows, int64_t n, int64_t size, void* out) {
  for (int64_t u = 0; u < size; ++u) static_cast<T*>(out)[u] = 0;
  for (int64_t q = 0; q < n; ++q) add<T>(static_cast<const T*>(rows) + q * size, size, out);
}

template <typename T>
static void transpose(const void* a, int64_t m, int64_t n, void* out) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) static_cast<T*>(out)[j * m + i] = static_cast<const T*>(a)[i * n + j];
}

template <typename T>
static void shrink(double l1, double l2, double length, int64_t n, void* weights) {
  pay(static_cast<T*>(weights), n, debt_of({nullptr, 0, l1, l2}, length));
}

// ------------------------------------------------------------------------------------------- dense matrices

template <typename T>
static int64_t densify(const Rows& rows, void* out, uint8_t* used) {
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = row_in_turn(rows, q);
    if (!indices_fit(row, rows.n_features)) return q;
    T* x = static_cast<T*>(out) + q * rows.n_features;
    for (int64_t k = 0; k < row.n; ++k) {
      x[row.index[k]] += static_cast<T>(row.value[k]);  // a feature may stand twice in a row
      used[row.index[k]] = 1;
    }
  }
  return rows.n;
}

template <typename T>
static inline T entry(const Product& q, int64_t i, int64_t k) {
  const T* a = static_cast<const T*>(q.a);
  return q.a_is_transposed ? a[k * q.m + i] : a[i * q.p + k];
}

template <typename T>
static void multiply(const Product& q) {
  for (int64_t i = q.first; i < q.last; ++i) {
    T* c = static_cast<T*>(q.c) + i * q.n;
    for (int64_t j = 0; j < q.n; ++j) c[j] = 0;
    for (int64_t k = 0; k < q.p; ++k)
      add_scaled(c, static_cast<const T*>(q.b) + k * q.n, entry<T>(q, i, k), q.n);
  }
}

#if defined(__AVX2__)
constexpr int kTileRows = 6;
constexpr int64_t kTileColumns = 16;
constexpr int64_t kDepth = 256;  // a strip of B of this depth stays in the first-level cache

static const int32_t kLaneMasks[16] = {-1, -1, -1, -1, -1, -1, -1, -1};  // eight lanes on, then eight off

static inline __m256i lanes_on(int64_t n) {
  const int64_t on = n < 0 ? 0 : smaller(n, 8);
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneMasks + 8 - on));
}

// A tile of C, R x 16, taken on by `depth` more terms; `mask` tells which columns there are.
template <int R, bool kMasked>
static inline void add_tile(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t n,
                            float* c, int64_t depth, bool is_first, __m256i left, __m256i right) {
  __m256 sum[R][2];
  for (int r = 0; r < R; ++r) {
    if (is_first) {
      sum[r][0] = sum[r][1] = _mm256_setzero_ps();
    } else if (kMasked) {
      sum[r][0] = _mm256_maskload_ps(c + r * n, left);
      sum[r][1] = _mm256_maskload_ps(c + r * n + 8, right);
    } else {
      sum[r][0] = _mm256_loadu_ps(c + r * n);
      sum[r][1] = _mm256_loadu_ps(c + r * n + 8);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    const float* row = b + k * n;
    const __m256 b0 = kMasked ? _mm256_maskload_ps(row, left) : _mm256_loadu_ps(row);
    const __m256 b1 = kMasked ? _mm256_maskload_ps(row + 8, right) : _mm256_loadu_ps(row + 8);
    for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_broadcast_ss(a + r * a_row + k * a_step);
      sum[r][0] = _mm256_fmadd_ps(x, b0, sum[r][0]);
      sum[r][1] = _mm256_fmadd_ps(x, b1, sum[r][1]);
    }
  }
  for (int r = 0; r < R; ++r) {
    if (kMasked) {
      _mm256_maskstore_ps(c + r * n, left, sum[r][0]);
      _mm256_maskstore_ps(c + r * n + 8, right, sum[r][1]);
    } else {
      _mm256_storeu_ps(c + r * n, sum[r][0]);
      _mm256_storeu_ps(c + r * n + 8, sum[r][1]);
    }
  }
}

template <bool kMasked>
static inline void add_strip(const Product& q, int64_t column, int64_t from, int64_t depth) {
  const int64_t a_row = q.a_is_transposed ? 1 : q.p, a_step = q.a_is_transposed ? q.m : 1;
  const float* a = static_cast<const float*>(q.a) + from * a_step;
  const float* b = static_cast<const float*>(q.b) + from * q.n + column;
  float* c = static_cast<float*>(q.c) + column;
  const __m256i left = lanes_on(q.n - column), right = lanes_on(q.n - column - 8);
  int64_t i = q.first;
  for (; i + kTileRows <= q.last; i += kTileRows)
    add_tile<kTileRows, kMasked>(a + i * a_row, a_row, a_step, b, q.n, c + i * q.n, depth, from == 0, left,
                                 right);
  for (; i < q.last; ++i)
    add_tile<1, kMasked>(a + i * a_row, a_row, a_step, b, q.n, c + i * q.n, depth, from == 0, left, right);
}

template <>
void multiply<float>(const Product& q) {
  float* const c = static_cast<float*>(q.c) + q.first * q.n;
  if (q.p == 0) memset(c, 0, static_cast<size_t>((q.last - q.first) * q.n) * sizeof(float));
  for (int64_t from = 0; from < q.p; from += kDepth) {
    const int64_t depth = smaller(kDepth, q.p - from);
    int64_t column = 0;
    for (; column + kTileColumns <= q.n; column += kTileColumns) add_strip<false>(q, column, from, depth);
    if (column < q.n) add_strip<true>(q, column, from, depth);
  }
}
#endif

}  // namespace network

extern const NetworkTable network_table;
const NetworkTable network_table = {
    {network::settle_rows<float>, network::settle_rows<double>},
    {network::forward<float>, network::forward<double>},
    {network::scores<float>, network::scores<double>},
    network::places,
    {network::gather<float>, network::gather<double>},
    {network::update<float>, network::update<double>},
    {network::settle<float>, network::settle<double>},
    {network::densify<float>, network::densify<double>},
    {network::multiply<float>, network::multiply<double>},
    {network::descend<float>, network::descend<double>},
    {network::softmax<float>, network::softmax<double>},
    {network::losses<float>, network::losses<double>},
    {network::activate<float>, network::activate<double>},
    {network::pass_back<float>, network::pass_back<double>},
    {network::add<float>, network::add<double>},
    {network::sum_rows<float>, network::sum_rows<double>},
    {network::transpose<float>, network::transpose<double>},
    {network::shrink<float>, network::shrink<double>},
};

}  // namespace STEEPEST_ISA
}  // namespace steepest
