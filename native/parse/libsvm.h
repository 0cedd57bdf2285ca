// SPDX-License-Identifier: Apache-2.0
// libsvm text to CSR arrays: `label [qid:n] index:value index:value ... # comment`, one row per line.
#pragma once

#include <cstdint>
#include <vector>

#include "parse/lines.h"

namespace steepest {

struct LibsvmOptions : LineOptions {
  bool zero_based = false;
  int64_t n_features = INT32_MAX;  // columns at or beyond this are bad
};

constexpr int64_t kNoGroup = -1;  // the qid of a line without one

struct LibsvmRows : ParsedRows {
  int64_t n_features = 0;  // largest column + 1
  OptionalColumn<int64_t> groups{kNoGroup};
};

// Any bytes may come in. Values are float32(strtod(value)) and labels strtod(label), exactly.
void parse_libsvm(const std::vector<Text>& texts, const LibsvmOptions& options, LibsvmRows& rows);

}  // namespace steepest
