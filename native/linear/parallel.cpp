// SPDX-License-Identifier: Apache-2.0
// By outputs: those that are learned one against the rest do not depend on each other. Threads share them
// out, and each goes through all rows for its own. Weights, biases and losses have the bits of one thread.
//
// Replicas: in a round each of R replicas learns its own rows from the common weights, by the clock at which
// a single learner would have come to them; then v <- v + sum of (v_r - v), and u likewise. Step size, scale
// and averaging are functions of the clock alone, so what is summed is what one learner would have added, but
// for gradients taken at weights up to R rows_each rows old. Threads take replicas, and then slices of the
// table, in any order: the sums always run over the replicas in their order, so the bits depend on R, not on
// threads.
//
// Hogwild: threads take blocks of rows and write to one table without locks (Niu et al. 2011). Loads and
// stores are single aligned words, so a race loses a change but never tears a weight; the bits differ from
// run to run.
#include "linear/parallel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <vector>

#include "core/threads.h"
#include "linear/class_hash.h"
#include "linear/schedules.h"

namespace steepest {
namespace {

constexpr int64_t kLeastRows = 32;      // by outputs: worth a thread
constexpr int64_t kRowsToScore = 1024;  // likewise
constexpr int64_t kLine = 16;           // entries whose change is noted together
constexpr int64_t kSlice = 4096;        // entries that a thread sums at once, whole lines
constexpr int64_t kHogwildBlock = 256, kHogwildRows = 1 << 15;

Outcome learn(const Rows& rows, const LinearChoices& c, const LinearState& s) {
  return linear_kernels().learn[c.solver][s.type](rows, c, s);
}

// ------------------------------------------------------------------------------------------------ by outputs

int64_t count_parts(const TableShape& shape, int64_t n_threads) {
  const bool large = shape.n_features * shape.stride >= kLargeEntries;
  return std::min(n_threads, shape.n_outputs / (large ? kOutputsPerThreadOfLarge : kOutputsPerThread));
}

bool can_share_outputs(const Rows& rows, const LinearChoices& c, const LinearState& s, int64_t n_threads) {
  return count_parts(s.shape, n_threads) > 1 && rows.n >= kLeastRows && !s.shape.table_bits &&
         c.target_kind != kSoftmax && !s.shrunk;
}

// The first row that no thread may learn, or n: were it found while learning, the outputs would stop at
// different rows.
Outcome first_refused(const Rows& rows) {
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = row_in_turn(rows, q);
    if (!indices_fit(row, rows.n_features)) return {q, kBadIndex, 0, 0};
    for (int64_t k = 0; k < row.n; ++k)
      if (!std::isfinite(row.value[k])) return {q, kNotFinite, 0, 0};
  }
  return {rows.n, kFine, 0, 0};
}

void* moved(void* table, int type, int64_t entries) {
  const int64_t size = static_cast<int64_t>(type == 0 ? sizeof(float) : sizeof(double));
  return table ? static_cast<char*>(table) + entries * size : nullptr;
}

Outcome learn_by_outputs(const Rows& rows, const LinearChoices& c, const LinearState& s, int64_t n_threads) {
  const int64_t n_groups = count_groups(s.shape.n_outputs), n_parts = count_parts(s.shape, n_threads);
  const Outcome refused = first_refused(rows);
  const Rows good = slice(rows, 0, refused.rows_done);
  const int64_t room = scratch_size(c.batch_size, s.shape.n_outputs) + kLine;
  std::vector<double> scratch(n_parts * room);
  std::vector<Outcome> outcomes(n_parts);
  std::vector<Clock> clocks(n_parts, *s.clock);
  std::vector<Ages> all_ages(n_parts, s.ages ? *s.ages : Ages{});
  std::vector<double> losses(n_groups);
  parallel_for(n_parts, n_parts, [&](int64_t part) {
    const int64_t group = n_groups * part / n_parts, next_group = n_groups * (part + 1) / n_parts;
    const int64_t first = group * kOutputGroup;
    Clock clock = clocks[part];  // on this thread's own stack: it moves with every row
    Ages ages = all_ages[part];
    LinearState mine = s;
    mine.v = moved(s.v, s.type, first);
    mine.average = moved(s.average, s.type, first);
    mine.bias += first;
    mine.bias_square += first;
    mine.bias_average += first;
    mine.clock = &clock;
    mine.ages = s.ages ? &ages : nullptr;
    mine.scratch = scratch.data() + part * room;
    mine.shape.first_output = first;
    mine.shape.n_outputs = std::min(next_group * kOutputGroup, s.shape.n_outputs) - first;
    outcomes[part] = learn(good, c, mine);
    clocks[part] = clock;
    all_ages[part] = ages;
    const double* sums = loss_sums(mine.scratch, c.batch_size, mine.shape.n_outputs);
    for (int64_t g = group; g < next_group; ++g) losses[g] = sums[g - group];
  });
  int64_t worst = 0;
  for (int64_t part = 1; part < n_parts; ++part)
    if (outcomes[part].rows_done < outcomes[worst].rows_done) worst = part;
  *s.clock = clocks[worst];
  if (s.ages) *s.ages = all_ages[worst];
  Outcome total = outcomes[worst];
  if (total.status != kFine) return {total.rows_done, total.status, 0, 0};
  if (refused.status != kFine) return refused;
  total.loss_sum = 0;
  for (const double loss : losses) total.loss_sum += loss;
  return total;
}

// ------------------------------------------------------------------------------------------- learning apart

// The clock after visits from .. to, as the solvers move it. The unit of the average stays the same during
// the visits, see `obstacle`.
void pass_time(const Rows& rows, const LinearChoices& c, int64_t from, int64_t to, Clock& k) {
  const double unit = std::ldexp(1.0, -average_unit(c, k.t));  // which nothing forgets here
  for (int64_t q = from; q < to; q += c.batch_size) {
    const int64_t n = std::min(c.batch_size, to - q);
    const double repeats = repeats_for(c, weight_at(rows, row_at(rows, q)));
    double mass = 0;
    for (int64_t i = 0; i < n; ++i) mass += weight_at(rows, row_at(rows, q + i)) / repeats;
    for (double repeat = 0; repeat < repeats && mass > 0; ++repeat) {
      if (c.solver == kSgd) {
        const double eta = step_size(c, k.t);
        advance_clock(c, eta, mass, iterate_weight(c, eta, mass, unit, k.t + mass), k);
      } else {
        k.t += mass;
        k.steps += 1;
      }
    }
  }
}

// What is in the way of learning apart from this clock to that: nothing, a scale to be folded in first, or
// sums that change their unit.
enum Obstacle { kNone, kSmallScale, kUnitChanges };

Obstacle obstacle(const LinearChoices& c, const Clock& from, const Clock& to) {
  if (c.solver != kSgd) return kNone;
  if (average_unit(c, from.t) != average_unit(c, to.t)) return kUnitChanges;
  // Above the limit at which the kernels fold the scale in: they must not do so by themselves.
  if (to.scale < 1.5 * smallest_scale(c)) return from.scale < 1 ? kSmallScale : kUnitChanges;
  return kNone;
}

// Biases of one who learns apart, with room behind each, so that no two threads write to one cache line.
struct Biases {
  std::vector<double> bias, square, average, scratch;

