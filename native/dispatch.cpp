// SPDX-License-Identifier: Apache-2.0
// Picks the kernel tables for this processor, once.
#include <cstdlib>
#include <cstring>

#include "dual_table.h"
#include "embedding_table.h"
#include "factor_table.h"
#include "kernel_table.h"
#include "kmeans_table.h"
#include "network_table.h"

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace steepest {
namespace baseline {
extern const KernelTable table;
extern const DualTable dual_table;
extern const FactorKernels factor_table;
extern const KMeansTable kmeans_table;
extern const NetworkTable network_table;
extern const EmbeddingTable embedding_table;
}  // namespace baseline
#if defined(STEEPEST_HAS_V3)
namespace v3 {
extern const KernelTable table;
extern const DualTable dual_table;
extern const FactorKernels factor_table;
extern const KMeansTable kmeans_table;
extern const NetworkTable network_table;
extern const EmbeddingTable embedding_table;
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

#if defined(STEEPEST_HAS_V3)
static bool use_v3() {
  const char* wish = std::getenv("STEEPEST_ISA");
  return can_run_v3() && !(wish && std::strcmp(wish, "baseline") == 0);
}
#define CHOOSE(table) (use_v3() ? v3::table : baseline::table)
#else
#define CHOOSE(table) baseline::table
#endif

const KernelTable& kernels() {
  static const KernelTable& chosen = CHOOSE(table);
  return chosen;
}

const DualTable& dual_kernels() {
  static const DualTable& chosen = CHOOSE(dual_table);
  return chosen;
}

const FactorKernels& factor_kernels() {
  static const FactorKernels& chosen = CHOOSE(factor_table);
  return chosen;
}

const KMeansTable& kmeans_kernels() {
  static const KMeansTable& chosen = CHOOSE(kmeans_table);
  return chosen;
}

const NetworkTable& network_kernels() {
  static const NetworkTable& chosen = CHOOSE(network_table);
  return chosen;
}

const EmbeddingTable& embedding_kernels() {
  static const EmbeddingTable& chosen = CHOOSE(embedding_table);
  return chosen;
}

}  // namespace steepest
