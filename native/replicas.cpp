// SPDX-License-Identifier: Apache-2.0
// Replicas: in a round each of R replicas learns its own rows from the common weights, by the clock at which
// a single learner would have come to them; then v <- v + sum of (v_r - v), and u likewise. Step size, decay
// and averaging are functions of the clock alone, so what is summed is what one learner would have added, but
// for slopes taken at weights up to R rows_each rows old. Threads take replicas, and then slices of the
// table, in any order: the sums always run over the replicas in their order, so the bits depend on R, not on
// threads.
//
// Hogwild: threads take blocks of rows and write to one table without locks (Niu et al. 2011). Loads and
// stores are single aligned words, so a race loses a change but never tears a weight; the bits differ from
// run to run.
#define STEEPEST_ISA plain
#include "replicas.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "class_hash.h"
#include "schedules.h"

namespace steepest {
namespace {

// Above the limits at which the kernels fold the scale into the weights: they must not do so by themselves.
constexpr double kLeastScale = 1.5e-6, kLeastAveragedScale = 1.5e-2;
constexpr double kMostRepeats = 128;  // of a heavy row, as in the kernels
constexpr int64_t kLine = 16;         // entries whose change is noted together
constexpr int64_t kSlice = 4096;      // entries that a thread sums at once, whole lines
constexpr int64_t kHogwildBlock = 256, kHogwildRows = 1 << 15;

// All threads meet here. Rounds last less than a millisecond, so waiting is by turns of the processor.
class Meeting {
 public:
  explicit Meeting(int64_t n) : n_(n) {}
  void wait() {
    const int64_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins)
      if (spins > 2000) std::this_thread::yield();
  }
  void leave() { --n_; }  // before anyone waits: a thread could not be started
  int64_t size() const { return n_; }

 private:
  int64_t n_;
  std::atomic<int64_t> arrived_{0}, round_{0};
};

// Runs work(thread) on n threads, this one among them, or on as many as can be started: 0, 1, ...
void run_threads(int64_t n, Meeting& meeting, const std::function<void(int64_t)>& work) {
  std::vector<std::thread> others;
  std::atomic<int> go{0};
  for (int64_t k = 1; k < n; ++k) {
    try {
      const int64_t number = static_cast<int64_t>(others.size()) + 1;
      others.emplace_back([&, number] {
        while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
        work(number);
      });
    } catch (const std::system_error&) {  // no more threads to be had
      meeting.leave();
    }
  }
  go.store(1, std::memory_order_release);
  work(0);
  for (std::thread& other : others) other.join();
}

double weight_at(const Rows& rows, int64_t q) {
  return rows.weight ? rows.weight[rows.order ? rows.order[q] : q] : 1.0;
}

// `unit` is that of the average, which stays the same during a pass; see `obstacle`.
void tick(const Choices& c, bool adaptive, double mass, double unit, Clock& k) {
  const double eta = adaptive ? 0 : plain::step_size(c, k.t);
  k.t += mass;
  k.steps += 1;
  if (adaptive) return;
  k.scale *= 1 / (1 + eta * c.l2 * mass);
  if (c.average == kNoAverage) return;
  const double late = 1.0 + k.t;
  const double weight =
      mass * (c.average == kPolynomial ? late * late * late * unit : plain::average_weight(c, k.t, eta));
  k.average_weight += weight;
  k.average_scale += weight * k.scale;
}

// The clock after visits from..to, as the kernels move it.
void pass_time(const Rows& rows, const Choices& c, bool adaptive, int64_t from, int64_t to, Clock& k) {
  const double unit = std::ldexp(1.0, -plain::average_unit(c, k.t));
  for (int64_t q = from; q < to; q += c.batch_size) {
    const int64_t n = std::min(c.batch_size, to - q);
    const double first = weight_at(rows, q);
    const double repeats = c.batch_size > 1 || first <= 1 ? 1 : std::ceil(std::min(first, kMostRepeats));
    double mass = 0;
    for (int64_t i = 0; i < n; ++i) mass += weight_at(rows, q + i) / repeats;
    for (double repeat = 0; repeat < repeats && mass > 0; ++repeat) tick(c, adaptive, mass, unit, k);
  }
}

Rows part_of(const Rows& rows, const Choices& c, int64_t from, int64_t to) {
  Rows part = rows;
  part.n = to - from;
  if (rows.order) {
    part.order += from;
    return part;
  }
  part.indptr += from;
  if (rows.y) part.y += from * (c.target_kind == kTargets ? rows.n_outputs : 1);
  if (rows.weight) part.weight += from;
  return part;
}

// Of the table v, with the averages if they stand behind the weights.
int64_t count_entries(const Rows& rows, int64_t accumulators) {
  return rows.table_bits ? table_entries(rows.table_bits) * accumulators : rows.n_features * rows.stride;
}

// What is in the way of learning apart from this clock to that: nothing, a scale to be folded in first, or
// sums that change their unit.
enum Obstacle { kNone, kSettle, kSerial };

Obstacle obstacle(const Choices& c, bool adaptive, const Clock& from, const Clock& to) {
  if (adaptive) return kNone;
  if (plain::average_unit(c, from.t) != plain::average_unit(c, to.t)) return kSerial;
  if (to.scale < (c.average == kNoAverage ? kLeastScale : kLeastAveragedScale))
    return from.scale < 1 ? kSettle : kSerial;
  return kNone;
}

void settle_common(const SettleFunction& settle, const Rows& rows, const Choices& c, const LinearState& s) {
  if (rows.table_bits)
    settle(c, s, {table_entries(rows.table_bits), 1, 1});
  else
    settle(c, s, {rows.n_features, rows.n_outputs, rows.stride});
}

// Biases of one who learns apart, and what they add to the common ones.
struct Biases {
  std::vector<double> bias, square, average, scratch;

