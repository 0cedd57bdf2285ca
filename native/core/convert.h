// SPDX-License-Identifier: Apache-2.0
// Sparse rows made of other rows or of a dense matrix.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/rows.h"

namespace steepest {

// Rows that own their arrays, with room for one entry more than there are: loops may write it and need no
// branch.
struct OwnedRows {
  OwnedRows(int64_t n_rows, int64_t n_entries)
      : indptr(new int64_t[n_rows + 1]),
        indices(new int32_t[n_entries + 1]),
        values(new float[n_entries + 1]),
        n(n_rows) {
    indptr[0] = 0;
  }
  Rows view(int64_t n_features) const {
    return plain_rows(indptr.get(), indices.get(), values.get(), n, n_features);
  }

  std::unique_ptr<int64_t[]> indptr;
  std::unique_ptr<int32_t[]> indices;
  std::unique_ptr<float[]> values;
  int64_t n;
};

// The slot of each feature: tables then have a row for each feature that was seen, one behind the other, and
// not for each that could be. slot[j] is the slot of feature j plus one, or 0; a feature without a slot takes
// the next one, and n_slots grows. An index out of range stays out of range: it is -1.
inline void number_features(const int32_t* indices, int64_t n, int32_t* slot, int64_t n_features,
                            int32_t* owners, int64_t n_owners, int64_t& n_slots, int32_t* placed) {
  constexpr int64_t kAhead = 16;  // slots may be anywhere in memory
  const auto fits = [&](int64_t k) { return indices[k] >= 0 && indices[k] < n_features; };
  for (int64_t k = 0; k < n; ++k) {
    if (k + kAhead < n && fits(k + kAhead)) PREFETCH(slot + indices[k + kAhead]);
    if (!fits(k) || (slot[indices[k]] == 0 && n_slots >= n_owners)) {
      placed[k] = -1;
      continue;
    }
    int32_t& own = slot[indices[k]];
    if (own == 0) {
      owners[n_slots] = indices[k];
      own = static_cast<int32_t>(++n_slots);
    }
    placed[k] = own > 0 ? own - 1 : -1;  // below zero: not a slot of ours
  }
}

// The rows visited with slots for indices. A feature without one is left out, or, if `keep`, stays with the
// value 0: it adds nothing either way, but only then the sums of a row keep their order of additions. A value
// that is not finite stays as it is, since scores must show it. Ends before the first row with an index out
// of range.
inline OwnedRows place_features(const Rows& rows, const int32_t* slots, bool keep) {
  OwnedRows out(rows.n, entries_in(rows));
  // Whether the indices of a row are in range; their slots, which may be anywhere, are fetched on the way.
  const auto check = [&](int64_t q) {
    const Row row = row_in_turn(rows, q);
    if (!indices_fit(row, rows.n_features)) return false;
    for (int64_t k = 0; k < row.n; ++k) PREFETCH(slots + row.index[k]);
    return true;
  };
  int64_t filled = 0, q = 0;
  bool fits = rows.n > 0 && check(0);
  for (; q < rows.n && fits; ++q) {
    fits = q + 1 == rows.n || check(q + 1);
    const Row row = row_in_turn(rows, q);
    for (int64_t k = 0; k < row.n; ++k) {
      const int32_t slot = std::max(slots[row.index[k]], 0);
      const bool finite = std::isfinite(row.value[k]);
      out.indices[filled] = slot ? slot - 1 : 0;
      out.values[filled] = slot || !finite ? row.value[k] : 0;
      filled += keep || slot != 0 || !finite;
    }
    out.indptr[q + 1] = filled;
  }
  out.n = q;
  return out;
}

// Numbers the different columns from 0 on as they come; returns how many there are. Room for them is asked of
// the number of indices, not of what an index may be.
inline int64_t number_columns(const int32_t* indices, int64_t n, int32_t* numbers) {
  int shift = 60;
  while (int64_t{1} << (64 - shift) < 2 * n) --shift;
  const size_t mask = (size_t{1} << (64 - shift)) - 1;
  const std::unique_ptr<int32_t[]> taken(new int32_t[mask + 1]());  // number plus one
  const std::unique_ptr<int32_t[]> owners(new int32_t[n + 1]);
  int32_t n_distinct = 0;
  for (int64_t k = 0; k < n; ++k) {
    size_t place = static_cast<uint32_t>(indices[k]) * uint64_t{0x9E3779B97F4A7C15} >> shift;
    while (taken[place] && owners[taken[place] - 1] != indices[k]) place = (place + 1) & mask;
    if (!taken[place]) {
      owners[n_distinct] = indices[k];
      taken[place] = ++n_distinct;
    }
    numbers[k] = taken[place] - 1;
  }
  return n_distinct;
}

// A dense matrix in two passes, one that counts and one that fills; of no rows if one holds NaN, infinity or
// more than float32 can, whose number is then in `bad`.
template <typename T>
OwnedRows sparse_rows(const T* matrix, int64_t n_rows, int64_t n_columns, int64_t& bad) {
  int64_t n_entries = 0;
  bool finite = true;
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < n_columns; ++j) {
      const float x = static_cast<float>(matrix[i * n_columns + j]);
      n_entries += x != 0;
      finite &= x - x == 0;
    }
    if (!finite) {
      bad = i;
      return OwnedRows(0, 0);
    }
  }
  OwnedRows out(n_rows, n_entries);
  int64_t filled = 0;
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < n_columns; ++j) {
      const float x = static_cast<float>(matrix[i * n_columns + j]);
      out.indices[filled] = static_cast<int32_t>(j);
      out.values[filled] = x;
      filled += x != 0;
    }
    out.indptr[i + 1] = filled;
  }
  return out;
}

// The columns of a block as rows, a counting sort; all indices must be in range.
inline OwnedRows transpose(const Rows& rows) {
  OwnedRows out(rows.n_features, entries_in(rows));
  int64_t* const start = out.indptr.get();
  for (int64_t j = 0; j <= rows.n_features; ++j) start[j] = 0;
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = row_in_turn(rows, q);
    for (int64_t k = 0; k < row.n; ++k) ++start[row.index[k]];
  }
  int64_t sum = 0;  // start[j] becomes where column j begins, then where its next entry goes
  for (int64_t j = 0; j <= rows.n_features; ++j) sum += std::exchange(start[j], sum);
  for (int64_t q = 0; q < rows.n; ++q) {
    const Row row = row_in_turn(rows, q);
    for (int64_t k = 0; k < row.n; ++k) {
      const int64_t place = start[row.index[k]]++;
      out.indices[place] = static_cast<int32_t>(q);
      out.values[place] = row.value[k];
    }
  }
  for (int64_t j = rows.n_features; j > 0; --j) start[j] = start[j - 1];
  start[0] = 0;
  return out;
}

}  // namespace steepest