  Biases(int64_t n, int64_t batch_size)
      : bias(n + kLine),
        square(n + kLine),
        average(n + kLine),
        scratch(scratch_size(batch_size, n) + kLine) {}

  void take(const LinearState& s) {
    std::copy_n(s.bias, s.shape.n_outputs, bias.begin());
    std::copy_n(s.bias_square, s.shape.n_outputs, square.begin());
    std::copy_n(s.bias_average, s.shape.n_outputs, average.begin());
  }
  // The common state with these biases and other tables and clock.
  LinearState state(LinearState s, void* v, void* average_table, Clock* clock) {
    s.v = v;
    s.average = average_table;
    s.bias = bias.data();
    s.bias_square = square.data();
    s.bias_average = average.data();
    s.clock = clock;
    s.scratch = scratch.data();
    return s;
  }
};

template <typename W>
class Rounds {
 public:
  Rounds(const Rows& rows, const LinearChoices& c, const LinearState& s, const LinearParallel& p)
      : rows_(rows),
        c_(c),
        s_(s),
        p_(p),
        per_weight_(entries_per_weight(c.solver)),
        paired_(per_weight_ == 1 && !s.shape.table_bits && s.shape.stride == 2 * s.shape.width),
        R_(p.n_replicas),
        entries_(s.shape.table_bits ? table_entries(s.shape.table_bits) * per_weight_
                                    : s.shape.n_features * s.shape.stride),
        base_v_(static_cast<W*>(s.v)),
        base_u_(paired_ ? nullptr : static_cast<W*>(s.average)),
        starts_(R_ + 1),
        next_starts_(R_ + 1),
        ends_(R_),
        outcomes_(R_) {
    for (int64_t r = 0; r < R_; ++r) own_.emplace_back(s.shape.n_outputs, c.batch_size);
    // Few rows touch few of many weights: then only the lines that they touch are summed.
    const double per_row = static_cast<double>(entries_in(rows)) / static_cast<double>(rows.n ? rows.n : 1);
    const double per_round = per_row * static_cast<double>(round_rows());
    sparse_ = static_cast<double>(entries_) >
              2 * per_round * static_cast<double>((paired_ ? 2 : per_weight_) * s.shape.n_outputs);
    if (sparse_) touched_ = std::vector<std::atomic<uint8_t>>((entries_ + kLine - 1) / kLine);
  }

