// SPDX-License-Identifier: Apache-2.0
// Embeddings of texts: one pass learns rows in order, each by one step of stochastic gradients.
//
//   h = (E_end + sum v_j E_j) / m, m = 1 + sum |v_j|;  scores s = W h;  g = d loss / d s
//   W_k <- W_k - eta g_k h;  E_j <- E_j - eta (v_j / m) sum_k g_k W_k   (W as it was before)
//
// Losses: soft maximum against the mean of a text's labels; one logistic loss for each label; the same for
// the text's labels and a few drawn by chance; or along the way to each label in a tree (Joulin et al. 2016).
// A row of 16 floats is one cache line, fetched some entries ahead.
//
// Compiled once per instruction set; no standard library templates, see linear_kernels.cpp.
#include "embedding_table.h"
#include "lanes.h"
#include "losses.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr int64_t kAhead = 12;      // entries between a prefetch and its use
constexpr float kTooLarge = 1e15f;  // a score that only divergence reaches

struct Text {
  const int32_t* index;
  const float* value;
  int64_t size;
};

static inline int64_t row_at(const Rows& rows, int64_t q) { return rows.order ? rows.order[q] : q; }

static inline Text text_of(const Rows& rows, int64_t q) {
  const int64_t i = row_at(rows, q), start = rows.indptr[i];
  return {rows.indices + start, rows.values + start, rows.indptr[i + 1] - start};
}

static inline bool indices_fit(const Text& text, int64_t n_features) {
  uint32_t largest = 0;
  for (int64_t e = 0; e < text.size; ++e) {
    const uint32_t j = static_cast<uint32_t>(text.index[e]);
    largest = j > largest ? j : largest;
  }
  return text.size == 0 || static_cast<int64_t>(largest) < n_features;
}

// A row is V vectors wide; V = 0: as many as the stride says.
template <int V>
static inline int64_t width_of(const Embedding& model) {
  return V ? V * kVector : model.stride;
}

template <int V>
static ALWAYS_INLINE void fetch(const float* row, int64_t stride) {
  for (int64_t p = 0; p < (V ? V * kVector : stride); p += 16) PREFETCH(row + p);
}

// The first rows of the next text come while this one ends.
template <int V>
static inline void fetch_first(const Rows& rows, int64_t q, const Embedding& model) {
  if (q >= rows.n) return;
  const Text next = text_of(rows, q);
  for (int64_t e = 0; e < next.size && e < kAhead; ++e) {
    const int64_t j = static_cast<uint32_t>(next.index[e]);
    if (j < model.n_features) fetch<V>(model.table + j * model.stride, model.stride);
  }
}

// h; returns 1 / m.
template <int V>
static float hidden_of(const Text& text, const Embedding& model, float* h) {
  const int64_t stride = model.stride, width = width_of<V>(model);
  const float* const end = model.table + model.n_features * stride;
  float mass = 1.0f;
  if (V > 0) {
    Eight sums[V ? V : 1];
    for (int p = 0; p < V; ++p) sums[p] = load(end + p * kVector);
    for (int64_t e = 0; e < text.size; ++e) {
      if (e + kAhead < text.size) fetch<V>(model.table + text.index[e + kAhead] * stride, stride);
      const float* const row = model.table + text.index[e] * stride;
      const Eight v = all(text.value[e]);
      for (int p = 0; p < V; ++p) sums[p] = fma(v, load(row + p * kVector), sums[p]);
      mass += fabsf(text.value[e]);
    }
    const Eight scale = all(1.0f / mass);
    for (int p = 0; p < V; ++p) store(h + p * kVector, mul(sums[p], scale));
    return 1.0f / mass;
  }
  for (int64_t p = 0; p < width; p += kVector) store(h + p, load(end + p));
  for (int64_t e = 0; e < text.size; ++e) {
    if (e + kAhead < text.size) fetch<V>(model.table + text.index[e + kAhead] * stride, stride);
    const float* const row = model.table + text.index[e] * stride;
    const Eight v = all(text.value[e]);
    for (int64_t p = 0; p < width; p += kVector) store(h + p, fma(v, load(row + p), load(h + p)));
    mass += fabsf(text.value[e]);
  }
  for (int64_t p = 0; p < width; p += kVector) store(h + p, mul(load(h + p), all(1.0f / mass)));
  return 1.0f / mass;
}

