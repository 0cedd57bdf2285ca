/* @HEADING@
 *
 * C99, no allocation, no state: a function's room is given by its caller. Link with the mathematical library (-lm).
 * Compile with -DSTEEPEST_TEST for a program that checks the rows at the end of this file.
@NOTES@
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

//@ if hashing
/* Distinct features of one row; what comes beyond them is left out, and steepest_scores then returns 1. */
#ifndef STEEPEST_MAX_FEATURES
#define STEEPEST_MAX_FEATURES 4096
#endif
#if STEEPEST_MAX_FEATURES <= 127
#define STEEPEST_SLOTS 256
#elif STEEPEST_MAX_FEATURES <= 511
#define STEEPEST_SLOTS 1024
#elif STEEPEST_MAX_FEATURES <= 4096
#define STEEPEST_SLOTS 8192
#else
#define STEEPEST_SLOTS 131072
#endif
#if STEEPEST_MAX_FEATURES > 65534
#error "at most 65534 features per row"
#endif

//@ end
//@ if texts
typedef struct {
  const char *data; /* UTF-8; NULL: missing */
  size_t size;      /* in bytes */
} steepest_text;

//@ end
@INPUT@
//@ if hashing
typedef struct {
  uint32_t bucket[STEEPEST_MAX_FEATURES];
  float value[STEEPEST_MAX_FEATURES];
  uint16_t slot[STEEPEST_SLOTS]; /* number of a feature + 1; 0: free */
//@ if places
  int32_t place[STEEPEST_MAX_FEATURES]; /* rows of the table */
//@ end
  uint32_t n;
} steepest_sums;

typedef struct {
  steepest_sums row;
//@ if blocks
  steepest_sums block; /* the words of one text, until they are weighed */
//@ end
  int cut; /* whether a feature was left out */
} steepest_row;

//@ end
@DATA@
//@ if hashing
/* ---------------------------------------------------------------- the hash "steepest-1" */

#define K0 UINT64_C(0x243F6A8885A308D3)
#define K1 UINT64_C(0x13198A2E03707345)
#define K2 UINT64_C(0xA4093822299F31D1)
#define K3 UINT64_C(0x9E3779B97F4A7C15)

static inline void multiply(uint64_t a, uint64_t b, uint64_t *low, uint64_t *high) {
#ifdef __SIZEOF_INT128__
  __extension__ typedef unsigned __int128 wide;
  const wide product = (wide)a * b;
  *low = (uint64_t)product;
  *high = (uint64_t)(product >> 64);
#else
  const uint64_t a0 = a & 0xFFFFFFFFu, a1 = a >> 32, b0 = b & 0xFFFFFFFFu, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
  const uint64_t other = a0 * b1 + (middle & 0xFFFFFFFFu);
  *low = a * b;
  *high = a1 * b1 + (middle >> 32) + (other >> 32);
#endif
}

//@ if stream
static uint64_t fold_product(uint64_t a, uint64_t b) {
  uint64_t low, high;
  multiply(a, b, &low, &high);
  return high ^ low;
}

//@ end
static inline uint64_t scramble(uint64_t a, uint64_t b, uint64_t p, uint64_t q) {
  uint64_t low, high, last_low, last_high;
  multiply(a, b, &low, &high);
  multiply(low ^ p, high ^ q, &last_low, &last_high);
  return last_high ^ last_low;
}

//@ if mixes
static uint64_t mix(uint64_t a, uint64_t b) { return scramble(a ^ K1, b ^ K2, K0, K3); }

//@ end
//@ if stream
/* Bytes are hashed as they come: at most the last 48 are kept. */
typedef struct {
  uint64_t key, gone; /* bytes that are no longer kept */
  uint32_t n;
  uint8_t bytes[48];
} hash_stream;

static inline void hash_begin(hash_stream *h, uint64_t key) {
  h->key = key;
  h->gone = 0;
  h->n = 0;
  memset(h->bytes, 0, 16);
}

