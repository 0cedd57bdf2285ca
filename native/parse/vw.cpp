// SPDX-License-Identifier: Apache-2.0
// How it stays fast: tokens are read without a test for the end of the text; the end of a name is searched
// for in eight bytes at once; the arrays grow only for crosses.
#include "parse/vw.h"

#include "core/bits.h"
#include "text/hash.h"

namespace steepest {
namespace {

constexpr int kNumbers = 3;  // label, importance, base

constexpr const char* kNotANumber[kNumbers] = {"label_not_a_number", "importance_not_a_number",
                                               "base_not_a_number"};
constexpr const char* kNotFinite[kNumbers] = {"label_not_finite", "importance_not_finite", "base_not_finite"};

// What is before the first bar, but for the tag.
struct Header {
  double numbers[kNumbers] = {0, 1, 0};
  int n_numbers = 0;
};

class Reader : public LineReader<Reader, VwOptions, VwRows> {
 public:
  Reader(const VwOptions& options, VwRows& rows)
      : LineReader(options, rows), key_(key_of_seed(options.seed)), no_name_(hash_short("", 0)) {
    for (const auto& [a, b] : options.crosses) crosses_.emplace_back(crossed_place(a), crossed_place(b));
  }

  static bool ends_token(char c) { return is_blank(c) || c == '\n' || c == '|'; }

  // Leaves p at the line's '\n'.
  bool read_line(const char*& p) {
    while (is_blank(*p)) ++p;
    if (*p == '\n') return true;
    Header header;
    int64_t n_entries = rows_.n_entries;
    if (!read_header(p, header)) return false;
    logs_ = logs_names();
    for (Crossed& space : crossed_) space.features.clear();
    const char* const features = p;
    while (*p == '|')
      if (!read_namespace(++p, n_entries)) return false;
    for (const auto& [a, b] : crosses_)
      if (!add_cross(crossed_[a].features, crossed_[b].features, n_entries)) return fail(fault_, features);
    rows_.weights.set(rows_.n_rows, header.numbers[1], header.n_numbers > 1, max_rows_);
    add_row(header.numbers[0], n_entries);
    return true;
  }

  const char* wrong_token_end() const { return token_end(token_); }

 private:
  static const char* token_end(const char* p) {
    while (!ends_token(*p)) ++p;
    return p;
  }

