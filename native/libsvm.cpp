// SPDX-License-Identifier: Apache-2.0
// How it stays fast: tokens are read without a test for the end of the text, and the arrays never grow.
#include "libsvm.h"

#include <algorithm>

#include "decimal.h"
#include "line_reader.h"

namespace steepest {
namespace {

inline bool ends_token(char c) { return is_blank(c) || c == '\n' || c == '#'; }

// Whether the token spells nan, inf or infinity.
bool spells_not_finite(const char* p) {
  p = behind_not_finite(p);
  return p && ends_token(*p);
}

const char* fault_name(LineFault fault) {
  static const char* const names[] = {
      "label_missing",      "label_not_a_number", "label_not_finite", "several_labels",  "group_not_a_number",
      "index_not_a_number", "index_negative",     "index_zero",       "index_too_large", "index_beyond",
      "colon_missing",      "value_not_a_number", "value_not_finite", "binary"};
  static_assert(sizeof(names) / sizeof(names[0]) == static_cast<size_t>(LineFault::kCount),
                "one name a fault");
  return names[static_cast<int>(fault)];
}

class Reader : public LineReader<Reader, LibsvmOptions, LibsvmRows, LineFault> {
 public:
  Reader(const LibsvmOptions& options, LibsvmRows& rows, int64_t max_rows)
      : LineReader(options, rows, max_rows) {}

  // Leaves p at the line's '\n'. Rows and entries count only once the whole line is good.
  bool read_line(const char*& p) {
    while (is_blank(*p)) ++p;
    if (*p == '\n') return true;
    if (*p == '#') {
      p = line_end(p);
      return true;
    }
    double label = 0;
    int64_t group = kNoGroup;
    int64_t n_entries = rows_.n_entries;
    int64_t n_features = rows_.n_features;
    if (!read_label(p, label) || !read_group(p, group) || !read_entries(p, n_entries, n_features))
      return false;
    add_row(label, group);
    rows_.n_entries = rows_.indptr.data()[rows_.n_rows] = n_entries;
    rows_.n_features = n_features;
    return true;
  }

  static const char* name_of(LineFault fault) { return fault_name(fault); }
  const char* wrong_token_end() const {
    const bool of_index = fault_ >= LineFault::kIndexNotANumber && fault_ <= LineFault::kIndexBeyond;
    return token_end(token_, of_index);
  }

 private:
  bool read_label(const char*& p, double& label) {
    if (!options_.with_labels && starts_with_colon_token(p)) return true;
    const char* start = p;
    Decimal x;
    const bool number = scan_decimal(p, end_, x);
    if (number && ends_token(*p)) {
      label = to_double(x, start, p);
      return std::isfinite(label) || fail(LineFault::kLabelNotFinite, start);
    }
    if (number && *p == ',') return fail(LineFault::kSeveralLabels, start);
    if (starts_with_colon_token(start)) return fail(LineFault::kLabelMissing, start);
    return fail(spells_not_finite(start) ? LineFault::kLabelNotFinite : LineFault::kLabelNotANumber, start);
  }

  bool read_group(const char*& p, int64_t& group) {
    while (is_blank(*p)) ++p;
    if (!(p[0] == 'q' && p[1] == 'i' && p[2] == 'd' && p[3] == ':')) return true;
    const char* start = p += 4;
    uint64_t digits = 0;
    more_digits(p, digits);
    // 18 digits fit in the signed 64 bits of a group number.
    if (p == start || p - start > 18 || !ends_token(*p)) return fail(LineFault::kGroupNotANumber, start);
    group = static_cast<int64_t>(digits);
    return true;
  }

#if defined(STEEPEST_EIGHT_AT_ONCE)
  static constexpr int64_t kNearBytes = 32;  // more than the entries below have

  // What most entries look like, " 123:0.4567" with up to seven digits each: few steps from one to the next.
  // Moves p behind it, or leaves it to the general way.
  static bool read_near(const char*& p, uint64_t& index, float& value) {
    if (*p != ' ') return false;
    const int n = eight_digits(p + 1, index);
    const char* const point = p + n + 3;
    if (n == 0 || n == 8 || point[-2] != ':' || point[0] != '.' || !is_digit(point[-1])) return false;
    uint64_t fraction;
    const int m = eight_digits(point + 1, fraction);
    const char* const stop = point + 1 + m;
    if (m == 0 || m == 8 || (*stop != ' ' && *stop != '\n')) return false;
    const uint64_t digits = static_cast<uint64_t>(point[-1] - '0') * kIntegerPowers[m] + fraction;
    value = static_cast<float>(static_cast<double>(static_cast<int64_t>(digits)) / kPowers[m]);
    p = stop;
    return true;
  }
#endif

