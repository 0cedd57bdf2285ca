// SPDX-License-Identifier: Apache-2.0
// Factorization machines, with fields and without: scores of sparse rows, and a pass of AdaGrad over them.
//
// Each weight w, and each vector v_i[f] as a whole, has one sum G of (mean) squared gradients of the loss,
// and moves by e = eta / sqrt(start_square + G): w <- (w - e g) / (1 + e l2). One sum for a vector keeps its
// direction, so nothing depends on the axes of the factors, and takes an eighth of the room that a sum for
// each number would take. The penalty is that of the features of the row, since no others move.
//
// Compiled once per instruction set (STEEPEST_ISA names the namespace), so no standard templates here.
#include "core/random.h"
#include "core/sparse_row.h"
#include "fm/fm_table.h"
#include "linear/losses.h"
#include "linear/schedules.h"

namespace steepest {
namespace STEEPEST_ISA {

// One row, its values in the machine's units, and which of its fields each entry belongs to.
class FmRow {
 public:
  FmRow(const FmTable& table, const FmScratch& scratch)
      : t_(table),
        x_(scratch.floats),
        sums_(scratch.floats + scratch.longest),
        place_(scratch.places),
        fields_(place_ + scratch.longest),
        count_(fields_ + table.n_fields),
        place_of_(count_ + table.n_fields),
        head_(table.head()),
        stride_(table.stride()) {
    for (int64_t f = 0; f < t_.n_fields; ++f) place_of_[f] = -1;
  }

  // Whether all indices are in range.
  bool read(const Row& row, double unit) {
    if (!indices_fit(row, t_.n_features)) return false;
    row_ = row;
    if (unit == 0) {
      const double square = squared_length(row.value, row.n);
      unit = square > 0 ? 1 / sqrt(square) : 1;
    }
    for (int64_t i = 0; i < row.n; ++i) x_[i] = static_cast<float>(row.value[i] * unit);
    n_ = 0;
    for (int64_t i = 0; i < row.n; ++i) {
      const int32_t field = t_.field ? t_.field[row.index[i]] : 0;
      if (place_of_[field] < 0) {
        place_of_[field] = static_cast<int32_t>(n_);
        fields_[n_] = field;
        count_[n_++] = 0;
      }
      place_[i] = place_of_[field];
      ++count_[place_[i]];
    }
    for (int64_t p = 0; p < n_; ++p) place_of_[fields_[p]] = -1;
    return true;
  }

  void fetch(const Row& row) const {
    for (int64_t i = 0; i < row.n; ++i) {
      const float* const first = t_.rows + row.index[i] * t_.n_outputs * stride_;
      PREFETCH(first);
      PREFETCH(first + head_);
    }
  }

  // Fills the sums of fields, too.
  double score(int64_t output) {
    const int64_t width = t_.width;
    for (int64_t c = 0; c < n_ * n_ * width; c += kFactorLanes) store(sums_ + c, all(0.0f));
    double linear = 0;
    Float8 own = all(0.0f), within = all(0.0f), across = all(0.0f);
    for (int64_t i = 0; i < row_.n; ++i) {
      const float* const row = numbers(i, output);
      const int64_t p = place_[i];
      const Float8 x = all(x_[i]);
      linear += static_cast<double>(row[0]) * x_[i];
      for (int64_t q = 0; q < n_; ++q) {
        if (alone(p, q)) continue;
        const float* const v = row + head_ + fields_[q] * width;
        float* const sum = sums(p, q);
        for (int64_t c = 0; c < width; c += kFactorLanes) {
          const Float8 part = mul(x, load(v + c));
          store(sum + c, add(load(sum + c), part));
          if (p == q) own = fma(part, part, own);
        }
      }
    }
    for (int64_t p = 0; p < n_; ++p)
      for (int64_t q = 0; q <= p; ++q) {
        if (alone(p, q)) continue;
        const float *const a = sums(p, q), *const b = sums(q, p);
        for (int64_t c = 0; c < width; c += kFactorLanes)
          (p == q ? within : across) = fma(load(a + c), load(b + c), p == q ? within : across);
      }
    const double half = 0.5 * (static_cast<double>(sum(within)) - static_cast<double>(sum(own)));
    return t_.bias[output] + linear + t_.sign[output] * (half + sum(across));
  }

  // A step against the gradient of the loss by the score; the sums of fields are those of `score`. Whether
  // all is finite still.
  bool add_gradient(int64_t output, double gradient, const FmChoices& c) {
    const float g = static_cast<float>(gradient), first = static_cast<float>(c.start_square);
    const float eta = static_cast<float>(c.eta), l2 = static_cast<float>(c.l2);
    const float signed_g = g * static_cast<float>(t_.sign[output]);
    const float share = 1 / static_cast<float>(t_.n_factors);
    float zero = 0;
    for (int64_t i = 0; i < row_.n; ++i) {
      float* const row = numbers(i, output);
      const int64_t p = place_[i];
      const float x = x_[i], by = g * x;
      row[1] += by * by;
      zero += row[1] * 0;
      const float e = eta / sqrtf(first + row[1]);
      row[0] = (row[0] - e * by) / (1 + e * l2);
      for (int64_t q = 0; q < n_; ++q) {
        if (!alone(p, q))
          zero += move(row, fields_[q], sums(q, p), p == q ? x : 0, signed_g * x, share, first, eta, l2);
      }
    }
    return zero == 0;
  }