static inline uint64_t word_at(const uint8_t *b) { /* compilers make one load of it where that is right */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  uint64_t word;
  memcpy(&word, b, 8);
  return word;
#else
  return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24 | (uint64_t)b[4] << 32 |
         (uint64_t)b[5] << 40 | (uint64_t)b[6] << 48 | (uint64_t)b[7] << 56;
#endif
}

static void hash_block(hash_stream *h, const uint8_t *bytes) {
  h->key ^= fold_product(word_at(bytes) ^ K2, word_at(bytes + 8) ^ K0 ^ h->key);
}

static inline void hash_byte(hash_stream *h, uint8_t byte) {
  if (h->n == 48) {
    hash_block(h, h->bytes);
    memmove(h->bytes, h->bytes + 16, 32);
    h->n = 32;
    h->gone += 16;
  }
  h->bytes[h->n++] = byte;
}

static inline uint64_t hash_end(hash_stream *h) {
  uint64_t a, b;
  if (h->n <= 16) { /* nothing is gone, and zeros follow */
    a = word_at(h->bytes);
    b = word_at(h->bytes + 8);
  } else {
    const uint8_t *const last = h->bytes + h->n - 16;
    const uint8_t *at = h->bytes;
    for (; at < last; at += 16) hash_block(h, at);
    a = word_at(last);
    b = word_at(last + 8);
  }
  return scramble(a ^ K0, b ^ K1 ^ h->key, K2 ^ (h->gone + h->n), K3);
}

//@ end
//@ if words
/* ---------------------------------------------------------------- words */

static uint32_t is_word_character(uint32_t code) {
  uint32_t low = 0, high;
  if (code < 0x80) return (code | 0x20) - 'a' < 26u || code - '0' < 10u || code == '_';
  if (code < 0x10000) {
    for (high = sizeof word_edges / sizeof *word_edges; low < high;) {
      const uint32_t middle = (low + high) / 2;
      if (word_edges[middle] <= code)
        low = middle + 1;
      else
        high = middle;
    }
    return low % 2 == 0;
  }
  for (high = sizeof far_edges / sizeof *far_edges; low < high;) {
    const uint32_t middle = (low + high) / 2;
    if (far_edges[middle] <= code)
      low = middle + 1;
    else
      high = middle;
  }
  return (low + FAR_PARITY) % 2 == 0;
}

//@ if lowercase
static uint32_t fold_character(uint32_t code) {
  uint32_t low = 0, high = sizeof folds / sizeof *folds;
  if (code < 0x80) return code - 'A' < 26u ? code | 0x20 : code;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (folds[middle].first <= code)
      low = middle + 1;
    else
      high = middle;
  }
  if (low) {
    const fold_range range = folds[low - 1];
    if (code <= range.last && (code - range.first) % range.stride == 0)
      return (uint32_t)((int32_t)code + range.difference);
  }
  return code;
}

//@ end
static int is_ideograph(uint32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x20000 && code <= 0x3FFFF);
}

static int is_invisible(uint32_t code) {
  return code == 0xAD || code == 0x200C || code == 0x200D || code == 0x2060 || code == 0xFEFF;
}

/* The character at *at, which moves behind it; a space for a byte that is not UTF-8. */
static uint32_t next_character(const uint8_t **at, const uint8_t *end) {
  const uint8_t *const text = *at;
  const uint8_t lead = *text;
  const int length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  uint32_t code;
  int k;
  *at = text + 1;
  if (length == 1) return lead;
  if (length == 0 || end - text < length) return ' ';
  code = lead & (0x7Fu >> length);
  for (k = 1; k < length; ++k) {
    if ((text[k] & 0xC0) != 0x80) return ' ';
    code = code << 6 | (text[k] & 0x3Fu);
  }
  if ((length == 3 && code < 0x800) || (length == 4 && code < 0x10000) || code >= 0x110000 ||
      (code >= 0xD800 && code < 0xE000))
    return ' ';
  *at = text + length;
  return code;
}