  bool read_entries(const char*& position, int64_t& n_entries, int64_t& n_features) {
    // Locals: the stores below may not make the compiler reload them.
    const char* p = position;
    const char* const end = end_;
    const uint64_t first = options_.zero_based ? 0 : 1;
    const uint64_t width = static_cast<uint64_t>(options_.n_features);
    uint64_t widest = static_cast<uint64_t>(n_features);
    int64_t n = n_entries;
    int32_t* indices = rows_.indices.data();
    float* values = rows_.values.data();
    for (;; ++n) {
#if defined(STEEPEST_EIGHT_AT_ONCE)
      uint64_t near;
      const char* behind = p;  // an index out of range is left to the general way, which says what is wrong
      if (end - p > kNearBytes && read_near(behind, near, values[n]) && near - first < width) {
        indices[n] = static_cast<int32_t>(near - first);
        widest = near - first >= widest ? near - first + 1 : widest;
        p = behind;
        continue;
      }
#endif
      while (is_blank(*p)) ++p;
      const char* start = p;
      uint64_t index = 0;
      scan_digits(p, end, index);
      if (*p != ':' || p == start) {
        if (*p == '#') p = line_end(p);
        if (*p != '\n' || (p != start && is_digit(*start))) return fail_index(start);
        break;
      }
      const uint64_t column = index - first;  // index 0 of a one-based file becomes huge
      if (column >= width || p - start > kSafeDigits) return fail_column(start, index);
      start = ++p;
      float value;
      if (is_digit(p[0]) && ends_token(p[1])) {  // counts and one-hot codes
        value = static_cast<float>(*p++ - '0');
      } else {
        Decimal x;
        if (!scan_decimal(p, end, x) || !ends_token(*p)) return fail_value(start);
        if (is_exact(x)) {
          value = static_cast<float>(exact_double(x));  // at most 2^53 * 10^22, which a float can hold
        } else {
          value = rounded_float(x, start, p);
          if (!(std::fabs(value) <= FLT_MAX)) return fail(LineFault::kValueNotFinite, start);
        }
      }
      indices[n] = static_cast<int32_t>(column);
      values[n] = value;
      widest = column >= widest ? column + 1 : widest;
    }
    position = p;
    n_entries = n;
    n_features = static_cast<int64_t>(widest);
    return true;
  }

  void add_row(double label, int64_t group) {
    if (group != kNoGroup && !rows_.has_groups) start_groups();
    if (rows_.has_groups) rows_.groups.data()[rows_.n_rows] = group;
    rows_.y.data()[rows_.n_rows++] = label;
  }

  void start_groups() {
    rows_.groups.make(max_rows_);
    std::fill_n(rows_.groups.data(), rows_.n_rows, kNoGroup);
    rows_.has_groups = true;
  }

  bool fail_index(const char* start) {
    const char* p = start;
    if (*p == '-' || *p == '+') ++p;
    const char* digits = p;
    while (is_digit(*p)) ++p;
    if (p == digits || !(ends_token(*p) || *p == ':')) return fail(LineFault::kIndexNotANumber, start);
    if (*p != ':') return fail(LineFault::kColonMissing, start);
    return fail(*start == '-' ? LineFault::kIndexNegative : LineFault::kIndexNotANumber, start);
  }

  bool fail_column(const char* start, uint64_t index) {
    if (index == 0 && !options_.zero_based && token_end(start, true) - start <= kSafeDigits)
      return fail(LineFault::kIndexZero, start);
    const bool beyond = options_.n_features < INT32_MAX;
    return fail(beyond ? LineFault::kIndexBeyond : LineFault::kIndexTooLarge, start);
  }

  bool fail_value(const char* start) {
    return fail(spells_not_finite(start) ? LineFault::kValueNotFinite : LineFault::kValueNotANumber, start);
  }

  static bool starts_with_colon_token(const char* p) {
    while (!ends_token(*p) && *p != ':') ++p;
    return *p == ':';
  }

  static const char* token_end(const char* p, bool of_index) {
    while (!ends_token(*p) && !(of_index && *p == ':')) ++p;
    return p;
  }
};

}  // namespace

void parse_libsvm(const std::vector<Text>& texts, const LibsvmOptions& options, LibsvmRows& rows) {
  // Each entry has a colon and each row but a text's last a newline, so nothing needs to grow.
  int64_t max_entries = 0, max_rows = 0;
  for (const Text& text : texts) {
    max_entries += count_bytes(text, [](char c) { return c == ':'; });
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