  Outcome run() {
    if (!p_.synced) copy_all();
    prepare(0, *s_.clock, starts_);
    run_together(std::min(p_.n_threads, R_),
                 [this](int64_t thread, Barrier& barrier) { work(thread, barrier); });
    return total_;
  }

 private:
  int64_t round_rows() const { return R_ * p_.rows_each; }
  W* table(void* all, int64_t r) const { return static_cast<W*>(all) + r * entries_; }

  void copy_common(int64_t r) {
    std::copy_n(base_v_, entries_, table(p_.v, r));
    if (base_u_) std::copy_n(base_u_, entries_, table(p_.average, r));
  }

  // Dense tables are copied by who uses them, see learn_part.
  void copy_all() {
    for (int64_t r = 0; sparse_ && r < R_; ++r) copy_common(r);
  }

  // The clocks at which the replicas of the round from row `from` on start, and the one at its end.
  void prepare(int64_t from, Clock clock, std::vector<Clock>& starts) const {
    if (from + round_rows() > rows_.n) return;
    for (int64_t r = 0; r < R_; ++r) {
      starts[r] = clock;
      pass_time(rows_, c_, from + r * p_.rows_each, from + (r + 1) * p_.rows_each, clock);
    }
    starts[R_] = clock;
  }

  void work(int64_t thread, Barrier& barrier) {
    while (true) {
      if (thread == 0) begin();
      barrier.wait();
      if (over_) return;
      // A replica stays with its thread, in whose cache it is.
      for (int64_t r = thread; r < R_; r += barrier.size()) learn_part(r);
      if (!prepared_.exchange(true)) prepare(from_ + round_rows(), starts_[R_], next_starts_);
      barrier.wait();
      if (thread == 0) check();
      barrier.wait();
      if (over_) return;
      const int64_t n_slices = (entries_ + kSlice - 1) / kSlice, n = barrier.size();
      for (int64_t slice = n_slices * thread / n; slice < n_slices * (thread + 1) / n; ++slice)
        sum_slice(slice);
      barrier.wait();
      if (thread == 0) finish();
    }
  }

  // Rounds that cannot be learned apart, and rows that do not fill one, are learned by the common weights.
  void begin() {
    prepared_ = false;
    while (!over_) {
      if (from_ + round_rows() > rows_.n) {
        if (from_ < rows_.n) learn_alone(rows_.n);
        over_ = true;
        return;
      }
      const Obstacle what = obstacle(c_, starts_[0], starts_[R_]);
      if (what == kNone) break;
      if (what == kSmallScale) {
        linear_kernels().apply_penalty[s_.type](c_, s_);
        copy_all();
        prepare(from_, *s_.clock, starts_);
        continue;
      }
      learn_alone(from_ + round_rows());
      if (!over_) prepare(from_, *s_.clock, starts_);
    }
    if (over_) return;
    for (int64_t r = 0; r < R_; ++r) own_[r].take(s_);
  }

  void learn_alone(int64_t to) {
    const Outcome o = learn(slice(rows_, from_, to), c_, s_);
    add_sums(o, total_);
    total_.rows_done = from_ + o.rows_done;
    total_.status = o.status;
    over_ = o.status != kFine;
    from_ = to;
    copy_all();
  }

