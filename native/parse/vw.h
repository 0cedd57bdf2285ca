// SPDX-License-Identifier: Apache-2.0
// Vowpal Wabbit text to CSR arrays of hashed features, one row per line:
//   [label [importance [base]]] ['tag] |[namespace[:scale]] name[:value] name[:value] ... |namespace ...
// The feature `name` of `namespace` has the hash mix(hash(namespace), hash(name)) of hash.h, and the k-th
// feature of a namespace without a name (`:value`), k = 0, 1, ..., is the copy k of the empty name.
// A cross of two namespaces adds mix(a, b) for each pair of their features in the line, worth the product,
// behind the line's own features; of a namespace with itself, each pair of different features once, in their
// order.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parse/lines.h"
#include "text/names.h"

namespace steepest {

struct VwOptions : LineOptions {
  int n_bits = 22;  // 1 to 30
  bool is_signed = false;
  uint64_t seed = 0;
  std::vector<std::pair<std::string, std::string>> crosses = {};  // names of namespaces
  std::vector<int64_t> log_from =
      {};  // of each text: the number of its first row if names are requested, else -1
};

struct VwRows : ParsedRows {            // features that repeat in a line do so here
  OptionalColumn<double> weights{1.0};  // the importance of each line
  NameLog names;                        // of the rows that NameBook samples, written namespace^name
};

// Any bytes may come in. Values are float32(strtod(value)) times float32(strtod(scale)); labels and
// importances are strtod's.
void parse_vw(const std::vector<Text>& texts, const VwOptions& options, VwRows& rows);

}  // namespace steepest