static void hash_character(hash_stream *h, uint32_t code) {
//@ if lowercase
  code = fold_character(code);
//@ end
  if (code < 0x80) {
    hash_byte(h, (uint8_t)code);
  } else if (code < 0x800) {
    hash_byte(h, (uint8_t)(0xC0 | code >> 6));
    hash_byte(h, (uint8_t)(0x80 | (code & 0x3F)));
  } else {
    if (code < 0x10000) {
      hash_byte(h, (uint8_t)(0xE0 | code >> 12));
    } else {
      hash_byte(h, (uint8_t)(0xF0 | code >> 18));
      hash_byte(h, (uint8_t)(0x80 | (code >> 12 & 0x3F)));
    }
    hash_byte(h, (uint8_t)(0x80 | (code >> 6 & 0x3F)));
    hash_byte(h, (uint8_t)(0x80 | (code & 0x3F)));
  }
}

/* The next word: where it is, how many characters it has, and its hash. */
typedef struct {
  const uint8_t *at, *end; /* of the text that is still to be read */
  const uint8_t *start, *stop;
  uint32_t letters;
  uint64_t hash;
} word_reader;

static int next_word(word_reader *r, uint64_t key) {
  hash_stream h;
  int single = 0; /* an ideograph, which may be shorter than other words */
  hash_begin(&h, key);
  r->letters = 0;
  while (r->at < r->end) {
    const uint8_t *const here = r->at;
    uint32_t code;
    int alone;
    if (*here < 0x80) { /* most characters of most texts */
      ++r->at;
      if (ascii_letters[*here]) {
        if (!r->letters++) r->start = here;
        hash_byte(&h, ascii_letters[*here]);
        continue;
      }
      if (!r->letters) continue;
      code = 0; /* ends a word */
      alone = 0;
    } else {
      code = next_character(&r->at, r->end);
      alone = is_ideograph(code);
      if (is_invisible(code)) continue;
    }
    if (r->letters && (alone || !code || !is_word_character(code))) {
      if (alone) r->at = here;
      if (r->letters >= MIN_LETTERS) {
        r->stop = here;
        r->hash = hash_end(&h);
        return 1;
      }
      hash_begin(&h, key);
      r->letters = 0;
      continue;
    }
    if (!is_word_character(code)) continue;
    if (!r->letters) r->start = here;
    hash_character(&h, code);
    ++r->letters;
    if (alone) {
      single = 1;
      break;
    }
  }
  if (!r->letters || (r->letters < MIN_LETTERS && !single)) return 0;
  r->stop = r->at;
  r->hash = hash_end(&h);
  return 1;
}

//@ end
/* ---------------------------------------------------------------- features of columns */

/* Takes a feature and what it is worth. */
typedef void (*take_feature)(void *to, uint64_t hash, float worth);

//@ if words
//@ if stop_words
static int is_stop_word(const uint64_t *hashes, size_t n, uint64_t hash) {
  size_t low = 0, high = n;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (hashes[middle] == hash) return 1;
    if (hashes[middle] < hash)
      low = middle + 1;
    else
      high = middle;
  }
  return 0;
}

//@ end
//@ if characters
/* Runs of characters in <word>, from the shortest to the longest. */
static void character_grams(const word_reader *word, uint64_t key, take_feature take, void *to) {
  const uint32_t n_letters = word->letters + 2;
  uint32_t n = CHARACTER_LOW < n_letters ? CHARACTER_LOW : n_letters;
  for (; n <= CHARACTER_HIGH && n <= n_letters; ++n) {
    const uint8_t *from = word->start; /* of letter number k, where number 0 is the mark "<" */
    uint32_t k;
    for (k = 0; k + n <= n_letters; ++k) {
      const uint8_t *at = from;
      uint32_t letter = k;
      hash_stream h;
      hash_begin(&h, key);
      while (letter < k + n) {
        if (letter == 0 || letter == n_letters - 1) {
          hash_byte(&h, (uint8_t)(letter ? '>' : '<'));
          ++letter;
        } else {
          const uint32_t code = next_character(&at, word->stop);
          if (is_invisible(code)) continue;
          hash_character(&h, code);
          ++letter;
        }
      }
      if (n > 1 || (k > 0 && k < n_letters - 1)) take(to, hash_end(&h), 1);
      if (k > 0)
        while (from < word->stop && is_invisible(next_character(&from, word->stop))) {
        }
    }
  }
}