template <int V>
static ALWAYS_INLINE float dot(const float* a, const float* b, int64_t width) {
  Eight total = mul(load(a), load(b));
  for (int64_t p = kVector; p < (V ? V * kVector : width); p += kVector)
    total = fma(load(a + p), load(b + p), total);
  return sum(total);
}

template <int V>
static ALWAYS_INLINE void add_scaled(float* to, float scale, const float* from, int64_t width) {
  const Eight s = all(scale);
  for (int64_t p = 0; p < (V ? V * kVector : width); p += kVector)
    store(to + p, fma(s, load(from + p), load(to + p)));
}

// One row of the head answers with slope g: the text learns from the row as it was.
template <int V>
static ALWAYS_INLINE void answer(float g, float step, const float* h, float* row, float* dh, int64_t width) {
  const Eight slope = all(g), move = all(-step * g);
  for (int64_t p = 0; p < (V ? V * kVector : width); p += kVector) {
    const Eight w = load(row + p);
    store(dh + p, fma(slope, w, load(dh + p)));
    store(row + p, fma(move, load(h + p), w));
  }
}

// exp for -87 <= x <= 0, to about 1e-7 (after Cephes): x = n log 2 + r, a polynomial in r, and n into the
// exponent.
#if defined(__AVX2__)
static ALWAYS_INLINE Eight exponential(Eight x) {
  x = larger(x, all(-87.0f));
  const __m256i n = _mm256_cvtps_epi32(mul(x, all(1.44269504f)));
  const Eight whole = _mm256_cvtepi32_ps(n);
  const Eight r = fma(whole, all(2.12194440e-4f), fnma(whole, all(0.693359375f), x));
  Eight p = fma(all(1.9875691500e-4f), r, all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = add(fma(mul(p, r), r, r), all(1.0f));
  return mul(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)));
}
// The sums of eight vectors, side by side.
static ALWAYS_INLINE Eight sums_of(const Eight* a) {
  const Eight low = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
  const Eight high = _mm256_hadd_ps(_mm256_hadd_ps(a[4], a[5]), _mm256_hadd_ps(a[6], a[7]));
  return add(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
#else
static ALWAYS_INLINE Eight exponential(Eight x) {
  for (int j = 0; j < 8; ++j) x.lane[j] = expf(x.lane[j] < -87.0f ? -87.0f : x.lane[j]);
  return x;
}
static ALWAYS_INLINE Eight sums_of(const Eight* a) {
  Eight r;
  for (int j = 0; j < 8; ++j) r.lane[j] = sum(a[j]);
  return r;
}
#endif

struct Labels {
  const int32_t* label;
  int64_t size;
};

static inline Labels labels_of(const Targets& targets, int64_t q) {
  if (targets.start) return {targets.target + targets.start[q], targets.start[q + 1] - targets.start[q]};
  return {targets.target + q, targets.target[q] >= 0 ? 1 : 0};
}

// Eight outputs at a time; there is room for eight more numbers behind the scores of a scratch.
template <int V>
static void all_scores(const Embedding& model, const float* h, float* scores) {
  const int64_t width = width_of<V>(model), stride = model.stride;
  int64_t k = 0;
  for (; k + kVector <= model.n_outputs; k += kVector) {
    Eight sums[kVector];
    const float* const row = model.head + k * stride;
    for (int j = 0; j < kVector; ++j) sums[j] = mul(load(row + j * stride), load(h));
    for (int64_t p = kVector; p < width; p += kVector) {
      const Eight part = load(h + p);
      for (int j = 0; j < kVector; ++j) sums[j] = fma(load(row + j * stride + p), part, sums[j]);
    }
    store(scores + k, sums_of(sums));
  }
  for (; k < model.n_outputs; ++k) scores[k] = dot<V>(model.head + k * stride, h, width);
}

// Replaces scores by exp(score - largest); returns the sum and the largest. Numbers behind the last are
// padding.
struct Exponentials {
  float most;
  float total;
};

static Exponentials exponentials(float* s, int64_t n) {
  Eight most = all(s[0]);
  const int64_t padded = (n + kVector - 1) / kVector * kVector;
  for (int64_t k = n; k < padded; ++k) s[k] = s[0];
  for (int64_t k = 0; k < padded; k += kVector) most = larger(most, load(s + k));
  float lanes[kVector];
  store(lanes, most);
  Exponentials found = {lanes[0], 0.0f};
  for (int j = 1; j < kVector; ++j) found.most = lanes[j] > found.most ? lanes[j] : found.most;
  const Eight shift = all(-found.most);
  for (int64_t k = 0; k < padded; k += kVector) store(s + k, exponential(add(load(s + k), shift)));
  for (int64_t k = n; k < padded; ++k) s[k] = 0.0f;
  Eight total = all(0.0f);
  for (int64_t k = 0; k < padded; k += kVector) total = add(total, load(s + k));
  found.total = sum(total);
  return found;
}

// Each loss below fills dh with sum g_k W_k, moves the head, and returns the loss; infinity: a score is out
// of range and nothing was moved.
struct Lesson {
  const Embedding& model;
  const float* h;
  float* dh;
  float* scores;
  float step;  // eta times the weight of the row
  int64_t width;
  EmbeddingReplica* replica;  // null: there is one learner only
};

static inline void note_answer(const Lesson& a, int64_t row) {
  if (!a.replica || a.replica->answered[row]) return;
  a.replica->answered[row] = 1;
  a.replica->listed[a.replica->n_listed++] = static_cast<int32_t>(row);
}

// All outputs answer with their slopes.
template <int V>
static void answer_all(const Lesson& a, const float* slopes) {
  const int64_t stride = a.model.stride;
  if (V == 0 || V > 4) {
    for (int64_t k = 0; k < a.model.n_outputs; ++k)
      answer<V>(slopes[k], a.step, a.h, a.model.head + k * stride, a.dh, a.width);
    return;
  }
  Eight h[V ? V : 1], sums[V ? V : 1];
  for (int p = 0; p < V; ++p) {
    h[p] = load(a.h + p * kVector);
    sums[p] = all(0.0f);
  }
  for (int64_t k = 0; k < a.model.n_outputs; ++k) {
    float* const row = a.model.head + k * stride;
    const Eight slope = all(slopes[k]), move = all(-a.step * slopes[k]);
    for (int p = 0; p < V; ++p) {
      const Eight w = load(row + p * kVector);
      sums[p] = fma(slope, w, sums[p]);
      store(row + p * kVector, fma(move, h[p], w));
    }
  }
  for (int p = 0; p < V; ++p) store(a.dh + p * kVector, sums[p]);
}

template <int V>
static double softmax(const Lesson& a, const Labels& labels) {
  const int64_t n = a.model.n_outputs;
  float* const s = a.scores;
  all_scores<V>(a.model, a.h, s);
  const float share = 1.0f / static_cast<float>(labels.size);
  double loss = 0;
  for (int64_t l = 0; l < labels.size; ++l) loss -= share * s[labels.label[l]];
  const Exponentials found = exponentials(s, n);
  if (!(fabsf(found.most) < kTooLarge) || !(fabs(loss) < kTooLarge) || !(found.total > 0)) return INFINITY;
  const Eight scale = all(1 / found.total);
  for (int64_t k = 0; k < n; k += kVector) store(s + k, mul(load(s + k), scale));
  for (int64_t l = 0; l < labels.size; ++l) s[labels.label[l]] -= share;
  answer_all<V>(a, s);
  return loss + found.most + log(static_cast<double>(found.total));
}

// The logistic loss of one row of the head; side +1 or -1.
template <int V>
static inline double one_answer(const Lesson& a, int64_t row, float side, float share) {
  float* const w = a.model.head + row * a.model.stride;
  const float score = dot<V>(w, a.h, a.width);
  if (!(fabsf(score) < kTooLarge)) return INFINITY;
  note_answer(a, row);
  const LossAndSlope l = logistic<false>(static_cast<double>(side) * score);
  answer<V>(static_cast<float>(side * share * l.slope), a.step, a.h, w, a.dh, a.width);
  return share * l.value;
}

template <int V>
static double one_versus_all(const Lesson& a, const Labels& labels) {
  const int64_t n = a.model.n_outputs;
  all_scores<V>(a.model, a.h, a.scores);
  float* const sides = a.scores + n + kVector;
  for (int64_t k = 0; k < n; ++k) {
    if (!(fabsf(a.scores[k]) < kTooLarge)) return INFINITY;
    sides[k] = -1.0f;
  }
  for (int64_t l = 0; l < labels.size; ++l) sides[labels.label[l]] = 1.0f;
  double loss = 0;
  for (int64_t k = 0; k < n; ++k) {
    const LossAndSlope l = logistic<false>(static_cast<double>(sides[k]) * a.scores[k]);
    loss += l.value;
    sides[k] *= static_cast<float>(l.slope);
  }
  answer_all<V>(a, sides);
  return loss;
}

// splitmix64: the same numbers for a row whatever chunk it comes in.
static inline uint64_t next_random(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static inline bool is_among(const Labels& labels, int32_t label) {
  for (int64_t l = 0; l < labels.size; ++l)
    if (labels.label[l] == label) return true;
  return false;
}

template <int V>
static double some_negatives(const Lesson& a, const Labels& labels, const EmbeddingRule& rule, double t) {
  const float share = 1.0f / static_cast<float>(labels.size);
  double loss = 0;
  for (int64_t l = 0; l < labels.size; ++l) loss += one_answer<V>(a, labels.label[l], 1.0f, share);
  uint64_t state = rule.seed ^ (static_cast<uint64_t>(t) * 0xD1342543DE82EF95u);
  for (int32_t draw = 0; draw < rule.negatives && rule.n_sample; ++draw) {
    const int32_t label = rule.sample[next_random(&state) % static_cast<uint64_t>(rule.n_sample)];
    if (!is_among(labels, label)) loss += one_answer<V>(a, label, -1.0f, 1.0f);
  }
  return loss;
}

template <int V>
static double along_the_tree(const Lesson& a, const Labels& labels, const Tree& tree) {
  const float share = 1.0f / static_cast<float>(labels.size);
  double loss = 0;
  for (int64_t l = 0; l < labels.size; ++l)
    for (int64_t e = tree.start[labels.label[l]]; e < tree.start[labels.label[l] + 1]; ++e)
      loss += one_answer<V>(a, tree.node[e], tree.side[e], share);
  return loss;
}

// One feature learns; tells whether it had never before. A row that begins with zeros was never learned, or
// will be told twice, which does no harm.
template <int V>
static ALWAYS_INLINE bool update_feature(float* row, float move, const float* dh, int64_t width) {
  const Eight zero = all(0.0f), by = all(move), first = load(row);
  store(row, fma(by, load(dh), first));
  for (int64_t p = kVector; p < (V ? V * kVector : width); p += kVector)
    store(row + p, fma(by, load(dh + p), load(row + p)));
  return !(above(first, zero) | above(zero, first));
}

template <int V>
static int64_t update_text(const Text& text, const Embedding& model, float step, const float* dh,
                           int32_t* fresh) {
  const int64_t stride = model.stride, width = width_of<V>(model);
  int64_t n_fresh = 0;
  for (int64_t e = 0; e < text.size; ++e) {
    fresh[n_fresh] = text.index[e];
    n_fresh += update_feature<V>(model.table + text.index[e] * stride, -step * text.value[e], dh, width);
  }
  add_scaled<V>(model.table + model.n_features * stride, -step, dh, width);
  return n_fresh;
}

// Neighbours go to different parts.
static inline int64_t owner_of(int32_t feature, int64_t n_parts) {
  const uint32_t mixed = static_cast<uint32_t>(feature) * 2654435769u;
  return static_cast<int64_t>(static_cast<uint64_t>(mixed) * static_cast<uint64_t>(n_parts) >> 32);
}

static inline double step_at(const EmbeddingRule& rule, double t) {
  if (rule.total > 0) return t < rule.total ? rule.eta0 * (1 - t / rule.total) : 0.0;
  return rule.eta0 / sqrt(1 + t / rule.half);
}

template <int V>
static double teach(const Lesson& a, const Labels& labels, const Tree& tree, const EmbeddingRule& rule,
                    double t) {
  switch (rule.loss) {
    case kOneVersusAll:
      return one_versus_all<V>(a, labels);
    case kNegatives:
      return some_negatives<V>(a, labels, rule, t);
    case kHierarchical:
      return along_the_tree<V>(a, labels, tree);
    default:
      return softmax<V>(a, labels);
  }
}

// A replica keeps what it has learned of the table to itself; without one, the table learns at once.
template <int V>
static ALWAYS_INLINE EmbeddingOutcome learn_rows(const Rows& rows, const Targets& targets,
                                                 const Embedding& model, const Tree& tree,
                                                 const EmbeddingRule& rule, double t, double every,
                                                 float* scratch, int32_t* fresh, EmbeddingReplica* replica) {
  EmbeddingOutcome outcome = {0, kFine, 0, 0, 0};
  const int64_t width = width_of<V>(model);
  float* const h = scratch;
  EmbeddingReplica* const listing = replica && replica->answered ? replica : nullptr;
  for (int64_t q = 0; q < rows.n; ++q, t += every) {
    const int64_t i = row_at(rows, q);
    const Text text = text_of(rows, q);
    const double weight = rows.weight ? rows.weight[i] : 1.0;
    const Labels labels = labels_of(targets, q);
    float* const dh = replica ? replica->slope + q * model.stride : scratch + model.stride;
    if (replica) replica->move[q] = 0.0f;
    outcome.rows_done = q;
    if (!indices_fit(text, model.n_features)) {
      outcome.status = kBadIndex;
      return outcome;
    }
    // Without a label there is nothing to learn, except that it is none of all.
    if (weight == 0 || (labels.size == 0 && rule.loss != kOneVersusAll)) continue;
    const float inverse = hidden_of<V>(text, model, h);
    for (int64_t p = 0; p < width; ++p) dh[p] = 0.0f;
    const float step = static_cast<float>(step_at(rule, t) * weight);
    const Lesson lesson = {model, h, dh, scratch + 2 * model.stride, step, width, listing};
    const double loss = teach<V>(lesson, labels, tree, rule, t);
    if (!(loss < 1e30)) {
      outcome.status = kNotFinite;
      return outcome;
    }
    fetch_first<V>(rows, q + 1, model);
    if (replica) {
      replica->move[q] = step * inverse;
    } else {
      outcome.n_fresh += update_text<V>(text, model, step * inverse, dh, fresh + outcome.n_fresh);
    }
    outcome.loss_sum += weight * loss;
    outcome.weight_sum += weight;
  }
  outcome.rows_done = rows.n;
  return outcome;
}

template <int V>
static EmbeddingOutcome learn_together(const Rows& rows, const Targets& targets, const Embedding& model,
                                       const Tree& tree, const EmbeddingRule& rule, double t, double every,
                                       float* scratch, int32_t* fresh) {
  return learn_rows<V>(rows, targets, model, tree, rule, t, every, scratch, fresh, nullptr);
}

template <int V>
static EmbeddingOutcome learn_alone(const Rows& rows, const Targets& targets, const Embedding& model,
                                    const Tree& tree, const EmbeddingRule& rule, double t, float* scratch,
                                    EmbeddingReplica* replica) {
  return learn_rows<V>(rows, targets, model, tree, rule, t, 1.0, scratch, nullptr, replica);
}

// The moves are listed first, so that rows can be fetched ahead from text to text.
template <int V>
static int64_t add_up_rows(const Rows& rows, const Embedding& model, const float* slope, const float* move,
                           int64_t part, int64_t n_parts, EmbeddingMove* own, int32_t* fresh) {
  const int64_t stride = model.stride, width = width_of<V>(model);
  float* const end = model.table + model.n_features * stride;
  int64_t n = 0, n_fresh = 0;
  for (int64_t q = 0; q < rows.n; ++q) {
    if (move[q] == 0.0f) continue;
    const Text text = text_of(rows, q);
    for (int64_t e = 0; e < text.size; ++e) {
      own[n] = {text.index[e], -move[q] * text.value[e], q * stride};
      n += owner_of(text.index[e], n_parts) == part;
    }
    if (part == 0) add_scaled<V>(end, -move[q], slope + q * stride, width);
  }
  for (int64_t k = 0; k < n; ++k) {
    if (k + kAhead < n) fetch<V>(model.table + own[k + kAhead].feature * stride, stride);
    float* const row = model.table + own[k].feature * stride;
    fresh[n_fresh] = own[k].feature;
    n_fresh += update_feature<V>(row, own[k].by, slope + own[k].slope, width);
  }
  return n_fresh;
}

// All replicas' changes to a row of the head are added up; then it is the same for all.
static void meet_row(float* common, EmbeddingReplica* replicas, int64_t n, int64_t row, int64_t stride) {
  for (int64_t p = row * stride; p < (row + 1) * stride; p += kVector) {
    const Eight before = load(common + p);
    Eight after = before;
    for (int64_t r = 0; r < n; ++r) after = add(after, fma(before, all(-1.0f), load(replicas[r].head + p)));
    store(common + p, after);
    for (int64_t r = 0; r < n; ++r) store(replicas[r].head + p, after);
  }
}

static void meet(const Embedding& model, EmbeddingReplica* replicas, int64_t n, int64_t part,
                 int64_t n_parts) {
  if (!replicas[0].answered) {
    const int64_t first = model.n_outputs * part / n_parts, last = model.n_outputs * (part + 1) / n_parts;
    for (int64_t k = first; k < last; ++k) meet_row(model.head, replicas, n, k, model.stride);
    return;
  }
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t l = 0; l < replicas[r].n_listed; ++l) {
      const int32_t k = replicas[r].listed[l];
      if (k % n_parts != part || !replicas[r].answered[k]) continue;  // an earlier replica had it, too
      for (int64_t other = r; other < n; ++other) replicas[other].answered[k] = 0;
      meet_row(model.head, replicas, n, k, model.stride);
    }
  }
}

// log-probabilities of the labels, from the root down.
template <int V>
static void leaf_scores(const Embedding& model, const Tree& tree, const float* h, float* at_node,
                        float* out) {
  const int64_t width = width_of<V>(model);
  at_node[tree.top_down[0]] = 0.0f;
  for (int64_t n = 0; n < tree.n_nodes; ++n) {
    const int32_t node = tree.top_down[n];
    const float score = dot<V>(model.head + node * model.stride, h, width);
    for (int child = 0; child < 2; ++child) {
      const int32_t to = tree.children[2 * node + child];
      const float here = at_node[node] - static_cast<float>(logistic<false>(child ? -score : score).value);
      if (to >= 0) {
        at_node[to] = here;
      } else {
        out[-1 - to] = here;
      }
    }
  }
}

template <int V>
static int64_t score_rows(const Rows& rows, const Embedding& model, const Tree& tree, float* out,
                          float* scratch) {
  const int64_t n_out = tree.n_nodes ? tree.n_nodes + 1 : model.n_outputs;
  for (int64_t q = 0; q < rows.n; ++q) {
    const Text text = text_of(rows, q);
    if (!indices_fit(text, model.n_features)) return q;
    hidden_of<V>(text, model, scratch);
    fetch_first<V>(rows, q + 1, model);
    if (tree.n_nodes) {
      leaf_scores<V>(model, tree, scratch, scratch + 2 * model.stride, out + q * n_out);
    } else {
      all_scores<V>(model, scratch, out + q * n_out);
    }
  }
  return rows.n;
}

template <int V>
static int64_t hidden_rows(const Rows& rows, const Embedding& model, float* out) {
  for (int64_t q = 0; q < rows.n; ++q) {
    const Text text = text_of(rows, q);
    if (!indices_fit(text, model.n_features)) return q;
    hidden_of<V>(text, model, out + q * model.stride);
  }
  return rows.n;
}

#define BY_WIDTH(function, ...)         \
  switch (model.stride / kVector) {     \
    case 1:                             \
      return function<1>(__VA_ARGS__);  \
    case 2:                             \
      return function<2>(__VA_ARGS__);  \
    case 4:                             \
      return function<4>(__VA_ARGS__);  \
    case 13:                            \
      return function<13>(__VA_ARGS__); \
    default:                            \
      return function<0>(__VA_ARGS__);  \
  }

static EmbeddingOutcome learn(const Rows& rows, const Targets& targets, const Embedding& model,
                              const Tree& tree, const EmbeddingRule& rule, double t, double every,
                              float* scratch, int32_t* fresh) {
  BY_WIDTH(learn_together, rows, targets, model, tree, rule, t, every, scratch, fresh)
}

static EmbeddingOutcome learn_apart(const Rows& rows, const Targets& targets, const Embedding& model,
                                    const Tree& tree, const EmbeddingRule& rule, double t, float* scratch,
                                    EmbeddingReplica& replica) {
  Embedding own = model;
  own.head = replica.head;
  BY_WIDTH(learn_alone, rows, targets, own, tree, rule, t, scratch, &replica)
}

static int64_t add_up(const Rows& rows, const Embedding& model, const float* slope, const float* move,
                      int64_t part, int64_t n_parts, EmbeddingMove* own, int32_t* fresh) {
  BY_WIDTH(add_up_rows, rows, model, slope, move, part, n_parts, own, fresh)
}

static int64_t scores(const Rows& rows, const Embedding& model, const Tree& tree, float* out,
                      float* scratch) {
  BY_WIDTH(score_rows, rows, model, tree, out, scratch)
}

static int64_t hidden(const Rows& rows, const Embedding& model, float* out) {
  BY_WIDTH(hidden_rows, rows, model, out)
}

extern const EmbeddingTable embedding_table;
const EmbeddingTable embedding_table = {learn, scores, hidden, learn_apart, add_up, meet};

}  // namespace STEEPEST_ISA
}  // namespace steepest
