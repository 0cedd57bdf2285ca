// SPDX-License-Identifier: Apache-2.0
// Feeds arbitrary bytes to the Vowpal Wabbit parser and checks what it promises; mutate.h says how to
// compile it.
#include "fuzz/mutate.h"
#include "parse/vw.cpp"
#include "text/names.cpp"

using namespace steepest;

// The first byte chooses the options, the rest is text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  VwOptions options;
  options.is_signed = data[0] & 1;
  options.with_labels = data[0] & 2;
  options.skip_bad = data[0] & 4;
  options.n_bits = data[0] & 8 ? 30 : 1 + (data[0] >> 4);
  if (data[0] & 16) options.log_from.assign(2, data[0]);
  auto check = [&](const VwRows& rows) {
    const double* const weights = rows.weights.values.data();
    for (int64_t i = 0; rows.weights.is_used && i < rows.n_rows; ++i)
      require(std::isfinite(weights[i]) && weights[i] >= 0, "weights are finite and not negative");
    for (int64_t k = 0; k < rows.n_entries; ++k)
      require(rows.indices.data()[k] >= 0 && rows.indices.data()[k] >> options.n_bits == 0,
              "columns are in range");
  };
  check_parser(reinterpret_cast<const char*>(data) + 1, static_cast<int64_t>(size) - 1, options, parse_vw,
               check, &VwRows::weights);
  return 0;
}

#if !defined(STEEPEST_LIBFUZZER)
int main(int n_arguments, char** arguments) {
  const Strings seeds = {
      "1 |f 13:3.9656971e-02 24:0.5 a_long_name_of_more_than_sixteen_bytes:2\n-1 |f 9 14:1\n",
      "1 2.0 0.5 'zebra |metric:3.28 height:1.5 length:2|says black white|other legs:4 stripes\r\n",
      "|a b\n\n  \n1 tag|a b | c :2 :3\n1\t2\t| x\ty\n'tag |a\n1 ||a||\n1 |",
      "1|a\nx |a\n1 -1 |a\n1 1 1 1 |a\n'a 1 |a\n1 |:2 a\n1 |a:x b\n1 |a b:nan\n1 |a:1e30 b:1e30\n1 a:1\n1 |a "
      "b:1e39",
  };
  const Strings pieces = {
      ":",   " ",        "\n",   "\r\n", "|",     "e", "-", "'", ".", "0", "99999999999999999999",
      "nan", "infinity", "|ns ", "a:1 ", "1e308", "\t"};
  return run_mutated(n_arguments, arguments, seeds, pieces);
}
#endif