//@ end
/* Word n-grams, shortest first, then character n-grams; the text is read again for each length, so that no words need
 * to be kept. */
static void text_features(steepest_text text, uint64_t key, const uint64_t *stop, size_t n_stop, take_feature take,
                          void *to) {
  const uint8_t *const bytes = (const uint8_t *)text.data;
  word_reader r;
//@ if word_grams
  uint32_t n;
  for (n = NGRAM_LOW; n <= NGRAM_HIGH; ++n) {
//@ if several_words
    uint64_t last[NGRAM_HIGH]; /* hashes of the n-1 words before this one, the oldest first */
    uint32_t known = 0, k;
//@ end
    r.at = bytes;
    r.end = bytes + text.size;
    while (next_word(&r, key)) {
//@ if stop_words
      if (is_stop_word(stop, n_stop, r.hash)) continue;
//@ end
//@ if several_words
      if (known == n - 1) {
        uint64_t gram = known ? last[0] : r.hash;
        for (k = 1; k < known; ++k) gram = mix(gram, last[k]);
        if (known) gram = mix(gram, r.hash);
        take(to, gram, 1);
        for (k = 1; k < known; ++k) last[k - 1] = last[k];
        if (known) last[known - 1] = r.hash;
      } else {
        last[known++] = r.hash;
      }
//@ else
      take(to, r.hash, 1);
//@ end
    }
  }
//@ end
//@ if characters
  r.at = bytes;
  r.end = bytes + text.size;
  while (next_word(&r, key)) {
//@ if stop_words
    if (is_stop_word(stop, n_stop, r.hash)) continue;
//@ end
    character_grams(&r, key ^ 0x3C3E, take, to);
  }
//@ end
  (void)stop;
  (void)n_stop;
}

//@ end
//@ if values
/* How people write that a value is missing; an empty one is, too. */
static int is_missing(steepest_text value) {
  static const char *const marks[] = {"?", "-", "na", "n/a", "nan", "null", "none", "<na>", "#n/a"};
  size_t m, k;
  if (!value.data || !value.size) return 1;
  for (m = 0; m < sizeof marks / sizeof *marks; ++m) {
    if (strlen(marks[m]) != value.size) continue;
    for (k = 0; k < value.size; ++k) {
      const char c = value.data[k];
      if ((c >= 'A' && c <= 'Z' ? (char)(c + 32) : c) != marks[m][k]) break;
    }
    if (k == value.size) return 1;
  }
  return 0;
}

static uint64_t value_feature(const char *label, steepest_text value) {
  hash_stream h;
  size_t k;
  hash_begin(&h, SEED_KEY);
  for (; *label; ++label) hash_byte(&h, (uint8_t)*label);
  for (k = 0; k < value.size; ++k) hash_byte(&h, (uint8_t)value.data[k]);
  return hash_end(&h);
}

/* The next part of what is left between separators, without spaces at its ends; 0 if there is none. */
static int next_part(steepest_text *left, const char *separators, steepest_text *part) {
  while (left->data) {
    size_t size = 0;
    while (size < left->size && !(left->data[size] && strchr(separators, left->data[size]))) ++size;
    part->data = left->data;
    part->size = size;
    if (size < left->size) {
      left->data += size + 1;
      left->size -= size + 1;
    } else {
      left->data = NULL;
    }
    while (part->size && *part->data == ' ') ++part->data, --part->size;
    while (part->size && part->data[part->size - 1] == ' ') --part->size;
    if (part->size) return 1;
  }
  return 0;
}

/* The n parts of a value, worth 1 / sqrt(n) each, unless they are fewer than `least`. */
static void part_features(steepest_text value, const char *label, const char *separators, uint32_t least,
                          take_feature take, void *to) {
  steepest_text left = value, part;
  uint32_t n = 0;
  float share;
  while (next_part(&left, separators, &part)) ++n;
  if (n < least) return;
  share = (float)(1 / sqrt((double)n));
  for (left = value; next_part(&left, separators, &part);) take(to, value_feature(label, part), share);
}