  void learn_part(int64_t r) {
    const int64_t first = from_ + r * p_.rows_each;
    const Rows mine = slice(rows_, first, first + p_.rows_each);
    // In one go, and by who will use it: weights written by others would be fetched one by one.
    if (!sparse_) copy_common(r);
    Clock clock = starts_[r];  // on this thread's own stack: it moves with every row
    W* const v = table(p_.v, r);
    W* const u = base_u_ ? table(p_.average, r) : paired_ ? v + s_.shape.width : nullptr;
    outcomes_[r] = learn(mine, c_, own_[r].state(s_, v, u, &clock));
    ends_[r] = clock;
    if (sparse_ && outcomes_[r].status == kFine) touch(mine);
  }

  void touch_entries(int64_t first, int64_t n) {
    for (int64_t line = first / kLine; line <= (first + n - 1) / kLine; ++line)
      touched_[line].store(1, std::memory_order_relaxed);
  }

  void touch(const Rows& rows) {
    const TableShape& shape = s_.shape;
    const uint64_t mask = (uint64_t{1} << shape.table_bits) - 1;
    for (int64_t q = 0; q < rows.n; ++q) {
      const Row row = row_in_turn(rows, q);
      for (int64_t k = 0; k < row.n; ++k) {
        if (!shape.table_bits) {
          touch_entries(row.index[k] * shape.stride, shape.stride);
          continue;
        }
        for (int64_t first = 0; first < shape.n_outputs; first += kWindow) {
          const uint32_t feature = static_cast<uint32_t>(row.index[k]);
          const int64_t at = place_classes(feature, static_cast<uint32_t>(first / kWindow), mask).first;
          for (int64_t a = 0; a < per_weight_; ++a)
            touch_entries(at + a * table_entries(shape.table_bits),
                          std::min(kWindow, shape.n_outputs - first));
        }
      }
    }
  }

  // A replica in trouble: the round counts for nothing, and its rows are for the caller.
  void check() {
    for (const Outcome& o : outcomes_) {
      if (o.status == kFine) continue;
      total_.rows_done = from_;
      total_.status = o.status;
      over_ = true;
      return;
    }
    for (const Outcome& o : outcomes_) add_sums(o, total_);
  }

  void sum_slice(int64_t slice) {
    const int64_t first = slice * kSlice, last = std::min(entries_, first + kSlice);
    if (!sparse_) return sum_entries(first, last);
    for (int64_t line = first / kLine; line * kLine < last; ++line) {
      if (!touched_[line].load(std::memory_order_relaxed)) continue;
      touched_[line].store(0, std::memory_order_relaxed);
      sum_entries(line * kLine, std::min(last, (line + 1) * kLine));
    }
  }

  void sum_entries(int64_t first, int64_t last) {
    W sum[kStep], factor[kStep];
    for (int64_t at = first; at < last; at += kStep) {
      const int64_t n = std::min(kStep, last - at);
      sum_changes(base_v_ + at, p_.v, at, n, sum, factor);
      // An average moves as its weight does: the same share of what the replicas have added.
      for (int64_t k = 1; paired_ && k < n; k += 2) factor[k] = factor[k - 1];
      const W gain = static_cast<W>(p_.gain);
      // gain / factor, at most 1; written so that a compiler need not guard a division it makes in vain.
      const bool all = std::isinf(gain);
      for (int64_t k = 0; k < n; ++k) factor[k] = all ? W{1} : gain / (factor[k] > gain ? factor[k] : gain);
      move(base_v_ + at, p_.v, at, n, sum, factor);
      if (!base_u_) continue;
      sum_changes(base_u_ + at, p_.average, at, n, sum, nullptr);
      move(base_u_ + at, p_.average, at, n, sum, factor);
    }
  }

  // What the replicas have added to n entries, and unless null, how many of them have changed each. Inlined
  // by force, so that compilers see that the sums overlap nothing.
  ALWAYS_INLINE void sum_changes(const W* base, void* tables, int64_t at, int64_t n, W* sum, W* count) const {
    std::fill_n(sum, n, W{0});
    if (count) std::fill_n(count, n, W{0});
    for (int64_t r = 0; r < R_; ++r) {
      const W* own = table(tables, r) + at;
      for (int64_t k = 0; k < n; ++k) {
        const W change = own[k] - base[k];
        sum[k] += change;
        if (count) count[k] += change != 0 ? W{1} : W{0};
      }
    }
  }

