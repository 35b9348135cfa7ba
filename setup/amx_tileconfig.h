// Put before every C++ file of ggml when GCC compiles for x86 (see llama.cmake). GCC's own _tile_loadconfig
// declares only the first 8 of the 64 bytes as read, so the optimiser drops the stores to the rest and the first
// AMX instruction is illegal. This one reads all 64. AMX kept this way: prefill of a 1.5B model is about 1.5 times faster.
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#undef _tile_loadconfig
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg %X0" ::"m"(*(const char(*)[64])(config)))
#endif