//@ end
//@ if numbers
typedef struct {
  double centre, scale;
  uint64_t missing, number;
  uint32_t n_knots;
  const double *knots;
  const uint64_t *hats;
} number_column;

/* The line, and the hats where there are knots; only these take part in crosses then. */
static void number_features(double x, const number_column *c, int crossed, take_feature take, void *to) {
  uint32_t next = 0;
  float line;
  if (!(fabs(x) <= 3.4028234663852886e38)) {
    take(to, c->missing, 1);
    return;
  }
  line = (float)((x - c->centre) / c->scale);
  if (line != 0 && !(crossed && c->n_knots)) take(to, c->number, line);
  if (!c->n_knots) return;
  while (next < c->n_knots && c->knots[next] <= x) ++next;
  if (next == 0) {
    take(to, c->hats[0], 1);
  } else if (next == c->n_knots || x == c->knots[next - 1]) {
    take(to, c->hats[next - 1], 1);
  } else {
    const double t = (x - c->knots[next - 1]) / (c->knots[next] - c->knots[next - 1]);
    take(to, c->hats[next - 1], (float)(1 - t));
    take(to, c->hats[next], (float)t);
  }
}

//@ end
//@ if dates
enum { DAYS, YEAR, MONTH, DAY, WEEKDAY, HOUR };

/* One part of a time; days count from 1970-01-01, weekdays from Monday. */
static double date_part(double seconds, int part) {
  int64_t days, era, rest, year, month;
  if (!(fabs(seconds) < 1e18)) return NAN;
  if (part == DAYS) return seconds / 86400;
  if (part == HOUR) {
    const double of_day = fmod(seconds, 86400);
    return floor((of_day < 0 ? of_day + 86400 : of_day) / 3600);
  }
  days = (int64_t)floor(seconds / 86400);
  if (part == WEEKDAY) return (double)(((days + 3) % 7 + 7) % 7);
  /* Years begin with March here, so that the day that may be missing is their last; 400 of them have 146097 days. */
  days += 719468;
  era = (days >= 0 ? days : days - 146096) / 146097;
  rest = days - era * 146097;
  year = (rest - rest / 1460 + rest / 36524 - rest / 146096) / 365;
  rest -= 365 * year + year / 4 - year / 100;
  month = (5 * rest + 2) / 153;
  if (part == DAY) return (double)(rest - (153 * month + 2) / 5 + 1);
  if (part == MONTH) return (double)(month >= 10 ? month - 9 : month + 3);
  return (double)(400 * era + year + (month >= 10));
}

//@ end
@COLUMNS@
/* ---------------------------------------------------------------- rows */

static void add_value(steepest_row *room, steepest_sums *sums, uint32_t bucket, float value) {
  uint32_t slot = bucket * UINT32_C(0x9E3779B1) >> 15 & (STEEPEST_SLOTS - 1);
  while (sums->slot[slot]) {
    const uint32_t k = sums->slot[slot] - 1u;
    if (sums->bucket[k] == bucket) {
      sums->value[k] += value;
      return;
    }
    slot = (slot + 1) & (STEEPEST_SLOTS - 1);
  }
  if (sums->n == STEEPEST_MAX_FEATURES) {
    room->cut = 1;
    return;
  }
  sums->bucket[sums->n] = bucket;
  sums->value[sums->n] = value;
  sums->slot[slot] = (uint16_t)++sums->n;
}

typedef struct {
  steepest_row *room;
  steepest_sums *sums;
  float factor;
} adding;

static void add_feature(void *to, uint64_t hash, float worth) {
  const adding *const a = (const adding *)to;
  const float value = worth * a->factor;
  const uint32_t mask = (UINT32_C(1) << N_BITS) - 1;
//@ if copies
  const uint64_t whole = hash;
  uint64_t copy;
  for (copy = 0; copy < COPIES; ++copy) {
    hash = copy ? mix(whole, copy * K3) : whole;
    add_value(a->room, a->sums, (uint32_t)(hash >> 32) & mask, IS_SIGNED && hash >> 63 ? -value : value);
  }
//@ else
  add_value(a->room, a->sums, (uint32_t)(hash >> 32) & mask, IS_SIGNED && hash >> 63 ? -value : value);
//@ end
}