  ALWAYS_INLINE void move(W* base, void* tables, int64_t at, int64_t n, const W* sum, const W* factor) const {
    for (int64_t k = 0; k < n; ++k) base[k] += factor[k] * sum[k];
    for (int64_t r = 0; sparse_ && r < R_; ++r) std::copy_n(base, n, table(tables, r) + at);
  }

  // The bias is in every row, so each replica has found it by itself: their mean. Its running average takes
  // in every replica's iterates, each at its own time.
  void finish() {
    const double before = starts_[0].average_weight, after = starts_[R_].average_weight;
    for (int64_t o = 0; o < s_.shape.n_outputs; ++o) {
      double bias = 0, square = s_.bias_square[o], iterates = before * s_.bias_average[o];
      for (int64_t r = 0; r < R_; ++r) {
        bias += own_[r].bias[o] / static_cast<double>(R_);
        square += own_[r].square[o] - s_.bias_square[o];
        iterates +=
            own_[r].average[o] * ends_[r].average_weight - s_.bias_average[o] * starts_[r].average_weight;
      }
      s_.bias[o] = bias;
      s_.bias_square[o] = square;
      if (c_.average != kNoAverage && after > 0) s_.bias_average[o] = iterates / after;
    }
    *s_.clock = starts_[R_];
    starts_.swap(next_starts_);
    from_ += round_rows();
    total_.rows_done = from_;
  }

  static constexpr int64_t kStep = 256;  // entries that are summed side by side

  const Rows rows_;
  const LinearChoices c_;
  const LinearState s_;
  const LinearParallel p_;
  const int64_t per_weight_;
  const bool paired_;  // [feature][v, u] of one output
  const int64_t R_, entries_;
  W *const base_v_, *const base_u_;
  std::vector<Clock> starts_, next_starts_, ends_;
  std::vector<Outcome> outcomes_;
  std::vector<Biases> own_;
  std::vector<std::atomic<uint8_t>> touched_;
  bool sparse_ = false;
  bool over_ = false;
  int64_t from_ = 0;
  Outcome total_ = {0, kFine, 0, 0};
  std::atomic<bool> prepared_{false};  // the clocks of the next round
};

// Rows of one segment by all threads. The clock of every block is known before; biases are taken and given
// back under a lock, a block at a time.
class Hogwild {
 public:
  Hogwild(const Rows& rows, const LinearChoices& c, const LinearState& s, int64_t n_threads)
      : rows_(rows), c_(c), s_(s), n_threads_(n_threads), block_(whole_batches(kHogwildBlock)) {}

  Outcome learn_all() {
    Outcome total = {0, kFine, 0, 0};
    for (int64_t from = 0, to; from < rows_.n && total.status == kFine; from = to) {
      to = std::min(rows_.n, from + whole_batches(kHogwildRows));
      prepare(from, to);
      if (obstacle(c_, starts_.front(), starts_.back()) == kSmallScale) {
        linear_kernels().apply_penalty[s_.type](c_, s_);
        prepare(from, to);
      }
      const bool apart = obstacle(c_, starts_.front(), starts_.back()) == kNone;
      const Outcome o = apart ? learn_segment(from, to) : learn(slice(rows_, from, to), c_, s_);
      add_sums(o, total);
      total.status = o.status;
      total.rows_done = from + o.rows_done;
    }
    return total;
  }

 private:
  int64_t whole_batches(int64_t n_rows) const {
    return (n_rows + c_.batch_size - 1) / c_.batch_size * c_.batch_size;
  }

  // The clocks of the blocks of a segment.
  void prepare(int64_t from, int64_t to) {
    starts_.assign(1, *s_.clock);
    for (int64_t q = from; q < to; q += block_) {
      Clock clock = starts_.back();
      pass_time(rows_, c_, q, std::min(to, q + block_), clock);
      starts_.push_back(clock);
    }
  }

