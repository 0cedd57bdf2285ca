// SPDX-License-Identifier: Apache-2.0
#include "text/names.h"

#include <string.h>

#include <algorithm>

#include "core/compiler.h"
#include "text/hash.h"

namespace steepest {
namespace {

// Three slots for newcomers beside each tenured one: enough to try out features before the next pruning.
constexpr int64_t kSlotsPerName = 4;
constexpr int64_t kAllRowsUntil = 256;
constexpr int kMostThinning = 6;          // one row in 2^6
constexpr uint32_t kProvenSeniority = 4;  // of a newcomer that came twice; others can be driven out at once

// At least eight bits per slot, as a power of two.
size_t words_of_filter(size_t n_slots) {
  size_t words = 64;
  while (64 * words < 8 * n_slots) words *= 2;
  return words;
}

void count_up(uint32_t& count) { count += count < UINT32_MAX; }

}  // namespace

NameBook::NameBook(int64_t n_names)
    : n_names_(n_names),
      buckets_(static_cast<size_t>((n_names * kSlotsPerName + kWays - 1) / kWays * kWays), kFree),
      tallies_(buckets_.size()),
      names_(buckets_.size()),
      seen_once_(words_of_filter(buckets_.size())),
      touched_(kSampledBuckets / 64) {}

size_t NameBook::n_bytes() const {
  return buckets_.size() * (sizeof(uint32_t) + sizeof(Tally) + sizeof(Names)) +
         (seen_once_.size() + touched_.size()) * sizeof(uint64_t);
}

bool NameBook::samples(int64_t row) {
  int thinning = 0;
  while (thinning < kMostThinning && row >= kAllRowsUntil << thinning) ++thinning;
  // Hashed, so that a pattern in the order of rows cannot hide a class from the sample.
  return (fold(static_cast<uint64_t>(row) ^ kHash0, kHash3) & 0xFFFFFFFF) >> (32 - thinning) == 0;
}

void NameBook::read(NameLog& log) {
  const std::vector<NameLog::Entry>& entries = log.entries();
  constexpr size_t kAhead = 12;  // enough to hide a trip to memory
  for (size_t k = 0; k < entries.size(); ++k) {
    if (k + kAhead < entries.size()) {
      const size_t set = set_of(entries[k + kAhead].bucket);
      PREFETCH(&buckets_[set]);
      PREFETCH(&tallies_[set]);
      PREFETCH(&tallies_[set + kWays / 2]);
    }
    see(log, k);
  }
  log.clear();
}

void NameBook::touch(const uint64_t* touched) {
  for (size_t k = 0; k < touched_.size(); ++k) touched_[k] |= touched[k];
}

size_t NameBook::set_of(uint32_t bucket) const {
  const uint64_t n_sets = buckets_.size() / kWays;
  return static_cast<size_t>((bucket * kHash3 >> 32) * n_sets >> 32) * kWays;
}

int64_t NameBook::find_in(size_t set, uint32_t bucket) const {
  uint32_t found = 0;  // no early exit: where it is cannot be foretold
  for (int way = 0; way < kWays; ++way) found |= static_cast<uint32_t>(buckets_[set + way] == bucket) << way;
  if (!found) return -1;
  int64_t place = static_cast<int64_t>(set);
  for (; !(found & 1); found >>= 1) ++place;
  return place;
}

// The slot without tenure that can be replaced first, or -1.
int64_t NameBook::least_of(size_t set) const {
  int64_t least = -1;
  for (size_t place = set; place < set + kWays; ++place)
    if (!tallies_[place].tenured && (least < 0 || tallies_[place].seniority < tallies_[least].seniority))
      least = static_cast<int64_t>(place);
  return least;
}

void NameBook::see(const NameLog& log, size_t entry) {
  const int64_t place = find(log.entries()[entry].bucket);
  if (place < 0) return admit(log, entry);
  Tally& tally = tallies_[place];
  count_up(tally.seniority);
  if (tally.fingerprint != log.entries()[entry].fingerprint)
    return see_other_name(static_cast<size_t>(place), log, entry);
  count_up(tally.times);
}

void NameBook::see_other_name(size_t place, const NameLog& log, size_t entry) {
  Names& names = names_[place];
  const uint32_t fingerprint = log.entries()[entry].fingerprint;
  if (names.second_times && names.second_fingerprint != fingerprint) return count_up(names.others);
  if (names.second_times == 0) write(place, 1, log, entry);
  names.second_fingerprint = fingerprint;
  count_up(names.second_times);
}

void NameBook::admit(const NameLog& log, size_t entry) {
  const uint32_t bucket = log.entries()[entry].bucket;
  int64_t place = find_in(set_of(bucket), kFree);
  const bool is_free = place >= 0;
  if (!is_free) {
    if (!comes_again(bucket)) return;
    place = least_of(set_of(bucket));
    if (place < 0 || --tallies_[place].seniority) return;
  }
  buckets_[place] = bucket;
  tallies_[place] = {log.entries()[entry].fingerprint, 1, is_free ? 1 : kProvenSeniority, 0};
  names_[place] = Names{};
  write(static_cast<size_t>(place), 0, log, entry);
}

// Most features of a text come once or twice in all; this keeps them from driving out each other.
bool NameBook::comes_again(uint32_t bucket) {
  const uint64_t bit = bucket * kHash3 >> 32 & (64 * seen_once_.size() - 1);
  const uint64_t mark = uint64_t{1} << bit % 64;
  if (seen_once_[bit / 64] & mark) return true;
  // Forgets all when a quarter is full, before chance collisions let everybody in.
  if (n_seen_once_ == 16 * seen_once_.size()) set_seen_once(std::vector<uint64_t>(seen_once_.size()));
  seen_once_[bit / 64] |= mark;
  ++n_seen_once_;
  return false;
}

void NameBook::set_seen_once(std::vector<uint64_t> bits) {
  seen_once_ = std::move(bits);
  n_seen_once_ = 0;
  for (uint64_t word : seen_once_)
    for (; word; word &= word - 1) ++n_seen_once_;
}

void NameBook::write(size_t place, int k, const NameLog& log, size_t entry) {
  char* const out = names_[place].texts[k];
  size_t size = log.write_name(entry, out, kNameBytes);
  if (size > kNameBytes) {
    // Cut before a character, and say that there was more.
    constexpr char kMore[] = "\xE2\x80\xA6";
    size = kNameBytes - 3;
    while (size > 0 && (static_cast<uint8_t>(out[size]) & 0xC0) == 0x80) --size;
    memcpy(out + size, kMore, 3);
    size += 3;
  }
  names_[place].sizes[k] = static_cast<uint8_t>(size);
}

void NameBook::prune(const double* importance) {
  std::vector<size_t> heavy;
  for (size_t place = 0; place < buckets_.size(); ++place) {
    if (!is_used(place)) continue;
    tallies_[place].tenured = 0;
    tallies_[place].seniority = 1;
    if (importance[place] > 0) heavy.push_back(place);  // not for NaN, which would upset the order
  }
  std::stable_sort(heavy.begin(), heavy.end(),
                   [&](size_t a, size_t b) { return importance[a] > importance[b]; });
  if (heavy.size() > static_cast<size_t>(n_names_)) heavy.resize(static_cast<size_t>(n_names_));
  for (size_t place : heavy) tallies_[place].tenured = 1;
}

bool NameBook::restore(size_t place, const Slot& slot) {
  if (place >= buckets_.size() || slot.bucket == kFree || slot.tally.seniority == 0) return false;
  if (place / kWays * kWays != set_of(slot.bucket)) return false;
  for (uint8_t size : slot.names.sizes)
    if (size > kNameBytes) return false;
  buckets_[place] = slot.bucket;
  tallies_[place] = slot.tally;
  names_[place] = slot.names;
  return true;
}

void NameLog::begin_page(const std::string& prefix, const char* bytes, const uint32_t* bounds,
                         uint32_t n_words) {
  page_ = static_cast<uint32_t>(words_.size());
  if (n_words == 0) return;
  if (prefixes_.empty() || prefixes_.back() != prefix) prefixes_.push_back(prefix);
  const uint32_t first = bounds[0], last = bounds[2 * n_words - 1];
  for (uint32_t i = 0; i < n_words; ++i)
    words_.push_back({bytes_.size() + bounds[2 * i] - first, bounds[2 * i + 1] - bounds[2 * i],
                      static_cast<uint32_t>(prefixes_.size() - 1)});
  bytes_.append(bytes + first, last - first);
}

void NameLog::add_text(uint32_t bucket, uint32_t fingerprint, const std::string& name) {
  entries_.push_back({bucket, fingerprint, static_cast<uint32_t>(texts_.size()), 0});
  texts_.push_back({bytes_.size(), static_cast<uint32_t>(name.size()), 0});
  bytes_ += name;
}

size_t NameLog::write_name(size_t entry, char* out, size_t room) const {
  const Entry& e = entries_[entry];
  size_t size = 0;
  auto append = [&](const char* text, size_t n) {
    if (size < room) memcpy(out + size, text, std::min(n, room - size));
    size += n;
  };
  if (e.n_words == 0) {
    append(bytes_.data() + texts_[e.first].start, texts_[e.first].size);
    return size;
  }
  const std::string& prefix = prefixes_[words_[e.first].prefix];
  append(prefix.data(), prefix.size());
  for (uint32_t k = e.first; k < e.first + e.n_words; ++k) {
    if (k > e.first) append(" ", 1);
    append(bytes_.data() + words_[k].start, words_[k].size);
  }
  return size;
}

void NameLog::clear() {
  entries_.clear();
  words_.clear();
  texts_.clear();
  prefixes_.clear();
  bytes_.clear();
}

}  // namespace steepest