//@ end
/* ---------------------------------------------------------------- rows of the table */

@FIND@
//@ if hashing
static void empty(steepest_sums *sums) {
  memset(sums->slot, 0, sizeof sums->slot);
  sums->n = 0;
}

//@ if words
/* Counts to values: how often, whether, or the logarithm; by how rare a feature is; to length 1. */
static void weigh(steepest_sums *sums) {
  double factor = 1 / sqrt((double)COPIES);
  uint32_t k;
//@ if binary
  for (k = 0; k < sums->n; ++k) sums->value[k] = (float)((sums->value[k] > 0) - (sums->value[k] < 0));
//@ end
//@ if logarithms
  for (k = 0; k < sums->n; ++k) {
    const float x = sums->value[k], size = fabsf(x);
    if (size != 0 && size != 1) sums->value[k] = x < 0 ? -(1 + logf(size)) : 1 + logf(size);
  }
//@ end
//@ if rare
  { /* What too few rows have is left out. */
    const uint32_t n = sums->n;
    sums->n = 0;
    for (k = 0; k < n; ++k) {
      const int32_t place = find_row(sums->bucket[k]);
      if (!((place < 0 ? RARITY_OF_OTHERS : rarity[rarity_codes[place]]) > 0)) continue;
      sums->bucket[sums->n] = sums->bucket[k];
      sums->value[sums->n++] = sums->value[k];
    }
  }
//@ end
//@ if counts
  for (k = 0; k < sums->n; ++k) {
    const int32_t place = find_row(sums->bucket[k]);
    sums->value[k] = (float)(sums->value[k] * (place < 0 ? RARITY_OF_OTHERS : rarity[rarity_codes[place]]));
//@ if places
    sums->place[k] = place;
//@ end
  }
//@ end
//@ if normalise
  {
    double squares[4] = {0, 0, 0, 0}, square;
    const uint32_t whole = sums->n - sums->n % 4;
    for (k = 0; k < sums->n; ++k) squares[k < whole ? k % 4 : 0] += (double)sums->value[k] * sums->value[k];
    square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    factor = square > 0 ? 1 / sqrt(square) : 1;
  }
//@ end
  if ((float)factor != 1)
    for (k = 0; k < sums->n; ++k) sums->value[k] *= (float)factor;
}

//@ end
//@ if blocks
/* The words of a text are weighed by themselves and added to the row. */
static void close_block(steepest_row *room, float factor) {
  uint32_t k;
  weigh(&room->block);
  for (k = 0; k < room->block.n; ++k)
    add_value(room, &room->row, room->block.bucket[k], room->block.value[k] * factor);
}

//@ end
//@ if crosses
typedef struct {
  const steepest_input *in;
  adding to;
  int inner, is_inner_first, block_each; /* whether words with each feature of the other column are a text */
  uint64_t hash;
  float worth;
} crossing;

static void cross_with(void *to, uint64_t hash, float worth) {
  crossing *const c = (crossing *)to;
  add_feature(&c->to, c->is_inner_first ? mix(hash, c->hash) : mix(c->hash, hash), c->worth * worth);
}

static void cross_from(void *to, uint64_t hash, float worth) {
  crossing *const c = (crossing *)to;
  c->hash = hash;
  c->worth = c->block_each ? 1 : worth;
//@ if blocks
  if (c->block_each) empty(&c->to.room->block);
//@ end
  each_feature(c->in, c->inner, 1, cross_with, c);
//@ if blocks
  if (c->block_each) close_block(c->to.room, worth);
//@ end
}