  Outcome learn_segment(int64_t from, int64_t to) {
    const int64_t n_blocks = static_cast<int64_t>(starts_.size()) - 1, K = s_.shape.n_outputs;
    const double first_weight = starts_.front().average_weight, last_weight = starts_.back().average_weight;
    std::vector<double> iterates(s_.bias_average, s_.bias_average + K);
    for (double& sum : iterates) sum *= first_weight;
    Outcome total = {to - from, kFine, 0, 0};
    std::mutex lock;
    std::vector<Biases> biases(2 * n_threads_, Biases(K, c_.batch_size));
    parallel_for(n_blocks, n_threads_, [&](int64_t b, int64_t thread) {
      Biases &own = biases[2 * thread], &before = biases[2 * thread + 1];
      {
        std::lock_guard<std::mutex> guard(lock);
        if (total.status != kFine) return;
        own.take(s_);
      }
      before = own;
      Clock clock = starts_[b];
      const int64_t start = from + b * block_;
      const Rows mine = slice(rows_, start, std::min(to, start + block_));
      const Outcome o = learn(mine, c_, own.state(s_, s_.v, s_.average, &clock));
      std::lock_guard<std::mutex> guard(lock);
      add_sums(o, total);
      if (o.status != kFine) {
        total.status = o.status;
        total.rows_done = start - from + o.rows_done;
      }
      for (int64_t k = 0; k < K; ++k) {
        s_.bias[k] += own.bias[k] - before.bias[k];
        s_.bias_square[k] += own.square[k] - before.square[k];
        iterates[k] += own.average[k] * clock.average_weight - before.average[k] * starts_[b].average_weight;
      }
    });
    if (total.status != kFine) return total;
    for (int64_t k = 0; k < K && c_.average != kNoAverage && last_weight > 0; ++k)
      s_.bias_average[k] = iterates[k] / last_weight;
    *s_.clock = starts_.back();
    return total;
  }

  const Rows rows_;
  const LinearChoices c_;
  const LinearState s_;
  const int64_t n_threads_, block_;
  std::vector<Clock> starts_;
};

}  // namespace

Outcome learn_linear(const Rows& rows, const LinearChoices& c, const LinearState& s,
                     const LinearParallel& p) {
  if (p.n_replicas > 1)
    return s.type == 0 ? Rounds<float>(rows, c, s, p).run() : Rounds<double>(rows, c, s, p).run();
  if (p.n_replicas == 0 && p.n_threads > 1) return Hogwild(rows, c, s, p.n_threads).learn_all();
  if (can_share_outputs(rows, c, s, p.n_threads)) return learn_by_outputs(rows, c, s, p.n_threads);
  return learn(rows, c, s);
}

std::pair<int64_t, int64_t> score_linear(const Rows& rows, const ScoreTable& table, double* scores,
                                         int64_t n_threads) {
  const int64_t n_parts = parts_for(rows.n, n_threads, kRowsToScore), K = table.shape.n_outputs;
  std::vector<int64_t> overflown(n_parts);
  const int64_t stopped = parallel_rows(rows, n_parts, [&](const Rows& mine, int64_t first, int64_t part) {
    double* const own = scores + first * K;
    const int64_t done = linear_kernels().scores[table.type](mine, table, own), n = done * K;
    const double* const bad = std::find_if_not(own, own + n, [](double z) { return std::isfinite(z); });
    overflown[part] = bad == own + n ? rows.n : first + (bad - own) / K;
    return done;
  });
  return {stopped, *std::min_element(overflown.begin(), overflown.end())};
}

Norms mean_norms(const AverageTable& table, int64_t rows_each, int64_t n_threads) {
  const int64_t n_blocks = (table.n_rows + rows_each - 1) / rows_each;
  const int64_t n = parts_for(n_blocks, n_threads, 4);
  std::vector<Norms> found(n_blocks);
  std::vector<double> means(n * rows_each * table.run);  // room for floats, too
  parallel_for(n_blocks, n, [&](int64_t block, int64_t thread) {
    const int64_t first = block * rows_each, n_rows = std::min(rows_each, table.n_rows - first);
    void* const own = means.data() + thread * rows_each * table.run;
    linear_kernels().means[table.type](table, first, n_rows, own);
    found[block] = linear_kernels().norms[table.type](own, n_rows * table.run);
  });
  Norms sum = {0, 0, 0};
  for (const Norms& block : found) {
    sum.absolute += block.absolute;
    sum.square += block.square;
    sum.nonzeros += block.nonzeros;
  }
  return sum;
}

}  // namespace steepest
