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
#include "core/random.h"
#include "core/simd.h"
#include "embedding/embedding_table.h"
#include "linear/losses.h"

namespace steepest {
namespace STEEPEST_ISA {

constexpr int64_t kAhead = 12;      // entries between a prefetch and its use
constexpr float kTooLarge = 1e15f;  // a score that only divergence reaches

// exp for -87 <= x <= 0, to about 1e-7 (after Cephes): x = n log 2 + r, a polynomial in r, and n into the
// exponent.
#if defined(__AVX2__)
static ALWAYS_INLINE Float8 exponential(Float8 x) {
  x = max(x, all(-87.0f));
  const __m256i n = _mm256_cvtps_epi32(mul(x, all(1.44269504f)));
  const Float8 whole = _mm256_cvtepi32_ps(n);
  const Float8 r = fma(whole, all(2.12194440e-4f), fnma(whole, all(0.693359375f), x));
  Float8 p = fma(all(1.9875691500e-4f), r, all(1.3981999507e-3f));
  p = fma(p, r, all(8.3334519073e-3f));
  p = fma(p, r, all(4.1665795894e-2f));
  p = fma(p, r, all(1.6666665459e-1f));
  p = fma(p, r, all(5.0000001201e-1f));
  p = add(fma(mul(p, r), r, r), all(1.0f));
  return mul(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23)));
}
// The sums of eight vectors, side by side.
static ALWAYS_INLINE Float8 sums_of(const Float8* a) {
  const Float8 low = _mm256_hadd_ps(_mm256_hadd_ps(a[0], a[1]), _mm256_hadd_ps(a[2], a[3]));
  const Float8 high = _mm256_hadd_ps(_mm256_hadd_ps(a[4], a[5]), _mm256_hadd_ps(a[6], a[7]));
  return add(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
}
#else
static ALWAYS_INLINE Float8 exponential(Float8 x) {
  float lane[8];
  store(lane, x);
  for (int j = 0; j < 8; ++j) lane[j] = expf(lane[j] < -87.0f ? -87.0f : lane[j]);
  return load(lane);
}
static ALWAYS_INLINE Float8 sums_of(const Float8* a) {
  float r[8];
  for (int j = 0; j < 8; ++j) r[j] = sum(a[j]);
  return load(r);
}
#endif

// Replaces scores by exp(score - largest); returns the sum and the largest. Numbers behind the last are
// padding.
struct Exponentials {
  float most;
  float total;
};

static Exponentials exponentials(float* s, int64_t n) {
  Float8 most = all(s[0]);
  const int64_t padded = (n + kVector - 1) / kVector * kVector;
  for (int64_t k = n; k < padded; ++k) s[k] = s[0];
  for (int64_t k = 0; k < padded; k += kVector) most = max(most, load(s + k));
  float lanes[kVector];
  store(lanes, most);
  Exponentials found = {lanes[0], 0.0f};
  for (int j = 1; j < kVector; ++j) found.most = lanes[j] > found.most ? lanes[j] : found.most;
  const Float8 shift = all(-found.most);
  for (int64_t k = 0; k < padded; k += kVector) store(s + k, exponential(add(load(s + k), shift)));
  for (int64_t k = n; k < padded; ++k) s[k] = 0.0f;
  Float8 total = all(0.0f);
  for (int64_t k = 0; k < padded; k += kVector) total = add(total, load(s + k));
  found.total = sum(total);
  return found;
}

struct Labels {
  const int32_t* label;
  int64_t size;

  bool contains(int32_t one) const {
    for (int64_t l = 0; l < size; ++l)
      if (label[l] == one) return true;
    return false;
  }
};

static inline Labels labels_of(const LabelLists& targets, int64_t q) {
  if (targets.start) return {targets.label + targets.start[q], targets.start[q + 1] - targets.start[q]};
  return {targets.label + q, targets.label[q] >= 0 ? 1 : 0};
}

static inline double step_at(const EmbeddingChoices& c, double t) {
  if (c.total > 0) return t < c.total ? c.eta0 * (1 - t / c.total) : 0.0;
  return c.eta0 / sqrt(1 + t / c.half);
}

// Neighbours go to different parts.
static inline int64_t owner_of(int32_t feature, int64_t n_parts) {
  const uint32_t mixed = static_cast<uint32_t>(feature) * 2654435769u;
  return static_cast<int64_t>(static_cast<uint64_t>(mixed) * static_cast<uint64_t>(n_parts) >> 32);
}

// A row is V vectors wide; V = 0: as many as the stride says.
template <int V>
struct Texts {
  const Embedding model;
  // Of the text at work: h, sum g_k W_k, and room for its scores and eight more numbers, twice.
  float *h, *dh, *scores;
  float step;                 // eta times the weight of the text
  EmbeddingReplica* replica;  // null: there is one learner only

  Texts(const Embedding& learned, float* scratch, EmbeddingReplica* own = nullptr)
      : model(learned),
        h(scratch),
        dh(scratch + learned.stride),
        scores(scratch + 2 * learned.stride),
        step(0),
        replica(own) {}

  ALWAYS_INLINE int64_t width() const { return V ? V * kVector : model.stride; }
  ALWAYS_INLINE float* row_of(int64_t feature) const { return model.table + feature * model.stride; }
  ALWAYS_INLINE void fetch(int64_t feature) const {
    for (int64_t p = 0; p < width(); p += kFloatsPerLine) PREFETCH(row_of(feature) + p);
  }

  // The first rows of the next text come while this one ends.
  void fetch_first(const Rows& rows, int64_t q) const {
    if (q >= rows.n) return;
    const Row next = row_in_turn(rows, q);
    for (int64_t e = 0; e < next.n && e < kAhead; ++e)
      if (static_cast<uint32_t>(next.index[e]) < model.n_features) fetch(next.index[e]);
  }

  ALWAYS_INLINE float dot(const float* a, const float* b) const {
    Float8 total = mul(load(a), load(b));
    for (int64_t p = kVector; p < width(); p += kVector) total = fma(load(a + p), load(b + p), total);
    return sum(total);
  }

  // h of a text; returns 1 / m. V = 0: h itself holds the sums.
  float find_hidden(const Row& text, float* to) const {
    const float* const end = row_of(model.n_features);
    float mass = 1.0f;
    Float8 sums[V ? V : 1];
    const auto get = [&](int64_t p) { return V ? sums[p / kVector] : load(to + p); };
    const auto put = [&](int64_t p, Float8 a) {
      if (V)
        sums[p / kVector] = a;
      else
        store(to + p, a);
    };
    for (int64_t p = 0; p < width(); p += kVector) put(p, load(end + p));
    for (int64_t e = 0; e < text.n; ++e) {
      if (e + kAhead < text.n) fetch(text.index[e + kAhead]);
      const float* const row = row_of(text.index[e]);
      const Float8 v = all(text.value[e]);
      for (int64_t p = 0; p < width(); p += kVector) put(p, fma(v, load(row + p), get(p)));
      mass += fabsf(text.value[e]);
    }
    const Float8 scale = all(1.0f / mass);
    for (int64_t p = 0; p < width(); p += kVector) store(to + p, mul(get(p), scale));
    return 1.0f / mass;
  }

  // -------------------------------------------------------------------------------------------------- scores

  // Eight outputs at a time.
  void all_scores(float* out) const {
    const int64_t stride = model.stride;
    int64_t k = 0;
    for (; k + kVector <= model.n_outputs; k += kVector) {
      Float8 sums[kVector];
      const float* const row = model.head + k * stride;
      for (int j = 0; j < kVector; ++j) sums[j] = mul(load(row + j * stride), load(h));
      for (int64_t p = kVector; p < width(); p += kVector) {
        const Float8 part = load(h + p);
        for (int j = 0; j < kVector; ++j) sums[j] = fma(load(row + j * stride + p), part, sums[j]);
      }
      store(out + k, sums_of(sums));
    }
    for (; k < model.n_outputs; ++k) out[k] = dot(model.head + k * stride, h);
  }

  // log-probabilities of the labels, from the root down.
  void leaf_scores(float* out) const {
    const LabelTree& tree = model.tree;
    float* const at_node = scores;
    at_node[tree.top_down[0]] = 0.0f;
    for (int64_t n = 0; n < tree.n_nodes; ++n) {
      const int32_t node = tree.top_down[n];
      const float score = dot(model.head + node * model.stride, h);
      for (int child = 0; child < 2; ++child) {
        const int32_t to = tree.children[2 * node + child];
        const float here = at_node[node] - static_cast<float>(logistic<false>(child ? -score : score).value);
        *(to >= 0 ? at_node + to : out + (-1 - to)) = here;
      }
    }
  }

  int64_t score(const Rows& rows, float* out) const {
    for (int64_t q = 0; q < rows.n; ++q, out += model.n_labels()) {
      const Row text = row_in_turn(rows, q);
      if (!indices_fit(text, model.n_features)) return q;
      find_hidden(text, h);
      fetch_first(rows, q + 1);
      if (model.tree.n_nodes)
        leaf_scores(out);
      else
        all_scores(out);
    }
    return rows.n;
  }

  int64_t hidden(const Rows& rows, float* out) const {
    for (int64_t q = 0; q < rows.n; ++q) {
      const Row text = row_in_turn(rows, q);
      if (!indices_fit(text, model.n_features)) return q;
      find_hidden(text, out + q * model.stride);
    }
    return rows.n;
  }

  // -------------------------------------------------------------------------------------------------- losses
  //
  // Each fills dh with sum g_k W_k, moves the head, and returns the loss; infinity: a score is out of range
  // and nothing was moved.

  // One row of the head moves by the gradient g of its score: the text learns from the row as it was.
  ALWAYS_INLINE void move_row(float* row, float g) const {
    const Float8 gradient = all(g), move = all(-step * g);
    for (int64_t p = 0; p < width(); p += kVector) {
      const Float8 w = load(row + p);
      store(dh + p, fma(gradient, w, load(dh + p)));
      store(row + p, fma(move, load(h + p), w));
    }
  }

  // All outputs move by the gradients of their scores.
  void move_all(const float* gradients) const {
    if (V == 0 || V > 4) {
      for (int64_t k = 0; k < model.n_outputs; ++k) move_row(model.head + k * model.stride, gradients[k]);
      return;
    }
    Float8 text[V ? V : 1], sums[V ? V : 1];
    for (int p = 0; p < V; ++p) {
      text[p] = load(h + p * kVector);
      sums[p] = all(0.0f);
    }
    for (int64_t k = 0; k < model.n_outputs; ++k) {
      float* const row = model.head + k * model.stride;
      const Float8 gradient = all(gradients[k]), move = all(-step * gradients[k]);
      for (int p = 0; p < V; ++p) {
        const Float8 w = load(row + p * kVector);
        sums[p] = fma(gradient, w, sums[p]);
        store(row + p * kVector, fma(move, text[p], w));
      }
    }
    for (int p = 0; p < V; ++p) store(dh + p * kVector, sums[p]);
  }

  double softmax(const Labels& labels) const {
    float* const s = scores;
    all_scores(s);
    const float share = 1.0f / static_cast<float>(labels.size);
    double loss = 0;
    for (int64_t l = 0; l < labels.size; ++l) loss -= share * s[labels.label[l]];
    const Exponentials found = exponentials(s, model.n_outputs);
    if (!(fabsf(found.most) < kTooLarge) || !(fabs(loss) < kTooLarge) || !(found.total > 0)) return INFINITY;
    const Float8 scale = all(1 / found.total);
    for (int64_t k = 0; k < model.n_outputs; k += kVector) store(s + k, mul(load(s + k), scale));
    for (int64_t l = 0; l < labels.size; ++l) s[labels.label[l]] -= share;
    move_all(s);
    return loss + found.most + log(static_cast<double>(found.total));
  }

  double one_versus_all(const Labels& labels) const {
    const int64_t n = model.n_outputs;
    all_scores(scores);
    float* const sides = scores + n + kVector;
    for (int64_t k = 0; k < n; ++k) {
      if (!(fabsf(scores[k]) < kTooLarge)) return INFINITY;
      sides[k] = -1.0f;
    }
    for (int64_t l = 0; l < labels.size; ++l) sides[labels.label[l]] = 1.0f;
    double loss = 0;
    for (int64_t k = 0; k < n; ++k) {
      const LossAndGradient l = logistic<false>(static_cast<double>(sides[k]) * scores[k]);
      loss += l.value;
      sides[k] *= static_cast<float>(l.gradient);
    }
    move_all(sides);
    return loss;
  }

  // The logistic loss of one row of the head; side +1 or -1.
  double learn_side(int32_t number, float side, float share) const {
    float* const row = model.head + number * model.stride;
    const float score = dot(row, h);
    if (!(fabsf(score) < kTooLarge)) return INFINITY;
    if (replica && replica->moved && !replica->moved[number]) {
      replica->moved[number] = 1;
      replica->listed[replica->n_listed++] = number;
    }
    const LossAndGradient l = logistic<false>(static_cast<double>(side) * score);
    move_row(row, static_cast<float>(side * share * l.gradient));
    return share * l.value;
  }

  double some_negatives(const Labels& labels, const EmbeddingChoices& c, double t) const {
    const float share = 1.0f / static_cast<float>(labels.size);
    double loss = 0;
    for (int64_t l = 0; l < labels.size; ++l) loss += learn_side(labels.label[l], 1.0f, share);
    uint64_t state = c.seed ^ (static_cast<uint64_t>(t) * 0xD1342543DE82EF95u);
    for (int32_t draw = 0; draw < c.negatives && c.n_sample; ++draw) {
      const int32_t label = c.sample[next_random(&state) % static_cast<uint64_t>(c.n_sample)];
      if (!labels.contains(label)) loss += learn_side(label, -1.0f, 1.0f);
    }
    return loss;
  }

  double along_the_tree(const Labels& labels) const {
    const LabelTree& tree = model.tree;
    const float share = 1.0f / static_cast<float>(labels.size);
    double loss = 0;
    for (int64_t l = 0; l < labels.size; ++l)
      for (int64_t e = tree.start[labels.label[l]]; e < tree.start[labels.label[l] + 1]; ++e)
        loss += learn_side(tree.node[e], tree.side[e], share);
    return loss;
  }

  double learn_head(const Labels& labels, const EmbeddingChoices& c, double t) const {
    if (c.loss == kOneVersusAll) return one_versus_all(labels);
    if (c.loss == kNegatives) return some_negatives(labels, c, t);
    return c.loss == kHierarchical ? along_the_tree(labels) : softmax(labels);
  }

  // --------------------------------------------------------------------------------------------------- texts

  // A feature's row += by * gradient; whether it had never learned before. A row that begins with zeros was
  // never learned, or will be reported twice, which does no harm.
  ALWAYS_INLINE bool update_feature(int64_t feature, float by, const float* gradient) const {
    float* const row = row_of(feature);
    const Float8 zero = all(0.0f), scale = all(by), first = load(row);
    store(row, fma(scale, load(gradient), first));
    for (int64_t p = kVector; p < width(); p += kVector)
      store(row + p, fma(scale, load(gradient + p), load(row + p)));
    return !(above(first, zero) | above(zero, first));
  }

  // A replica keeps what it has learned of the table to itself; without one, the table learns at once.
  EmbeddingOutcome learn(const EmbeddingTask& task, int32_t* fresh) {
    EmbeddingOutcome outcome = {{0, kFine, 0, 0}, 0};
    const Rows& rows = task.rows;
    double t = task.t;
    for (int64_t q = 0; q < rows.n; ++q, t += task.every) {
      const Row text = row_in_turn(rows, q);
      const double weight = weight_at(rows, row_at(rows, q));
      const Labels labels = labels_of(task.targets, q);
      if (replica) {
        dh = replica->gradient + q * model.stride;
        replica->move[q] = 0.0f;
      }
      outcome.rows_done = q;
      if (!indices_fit(text, model.n_features)) {
        outcome.status = kBadIndex;
        return outcome;
      }
      // Without a label there is nothing to learn, except that it is none of all.
      if (weight == 0 || (labels.size == 0 && task.choices.loss != kOneVersusAll)) continue;
      const float inverse = find_hidden(text, h);
      for (int64_t p = 0; p < width(); ++p) dh[p] = 0.0f;
      step = static_cast<float>(step_at(task.choices, t) * weight);
      const double loss = learn_head(labels, task.choices, t);
      if (!(loss < 1e30)) {
        outcome.status = kNotFinite;
        return outcome;
      }
      fetch_first(rows, q + 1);
      const float move = step * inverse;
      if (replica) {
        replica->move[q] = move;
      } else {
        for (int64_t e = 0; e < text.n; ++e) {
          fresh[outcome.n_fresh] = text.index[e];
          outcome.n_fresh += update_feature(text.index[e], -move * text.value[e], dh);
        }
        update_feature(model.n_features, -move, dh);
      }
      outcome.loss_sum += weight * loss;
      outcome.weight_sum += weight;
    }
    outcome.rows_done = rows.n;
    return outcome;
  }

  // The moves are listed first, so that rows can be fetched ahead from text to text.
  int64_t add_up(const Rows& rows, const float* gradient, const float* move, const Share& share,
                 EmbeddingMove* own, int32_t* fresh) const {
    int64_t n = 0, n_fresh = 0;
    for (int64_t q = 0; q < rows.n; ++q) {
      if (move[q] == 0.0f) continue;
      const Row text = row_in_turn(rows, q);
      for (int64_t e = 0; e < text.n; ++e) {
        own[n] = {text.index[e], -move[q] * text.value[e], q * model.stride};
        n += owner_of(text.index[e], share.n) == share.part;
      }
      if (share.part == 0) update_feature(model.n_features, -move[q], gradient + q * model.stride);
    }
    for (int64_t k = 0; k < n; ++k) {
      if (k + kAhead < n) fetch(own[k + kAhead].feature);
      fresh[n_fresh] = own[k].feature;
      n_fresh += update_feature(own[k].feature, own[k].by, gradient + own[k].gradient);
    }
    return n_fresh;
  }
};

// Calls a method of texts as wide as the model.
#define BY_WIDTH(model, scratch, replica, call)       \
  switch ((model).stride / kVector) {                 \
    case 1:                                           \
      return Texts<1>(model, scratch, replica).call;  \
    case 2:                                           \
      return Texts<2>(model, scratch, replica).call;  \
    case 4:                                           \
      return Texts<4>(model, scratch, replica).call;  \
    case 13:                                          \
      return Texts<13>(model, scratch, replica).call; \
    default:                                          \
      return Texts<0>(model, scratch, replica).call;  \
  }

static EmbeddingOutcome learn(const EmbeddingTask& task, float* scratch, int32_t* fresh,
                              EmbeddingReplica* replica) {
  BY_WIDTH(task.model, scratch, replica, learn(task, fresh))
}

static int64_t scores(const Rows& rows, const Embedding& model, float* out, float* scratch) {
  BY_WIDTH(model, scratch, nullptr, score(rows, out))
}

static int64_t hidden(const Rows& rows, const Embedding& model, float* out) {
  BY_WIDTH(model, out, nullptr, hidden(rows, out))
}

static int64_t add_up(const Rows& rows, const Embedding& model, const float* gradient, const float* move,
                      const Share& share, EmbeddingMove* own, int32_t* fresh) {
  BY_WIDTH(model, model.table, nullptr, add_up(rows, gradient, move, share, own, fresh))
}

// All replicas' changes to a row of the head are added up; then it is the same for all.
static void merge_row(float* common, EmbeddingReplica* replicas, int64_t n, int64_t row, int64_t stride) {
  for (int64_t p = row * stride; p < (row + 1) * stride; p += kVector) {
    const Float8 before = load(common + p);
    Float8 after = before;
    for (int64_t r = 0; r < n; ++r) after = add(after, fma(before, all(-1.0f), load(replicas[r].head + p)));
    store(common + p, after);
    for (int64_t r = 0; r < n; ++r) store(replicas[r].head + p, after);
  }
}

static void merge_heads(const Embedding& model, EmbeddingReplica* replicas, int64_t n, const Share& share) {
  if (!replicas[0].moved) {
    const int64_t last = model.n_outputs * (share.part + 1) / share.n;
    for (int64_t k = model.n_outputs * share.part / share.n; k < last; ++k)
      merge_row(model.head, replicas, n, k, model.stride);
    return;
  }
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t l = 0; l < replicas[r].n_listed; ++l) {
      const int32_t k = replicas[r].listed[l];
      if (k % share.n != share.part || !replicas[r].moved[k]) continue;  // an earlier replica had it, too
      for (int64_t other = r; other < n; ++other) replicas[other].moved[k] = 0;
      merge_row(model.head, replicas, n, k, model.stride);
    }
  }
}

extern const EmbeddingTable embedding_table;
const EmbeddingTable embedding_table = {learn, scores, hidden, add_up, merge_heads};

}  // namespace STEEPEST_ISA
}  // namespace steepest