static void add_crosses(const steepest_input *in, steepest_row *room) {
  size_t k;
  for (k = 0; k < sizeof crosses / sizeof *crosses; ++k) {
    const int a = crosses[k][0], b = crosses[k][1];
//@ if blocks
    const int words = is_text(in, a) + is_text(in, b), outer = is_text(in, b) ? a : b;
//@ else
    const int words = 0, outer = b;
//@ end
    crossing c;
    c.in = in;
    c.to.room = room;
    c.to.sums = &room->row;
    c.to.factor = words ? 1 : COPY_VALUE;
    c.inner = outer == a ? b : a;
    c.is_inner_first = outer != a;
    c.block_each = words == 1;
    c.hash = 0;
    c.worth = 1;
//@ if blocks
    if (words) c.to.sums = &room->block;
    if (words == 2) empty(&room->block);
//@ end
    each_feature(in, outer, 1, cross_from, &c);
//@ if blocks
    if (words == 2) close_block(room, 1);
//@ end
  }
}

//@ end
/* The features of a row: buckets and values. Returns 1 if there were too many, else 0. */
int steepest_hash(const steepest_input *in, steepest_row *room) {
  adding to;
//@ if one_text
  empty(&room->row);
  room->cut = 0;
  to.room = room;
  to.sums = &room->row;
  to.factor = 1;
  each_feature(in, 0, 0, add_feature, &to);
  weigh(&room->row);
//@ else
  int column;
  empty(&room->row);
  room->cut = 0;
  to.room = room;
  for (column = 0; column < N_COLUMNS; ++column) {
//@ if blocks
    if (is_text(in, column)) {
      empty(&room->block);
      to.sums = &room->block;
      to.factor = 1;
      each_feature(in, column, 0, add_feature, &to);
      close_block(room, 1);
      continue;
    }
//@ end
    to.sums = &room->row;
    to.factor = COPY_VALUE;
    each_feature(in, column, 0, add_feature, &to);
  }
//@ if crosses
  add_crosses(in, room);
//@ end
//@ end
  return room->cut;
}

//@ end
/* ---------------------------------------------------------------- scores */

//@ if embedding
/* W h of h = (end + sum of x_j row_j) / (1 + sum of |x_j|). */
static void add_up(const uint32_t *index, const float *value, const int32_t *places, uint32_t known, uint32_t n,
                   double *scores) {
  double hidden[WIDTH], mass = 1;
  uint32_t k, p;
  int o;
  for (p = 0; p < WIDTH; ++p) hidden[p] = 0;
  for (k = 0; k < n; ++k) {
    const int32_t place = k < known ? places[k] : find_row(index[k]);
    mass += fabsf(value[k]);
    if (place < 0) continue;
    for (p = 0; p < WIDTH; ++p) hidden[p] += (double)weight_at(place, p) * value[k];
  }
  for (p = 0; p < WIDTH; ++p) hidden[p] = (hidden[p] + text_end[p]) / mass;
  for (o = 0; o < N_SCORES; ++o) {
    scores[o] = 0;
    for (p = 0; p < WIDTH; ++p) scores[o] += head[o][p] * hidden[p];
  }
}
//@ else
static void add_up(const uint32_t *index, const float *value, const int32_t *places, uint32_t known, uint32_t n,
                   double *scores) {
  uint32_t k, o;
  for (o = 0; o < N_SCORES; ++o) scores[o] = 0;
  for (k = 0; k < n; ++k) {
    const int32_t place = k < known ? places[k] : find_row(index[k]);
    if (place < 0) continue;
    for (o = 0; o < N_SCORES; ++o) scores[o] += (double)weight_at(place, o) * value[k];
  }
  for (o = 0; o < N_SCORES; ++o) scores[o] += bias[o];
}
//@ end

//@ if hashing
/* Raw scores of a row, STEEPEST_N_SCORES of them. Returns 1 if the row had too many features, else 0. */
int steepest_scores(const steepest_input *in, steepest_row *room, double *scores) {
  const int cut = steepest_hash(in, room);
//@ if places
  add_up(room->row.bucket, room->row.value, room->row.place, room->row.n, room->row.n, scores);
//@ else
  add_up(room->row.bucket, room->row.value, NULL, 0, room->row.n, scores);
//@ end
  return cut;
}
//@ else
/* Raw scores of a row with these features (counted from 0) and values, STEEPEST_N_SCORES of them. */
int steepest_scores(const uint32_t *index, const float *value, uint32_t n, double *scores) {
  add_up(index, value, NULL, 0, n, scores);
  return 0;
}
//@ end
@ANSWERS@