  // With room behind each, so that no two threads write to one cache line.
  Biases(int64_t n, int64_t batch_size)
      : bias(n + kLine),
        square(n + kLine),
        average(n + kLine),
        scratch(scratch_size(batch_size, n) + kLine) {}

  void take(const LinearState& s, int64_t n) {
    std::copy_n(s.bias, n, bias.begin());
    std::copy_n(s.bias_square, n, square.begin());
    std::copy_n(s.bias_average, n, average.begin());
  }
  LinearState state(const LinearState& common, void* v, void* u, Clock* clock) {
    return {v, common.shrunk, u, bias.data(), square.data(), average.data(), clock, scratch.data()};
  }
};

template <typename W>
class Rounds {
 public:
  Rounds(const LearnFunction& learn, const SettleFunction& settle, const Rows& rows, const Choices& c,
         const LinearState& s, const ParallelChoices& p, ReplicaTables& tables)
      : learn_(learn),
        settle_(settle),
        rows_(rows),
        c_(c),
        s_(s),
        p_(p),
        tables_(tables),
        adaptive_(p.accumulators == 2),
        paired_(!adaptive_ && !rows.table_bits && rows.stride == 2 * rows.width),
        R_(p.n_replicas),
        entries_(count_entries(rows, p.accumulators)),
        base_v_(static_cast<W*>(s.v)),
        base_u_(paired_ ? nullptr : static_cast<W*>(s.average)),
        starts_(R_ + 1),
        next_starts_(R_ + 1),
        ends_(R_),
        outcomes_(R_),
        meeting_(threads()) {
    for (int64_t r = 0; r < R_; ++r) own_.emplace_back(rows.n_outputs, c.batch_size);
    // Few rows touch few of many weights: then only the lines that they touch are summed.
    const int64_t visited = rows.n ? rows.n : 1;
    double nonzeros = 0;
    for (int64_t q = 0; q < rows.n; ++q) {
      const int64_t r = rows.order ? rows.order[q] : q;
      nonzeros += static_cast<double>(rows.indptr[r + 1] - rows.indptr[r]);
    }
    const double a_round = nonzeros / static_cast<double>(visited) * static_cast<double>(round_rows());
    sparse_ = static_cast<double>(entries_) >
              2 * a_round * static_cast<double>((paired_ ? 2 : p.accumulators) * rows.n_outputs);
    if (sparse_) touched_ = std::vector<std::atomic<uint8_t>>((entries_ + kLine - 1) / kLine);
  }