  static const char* name_end(const char* p, const char* end) {
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
    // Other control characters may be part of a name, but a line with a zero byte is not text.
    while (!ends_token(*p) && *p != ':' && *p != '\0') ++p;
    return p;
  }

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
        if (*p != '|') return fail_header("tag_not_last", start);
      } else if (header.n_numbers == kNumbers) {
        return fail_header("too_many_numbers", start);
      } else if (!read_number(start, stop, header)) {
        return false;
      }
      if (*p == '\n') return fail_header("bar_missing", start);
    }
    if (header.n_numbers > 0 || !options_.with_labels) return true;
    const bool label = touching && is_number(touching, p);
    return label ? fail("label_touches_bar", touching) : fail("label_missing", p);
  }

  bool read_number(const char* start, const char* stop, Header& header) {
    const int i = header.n_numbers++;
    Decimal x;
    const char* p = start;
    if (!scan_decimal(p, end_, x) || p != stop) {
      const bool spelled = spells_not_finite(start);
      return fail_header((spelled ? kNotFinite : kNotANumber)[i], start);
    }
    header.numbers[i] = to_double(x, start, stop);
    if (!std::isfinite(header.numbers[i])) return fail_header(kNotFinite[i], start);
    return i != 1 || header.numbers[i] >= 0 || fail_header("importance_negative", start);
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
    if (p == start && *p == ':') return fail("namespace_missing", start);
    const uint64_t space = p == start ? no_name_ : hash_name(start, p - start, end);
    if (logs_) space_name_.assign(start, p);
    std::vector<Feature>* crossed = nullptr;
    for (Crossed& known : crossed_)
      if (known.hash == space) crossed = &known.features;
    float scale = 1;
    if (*p == ':' && !read_value(++p, end, scale, "scale_not_a_number", "scale_not_finite")) return false;
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
        if (!read_value(p, end, value, "value_not_a_number", "value_not_finite")) return false;
      } else if (*p == '\0') {
        return fail("binary", start);
      }
      value *= scale;
      if (!(std::fabs(value) <= FLT_MAX)) return fail("value_not_finite", start);
      if (crossed) crossed->push_back({hash, value, logs_ ? name_ : std::string()});
      indices[n] = static_cast<int32_t>(bucket_of(hash, n_bits));
      // No branch hangs on the sign, since nothing foretells it.
      values[n] = float_of(bits_of(value) ^ (static_cast<uint32_t>(hash >> 32) & sign));
    }
    position = p;
    n_entries = n;
    return true;
  }

  struct Feature {
    uint64_t hash;
    float value;
    std::string name;  // of rows that NameBook samples
  };
  struct Crossed {
    uint64_t hash;  // of the namespace's name
    std::vector<Feature> features;
  };

  size_t crossed_place(const std::string& name) {
    const std::string padded = name + std::string(16, '\0');
    const uint64_t hash = hash_bytes(reinterpret_cast<const uint8_t*>(padded.data()), name.size(), key_);
    for (size_t k = 0; k < crossed_.size(); ++k)
      if (crossed_[k].hash == hash) return k;
    crossed_.push_back({hash, {}});
    return crossed_.size() - 1;
  }

  // Pairs of the features of two namespaces, or of one.
  bool add_cross(const std::vector<Feature>& a, const std::vector<Feature>& b, int64_t& n_entries) {
    if (a.empty() || b.empty()) return true;
    if (a.size() > static_cast<size_t>(kMostPairs) / b.size()) return fail("cross_too_large", "");
    const int64_t n_pairs = static_cast<int64_t>(a.size() * b.size());
    // Behind the crosses there must be room for all features of the text.
    if (n_entries + n_pairs > capacity_ - max_entries_) {
      capacity_ = max_entries_ + 2 * (n_entries + n_pairs);
      rows_.indices.grow(n_entries, capacity_);
      rows_.values.grow(n_entries, capacity_);
    }
    const uint32_t sign = options_.is_signed ? 0x80000000u : 0;
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t k = &a == &b ? i + 1 : 0; k < b.size(); ++k) {
        const uint64_t hash = mix(a[i].hash, b[k].hash);
        const float value = a[i].value * b[k].value;
        if (!(std::fabs(value) <= FLT_MAX)) return fail("cross_not_finite", "");
        if (logs_) {
          name_.assign(a[i].name).append("#").append(b[k].name);
          rows_.names.add_text(bucket_of(hash, options_.n_bits), static_cast<uint32_t>(hash), name_);
        }
        rows_.indices.data()[n_entries] = static_cast<int32_t>(bucket_of(hash, options_.n_bits));
        rows_.values.data()[n_entries++] =
            float_of(bits_of(value) ^ (static_cast<uint32_t>(hash >> 32) & sign));
      }
    return true;
  }

  bool logs_names() const {
    const size_t text = rows_.text_rows.size() - 1;
    const int64_t from = text < options_.log_from.size() ? options_.log_from[text] : -1;
    return from >= 0 && NameBook::samples(from + rows_.n_rows - first_row_);
  }

  void log_name(uint64_t hash, const char* start, const char* stop) {
    name_.assign(space_name_);
    if (!name_.empty()) name_ += '^';
    name_.append(start, stop);
    rows_.names.add_text(bucket_of(hash, options_.n_bits), static_cast<uint32_t>(hash), name_);
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

  // Whatever is wrong before the first bar, it matters only if there is a bar.
  bool fail_header(const char* fault, const char* token) {
    const size_t rest = static_cast<size_t>(line_end(token) - token);
    return fail(std::memchr(token, '|', rest) ? fault : "bar_missing", token);
  }

  bool is_number(const char* p, const char* stop) const {
    Decimal x;
    return scan_decimal(p, end_, x) && p == stop;
  }

  const uint64_t key_;
  const uint64_t no_name_;
  bool logs_ = false;
  std::string space_name_, name_;
  static constexpr int64_t kMostPairs = 1 << 24;    // of a cross in one line
  std::vector<std::pair<size_t, size_t>> crosses_;  // places in crossed_
  std::vector<Crossed> crossed_;
  int64_t capacity_ = 0;  // of the arrays once they had to grow
};

}  // namespace

void parse_vw(const std::vector<Text>& texts, const VwOptions& options, VwRows& rows) {
  // A blank precedes each feature.
  Reader(options, rows).read_all(texts, [](char c) { return static_cast<unsigned char>(c) <= ' '; });
}

}  // namespace steepest
