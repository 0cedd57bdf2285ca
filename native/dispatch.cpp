// SPDX-License-Identifier: Apache-2.0
// Picks the kernel table for this processor, once.
#include <cstdlib>
#include <cstring>

#include "kernel_table.h"
#include "network_table.h"

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace steepest {
namespace baseline {
extern const KernelTable table;
extern const NetworkTable network_table;
}  // namespace baseline
#if defined(STEEPEST_HAS_V3)
namespace v3 {
extern const KernelTable table;
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

static const KernelTable& choose() {
#if defined(STEEPEST_HAS_V3)
  const char* wish = std::getenv("STEEPEST_ISA");
  if (can_run_v3() && !(wish && std::strcmp(wish, "baseline") == 0)) return v3::table;
#endif
  return baseline::table;
}

const NetworkTable& network_kernels() {
#if defined(STEEPEST_HAS_V3)
  if (&kernels() == &v3::table) return v3::network_table;
#endif
  return baseline::network_table;
}

const KernelTable& kernels() {
  static const KernelTable& chosen = choose();
  return chosen;
}

}  // namespace steepest