 private:
  float* numbers(int64_t i, int64_t output) const {
    return t_.rows + (row_.index[i] * t_.n_outputs + output) * stride_;
  }
  float* sums(int64_t p, int64_t q) const { return sums_ + (p * n_ + q) * t_.width; }
  // The only feature of its field is in no pair within it. (Its difference from the sum would be rounding.)
  bool alone(int64_t p, int64_t q) const { return p == q && count_[p] == 1; }

  // v moves against by * (sum - x v), where x is 0 if v is not in the sum; zero, or NaN if it has overflowed.
  float move(float* row, int64_t field, const float* others, float x, float by, float share, float first,
             float eta, float l2) const {
    float* const v = row + head_ + field * t_.width;
    const Float8 own = all(x);
    Float8 squares = all(0.0f);
    for (int64_t c = 0; c < t_.width; c += kFactorLanes) {
      const Float8 other = fnma(own, load(v + c), load(others + c));
      squares = fma(other, other, squares);
    }
    float& total = row[2 + field];
    total += by * by * sum(squares) * share;
    const float e = eta / sqrtf(first + total), keep = 1 / (1 + e * l2);
    const Float8 kept = all(keep), step = all(e * by * keep);
    for (int64_t c = 0; c < t_.width; c += kFactorLanes) {
      const Float8 now = load(v + c), other = fnma(own, now, load(others + c));
      store(v + c, fnma(step, other, mul(kept, now)));
    }
    return total * 0;
  }

  const FmTable& t_;
  float *const x_, *const sums_;
  int32_t *const place_, *const fields_, *const count_, *const place_of_;
  const int64_t head_, stride_;
  Row row_ = {};
  int64_t n_ = 0;  // fields in the row
};

static double repeats_of(double weight) {
  return weight <= 1 ? 1 : ceil(weight < kMostRepeats ? weight : kMostRepeats);
}

static Outcome learn(const Rows& rows, const FmChoices& c, const FmTable& t, const FmScratch& scratch) {
  FmRow row(t, scratch);
  double loss_sum = 0, weight_sum = 0;
  for (int64_t q = 0; q < rows.n; ++q) {
    const int64_t r = row_at(rows, q);
    const double weight = weight_at(rows, r), repeats = repeats_of(weight);
    if (!row.read(get_row(rows, r), c.unit)) return {q, kBadIndex, loss_sum, weight_sum};
    if (q + 1 < rows.n && indices_fit(row_in_turn(rows, q + 1), t.n_features))
      row.fetch(row_in_turn(rows, q + 1));
    for (double repeat = 0; weight > 0 && repeat < repeats; ++repeat)
      for (int64_t k = 0; k < t.n_outputs; ++k) {
        const double y = target_at(rows, c.target_kind == kOneVsRest, r, k);
        const double score = row.score(k);
        const LossAndGradient l =
            evaluate_loss(c.loss, t.loss_number[k], score, (y - t.shift[k]) / t.scale[k]);
        const double g = l.gradient * t.gain[k] * weight / repeats;
        if (!isfinite(score) || !isfinite(l.value) || !row.add_gradient(k, g, c))
          return {q, kNotFinite, loss_sum, weight_sum};
        if (repeat == 0) loss_sum += weight * t.loss_unit[k] * l.value;
        t.bias_square[k] += g * g;
        t.bias[k] -= c.eta * g / sqrt(c.start_square + t.bias_square[k]);
      }
    weight_sum += weight;
  }
  return {rows.n, kFine, loss_sum, weight_sum};
}

static int64_t scores(const Rows& rows, const FmChoices& c, const FmTable& t, const FmScratch& scratch,
                      double* out) {
  FmRow row(t, scratch);
  for (int64_t q = 0; q < rows.n; ++q) {
    if (!row.read(row_in_turn(rows, q), c.unit)) return q;
    if (q + 1 < rows.n && indices_fit(row_in_turn(rows, q + 1), t.n_features))
      row.fetch(row_in_turn(rows, q + 1));
    for (int64_t k = 0; k < t.n_outputs; ++k)
      out[q * t.n_outputs + k] = t.shift[k] + t.scale[k] * row.score(k);
  }
  return rows.n;
}

static void start(const FmTable& t, const FmStart& s) {
  for (int64_t i = s.first_row; i < t.n_features; ++i) {
    const uint64_t feature = splitmix64(s.seed + static_cast<uint64_t>(s.owners[i]));
    for (int64_t f = s.first_field; f < t.n_fields; ++f)
      for (int64_t k = s.first_output; k < t.n_outputs; ++k) {
        const uint64_t place = splitmix64(splitmix64(feature + static_cast<uint64_t>(s.fields[f])) + k);
        float* const v = t.rows + (i * t.n_outputs + k) * t.stride() + t.head() + f * t.width;
        for (int64_t c = 0; c < t.n_factors; ++c) {
          const double u = static_cast<double>(splitmix64(place + c) >> 11) * 0x1p-53;
          v[c] = static_cast<float>(s.size * (2 * u - 1));
        }
      }
  }
}

extern const FmKernels fm_table;
const FmKernels fm_table = {learn, scores, start};

}  // namespace STEEPEST_ISA
}  // namespace steepest
