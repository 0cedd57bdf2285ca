// SPDX-License-Identifier: Apache-2.0
// How it stays fast: tokens are read without a test for the end of the text; the end of a name is looked for
// in eight bytes at once; the arrays never grow.
#include "vw.h"

#include <algorithm>

#include "decimal.h"
#include "hash.h"
#include "line_reader.h"

namespace steepest {
namespace {

constexpr int kNumbers = 3;  // label, importance, base

enum class Fault : int32_t {
  kBarMissing,
  kLabelMissing,
  kLabelTouchesBar,
  kLabelNotANumber,
  kImportanceNotANumber,
  kBaseNotANumber,
  kLabelNotFinite,
  kImportanceNotFinite,
  kBaseNotFinite,
  kImportanceNegative,
  kTooManyNumbers,
  kTagNotLast,
  kNamespaceMissing,
  kScaleNotANumber,
  kScaleNotFinite,
  kValueNotANumber,
  kValueNotFinite,
  kBinary,
  kCount,
};

const char* fault_name(Fault fault) {
  static const char* const names[] = {"bar_missing",         "label_missing",           "label_touches_bar",
                                      "label_not_a_number",  "importance_not_a_number", "base_not_a_number",
                                      "label_not_finite",    "importance_not_finite",   "base_not_finite",
                                      "importance_negative", "too_many_numbers",        "tag_not_last",
                                      "namespace_missing",   "scale_not_a_number",      "scale_not_finite",
                                      "value_not_a_number",  "value_not_finite",        "binary"};
  static_assert(sizeof(names) / sizeof(names[0]) == static_cast<size_t>(Fault::kCount), "one name a fault");
  return names[static_cast<int>(fault)];
}

Fault of_number(Fault first, int number) { return static_cast<Fault>(static_cast<int32_t>(first) + number); }

inline bool ends_token(char c) { return is_blank(c) || c == '\n' || c == '|'; }
// No name holds a zero byte: such a line is no text.
inline bool ends_name(char c) { return ends_token(c) || c == ':' || c == '\0'; }

inline const char* token_end(const char* p) {
  while (!ends_token(*p)) ++p;
  return p;
}

inline const char* name_end(const char* p, const char* end) {
#if defined(STEEPEST_EIGHT_AT_ONCE)
  constexpr uint64_t kOnes = 0x0101010101010101u, kHighs = 0x8080808080808080u;
  for (; end - p >= 8; p += 8) {
    uint64_t x;
    std::memcpy(&x, p, 8);
    const uint64_t colons = x ^ kOnes * ':', bars = x ^ kOnes * '|';
    // The lowest byte that is at most ' ', ':' or '|' sets its high bit; those above it may be wrong.
    const uint64_t found =
        (((x - kOnes * 0x21) & ~x) | ((colons - kOnes) & ~colons) | ((bars - kOnes) & ~bars)) & kHighs;
    if (found) {
      p += trailing_zeros(found) >> 3;
      break;
    }
  }
#else
  (void)end;
#endif
  while (!ends_name(*p)) ++p;  // control characters may be part of a name
  return p;
}

// Negated if the top bit of `sign` is set; no branch hangs on it, since nothing foretells it.
inline float with_sign(float value, uint32_t sign) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits ^= sign;
  std::memcpy(&value, &bits, 4);
  return value;
}

bool spells_not_finite(const char* p) {
  p = behind_not_finite(p);
  return p && ends_token(*p);
}

// What stands before the first bar, but for the tag.
struct Header {
  double numbers[kNumbers] = {0, 1, 0};
  int n_numbers = 0;
};

class Reader : public LineReader<Reader, VwOptions, VwRows, Fault> {
 public:
  Reader(const VwOptions& options, VwRows& rows, int64_t max_rows)
      : LineReader(options, rows, max_rows), key_(key_of_seed(options.seed)), no_name_(hash_short("", 0)) {}

