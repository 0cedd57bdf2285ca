// SPDX-License-Identifier: Apache-2.0
// Feeds arbitrary bytes to the libsvm parser and checks what it promises; mutate.h says how to compile it.
#include "fuzz/mutate.h"
#include "parse/libsvm.cpp"

using namespace steepest;

// The first byte chooses the options, the rest is text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  LibsvmOptions options;
  options.zero_based = data[0] & 1;
  options.with_labels = data[0] & 2;
  options.skip_bad = data[0] & 4;
  if (data[0] & 8) options.n_features = 1 + (data[0] >> 4);
  auto check = [&](const LibsvmRows& rows) {
    for (int64_t i = 0; i < rows.n_rows; ++i)
      require(!rows.groups.is_used || rows.groups.values.data()[i] >= kNoGroup, "groups are numbers or none");
    int64_t widest = 0;
    for (int64_t k = 0; k < rows.n_entries; ++k) {
      const int64_t column = rows.indices.data()[k];
      require(column >= 0 && column < options.n_features, "columns are in range");
      widest = std::max(widest, column + 1);
    }
    require(rows.n_features == widest, "n_features is the widest row");
  };
  check_parser(reinterpret_cast<const char*>(data) + 1, static_cast<int64_t>(size) - 1, options, parse_libsvm,
               check, &LibsvmRows::groups);
  return 0;
}

#if !defined(STEEPEST_LIBFUZZER)
int main(int n_arguments, char** arguments) {
  const Strings seeds = {
      "+1 1:0.5 3:-2 7:1e-3\n-1 2:1\n",
      "1 qid:3 1:1 2:2 # comment 3:4\r\n\r\n# only a comment\n0\t5:0.125\t6:1\n",
      "-1.5e3 4:0.12345678901234567890123 9:1e-400 10:123456789012345678901234567890\n",
      "1:2 3:4\n5,6 1:1\nnan 1:1\n1 0:1\n1 -1:1\n1 1\n1 1:\n1 1:inf\n1 2147483647:1 2147483648:1",
  };
  const Strings pieces = {
      ":",   " ",        "\n",   "\r\n", "#",     "e",  "-", "+", ".", "0", "99999999999999999999",
      "nan", "infinity", "qid:", "1:1 ", "1e308", "\t", ","};
  return run_mutated(n_arguments, arguments, seeds, pieces);
}
#endif
