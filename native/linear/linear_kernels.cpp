// SPDX-License-Identifier: Apache-2.0
// Linear models: one pass of a solver over sparse rows, and their scores.
//
// This file is compiled once per instruction set (STEEPEST_ISA names the namespace). It must not use standard
// library templates: the linker may keep the copy of an inline function that old processors cannot run.
#include "linear/solver_adaptive.h"
#include "linear/solver_coin.h"
#include "linear/solver_sgd.h"

namespace steepest {
namespace STEEPEST_ISA {

// ------------------------------------------------------------------------------------------------------------
// learn

// Losses and gradients of rows from their scores, and the sum of the losses; one output is the case that must
// be fast.
template <bool kOneOutput>
struct Losses {
  const Rows& rows;
  const LinearChoices& c;
  LossSum losses;
  LossAndGradient found = {0, 0};

  Losses(const Rows& rows, const LinearChoices& c, const LinearState&) : rows(rows), c(c) {}

  bool evaluate(int64_t r, const double* scores, double* gradients) {
    found = evaluate_loss<true>(c.loss, c.loss_parameter, scores[0], rows.y[r]);
    gradients[0] = found.gradient;
    return isfinite(found.value);
  }
  void count(double weight) { losses.add(weight, found.value, found.factor); }
  double total() const { return losses.total(); }
  bool shared_out() const { return false; }
};

template <>
struct Losses<false> {
  const Rows& rows;
  const LinearChoices& c;
  const TableShape& shape;
  const int64_t n_groups;
  double* const found;
  double* const sums;

  Losses(const Rows& rows, const LinearChoices& c, const LinearState& s)
      : rows(rows),
        c(c),
        shape(s.shape),
        n_groups(count_groups(shape.n_outputs)),
        found(row_losses(s.scratch, c.batch_size, shape.n_outputs)),
        sums(loss_sums(s.scratch, c.batch_size, shape.n_outputs)) {
    for (int64_t g = 0; g < n_groups; ++g) sums[g] = 0;
  }