  // Leaves p at the line's '\n'. Rows and entries count only once the whole line is good.
  bool read_line(const char*& p) {
    while (is_blank(*p)) ++p;
    if (*p == '\n') return true;
    Header header;
    int64_t n_entries = rows_.n_entries;
    if (!read_header(p, header)) return false;
    logs_ = wants_names();
    while (*p == '|')
      if (!read_namespace(++p, n_entries)) return false;
    add_row(header);
    rows_.n_entries = rows_.indptr.data()[rows_.n_rows] = n_entries;
    return true;
  }

  static const char* name_of(Fault fault) { return fault_name(fault); }
  const char* wrong_token_end() const { return token_end(token_); }

 private:
  // Leaves p at the first bar. The last word is a tag if it touches the bar or starts with a quote.
  bool read_header(const char*& p, Header& header) {
    const char* touching = nullptr;
    while (*p != '|') {
      const char* start = p;
      p = token_end(p);
      if (*p == '|') {
        touching = start;
        break;
      }
      const char* stop = p;
      while (is_blank(*p)) ++p;
      if (*start == '\'') {
        if (*p != '|') return fail_header(Fault::kTagNotLast, start);
      } else if (header.n_numbers == kNumbers) {
        return fail_header(Fault::kTooManyNumbers, start);
      } else if (!read_number(start, stop, header)) {
        return false;
      }
      if (*p == '\n') return fail_header(Fault::kBarMissing, start);
    }
    if (header.n_numbers > 0 || !options_.with_labels) return true;
    const bool label = touching && is_number(touching, p);
    return label ? fail(Fault::kLabelTouchesBar, touching) : fail(Fault::kLabelMissing, p);
  }

  bool read_number(const char* start, const char* stop, Header& header) {
    const int i = header.n_numbers++;
    Decimal x;
    const char* p = start;
    if (!scan_decimal(p, end_, x) || p != stop) {
      const bool spelled = spells_not_finite(start);
      return fail_header(of_number(spelled ? Fault::kLabelNotFinite : Fault::kLabelNotANumber, i), start);
    }
    header.numbers[i] = to_double(x, start, stop);
    if (!std::isfinite(header.numbers[i])) return fail_header(of_number(Fault::kLabelNotFinite, i), start);
    return i != 1 || header.numbers[i] >= 0 || fail_header(Fault::kImportanceNegative, start);
  }

  // p is behind a bar, and is left at the next one or at the end of the line.
  bool read_namespace(const char*& position, int64_t& n_entries) {
    // Locals: the stores below may not make the compiler reload them.
    const char* p = position;
    const char* const end = end_;
    const int n_bits = options_.n_bits;
    const uint32_t sign = options_.is_signed ? 0x80000000u : 0;
    int32_t* indices = rows_.indices.data();
    float* values = rows_.values.data();
    int64_t n = n_entries;
    uint64_t n_nameless = 0;

    const char* start = p;
    p = name_end(p, end);
    if (p == start && *p == ':') return fail(Fault::kNamespaceMissing, start);
    const uint64_t space = p == start ? no_name_ : hash_name(start, p - start, end);
    if (logs_) space_name_.assign(start, p);
    float scale = 1;
    if (*p == ':' && !read_value(++p, scale, Fault::kScaleNotANumber, Fault::kScaleNotFinite)) return false;
    for (;; ++n) {
      while (is_blank(*p)) ++p;
      if (*p == '\n' || *p == '|') break;
      start = p;
      p = name_end(p, end);
      const uint64_t hash = p == start ? copy_hash(mix(space, no_name_), n_nameless++)
                                       : mix(space, hash_name(start, p - start, end));
      if (logs_) log_name(hash, start, p);
      float value = 1;
      if (*p == ':') {
        start = ++p;
        if (!read_value(p, value, Fault::kValueNotANumber, Fault::kValueNotFinite)) return false;
      } else if (*p == '\0') {
        return fail(Fault::kBinary, start);
      }
      value *= scale;
      if (!(std::fabs(value) <= FLT_MAX)) return fail(Fault::kValueNotFinite, start);
      indices[n] = static_cast<int32_t>(bucket_of(hash, n_bits));
      values[n] = with_sign(value, static_cast<uint32_t>(hash >> 32) & sign);
    }
    position = p;
    n_entries = n;
    return true;
  }