  Outcome run() {
    if (sparse_ && !tables_.synced) copy_all();
    prepare(0, *s_.clock, starts_);
    run_threads(threads(), meeting_, [this](int64_t thread) { work(thread); });
    tables_.synced = sparse_ && total_.status == kFine;
    return total_;
  }

 private:
  int64_t round_rows() const { return R_ * p_.rows_each; }
  int64_t threads() const { return std::max<int64_t>(1, std::min(p_.n_threads, R_)); }
  W* table(void* all, int64_t r) const { return static_cast<W*>(all) + r * entries_; }

  void copy_common(int64_t r) {
    std::copy_n(base_v_, entries_, table(tables_.v, r));
    if (base_u_) std::copy_n(base_u_, entries_, table(tables_.average, r));
  }

  void copy_all() {
    for (int64_t r = 0; sparse_ && r < R_; ++r) copy_common(r);
  }

  // The clocks at which the replicas of the round from row `from` on start, and the one at its end.
  void prepare(int64_t from, Clock clock, std::vector<Clock>& starts) const {
    if (from + round_rows() > rows_.n) return;
    for (int64_t r = 0; r < R_; ++r) {
      starts[r] = clock;
      pass_time(rows_, c_, adaptive_, from + r * p_.rows_each, from + (r + 1) * p_.rows_each, clock);
    }
    starts[R_] = clock;
  }

  void work(int64_t thread) {
    while (true) {
      if (thread == 0) begin();
      meeting_.wait();
      if (over_) return;
      // A replica stays with its thread, in whose cache it is.
      for (int64_t r = thread; r < R_; r += meeting_.size()) learn_part(r);
      if (!prepared_.exchange(true)) prepare(from_ + round_rows(), starts_[R_], next_starts_);
      meeting_.wait();
      if (thread == 0) check();
      meeting_.wait();
      if (over_) return;
      const int64_t n_slices = (entries_ + kSlice - 1) / kSlice, n = meeting_.size();
      for (int64_t slice = n_slices * thread / n; slice < n_slices * (thread + 1) / n; ++slice)
        sum_slice(slice);
      meeting_.wait();
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
      const Obstacle what = obstacle(c_, adaptive_, starts_[0], starts_[R_]);
      if (what == kNone) break;
      if (what == kSettle) {
        settle_common(settle_, rows_, c_, s_);
        copy_all();
        prepare(from_, *s_.clock, starts_);
        continue;
      }
      learn_alone(from_ + round_rows());
      if (!over_) prepare(from_, *s_.clock, starts_);
    }
    if (over_) return;
    for (int64_t r = 0; r < R_; ++r) own_[r].take(s_, rows_.n_outputs);
  }

  void learn_alone(int64_t to) {
    const Outcome o = learn_(part_of(rows_, c_, from_, to), c_, s_);
    add(o);
    total_.rows_done = from_ + o.rows_done;
    total_.status = o.status;
    over_ = o.status != kFine;
    from_ = to;
    copy_all();
  }

  void add(const Outcome& o) {
    total_.loss_sum += o.loss_sum;
    total_.weight_sum += o.weight_sum;
  }

  void learn_part(int64_t r) {
    const int64_t first = from_ + r * p_.rows_each;
    const Rows mine = part_of(rows_, c_, first, first + p_.rows_each);
    // In one go, and by who will use it: weights written by others would be fetched one by one.
    if (!sparse_) copy_common(r);
    Clock clock = starts_[r];  // on this thread's own stack: it moves with every row
    W* const v = table(tables_.v, r);
    W* const u = base_u_ ? table(tables_.average, r) : paired_ ? v + rows_.width : nullptr;
    outcomes_[r] = learn_(mine, c_, own_[r].state(s_, v, u, &clock));
    ends_[r] = clock;
    if (sparse_ && outcomes_[r].status == kFine) touch(mine);
  }

  void touch_entries(int64_t first, int64_t n) {
    for (int64_t line = first / kLine; line <= (first + n - 1) / kLine; ++line)
      touched_[line].store(1, std::memory_order_relaxed);
  }

