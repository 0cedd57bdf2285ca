// SPDX-License-Identifier: Apache-2.0
// What compilers spell differently: vector instructions, prefetching of what will be written, forced
// inlining.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif
#if defined(_MSC_VER) && !defined(__clang__)
#define PREFETCH(address) ((void)(address))
#define ALWAYS_INLINE __forceinline
#else
#define PREFETCH(address) __builtin_prefetch((address), 1)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#endif