  bool wants_names() const {
    const size_t text = rows_.text_rows.size() - 1;
    const int64_t from = text < options_.log_from.size() ? options_.log_from[text] : -1;
    return from >= 0 && NameBook::wants(from + rows_.n_rows - first_row_);
  }

  void log_name(uint64_t hash, const char* start, const char* stop) {
    name_.assign(space_name_);
    if (!name_.empty()) name_ += '^';
    name_.append(start, stop);
    rows_.names.add_text(bucket_of(hash, options_.n_bits), static_cast<uint32_t>(hash), name_);
  }

  inline bool read_value(const char*& p, float& value, Fault not_a_number, Fault not_finite) {
    const char* start = p;
    if (is_digit(p[0]) && ends_token(p[1])) {  // counts and one-hot codes
      value = static_cast<float>(*p++ - '0');
      return true;
    }
    Decimal x;
    if (!scan_decimal(p, end_, x) || !ends_token(*p))
      return fail(spells_not_finite(start) ? not_finite : not_a_number, start);
    // What is exact is at most 2^53 * 10^22, which a float can hold.
    value = is_exact(x) ? static_cast<float>(exact_double(x)) : rounded_float(x, start, p);
    return std::fabs(value) <= FLT_MAX || fail(not_finite, start);
  }

  uint64_t hash_name(const char* name, int64_t size, const char* end) const {
    if (end - name >= 16)
      return hash_bytes(reinterpret_cast<const uint8_t*>(name), static_cast<uint64_t>(size), key_);
    return hash_short(name, static_cast<uint64_t>(size));
  }

  // Of fewer than 16 bytes, behind which nothing may be read.
  uint64_t hash_short(const char* name, uint64_t size) const {
    uint8_t padded[16] = {};
    std::memcpy(padded, name, size & 15);
    return hash_bytes(padded, size & 15, key_);
  }

  void add_row(const Header& header) {
    if (header.n_numbers > 1 && !rows_.has_weights) start_weights();
    if (rows_.has_weights) rows_.weights.data()[rows_.n_rows] = header.numbers[1];
    rows_.y.data()[rows_.n_rows++] = header.numbers[0];
  }

  void start_weights() {
    rows_.weights.make(max_rows_);
    std::fill_n(rows_.weights.data(), rows_.n_rows, 1.0);
    rows_.has_weights = true;
  }

  // Whatever is wrong before the first bar, it matters only if there is a bar.
  bool fail_header(Fault fault, const char* token) {
    const size_t rest = static_cast<size_t>(line_end(token) - token);
    return fail(std::memchr(token, '|', rest) ? fault : Fault::kBarMissing, token);
  }

  bool is_number(const char* p, const char* stop) const {
    Decimal x;
    return scan_decimal(p, end_, x) && p == stop;
  }

  const uint64_t key_;
  const uint64_t no_name_;
  bool logs_ = false;
  std::string space_name_, name_;
};

}  // namespace

void parse_vw(const std::vector<Text>& texts, const VwOptions& options, VwRows& rows) {
  // A blank precedes each feature, and each row but a text's last has a newline, so nothing needs to grow.
  int64_t max_entries = 0, max_rows = 0;
  for (const Text& text : texts) {
    max_entries += count_bytes(text, [](char c) { return static_cast<unsigned char>(c) <= ' '; });
    max_rows += count_bytes(text, [](char c) { return c == '\n'; }) + 1;
  }
  rows.indices.make(max_entries);
  rows.values.make(max_entries);
  rows.indptr.make(max_rows + 1);
  rows.y.make(max_rows);
  rows.indptr.data()[0] = 0;
  Reader reader(options, rows, max_rows);
  for (const Text& text : texts)
    if (!reader.read(text)) return;
}

}  // namespace steepest
