/* @HEADING@
 *
 * C99, no allocation, no state. Link with the mathematical library (-lm).
 * Compile with -DSTEEPEST_TEST for a program that checks the pairs at the end of this file.
@NOTES@
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

@DATA@
//@ if text_ids
static int32_t find_text(const char *bytes, const uint32_t *starts, const uint32_t *rows, int32_t n, const char *id) {
  int32_t low = 0, high = n;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    const int order = strcmp(bytes + starts[middle], id);
    if (order == 0) return (int32_t)rows[middle];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return -1;
}

//@ end
//@ if number_ids
static int32_t find_number(const int64_t *ids, const uint32_t *rows, int32_t n, int64_t id) {
  int32_t low = 0, high = n;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    if (ids[middle] == id) return (int32_t)rows[middle];
    if (ids[middle] < id)
      low = middle + 1;
    else
      high = middle;
  }
  return -1;
}

//@ end
@FIND@
/* The raw score of a pair of rows; -1 for a user or an item that is not known, which counts with nothing. */
double steepest_score(int32_t user, int32_t item) {
  double total = OFFSET;
  uint32_t k;
  if (user >= 0) total += user_at(user, 0);
  if (item >= 0) total += item_at(item, 0);
  if (user >= 0 && item >= 0)
    for (k = 1; k <= RANK; ++k) total += (double)user_at(user, k) * item_at(item, k);
  return total * SCALE + MEAN;
}

/* The rating, or the probability, of a pair of rows. */
double steepest_predict(int32_t user, int32_t item) {
  const double score = steepest_score(user, item);
//@ if sigmoid
  const double e = exp(-fabs(score));
  return (score < 0 ? e : 1.0) / (1.0 + e);
//@ else
  return score < LOWEST ? LOWEST : score > HIGHEST ? HIGHEST : score;
//@ end
}

/* The best items of a user, at most k, best first; returns how many. `items` and `scores` have room for k. */
int32_t steepest_recommend(int32_t user, int32_t k, int32_t *items, double *scores) {
  int32_t n = 0, item, place;
  for (item = 0; item < STEEPEST_N_ITEMS; ++item) {
    const double score = steepest_score(user, item);
    if (n == k && (k == 0 || score <= scores[n - 1])) continue;
    if (n < k) ++n;
    for (place = n - 1; place > 0 && scores[place - 1] < score; --place) {
      scores[place] = scores[place - 1];
      items[place] = items[place - 1];
    }
    scores[place] = score;
    items[place] = item;
  }
  return n;
}
@ANSWERS@
