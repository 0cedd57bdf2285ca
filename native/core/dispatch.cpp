// SPDX-License-Identifier: Apache-2.0
// Picks the kernel tables for this processor, once.
#include <cstdlib>
#include <cstring>

#include "batch/batch_table.h"
#include "embedding/embedding_table.h"
#include "factors/factor_table.h"
#include "fm/fm_table.h"
#include "kmeans/kmeans_table.h"
#include "linear/linear_table.h"
#include "network/network_table.h"

#if defined(_MSC_VER)
#include <intrin.h>
#endif

// Type, name in the namespace of each instruction set, and the function that returns the chosen one.
#define EACH_TABLE(TABLE)                             \
  TABLE(LinearKernels, linear_table, linear_kernels)  \
  TABLE(BatchKernels, batch_table, batch_kernels)     \
  TABLE(FactorKernels, factor_table, factor_kernels)  \
  TABLE(FmKernels, fm_table, fm_kernels)              \
  TABLE(KMeansTable, kmeans_table, kmeans_kernels)    \
  TABLE(NetworkTable, network_table, network_kernels) \
  TABLE(EmbeddingTable, embedding_table, embedding_kernels)

#define DECLARE(Type, table, chosen) extern const Type table;

namespace steepest {
namespace baseline {
EACH_TABLE(DECLARE)
}  // namespace baseline

#if defined(STEEPEST_HAS_V3)
namespace v3 {
EACH_TABLE(DECLARE)
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

static bool use_v3() {
  const char* requested = std::getenv("STEEPEST_ISA");
  return can_run_v3() && !(requested && std::strcmp(requested, "baseline") == 0);
}
#define CHOOSE(table) (use_v3() ? v3::table : baseline::table)
#else
#define CHOOSE(table) baseline::table
static bool use_v3() { return false; }
#endif

const char* instruction_set() {
#if defined(__aarch64__) || defined(_M_ARM64)
  return "neon";
#else
  return use_v3() ? "avx2" : "baseline";
#endif
}

#define DEFINE(Type, table, chosen)          \
  const Type& chosen() {                     \
    static const Type& best = CHOOSE(table); \
    return best;                             \
  }
EACH_TABLE(DEFINE)

}  // namespace steepest
