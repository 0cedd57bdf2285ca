// SPDX-License-Identifier: Apache-2.0
// libsvm text to CSR arrays: `label [qid:n] index:value index:value ... # comment`, one row a line.
#pragma once

#include <cstdint>
#include <vector>

#include "lines.h"

namespace steepest {

enum class LineFault : int32_t {
  kLabelMissing,
  kLabelNotANumber,
  kLabelNotFinite,
  kSeveralLabels,
  kGroupNotANumber,
  kIndexNotANumber,
  kIndexNegative,
  kIndexZero,
  kIndexTooLarge,
  kIndexBeyond,
  kColonMissing,
  kValueNotANumber,
  kValueNotFinite,
  kBinary,
  kCount,
};

struct LibsvmOptions {
  bool zero_based = false;
  bool with_labels = true;         // false: a line may lack its label, and labels are read but not kept
  bool skip_bad = false;           // false: reading stops at the first bad line
  int64_t n_features = INT32_MAX;  // columns at or beyond this are bad
};

constexpr int64_t kNoGroup = -1;  // the qid of a line without one

struct LibsvmRows {
  int64_t n_rows = 0;
  int64_t n_entries = 0;
  int64_t n_features = 0;  // largest column + 1
  bool has_groups = false;
  Room<int64_t> indptr;
  Room<int32_t> indices;
  Room<float> values;
  Room<double> y;
  Room<int64_t> groups;
  std::vector<int64_t> text_rows;  // rows of each text
  std::vector<int64_t> text_bad;   // bad lines of each text
  std::vector<BadLine> bad;        // the first ones of each text
};

// The rows of all texts, one text after the other. Any bytes may come in. Values are float32(strtod(value))
// and labels strtod(label), exactly.
void parse_libsvm(const std::vector<Text>& texts, const LibsvmOptions& options, LibsvmRows& rows);

}  // namespace steepest
