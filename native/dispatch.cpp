// SPDX-License-Identifier: Apache-2.0
// Picks the kernel tables for this processor, once.
#include <cstdlib>
#include <cstring>

#include "kernel_table.h"
#include "kmeans_table.h"
#include "network_table.h"

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace steepest {
namespace baseline {
extern const KernelTable table;
extern const KMeansTable kmeans_table;
extern const NetworkTable network_table;
}  // namespace baseline
#if defined(STEEPEST_HAS_V3)
namespace v3 {
extern const KernelTable table;
extern const KMeansTable kmeans_table;
extern const NetworkTable network_table;
}  // namespace v3

static bool can_run_v3() {
#if defined(_MSC_VER)
  int registers[4];
  __cpuid(registers, 1);
  const bool fma = registers[2] & (1 << 12), saves_ymm = registers[2] & (1 << 27);
  __cpuidex(registers, 7, 0);
  return fma && saves_ymm && (registers[1] & (1 << 5));
#else
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
}
#endif

static bool choose_v3() {
#if defined(STEEPEST_HAS_V3)
  const char* wish = std::getenv("STEEPEST_ISA");
  return can_run_v3() && !(wish && std::strcmp(wish, "baseline") == 0);
#else
  return false;
#endif
}

static bool uses_v3() {
  static const bool chosen = choose_v3();
  return chosen;
}

#if defined(STEEPEST_HAS_V3)
#define BEST_OF(table) (uses_v3() ? v3::table : baseline::table)
#else
#define BEST_OF(table) (uses_v3(), baseline::table)
#endif

const KernelTable& kernels() { return BEST_OF(table); }
const KMeansTable& kmeans_kernels() { return BEST_OF(kmeans_table); }
const NetworkTable& network_kernels() { return BEST_OF(network_table); }

}  // namespace steepest
