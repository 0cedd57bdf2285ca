// SPDX-License-Identifier: Apache-2.0
// Vowpal Wabbit text to CSR arrays of hashed features, one row a line:
//   [label [importance [base]]] ['tag] |[namespace[:scale]] name[:value] name[:value] ... |namespace ...
// The feature `name` of `namespace` has the hash mix(hash(namespace), hash(name)) of hash.h, and the k-th
// feature of a namespace without a name (`:value`), k = 0, 1, ..., is the copy k of the empty name.
#pragma once

#include <cstdint>
#include <vector>

#include "lines.h"
#include "names.h"

namespace steepest {

struct VwOptions {
  int n_bits = 22;  // 1 to 30
  bool is_signed = false;
  bool with_labels = true;  // false: a line may lack its label, and labels are read but not kept
  bool skip_bad = false;    // false: reading stops at the first bad line
  uint64_t seed = 0;
  std::vector<int64_t> log_from;  // of each text: the number of its first row if names are wanted, else -1
};

struct VwRows {
  int64_t n_rows = 0;
  int64_t n_entries = 0;
  bool has_weights = false;  // whether any line tells its importance
  Room<int64_t> indptr;
  Room<int32_t> indices;  // in the order of the line; features that repeat do so here
  Room<float> values;
  Room<double> y;
  Room<double> weights;
  std::vector<int64_t> text_rows;  // rows of each text
  std::vector<int64_t> text_bad;   // bad lines of each text
  std::vector<BadLine> bad;        // the first ones of each text
  NameLog names;                   // of the rows that NameBook::wants, written namespace^name
};

// The rows of all texts, one text after the other. Any bytes may come in. Values are float32(strtod(value))
// times float32(strtod(scale)); labels and importances are strtod's.
void parse_vw(const std::vector<Text>& texts, const VwOptions& options, VwRows& rows);

}  // namespace steepest
