// SPDX-License-Identifier: Apache-2.0
// Names of hashed features, collected while hashing, in memory that is fixed when the book is made.
//
// The book is a set-associative table of 4 K slots, K = the names to keep for sure. A slot holds one bucket
// and the first two different names seen in it. A bucket that finds its set full must come twice; then it
// takes one from the seniority of the least there and replaces it at zero, as in Misra and Gries' heavy
// hitters: frequent features stay, whatever comes between. prune() gives tenure to the K buckets that matter
// most to a model and takes the seniority of the rest. Only a sample of rows is read: all of the first ones,
// then fewer, in the end one in 64. Which ones depends on the number of the row alone, so the book is the
// same for any chunk size and any number of threads.
#pragma once
#include <stdint.h>

#include <string>
#include <vector>

namespace steepest {

class NameLog;

class NameBook {
 public:
  static constexpr int kWays = 8, kNames = 2, kNameBytes = 48;
  static constexpr uint32_t kFree = 0xFFFFFFFF;         // no bucket has this number
  static constexpr uint32_t kSampledBuckets = 1 << 14;  // occupancy is counted on the buckets below

  struct Tally {
    uint32_t fingerprint, times;  // of the first name
    uint32_t seniority, tenured;  // of the slot
  };
  struct Names {
    uint32_t second_fingerprint, second_times;
    uint32_t others;  // sightings of further names
    uint8_t sizes[kNames];
    char texts[kNames][kNameBytes];
  };
  struct Slot {
    uint32_t bucket;
    Tally tally;
    Names names;
  };

  explicit NameBook(int64_t n_names);

  static bool samples(int64_t row);
  void read(NameLog& log);
  void touch(const uint64_t* touched);

  // The place of a bucket's slot, or -1.
  int64_t find(uint32_t bucket) const { return find_in(set_of(bucket), bucket); }
  bool is_used(size_t place) const { return buckets_[place] != kFree; }
  Slot slot(size_t place) const { return {buckets_[place], tallies_[place], names_[place]}; }
  // The n_names used slots with the greatest importance (given for every slot) can no longer be replaced.
  void prune(const double* importance);
  // False if there can be no such slot.
  bool restore(size_t place, const Slot& slot);

  size_t n_slots() const { return buckets_.size(); }
  size_t n_bytes() const;
  std::vector<uint64_t>& touched() { return touched_; }
  const std::vector<uint64_t>& seen_once() const { return seen_once_; }
  void set_seen_once(std::vector<uint64_t> bits);
  int64_t rows() const { return rows_; }
  void set_rows(int64_t rows) { rows_ = rows; }

 private:
  size_t set_of(uint32_t bucket) const;
  int64_t find_in(size_t set, uint32_t bucket) const;
  int64_t least_of(size_t set) const;
  void see(const NameLog& log, size_t entry);
  void see_other_name(size_t place, const NameLog& log, size_t entry);
  void admit(const NameLog& log, size_t entry);
  bool comes_again(uint32_t bucket);
  void write(size_t place, int k, const NameLog& log, size_t entry);

  int64_t n_names_;
  int64_t rows_ = 0;  // rows that went by, read or not
  // Apart, by how often they are read.
  std::vector<uint32_t> buckets_;
  std::vector<Tally> tallies_;
  std::vector<Names> names_;
  size_t n_seen_once_ = 0;
  std::vector<uint64_t> seen_once_;  // a bit for each of many buckets: has come to a full set
  std::vector<uint64_t> touched_;    // a bit for each of the first kSampledBuckets
};

// What one thread found in its rows, to be read into the book in the order of rows. The names of words are
// put together only if the book takes them: most entries are known there or turned away.
class NameLog {
 public:
  struct Entry {
    uint32_t bucket, fingerprint;
    uint32_t first, n_words;  // of the page; no words: a text of its own, with this number
  };

  // The words of one text, to which add_words refers from now on. bounds: start, end, start, end, ...
  void begin_page(const std::string& prefix, const char* bytes, const uint32_t* bounds, uint32_t n_words);
  void add_words(uint32_t bucket, uint32_t fingerprint, uint32_t first, uint32_t n_words) {
    entries_.push_back({bucket, fingerprint, first + page_, n_words});
  }
  void add_text(uint32_t bucket, uint32_t fingerprint, const std::string& name);

  const std::vector<Entry>& entries() const { return entries_; }
  // Writes the name, up to `room` bytes of it; returns its full size.
  size_t write_name(size_t entry, char* out, size_t room) const;
  void clear();

 private:
  struct Piece {
    size_t start;
    uint32_t size;
    uint32_t prefix;
  };
  std::vector<Entry> entries_;
  std::vector<Piece> words_, texts_;
  std::vector<std::string> prefixes_;
  std::string bytes_;
  uint32_t page_ = 0;  // the number of its first word
};

}  // namespace steepest
