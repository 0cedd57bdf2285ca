// SPDX-License-Identifier: Apache-2.0
// How it stays fast: every line ends in '\n' (the last one is copied if it does not), so numbers are read
// without a test for the end; digits go into an integer, and one exact multiplication or division by a power
// of ten gives the double. How it stays exact: what that cannot decide is left to from_chars.
#include "libsvm.h"

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstring>

#if defined(_MSC_VER)
#include <intrin.h>
#endif
#if !defined(__cpp_lib_to_chars)
#include <locale.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif
#include <string>
#endif

namespace steepest {
namespace {

// Ten to the 22nd is the last power of ten that a double holds exactly.
constexpr int kExactPowers = 22;
constexpr double kPowers[kExactPowers + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
constexpr uint64_t kIntegerPowers[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
constexpr uint64_t kExactIntegers = uint64_t{1} << 53;
constexpr int64_t kSafeDigits = 19;  // fit in 64 bits whatever they are

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
inline bool ends_token(char c) { return is_blank(c) || c == '\n' || c == '#'; }

#if defined(_MSC_VER) || (defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
#define STEEPEST_EIGHT_AT_ONCE 1

inline int trailing_zeros(uint64_t x) {
#if defined(_MSC_VER)
  unsigned long position;
  _BitScanForward64(&position, x);
  return static_cast<int>(position);
#else
  return __builtin_ctzll(x);
#endif
}

// The number of digits at p, up to eight, and their value, without a branch on how many they are.
// Eight bytes must be readable.
inline int eight_digits(const char* p, uint64_t& value) {
  uint64_t x;
  std::memcpy(&x, p, 8);
  x ^= 0x3030303030303030u;
  // The lowest byte above 9 sets its high bit; the bytes above it may be wrong, and do not matter.
  const uint64_t others = ((x + 0x7676767676767676u) | x) & 0x8080808080808080u;
  const int n = others ? trailing_zeros(others) >> 3 : 8;
  if (n == 0) {
    value = 0;
    return 0;
  }
  x <<= 64 - 8 * n;  // the missing digits become leading zeros
  x = x * 10 + (x >> 8);
  value = ((x & 0x000000FF000000FFu) * 0x000F424000000064u +
           ((x >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u) >>
          32;
  return n;
}
#endif

// Appends the digits at p to `value`; beyond 19 digits in all the value is of no use.
inline void more_digits(const char*& p, uint64_t& value) {
  for (; is_digit(*p); ++p) value = value * 10 + static_cast<uint64_t>(*p - '0');
}

inline void scan_digits(const char*& p, const char* end, uint64_t& value) {
#if defined(STEEPEST_EIGHT_AT_ONCE)
  if (end - p >= 8) {
    uint64_t digits;
    const int n = eight_digits(p, digits);
    value = value * kIntegerPowers[n] + digits;
    p += n;
    if (n < 8) return;
  }
#else
  (void)end;
#endif
  more_digits(p, value);
}

// sign, digits * 10^exponent
struct Decimal {
  uint64_t digits = 0;
  int64_t exponent = 0;
  int64_t n_digits = 0;
  bool negative = false;
};

// Moves p behind a decimal number; false if there is none.
inline bool scan_decimal(const char*& p, const char* end, Decimal& x) {
  x.negative = *p == '-';
  if (*p == '-' || *p == '+') ++p;
  const char* start = p;
  more_digits(p, x.digits);  // mostly one digit
  x.n_digits = p - start;
  if (*p == '.') {
    start = ++p;
    scan_digits(p, end, x.digits);
    x.exponent = start - p;
    x.n_digits += p - start;
  }
  if (x.n_digits == 0) return false;
  if ((*p | 0x20) != 'e') return true;
  ++p;
  const bool down = *p == '-';
  if (*p == '-' || *p == '+') ++p;
  if (!is_digit(*p)) return false;
  int64_t power = 0;
  for (; is_digit(*p); ++p)
    if (power < INT32_MAX) power = power * 10 + (*p - '0');
  x.exponent += down ? -power : power;
  return true;
}

#if defined(__cpp_lib_to_chars)
// What a number that no double holds becomes: infinity or zero.
double beyond_double(const char* start, const char* stop) {
  int64_t size = 0;  // power of ten of the first digit that is not 0
  bool point = false, started = false;
  for (; start < stop && (*start | 0x20) != 'e'; ++start) {
    if (*start == '.') {
      point = true;
    } else if (is_digit(*start)) {
      started |= *start != '0';
      size += point ? -(started ? 0 : 1) : (started ? 1 : 0);
    }
  }
  if (start < stop) {
    ++start;
    const bool down = *start == '-';
    int64_t power = 0;
    for (; start < stop; ++start)
      if (is_digit(*start) && power < INT32_MAX) power = power * 10 + (*start - '0');
    size += down ? -power : power;
  }
  return size > 0 ? HUGE_VAL : 0.0;
}
#endif

// The text start..stop is a decimal number, as scan_decimal found.
double slow_double(const char* start, const char* stop) {
  const bool negative = *start == '-';
  if (*start == '-' || *start == '+') ++start;
  double x = 0;
#if defined(__cpp_lib_to_chars)
  if (std::from_chars(start, stop, x).ec == std::errc::result_out_of_range) x = beyond_double(start, stop);
#else
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  x = strtod_l(std::string(start, stop).c_str(), nullptr, plain);
#endif
  return negative ? -x : x;
}

inline bool is_exact(const Decimal& x) {
  return x.n_digits <= kSafeDigits && x.digits <= kExactIntegers && x.exponent >= -kExactPowers &&
         x.exponent <= kExactPowers;
}

inline double scaled(const Decimal& x, double digits) {
  const double size = x.exponent < 0 ? digits / kPowers[-x.exponent] : digits * kPowers[x.exponent];
  return x.negative ? -size : size;
}

inline double exact_double(const Decimal& x) {
  return scaled(x, static_cast<double>(static_cast<int64_t>(x.digits)));
}

inline double to_double(const Decimal& x, const char* start, const char* stop) {
  return is_exact(x) ? exact_double(x) : slow_double(start, stop);
}

// The float next to a number that is_exact refuses.
float rounded_float(const Decimal& x, const char* start, const char* stop) {
  if (x.n_digits <= kSafeDigits && x.exponent >= -kExactPowers && x.exponent <= kExactPowers) {
    // Here `about` is at most a few units in its last place off. Unless it lies next to the middle between
    // two floats, it rounds to the same float as the exact double. (Its 29 low bits are those a float drops;
    // it is no subnormal float, since more than 2^53 was divided by at most 10^22.)
    const double about = scaled(x, static_cast<double>(x.digits));
    uint64_t bits;
    std::memcpy(&bits, &about, 8);
    const int64_t from_middle = static_cast<int64_t>(bits & 0x1FFFFFFF) - 0x10000000;
    if (from_middle > 8 || from_middle < -8) return static_cast<float>(about);
  }
  return static_cast<float>(slow_double(start, stop));
}

bool matches(const char* p, const char* lower_case) {
  for (; *lower_case; ++p, ++lower_case)
    if ((*p | 0x20) != *lower_case) return false;
  return true;
}

// Whether the token spells nan, inf or infinity.
bool spells_not_finite(const char* p) {
  if (*p == '-' || *p == '+') ++p;
  if (matches(p, "infinity")) return ends_token(p[8]);
  return (matches(p, "nan") || matches(p, "inf")) && ends_token(p[3]);
}

// Counted in 32 lanes of bytes, which a compiler turns into vector code.
int64_t count_bytes(const char* data, int64_t size, char wanted) {
  constexpr int kLanes = 32, kFull = 255;
  int64_t total = 0, i = 0;
  while (size - i >= kLanes) {
    uint8_t lanes[kLanes] = {};
    for (int step = 0; step < kFull && size - i >= kLanes; ++step, i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += data[i + lane] == wanted;
    for (int lane = 0; lane < kLanes; ++lane) total += lanes[lane];
  }
  for (; i < size; ++i) total += data[i] == wanted;
  return total;
}

class Reader {
 public:
  Reader(const LibsvmOptions& options, LibsvmRows& rows, int64_t max_rows)
      : options_(options), rows_(rows), max_rows_(max_rows) {}

  // False: there was a bad line and none may be skipped.
  bool read(const Text& text) {
    rows_.text_rows.push_back(0);
    rows_.text_bad.push_back(0);
    const int64_t rows_before = rows_.n_rows;
    int64_t whole = text.size;
    while (whole > 0 && text.data[whole - 1] != '\n') --whole;
    bool good = read_lines(text.data, text.data + whole, 0);
    if (good && whole < text.size) {
      std::vector<char> last(text.data + whole, text.data + text.size);
      last.push_back('\n');
      good = read_lines(last.data(), last.data() + last.size(), whole);
    }
    rows_.text_rows.back() = rows_.n_rows - rows_before;
    return good;
  }

 private:
  // Lines that end in '\n' and lie `offset` bytes behind the start of the text.
  bool read_lines(const char* begin, const char* end, int64_t offset) {
    end_ = end;
    for (const char* p = begin; p < end; ++p) {
      const char* line = p;
      if (read_line(p)) continue;
      note(begin, line, offset);
      if (!options_.skip_bad) return false;
      p = line_end(line);
    }
    return true;
  }

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

  bool fail(LineFault fault, const char* token) {
    fault_ = fault;
    token_ = token;
    return false;
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

  const char* line_end(const char* p) const {
    return static_cast<const char*>(std::memchr(p, '\n', static_cast<size_t>(end_ - p)));
  }

  void note(const char* begin, const char* line, int64_t offset) {
    if (std::memchr(line, '\0', static_cast<size_t>(line_end(line) - line))) fault_ = LineFault::kBinary;
    if (++rows_.text_bad.back() > kBadLinesKept) return;
    const bool of_index = fault_ >= LineFault::kIndexNotANumber && fault_ <= LineFault::kIndexBeyond;
    rows_.bad.push_back({static_cast<int64_t>(rows_.text_bad.size()) - 1, line - begin + offset,
                         token_ - begin + offset, token_end(token_, of_index) - token_, fault_});
  }

  const LibsvmOptions& options_;
  LibsvmRows& rows_;
  const int64_t max_rows_;
  const char* end_ = nullptr;
  LineFault fault_ = LineFault::kBinary;
  const char* token_ = nullptr;
};

}  // namespace

const char* fault_name(LineFault fault) {
  static const char* const names[] = {
      "label_missing",      "label_not_a_number", "label_not_finite", "several_labels",  "group_not_a_number",
      "index_not_a_number", "index_negative",     "index_zero",       "index_too_large", "index_beyond",
      "colon_missing",      "value_not_a_number", "value_not_finite", "binary"};
  static_assert(sizeof(names) / sizeof(names[0]) == static_cast<size_t>(LineFault::kCount),
                "one name a fault");
  return names[static_cast<int>(fault)];
}

void parse_libsvm(const std::vector<Text>& texts, const LibsvmOptions& options, LibsvmRows& rows) {
  // Each entry has a colon and each row but a text's last a newline, so nothing needs to grow.
  int64_t max_entries = 0, max_rows = 0;
  for (const Text& text : texts) {
    max_entries += count_bytes(text.data, text.size, ':');
    max_rows += count_bytes(text.data, text.size, '\n') + 1;
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