  bool evaluate(int64_t r, const double* scores, double* gradients) {
    losses_of_row(rows, shape, c, r, scores, gradients, found);
    bool finite = true;
    for (int64_t g = 0; g < n_groups; ++g) finite = finite && isfinite(found[g]);
    return finite;
  }
  void count(double weight) {
    for (int64_t g = 0; g < n_groups; ++g) sums[g] += weight * found[g];
  }
  double total() const {
    double sum = 0;
    for (int64_t g = 0; g < n_groups; ++g) sum += sums[g];
    return sum;
  }
  bool shared_out() const { return n_groups > 1; }
};

// How much of a step eta on a row keeps it from passing the least loss of the row itself, for losses whose
// gradient grows without bound: there a row far longer than the others would throw the weights out of range.
static inline double safe_share(const LinearChoices& c, const LinearState& s, const Row& row, double eta) {
  const double curvature = c.loss == kSquared ? 1.0 : c.loss == kSquaredHinge ? 2.0 : 0.0;
  if (curvature == 0 || s.shape.table_bits) return 1;
  double square = 0;
  for (int64_t k = 0; k < row.n; ++k) square += static_cast<double>(row.value[k]) * row.value[k];
  const double reach = eta * curvature * square;
  return reach > 1 ? 1 / reach : 1;
}

// One pass of a solver over the rows, in batches: score at the same weights, add, then let the penalty act.
// The loss of a row counts before anything is learned from it. A row in trouble ends the pass, and its batch
// teaches nothing.
template <typename Solver>
static Outcome learn(const Rows& rows, const LinearChoices& c, const LinearState& s) {
  const int64_t K = Solver::kOneOutput ? 1 : s.shape.n_outputs;
  double* gradients = s.scratch;
  double* scores = s.scratch + c.batch_size * K;
  Solver solver(c, s);
  typedef typename Solver::Weight W;
  const Ahead<W> ahead(rows, s.shape, static_cast<W*>(s.v), static_cast<W*>(s.average));
  Losses<Solver::kOneOutput> losses(rows, c, s);
  double weight_sum = 0;
  // Threads that share out the outputs overflow at different rows, so that the losses before the first of
  // them are not known: they count for nothing, by one thread too.
  const auto stop = [&](int64_t at, Status why) -> Outcome {
    if (losses.shared_out()) return {at, why, 0, 0};
    return {at, why, losses.total(), weight_sum};
  };

  for (int64_t q = 0; q < rows.n; q += c.batch_size) {
    const int64_t n = smaller(c.batch_size, rows.n - q);
    if constexpr (Solver::kTimes)
      if (s.ages) solver.pass_time(latest_time(rows, q, n));
    const double repeats = repeats_for(c, weight_at(rows, row_at(rows, q)));
    for (double repeat = 0; repeat < repeats; ++repeat) {
      double mass = 0;
      solver.begin();
      for (int64_t i = 0; i < n; ++i) {
        const int64_t r = row_at(rows, q + i);
        const Row row = get_row(rows, r);
        double weight = weight_at(rows, r) / repeats;
        if constexpr (Solver::kTimes)
          if (s.ages) weight *= share_by_age(c, rows, s, r);
        double* gradient = gradients + i * K;
        if (repeat == 0) ahead.fetch(q + i);
        if (weight == 0) {
          if (!indices_fit(row, rows.n_features)) return stop(q + i, kBadIndex);
          for (int64_t o = 0; o < K; ++o) gradient[o] = 0;
          continue;
        }
        const Status scored = solver.score(row, scores);
        if (scored != kFine) return stop(q + i, scored);
        if (repeat == 0) ahead.fetch_weights(q + i, 1);
        if (!losses.evaluate(r, scores, gradient)) return stop(q + i, kNotFinite);
        const double share =
            Solver::kEntries == 1 ? safe_share(c, s, row, solver.eta * weight * static_cast<double>(n)) : 1;
        if (weight * share != 1)
          for (int64_t o = 0; o < K; ++o) gradient[o] *= weight * share;
        mass += weight;
        if (repeat == 0) {
          losses.count(weight * repeats);
          weight_sum += weight * repeats;
        }
      }
      if (mass == 0) continue;
      for (int64_t i = 0; i < n; ++i) {
        const Row row = get_row(rows, row_at(rows, q + i));
        if (!solver.add(row, gradients + i * K)) return stop(q + i, kNotFinite);
        for (int64_t o = 0; o < K; ++o) move_bias(c, s, o, gradients[i * K + o], solver.eta);
      }
      solver.end(mass);
    }
  }
  return {rows.n, kFine, losses.total(), weight_sum};
}

// --------------------------------------------------------------------------------------------------------
// scores

template <typename W>
static int64_t scores(const Rows& rows, const ScoreTable& table, double* scores) {
  const W* w = static_cast<const W*>(table.weights);
  const double scale = table.scale, *const bias = table.bias;
  const int64_t K = table.shape.n_outputs;
  const Ahead<W> ahead(rows, table.shape, w, nullptr);
  const Layout layout(table.shape);
  const bool one = one_column(table.shape);
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = get_row(rows, row_at(rows, q));
    ahead.fetch(q);
    ahead.fetch_weights(q, 1);
    if (one) {
      if (!dot_if_fits(w, row, rows.n_features, scores[q])) return q;
      scores[q] = scale * scores[q] + bias[0];
      continue;
    }
    if (!indices_fit(row, rows.n_features)) return q;
    dot_many(layout, w, row, K, scores + q * K);
    add_biases(K, scale, bias, scores + q * K);
  }
  return rows.n;
}

// Eight sums side by side, whatever the instruction set, so that the bits do not depend on it. (The square of
// a float is exact in double, with a fused addition or without.)
constexpr int64_t kNormLanes = 8;

template <typename W>
static int64_t add_norms(const W* w, int64_t n, double* absolutes, double* squares) {
  int64_t nonzeros = 0;
  for (int64_t k = 0; k < n; k += kNormLanes)
    for (int64_t lane = 0; lane < kNormLanes; ++lane) {
      const double x = static_cast<double>(w[k + lane]);
      absolutes[lane] += fabs(x);
      squares[lane] += x * x;
      nonzeros += x != 0;
    }
  return nonzeros;
}

#if defined(__AVX2__)
static inline __m256d add_four(__m128 w, __m256d absolute, __m256d& square) {
  const __m256d x = _mm256_cvtps_pd(w);
  square = _mm256_fmadd_pd(x, x, square);
  return _mm256_add_pd(absolute, _mm256_andnot_pd(_mm256_set1_pd(-0.0), x));
}

template <>
int64_t add_norms<float>(const float* w, int64_t n, double* absolutes, double* squares) {
  __m256d a = _mm256_loadu_pd(absolutes), b = _mm256_loadu_pd(absolutes + 4);
  __m256d c = _mm256_loadu_pd(squares), d = _mm256_loadu_pd(squares + 4);
  __m256i zeros = _mm256_setzero_si256();  // minus one for each; n is small
  for (int64_t k = 0; k < n; k += kNormLanes) {
    const __m256 x = _mm256_loadu_ps(w + k);
    const __m256 none = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_EQ_OQ);
    zeros = _mm256_add_epi32(zeros, _mm256_castps_si256(none));
    a = add_four(_mm256_castps256_ps128(x), a, c);
    b = add_four(_mm256_extractf128_ps(x, 1), b, d);
  }
  _mm256_storeu_pd(absolutes, a);
  _mm256_storeu_pd(absolutes + 4, b);
  _mm256_storeu_pd(squares, c);
  _mm256_storeu_pd(squares + 4, d);
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), zeros);
  int64_t nonzeros = n;
  for (int lane = 0; lane < 8; ++lane) nonzeros += lanes[lane];
  return nonzeros;
}
#endif

