// SPDX-License-Identifier: Apache-2.0
// How it stays fast: tokens are read without a test for the end of the text, and the arrays never grow.
#include "parse/libsvm.h"

namespace steepest {
namespace {

class Reader : public LineReader<Reader, LibsvmOptions, LibsvmRows> {
 public:
  using LineReader::LineReader;

  static bool ends_token(char c) { return is_blank(c) || c == '\n' || c == '#'; }

  // Leaves p at the line's '\n'.
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
    rows_.groups.set(rows_.n_rows, group, group != kNoGroup, max_rows_);
    add_row(label, n_entries);
    rows_.n_features = n_features;
    return true;
  }

  // An index ends at its colon, too.
  const char* wrong_token_end() const { return token_end(token_, std::strncmp(fault_, "index_", 6) == 0); }

 private:
  bool read_label(const char*& p, double& label) {
    if (!options_.with_labels && starts_with_colon_token(p)) return true;
    const char* start = p;
    Decimal x;
    const bool number = scan_decimal(p, end_, x);
    if (number && ends_token(*p)) {
      label = to_double(x, start, p);
      return std::isfinite(label) || fail("label_not_finite", start);
    }
    if (number && *p == ',') return fail("several_labels", start);
    if (starts_with_colon_token(start)) return fail("label_missing", start);
    return fail(spells_not_finite(start) ? "label_not_finite" : "label_not_a_number", start);
  }

  bool read_group(const char*& p, int64_t& group) {
    while (is_blank(*p)) ++p;
    if (!(p[0] == 'q' && p[1] == 'i' && p[2] == 'd' && p[3] == ':')) return true;
    const char* start = p += 4;
    uint64_t digits = 0;
    more_digits(p, digits);
    // 18 digits fit in the signed 64 bits of a group number.
    if (p == start || p - start > 18 || !ends_token(*p)) return fail("group_not_a_number", start);
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
      float value;
      if (!read_value(++p, end, value, "value_not_a_number", "value_not_finite")) return false;
      indices[n] = static_cast<int32_t>(column);
      values[n] = value;
      widest = column >= widest ? column + 1 : widest;
    }
    position = p;
    n_entries = n;
    n_features = static_cast<int64_t>(widest);
    return true;
  }

  bool fail_index(const char* start) {
    const char* p = start;
    if (*p == '-' || *p == '+') ++p;
    const char* digits = p;
    while (is_digit(*p)) ++p;
    if (p == digits || !(ends_token(*p) || *p == ':')) return fail("index_not_a_number", start);
    if (*p != ':') return fail("colon_missing", start);
    return fail(*start == '-' ? "index_negative" : "index_not_a_number", start);
  }

  bool fail_column(const char* start, uint64_t index) {
    if (index == 0 && !options_.zero_based && token_end(start, true) - start <= kSafeDigits)
      return fail("index_zero", start);
    const bool beyond = options_.n_features < INT32_MAX;
    return fail(beyond ? "index_beyond" : "index_too_large", start);
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
  Reader(options, rows).read_all(texts, [](char c) { return c == ':'; });
}

}  // namespace steepest
