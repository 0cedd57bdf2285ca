// SPDX-License-Identifier: Apache-2.0
// Decimal numbers of text, each the nearest double or float. Fast: digits go into an integer, and one exact
// multiplication or division by a power of ten gives the double. Exact: what that cannot decide is left to
// from_chars. No length is given, so a byte that is not part of a number (the line's '\n') must end the text.
#pragma once

#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

#if !defined(__cpp_lib_to_chars)
#include <locale.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif
#include <string>
#endif

#include "core/bits.h"

namespace steepest {

// Ten to the 22nd is the last power of ten that a double holds exactly.
constexpr int kExactPowers = 22;
inline constexpr double kPowers[kExactPowers + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
inline constexpr uint64_t kIntegerPowers[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
constexpr uint64_t kExactIntegers = uint64_t{1} << 53;
constexpr int64_t kSafeDigits = 19;  // fit in 64 bits whatever they are

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }
inline bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

#if defined(_MSC_VER) || (defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
#define STEEPEST_EIGHT_AT_ONCE 1

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

// Infinity or zero: what a number that no double holds becomes, by the power of ten of its first digit.
inline double beyond_double(const Decimal& x, const char* start, const char* stop) {
  while (*start == '0' || *start == '.') ++start;
  int64_t n_digits = 0;  // without leading zeros
  for (; start < stop && (*start == '.' || is_digit(*start)); ++start) n_digits += *start != '.';
  return n_digits + x.exponent > 0 ? HUGE_VAL : 0.0;
}

// The text start..stop is a decimal number, as scan_decimal found.
inline double slow_double(const Decimal& x, const char* start, const char* stop) {
  if (*start == '-' || *start == '+') ++start;
  double size = 0;
#if defined(__cpp_lib_to_chars)
  if (std::from_chars(start, stop, size).ec == std::errc::result_out_of_range)
    size = beyond_double(x, start, stop);
#else
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  size = strtod_l(std::string(start, stop).c_str(), nullptr, plain);
#endif
  return x.negative ? -size : size;
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
  return is_exact(x) ? exact_double(x) : slow_double(x, start, stop);
}

// The float next to a number that is_exact refuses.
inline float rounded_float(const Decimal& x, const char* start, const char* stop) {
  if (x.n_digits <= kSafeDigits && x.exponent >= -kExactPowers && x.exponent <= kExactPowers) {
    // Here `about` is at most a few units in its last place off. Unless it lies next to the middle between
    // two floats, it rounds to the same float as the exact double. (Its 29 low bits are those a float drops;
    // it is not a subnormal float, since more than 2^53 was divided by at most 10^22.)
    const double about = scaled(x, static_cast<double>(x.digits));
    uint64_t bits;
    std::memcpy(&bits, &about, 8);
    const int64_t from_middle = static_cast<int64_t>(bits & 0x1FFFFFFF) - 0x10000000;
    if (from_middle > 8 || from_middle < -8) return static_cast<float>(about);
  }
  return static_cast<float>(slow_double(x, start, stop));
}

inline bool matches(const char* p, const char* lower_case) {
  for (; *lower_case; ++p, ++lower_case)
    if ((*p | 0x20) != *lower_case) return false;
  return true;
}

// Behind a token's nan, inf or infinity, whatever follows; null if it spells none of them.
inline const char* behind_not_finite(const char* p) {
  if (*p == '-' || *p == '+') ++p;
  if (matches(p, "infinity")) return p + 8;
  return matches(p, "nan") || matches(p, "inf") ? p + 3 : nullptr;
}

}  // namespace steepest
