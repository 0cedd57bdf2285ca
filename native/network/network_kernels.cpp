// SPDX-License-Identifier: Apache-2.0
// Networks: the sparse first layer, forward and backward, the solvers, and a product of dense matrices.
//
// A row costs O(non-zeros x units): its features' rows of the table are added up in registers. The gradient
// of a batch is gathered for the features that occur, and only their weights move; penalties are paid when a
// feature is next seen. This file is compiled once per instruction set, as linear_kernels.cpp is, and must
// not use standard library templates either.
#include <math.h>
#include <string.h>

#include "core/simd.h"
#include "linear/losses.h"
#include "network/links.h"
#include "network/network_table.h"

namespace steepest {
namespace STEEPEST_ISA {
namespace network {

// Features ahead of the one at work whose weights are fetched; measured on a table of 128 MB.
constexpr int64_t kAhead = 8;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kStampsOfLine = kLineBytes / 8;
constexpr int64_t kPiece = 256;  // entries sorted out at a time

template <typename T>
static inline void fetch(const T* weights, int64_t n_units) {
  const char* address = reinterpret_cast<const char*>(weights);
  const int64_t bytes = n_units * static_cast<int64_t>(sizeof(T));
  for (int64_t at = 0; at < bytes; at += kLineBytes) PREFETCH(address + at);
}

struct Debt {
  double factor;  // what is left of a weight under l2
  double less;    // and how far l1 then moves it towards zero
};

static inline Debt debt_of(const Shrinkage& s, double length) {
  const double factor = s.l2 > 0 ? exp(-s.l2 * length) : 1.0;
  return {factor, s.l2 > 0 ? s.l1 / s.l2 * (1.0 - factor) : s.l1 * length};
}

template <typename T>
static inline void add_up(const Matrix<const T>& table, const Row& row, T* out, int64_t first) {
  const int64_t n_units = table.n_columns;
  for (int64_t u = first; u < n_units; ++u) out[u] = 0;
  for (int64_t k = 0; k < row.n; ++k) {
    const T* w = table.row(row.index[k]);
    const T x = static_cast<T>(row.value[k]);
    for (int64_t u = first; u < n_units; ++u) out[u] += x * w[u];
  }
}

static inline void row_times_table(const Matrix<const double>& table, const Row& row, double* out) {
  add_up(table, row, out, 0);
}

// The next 8 N units: the sums stay in registers.
template <int N>
static inline void add_up_vectors(const Matrix<const float>& table, const Row& row, float* out,
                                  int64_t& first) {
  for (; first + 8 * N <= table.n_columns; first += 8 * N) {
    Float8 sums[N];
    for (int l = 0; l < N; ++l) sums[l] = all(0.0f);
    for (int64_t k = 0; k < row.n; ++k) {
      const float* w = table.row(row.index[k]) + first;
      const Float8 x = all(row.value[k]);
      for (int l = 0; l < N; ++l) sums[l] = fma(x, load(w + 8 * l), sums[l]);
    }
    for (int l = 0; l < N; ++l) store(out + first + 8 * l, sums[l]);
  }
}

static inline void row_times_table(const Matrix<const float>& table, const Row& row, float* out) {
  int64_t first = 0;
  add_up_vectors<8>(table, row, out, first);
  add_up_vectors<4>(table, row, out, first);
  add_up_vectors<1>(table, row, out, first);
  if (first < table.n_columns) add_up(table, row, out, first);
}

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
      if (0 <= slot[j] && slot[j] < n_features) {  // more would be what a caller left there
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

// ------------------------------------------------------------------------------------------- dense product

template <typename T>
static void multiply(const Product<T>& q) {
  for (int64_t i = q.first; i < q.last; ++i) {
    T* c = q.c + i * q.n;
    for (int64_t j = 0; j < q.n; ++j) c[j] = 0;
    for (int64_t k = 0; k < q.p; ++k)
      add_scaled(c, q.b + k * q.n, q.a_is_transposed ? q.a[k * q.m + i] : q.a[i * q.p + k], q.n);
  }
}

#if defined(__AVX2__)
constexpr int kTileRows = 6;
constexpr int64_t kTileColumns = 16;
constexpr int64_t kDepth = 256;  // a strip of B of this depth stays in the first-level cache

// Sixteen columns of C, taken on by `depth` more terms; the masks say which columns there are.
template <bool kMasked>
struct Strip {
  const Product<float>& q;
  const int64_t column, from, depth;
  const int64_t n_columns = smaller(q.n - column, kTileColumns);
  const __m256i left = lanes_on(smaller(n_columns, 8)), right = lanes_on(n_columns - smaller(n_columns, 8));

  static ALWAYS_INLINE Float8 get(const float* at, __m256i mask) {
    return kMasked ? _mm256_maskload_ps(at, mask) : load(at);
  }
  static ALWAYS_INLINE void put(float* at, __m256i mask, Float8 value) {
    if (kMasked)
      _mm256_maskstore_ps(at, mask, value);
    else
      store(at, value);
  }

  // R rows from i on.
  template <int R>
  ALWAYS_INLINE void add_rows(int64_t i) const {
    const int64_t n = q.n, a_row = q.a_is_transposed ? 1 : q.p, a_step = q.a_is_transposed ? q.m : 1;
    const float *a = q.a + from * a_step + i * a_row, *b = q.b + from * n + column;
    float* const c = q.c + i * n + column;
    Float8 sum[R][2];
    for (int r = 0; r < R; ++r) {
      sum[r][0] = from == 0 ? all(0.0f) : get(c + r * n, left);
      sum[r][1] = from == 0 ? all(0.0f) : get(c + r * n + 8, right);
    }
    for (int64_t k = 0; k < depth; ++k, b += n) {
      const Float8 b0 = get(b, left), b1 = get(b + 8, right);
      for (int r = 0; r < R; ++r) {
        const Float8 x = all(a[r * a_row + k * a_step]);
        sum[r][0] = fma(x, b0, sum[r][0]);
        sum[r][1] = fma(x, b1, sum[r][1]);
      }
    }
    for (int r = 0; r < R; ++r) {
      put(c + r * n, left, sum[r][0]);
      put(c + r * n + 8, right, sum[r][1]);
    }
  }

  void add() const {
    int64_t i = q.first;
    for (; i + kTileRows <= q.last; i += kTileRows) add_rows<kTileRows>(i);
    for (; i < q.last; ++i) add_rows<1>(i);
  }
};

template <>
void multiply<float>(const Product<float>& q) {
  if (q.p == 0) memset(q.c + q.first * q.n, 0, static_cast<size_t>((q.last - q.first) * q.n) * sizeof(float));
  for (int64_t from = 0; from < q.p; from += kDepth) {
    const int64_t depth = smaller(kDepth, q.p - from);
    int64_t column = 0;
    for (; column + kTileColumns <= q.n; column += kTileColumns) Strip<false>{q, column, from, depth}.add();
    if (column < q.n) Strip<true>{q, column, from, depth}.add();
  }
}
#endif

template <typename T>
struct Loops {
  // ----------------------------------------------------------------------------------------- lazy shrinkage

  static inline T shrunk(T w, T factor, T less) {
    const T left = static_cast<T>(fabs(w)) * factor - less;
    return static_cast<T>(copysign(left > 0 ? left : 0, w));
  }

  static inline void pay(T* w, int64_t n_units, const Debt& debt) {
    const T factor = static_cast<T>(debt.factor), less = static_cast<T>(debt.less);
    if (less == 0) {
      for (int64_t k = 0; k < n_units; ++k) w[k] *= factor;
      return;
    }
    for (int64_t k = 0; k < n_units; ++k) w[k] = shrunk(w[k], factor, less);
  }

  static inline void pay_feature(const Shrinkage& s, int64_t j, const Matrix<T>& table) {
    if (s.stamp[j] == s.path) return;
    pay(table.row(j), table.n_columns, debt_of(s, s.path - s.stamp[j]));
    s.stamp[j] = s.path;
  }

  static void pay_listed(const Shrinkage& s, const int32_t* features, int64_t n, const Matrix<T>& table) {
    for (int64_t q = 0; q < n; ++q) pay_feature(s, features ? features[q] : q, table);
  }

  // Each thread pays for features of its own, so that none is paid for twice.
  static int64_t pay_rows(const Rows& rows, const Share& share, const Shrinkage& s, const Matrix<T>& table) {
    for (int64_t q = 0; q < rows.n; ++q) {
      const Row row = row_in_turn(rows, q);
      if (!indices_fit(row, rows.n_features)) return q;
      for (int64_t k = 0; k < row.n; ++k) PREFETCH(s.stamp + row.index[k]);
      for (int64_t k = 0; k < row.n; ++k)
        if (row.index[k] / kStampsOfLine % share.n == share.part) pay_feature(s, row.index[k], table);
    }
    return rows.n;
  }

  static void pay_all(const Shrinkage& s, double length, int64_t n, T* weights) {
    pay(weights, n, debt_of(s, length));
  }

  // ------------------------------------------------------------------------------- the first layer, forward

  static inline void fetch_row(const Matrix<const T>& table, const Row& row) {
    for (int64_t k = 0; k < row.n; ++k) fetch(table.row(row.index[k]), table.n_columns);
  }

  // The weights of the next row are fetched while this one is added up.
  static int64_t forward(const Rows& rows, const Matrix<const T>& table, T* out) {
    if (rows.n == 0) return 0;
    Row row = row_in_turn(rows, 0);
    if (!indices_fit(row, rows.n_features)) return 0;
    fetch_row(table, row);
    for (int64_t q = 0; q < rows.n; ++q) {
      Row next = row;
      if (q + 1 < rows.n) {
        next = row_in_turn(rows, q + 1);
        if (!indices_fit(next, rows.n_features)) return q + 1;
        fetch_row(table, next);
      }
      row_times_table(table, row, out + q * table.n_columns);
      row = next;
    }
    return rows.n;
  }

  static int64_t scores(const Rows& rows, const Matrix<const T>& table, const Shrinkage& s, T* out) {
    if (!s.stamp) return forward(rows, table, out);
    const int64_t n_units = table.n_columns;
    for (int64_t q = 0; q < rows.n; ++q) {
      const Row row = row_in_turn(rows, q);
      if (!indices_fit(row, rows.n_features)) return q;
      T* sum = out + q * n_units;
      for (int64_t u = 0; u < n_units; ++u) sum[u] = 0;
      for (int64_t k = 0; k < row.n; ++k) {
        const Debt debt = debt_of(s, s.path - s.stamp[row.index[k]]);
        const T factor = static_cast<T>(debt.factor), less = static_cast<T>(debt.less);
        const T x = static_cast<T>(row.value[k]);
        const T* w = table.row(row.index[k]);
        for (int64_t u = 0; u < n_units; ++u) sum[u] += x * shrunk(w[u], factor, less);
      }
    }
    return rows.n;
  }

  // ------------------------------------------------------------------------------ the first layer, backward

  static void gather(const Rows& rows, const int32_t* place, const Matrix<const T>& gradients, int64_t first,
                     int64_t last, T* sums) {
    const int64_t n = last - first;
    for (int64_t q = 0; q < rows.n; ++q) {
      const Row row = row_in_turn(rows, q);
      const T* const gradient = gradients.row(q) + first;
      for (int64_t k = 0; k < row.n; ++k) {
        const T x = static_cast<T>(row.value[k]);
        const int64_t at = *place++;
        T* const sum = sums + (at < 0 ? ~at : at) * gradients.n_columns + first;
        if (at < 0)
          for (int64_t u = 0; u < n; ++u) sum[u] = x * gradient[u];
        else
          add_scaled(sum, gradient, x, n);
      }
    }
  }

  // Plain steps need no sums: each entry of a row moves its feature's weights at once. Threads have features
  // of their own, so that each weight is moved by one of them, in the order of the rows.
  static int64_t descend(const Rows& rows, const T* gradients, const Share& share, double eta,
                         const Matrix<T>& table) {
    const int64_t n_units = table.n_columns;
    int32_t mine[kPiece];
    float value[kPiece];
    const uint32_t n_shares = static_cast<uint32_t>(share.n), own = static_cast<uint32_t>(share.part);
    for (int64_t q = 0; q < rows.n; ++q) {
      const Row row = row_in_turn(rows, q);
      if (!indices_fit(row, rows.n_features)) return q;
      const T* const gradient = gradients + q * n_units;
      for (int64_t from = 0; from < row.n; from += kPiece) {
        const int64_t to = smaller(from + kPiece, row.n);
        int64_t n = 0;
        for (int64_t k = from; k < to; ++k) {  // without a branch that nobody could foresee
          mine[n] = row.index[k];
          value[n] = row.value[k];
          n += n_shares == 1 || static_cast<uint32_t>(row.index[k]) % n_shares == own;
        }
        for (int64_t k = 0; k < smaller(n, kAhead); ++k) fetch(table.row(mine[k]), n_units);
        for (int64_t k = 0; k < n; ++k) {
          if (k + kAhead < n) fetch(table.row(mine[k + kAhead]), n_units);
          add_scaled(table.row(mine[k]), gradient, static_cast<T>(-eta * value[k]), n_units);
        }
      }
    }
    return rows.n;
  }

  static inline void move(const Step& s, const T* g, T* w, T* first, T* second, int64_t n) {
    const T eta = static_cast<T>(s.eta), epsilon = static_cast<T>(s.choices.epsilon);
    const T keep = static_cast<T>(s.choices.keep_first);
    switch (s.choices.kind) {
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
        const T keep_square = static_cast<T>(s.choices.keep_second);
        const T step = static_cast<T>(s.eta / s.first_seen);
        const T scale = static_cast<T>(1.0 / sqrt(s.second_seen));
        for (int64_t k = 0; k < n; ++k) {
          first[k] = keep * first[k] + (1 - keep) * g[k];
          second[k] = keep_square * second[k] + (1 - keep_square) * (g[k] * g[k]);
          w[k] -= step * first[k] / (root(second[k]) * scale + epsilon);
        }
      }
    }
  }

  static void update(const Step& s, const int32_t* features, int64_t n, const T* gradient,
                     const Weights<T>& weights) {
    const int64_t n_units = weights.table.n_columns;
    T *const w = weights.table.data, *const first = weights.first, *const second = weights.second;
    if (!features) return move(s, gradient, w, first, second, n * n_units);
    for (int64_t q = 0; q < n; ++q) {
      const int64_t at = features[q] * n_units;
      if (q + kAhead < n) {
        const int64_t next = features[q + kAhead] * n_units;
        fetch(w + next, n_units);
        if (first) fetch(first + next, n_units);
        if (second) fetch(second + next, n_units);
      }
      move(s, gradient + q * n_units, w + at, first ? first + at : first, second ? second + at : second,
           n_units);
    }
  }

  // ----------------------------------------------------------------------------------------------- the loss

  static void softmax(const NetworkTargets& t, const Judged<T>& j) {
    const int64_t k = t.n_outputs;
    for (int64_t q = 0; q < j.n; ++q) {
      const T* const s = j.outputs + q * k;
      T* const gradient = j.gradients + q * k;
      double most = s[0], total = 0;
      for (int64_t u = 1; u < k; ++u) most = s[u] > most ? s[u] : most;
      for (int64_t u = 0; u < k; ++u) {
        const double e = exp(s[u] - most);
        gradient[u] = static_cast<T>(e);
        total += e;
      }
      const int64_t own = t.classes[j.first + q];
      j.losses[q] = log(total) - (s[own] - most);
      const double missing = 1.0 - exp(s[own] - most) / total;
      const T share = static_cast<T>(j.factor[q] / total);
      for (int64_t u = 0; u < k; ++u) gradient[u] *= share;
      gradient[own] = static_cast<T>(-missing * j.factor[q]);
    }
  }

  static void judge(const NetworkTargets& t, const Judged<T>& j) {
    if (t.loss < 0) return softmax(t, j);
    const int64_t k = t.n_outputs;
    for (int64_t q = 0; q < j.n; ++q) {
      j.losses[q] = 0;
      for (int64_t u = 0; u < k; ++u) {
        const int64_t row = j.first + q;
        const double output = j.outputs[q * k + u], shift = t.units[u], scale = t.units[k + u];
        const double y = !t.classes ? t.y[row * k + u] : t.classes[row] == u ? 1.0 : -1.0;
        const LossAndGradient found = evaluate_loss(t.loss, t.parameter, shift + scale * output, y);
        j.losses[q] += found.value;
        const double gradient =
            t.is_real ? evaluate_loss(t.loss, t.units[2 * k + u], output, (y - shift) / scale).gradient
                      : found.gradient;
        j.gradients[q * k + u] = static_cast<T>(gradient * j.factor[q]);
      }
    }
  }

  // ----------------------------------------------------------------------------------------- links and sums

  static void add(const T* from, int64_t n, T* to) {
    for (int64_t k = 0; k < n; ++k) to[k] += from[k];
  }

  static void activate(int32_t link, const T* bias, int64_t n, int64_t size, T* z, T* h) {
    for (int64_t q = 0; q < n && bias; ++q) add(bias, size, z + q * size);
    apply_link(link, z, n * size, h);
  }

  static void sum_rows(const T* rows, int64_t n, int64_t size, T* out) {
    for (int64_t u = 0; u < size; ++u) out[u] = 0;
    for (int64_t q = 0; q < n; ++q) add(rows + q * size, size, out);
  }

  static void transpose(const Matrix<const T>& a, T* out) {
    for (int64_t i = 0; i < a.n_rows; ++i)
      for (int64_t j = 0; j < a.n_columns; ++j) out[j * a.n_rows + i] = a.row(i)[j];
  }

  // ----------------------------------------------------------------------------------------- dense matrices

  static int64_t densify(const Rows& rows, T* out, uint8_t* used) {
    for (int64_t q = 0; q < rows.n; ++q) {
      const Row row = row_in_turn(rows, q);
      if (!indices_fit(row, rows.n_features)) return q;
      T* x = out + q * rows.n_features;
      for (int64_t k = 0; k < row.n; ++k) {
        x[row.index[k]] += static_cast<T>(row.value[k]);  // a feature may be twice in a row
        used[row.index[k]] = 1;
      }
    }
    return rows.n;
  }

  static constexpr NetworkKernels<T> table() {
    return {pay_rows, pay_listed,  pay_all, forward,  scores,       gather, descend,  update,
            densify,  multiply<T>, judge,   activate, pass_back<T>, add,    sum_rows, transpose};
  }
};

}  // namespace network

extern const NetworkTable network_table;
const NetworkTable network_table = {network::places, network::Loops<float>::table(),
                                    network::Loops<double>::table()};

}  // namespace STEEPEST_ISA
}  // namespace steepest
