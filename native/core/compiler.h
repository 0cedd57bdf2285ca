// SPDX-License-Identifier: Apache-2.0
// What compilers spell differently: vector instructions, prefetching of what will be written, forced
// inlining and unrolling, and the pause of a thread that waits in a loop.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__x86_64__) || defined(_M_X64)
#include <emmintrin.h>
#endif
#if defined(_MSC_VER) && !defined(__clang__)
#define PREFETCH(address) ((void)(address))
#define ALWAYS_INLINE __forceinline
#define UNROLL
#else
#define PREFETCH(address) __builtin_prefetch((address), 1)
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#endif
#if defined(__x86_64__) || defined(_M_X64)
#define PAUSE() _mm_pause()
#else
#define PAUSE() ((void)0)
#endif
