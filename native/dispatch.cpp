// SPDX-License-Identifier: Apache-2.0
// Picks the kernel table for this processor, once.
#include <cstdlib>
#include <cstring>

#include "factor_table.h"
#include "kernel_table.h"

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace steepest {
namespace baseline {
extern const KernelTable table;
extern const FactorKernels factor_table;
}  // namespace baseline
#if defined(STEEPEST_HAS_V3)
namespace v3 {
extern const KernelTable table;
extern const FactorKernels factor_table;
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

static bool wants_v3() {
#if defined(STEEPEST_HAS_V3)
  const char* wish = std::getenv("STEEPEST_ISA");
  return can_run_v3() && !(wish && std::strcmp(wish, "baseline") == 0);
#else
  return false;
#endif
}

#if !defined(STEEPEST_HAS_V3)
namespace v3 = baseline;
#endif

const KernelTable& kernels() {
  static const KernelTable& chosen = wants_v3() ? v3::table : baseline::table;
  return chosen;
}

const FactorKernels& factor_kernels() {
  static const FactorKernels& chosen = wants_v3() ? v3::factor_table : baseline::factor_table;
  return chosen;
}

}  // namespace steepest