// Blocks are added up by themselves, so that large tables lose no digits.
template <typename W>
static Norms norms(const void* weights, int64_t n) {
  constexpr int64_t kBlock = 1 << 14;
  const W* w = static_cast<const W*>(weights);
  Norms total = {0, 0, 0};
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t size = smaller(kBlock, n - first), whole = size / kNormLanes * kNormLanes;
    double absolutes[kNormLanes] = {}, squares[kNormLanes] = {};
    total.nonzeros += add_norms(w + first, whole, absolutes, squares);
    W rest[kNormLanes] = {};
    for (int64_t k = whole; k < size; ++k) rest[k - whole] = w[first + k];
    total.nonzeros += add_norms(rest, kNormLanes, absolutes, squares);
    for (int64_t lane = 0; lane < kNormLanes; ++lane) {
      total.absolute += absolutes[lane];
      total.square += squares[lane];
    }
  }
  return total;
}

template <typename W>
static void means(const AverageTable& table, int64_t first_row, int64_t n_rows, void* out) {
  const W* v = static_cast<const W*>(table.v) + first_row * table.stride;
  const W* u = static_cast<const W*>(table.u) + first_row * table.stride;
  W* to = static_cast<W*>(out);
  for (int64_t row = 0; row < n_rows; ++row, v += table.stride, u += table.stride, to += table.run)
    for (int64_t k = 0; k < table.run; ++k)
      to[k] = static_cast<W>((table.sum_of_scales * static_cast<double>(v[k]) - u[k]) / table.total);
}

static void losses(int32_t loss, double parameter, int64_t n, const double* scores, const double* y,
                   double* values, double* gradients) {
  for (int64_t i = 0; i < n; ++i) {
    const LossAndGradient l = evaluate_loss(loss, parameter, scores[i], y[i]);
    values[i] = l.value;
    gradients[i] = l.gradient;
  }
}

template <typename W, bool kForgets>
static Outcome learn_steps(const Rows& rows, const LinearChoices& c, const LinearState& s) {
  if (!one_column(s.shape)) return learn<Sgd<W, true, false, kForgets>>(rows, c, s);
  return s.shape.stride == 2 ? learn<Sgd<W, false, true, kForgets>>(rows, c, s)
                             : learn<Sgd<W, false, false, kForgets>>(rows, c, s);
}

template <typename W>
static Outcome learn_sgd(const Rows& rows, const LinearChoices& c, const LinearState& s) {
  return forgets(c) ? learn_steps<W, true>(rows, c, s) : learn_steps<W, false>(rows, c, s);
}

template <typename W, bool kProximal, bool kForgets>
static Outcome learn_adaptive(const Rows& rows, const LinearChoices& c, const LinearState& s) {
  return one_column(s.shape) ? learn<Adaptive<W, kProximal, false, kForgets>>(rows, c, s)
                             : learn<Adaptive<W, kProximal, true, kForgets>>(rows, c, s);
}

template <typename W>
static Outcome learn_adagrad(const Rows& rows, const LinearChoices& c, const LinearState& s) {
  return forgets(c) ? learn_adaptive<W, false, true>(rows, c, s)
                    : learn_adaptive<W, false, false>(rows, c, s);
}

template <typename W>
static Outcome learn_coin(const Rows& rows, const LinearChoices& c, const LinearState& s) {
  return one_column(s.shape) ? learn<Coin<W, false>>(rows, c, s) : learn<Coin<W, true>>(rows, c, s);
}

#define STRINGIFY(x) #x
#define NAME_OF(x) STRINGIFY(x)

extern const LinearKernels linear_table;
const LinearKernels linear_table = {
    NAME_OF(STEEPEST_ISA),
    {{learn_sgd<float>, learn_sgd<double>},
     {learn_adagrad<float>, learn_adagrad<double>},
     {learn_adaptive<float, true, false>, learn_adaptive<double, true, false>},
     {learn_coin<float>, learn_coin<double>}},
    {scores<float>, scores<double>},
    {apply_penalty<float>, apply_penalty<double>},
    {means<float>, means<double>},
    {norms<float>, norms<double>},
    losses,
};

}  // namespace STEEPEST_ISA
}  // namespace steepest