  void touch(const Rows& rows) {
    const int64_t stride = rows.stride, K = rows.n_outputs;
    const uint64_t mask = (uint64_t{1} << rows.table_bits) - 1;
    for (int64_t q = 0; q < rows.n; ++q) {
      const int64_t row = rows.order ? rows.order[q] : q;
      for (int64_t k = rows.indptr[row]; k < rows.indptr[row + 1]; ++k) {
        const int64_t j = rows.indices[k];
        if (!rows.table_bits) {
          touch_entries(j * stride, stride);
          continue;
        }
        for (int64_t window = 0; window * kWindow < K; ++window) {
          const int64_t at =
              place_classes(static_cast<uint32_t>(j), static_cast<uint32_t>(window), mask).first;
          for (int64_t a = 0; a < p_.accumulators; ++a)
            touch_entries(at + a * table_entries(rows.table_bits), std::min(kWindow, K - window * kWindow));
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
    for (const Outcome& o : outcomes_) add(o);
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
    constexpr int64_t kStep = 256;
    W sum[kStep], factor[kStep];
    for (int64_t at = first; at < last; at += kStep) {
      const int64_t n = std::min(kStep, last - at);
      W* const v = base_v_ + at;
      std::fill_n(sum, n, W{0});
      std::fill_n(factor, n, W{0});
      for (int64_t r = 0; r < R_; ++r) {
        const W* own = table(tables_.v, r) + at;
        for (int64_t k = 0; k < n; ++k) {
          const W change = own[k] - v[k];
          sum[k] += change;
          factor[k] += change != 0 ? W{1} : W{0};
        }
      }
      // An average moves as its weight does: the same share of what the replicas have added.
      for (int64_t k = 1; paired_ && k < n; k += 2) factor[k] = factor[k - 1];
      const W gain = static_cast<W>(p_.gain);
      // gain / factor, at most 1; written so that a compiler need not guard a division it makes in vain.
      const bool all = std::isinf(gain);
      for (int64_t k = 0; k < n; ++k) factor[k] = all ? W{1} : gain / (factor[k] > gain ? factor[k] : gain);
      for (int64_t k = 0; k < n; ++k) v[k] += factor[k] * sum[k];
      for (int64_t r = 0; sparse_ && r < R_; ++r) std::copy_n(v, n, table(tables_.v, r) + at);
      if (!base_u_) continue;
      W* const u = base_u_ + at;
      std::fill_n(sum, n, W{0});
      for (int64_t r = 0; r < R_; ++r) {
        const W* own = table(tables_.average, r) + at;
        for (int64_t k = 0; k < n; ++k) sum[k] += own[k] - u[k];
      }
      for (int64_t k = 0; k < n; ++k) u[k] += factor[k] * sum[k];
      for (int64_t r = 0; sparse_ && r < R_; ++r) std::copy_n(u, n, table(tables_.average, r) + at);
    }
  }

  // The bias is in every row, so each replica has found it by itself: their mean. Its running average takes
  // in every replica's iterates, each at its own time.
  void finish() {
    const double before = starts_[0].average_weight, after = starts_[R_].average_weight;
    for (int64_t o = 0; o < rows_.n_outputs; ++o) {
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

  const LearnFunction learn_;
  const SettleFunction settle_;
  const Rows rows_;
  const Choices c_;
  const LinearState s_;
  const ParallelChoices p_;
  ReplicaTables& tables_;
  const bool adaptive_, paired_;  // paired: [feature][v, u] of one output
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
  Meeting meeting_;
};

// Rows of one segment by all threads. The clock of every block is known before; biases are taken and given
// back under a lock, a block at a time.
class Herd {
 public:
  Herd(const LearnFunction& learn, const Rows& rows, const Choices& c, const LinearState& s,
       const ParallelChoices& p)
      : learn_(learn), rows_(rows), c_(c), s_(s), p_(p), adaptive_(p.accumulators == 2) {
    block_ = (kHogwildBlock + c.batch_size - 1) / c.batch_size * c.batch_size;
  }

  // The clocks of the segment from..to.
  void prepare(int64_t from, int64_t to) {
    from_ = from;
    to_ = to;
    starts_.assign(1, *s_.clock);
    for (int64_t q = from; q < to; q += block_) {
      Clock clock = starts_.back();
      pass_time(rows_, c_, adaptive_, q, std::min(to, q + block_), clock);
      starts_.push_back(clock);
    }
  }
  const Clock& first() const { return starts_.front(); }
  const Clock& last() const { return starts_.back(); }

  Outcome run() {
    const int64_t n_blocks = static_cast<int64_t>(starts_.size()) - 1;
    iterates_.assign(s_.bias_average, s_.bias_average + rows_.n_outputs);
    for (double& sum : iterates_) sum *= first().average_weight;
    Outcome total = {0, kFine, 0, 0};
    std::atomic<int64_t> next{0};
    std::mutex lock;
    Meeting nobody(1);
    run_threads(std::max<int64_t>(1, std::min(p_.n_threads, n_blocks)), nobody, [&](int64_t) {
      Biases own(rows_.n_outputs, c_.batch_size), before = own;
      for (int64_t b; (b = next.fetch_add(1)) < n_blocks;) {
        {
          std::lock_guard<std::mutex> guard(lock);
          if (total.status != kFine) return;
          own.take(s_, rows_.n_outputs);
        }
        before = own;
        Clock clock = starts_[b];
        const int64_t start = from_ + b * block_;
        const Rows mine = part_of(rows_, c_, start, std::min(to_, start + block_));
        const Outcome o = learn_(mine, c_, own.state(s_, s_.v, s_.average, &clock));
        std::lock_guard<std::mutex> guard(lock);
        total.loss_sum += o.loss_sum;
        total.weight_sum += o.weight_sum;
        if (o.status != kFine) total = {start + o.rows_done, o.status, total.loss_sum, total.weight_sum};
        give_back(own, before, starts_[b], clock);
      }
    });
    if (total.status != kFine) return total;
    for (int64_t o = 0; o < rows_.n_outputs && c_.average != kNoAverage; ++o)
      if (last().average_weight > 0) s_.bias_average[o] = iterates_[o] / last().average_weight;
    *s_.clock = last();
    total.rows_done = to_;
    return total;
  }

 private:
  void give_back(const Biases& own, const Biases& before, const Clock& start, const Clock& end) {
    for (int64_t o = 0; o < rows_.n_outputs; ++o) {
      s_.bias[o] += own.bias[o] - before.bias[o];
      s_.bias_square[o] += own.square[o] - before.square[o];
      iterates_[o] += own.average[o] * end.average_weight - before.average[o] * start.average_weight;
    }
  }

  const LearnFunction learn_;
  const Rows rows_;
  const Choices c_;
  const LinearState s_;
  const ParallelChoices p_;
  const bool adaptive_;
  int64_t block_ = 0, from_ = 0, to_ = 0;
  std::vector<Clock> starts_;
  std::vector<double> iterates_;
};

}  // namespace

Outcome learn_replicas(const LearnFunction& learn, const SettleFunction& settle, int type, const Rows& rows,
                       const Choices& choices, const LinearState& state, const ParallelChoices& parallel,
                       ReplicaTables& tables) {
  if (type == 0) return Rounds<float>(learn, settle, rows, choices, state, parallel, tables).run();
  return Rounds<double>(learn, settle, rows, choices, state, parallel, tables).run();
}

Outcome learn_hogwild(const LearnFunction& learn, const SettleFunction& settle, const Rows& rows,
                      const Choices& choices, const LinearState& state, const ParallelChoices& parallel) {
  Outcome total = {0, kFine, 0, 0};
  Herd herd(learn, rows, choices, state, parallel);
  const int64_t step = (kHogwildRows + choices.batch_size - 1) / choices.batch_size * choices.batch_size;
  for (int64_t from = 0; from < rows.n && total.status == kFine;) {
    const int64_t to = std::min(rows.n, from + step);
    herd.prepare(from, to);
    Obstacle what = obstacle(choices, parallel.accumulators == 2, herd.first(), herd.last());
    if (what == kSettle) {
      settle_common(settle, rows, choices, state);
      herd.prepare(from, to);
      what = obstacle(choices, parallel.accumulators == 2, herd.first(), herd.last());
    }
    const Outcome o = what == kNone ? herd.run() : learn(part_of(rows, choices, from, to), choices, state);
    total.loss_sum += o.loss_sum;
    total.weight_sum += o.weight_sum;
    total.status = o.status;
    total.rows_done = what == kNone ? o.rows_done : from + o.rows_done;
    from = to;
  }
  return total;
}

}  // namespace steepest
