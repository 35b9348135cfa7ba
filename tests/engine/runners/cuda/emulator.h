// The names of kernels/intrinsics.cuh for a CPU: every CUDA thread is a fiber, a barrier is a yield, a cluster's
// blocks run side by side. What is copied or sent arrives late and in any order, and until then its place is poisoned,
// as is all shared memory at first. Slow, exact and deterministic: it shows what a kernel computes, never how fast,
// and not races between clusters. Compiled by g++ together with the kernels of a plan, some hundred times in a run of
// all tests: so it includes little, and what does not depend on a kernel is in `emulator.cpp`, compiled once.
#include <stdint.h>
#include <string.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE inline
#define KERNEL(threads, blocks) extern "C" void
#define KERNEL_OF_REGISTERS(registers) extern "C" void
#define SHARED_MEMORY(name) u8* name = now->block->shared
#define UNROLL
#define NO_UNROLL


struct alignas(16) Words4 { u32 w[4]; };
struct alignas(8) Words2 { u32 w[2]; };
struct alignas(8) Float2 { float x, y; };
struct alignas(16) Float4 { float x, y, z, w; };
struct Index { int x, y, z; };

struct Barrier {
    int total = 0, arrived = 0, generation = 0;
};
struct Warp {
    Barrier barrier;
    alignas(16) u8 slots[2][32][32];
    alignas(16) u8 sums[2][32][16]; // of a product: 4 numbers of each lane
};
struct Group {
    Index index;
    u32 rank;
    u8* shared;
    Barrier barrier, teams[4];
    int ended = 0; // of its threads
    Warp* warps;
    Group** cluster;
    Barrier* cluster_barrier;
};
struct Fiber {
    // What the fiber waits for: this number to be another one. The scheduler passes it over until then.
    const int* awaited = nullptr;
    int seen = 0;
    int exchanges = 0;
    Group* block;
    Index thread;
    bool done = false;
    struct Stack* stack;
};

extern Fiber* now;
extern Index grid_size;
extern const char* problem;
extern u64 moves; // waits that ended
void yield_fiber();
void await_change(const int& number);
bool arrive(Barrier& barrier); // return whether it was the last one
void meet(Barrier& barrier);
#define threadIdx now->thread
#define blockIdx now->block->index
#define gridDim grid_size

// All lanes show `mine`; the result is every lane's.
template <class T> const u8 (*show(const T& mine))[32] {
    static_assert(sizeof(T) <= 32, "a slot is 32 bytes");
    Warp& warp = now->block->warps[now->thread.x / 32];
    u8(*slots)[32] = warp.slots[now->exchanges++ & 1];
    memcpy(slots[now->thread.x & 31], &mine, sizeof(T));
    meet(warp.barrier);
    return slots;
}
template <class T> T seen(const u8 (*slots)[32], int lane) {
    T value;
    memcpy(&value, slots[lane], sizeof(T));
    return value;
}

inline void block_sync() { meet(now->block->barrier); }
inline void warp_sync() { meet(now->block->warps[now->thread.x / 32].barrier); }
template <int threads> void team_sync(int team = 0) {
    now->block->teams[team].total = threads;
    meet(now->block->teams[team]);
}
template <class T> T shuffle_xor(T value, int mask) { return seen<T>(show(value), (now->thread.x & 31) ^ mask); }
inline bool is_any_in_warp(bool value) {
    for (int mask = 1; mask < 32; mask <<= 1) value = shuffle_xor((int)value, mask) || value;
    return value;
}
inline int same_in_warp(int value) { return seen<int>(show(value), 0); }
inline float exp2_fast(float x) { return __builtin_exp2f(x); }
inline float minus_infinity() { return -__builtin_huge_valf(); }
inline float magnitude(float a) { return __builtin_fabsf(a); }
inline int round_to_int(float x) { return (int)__builtin_nearbyintf(x); }
inline float greater(float a, float b) { return a > b ? a : b; }
inline float rsqrt_fast(float x) { return 1.0f / __builtin_sqrtf(x); }
inline u32 shared_address(const void* p) { return (u32)(u64)p; }
inline float one_if_greater(float a, float b) { return a > b ? 1.0f : 0.0f; }
inline float log_exact(float x) { return __builtin_logf(x); }
inline float log_one_plus(float x) { return __builtin_log1pf(x); }
inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float multiply(float a, float b) { return a * b; }
inline float divide(float a, float b) { return a / b; }

inline float as_float(u32 bits) { float f; memcpy(&f, &bits, 4); return f; }
inline u32 as_bits(float f) { u32 bits; memcpy(&bits, &f, 4); return bits; }
inline u16 to_bf16(float f) {
    u32 bits = as_bits(f);
    if (f != f) return 0x7fff;
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline u32 pack_bf16(float low, float high) { return to_bf16(low) | (u32)to_bf16(high) << 16; }
inline float bf16_low(u32 pair) { return as_float(pair << 16); }
inline float bf16_high(u32 pair) { return as_float(pair & 0xffff0000u); }
inline float float_of_bits(u32 bits) { return as_float(bits); }
inline u32 bits_of_float(float x) { return as_bits(x); }
inline u32 permute_bytes(u32 low, u32 high, u32 which) {
    u64 both = (u64)high << 32 | low;
    u32 out = 0;
    for (int i = 0; i < 4; i++) out |= (u32)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return out;
}

inline u32 permute_or_sign(u32 low, u32 high, u32 which) {
    u32 out = permute_bytes(low, high, which);
    for (int i = 0; i < 4; i++)
        if (which >> 4 * i & 8) out = (out & ~(255u << 8 * i)) | (out >> (8 * i + 7) & 1 ? 255u << 8 * i : 0);
    return out;
}

inline u8 to_fp8(float f) {
    float size = __builtin_fabsf(f);
    u8 sign = as_bits(f) >> 31 << 7;
    if (size != size) return 0x7f;
    if (size >= 448.0f) return sign | 0x7e;
    int exponent;
    __builtin_frexpf(size, &exponent);                     // size in [2^(exponent-1), 2^exponent)
    int scale = exponent - 1 < -6 ? -9 : exponent - 1 - 3; // of the last digit
    int digits = (int)__builtin_nearbyintf(__builtin_ldexpf(size, -scale));
    if (digits == 16) digits = 8, scale++;
    return sign | (digits < 8 ? digits : (scale + 3 + 7) << 3 | (digits - 8));
}
inline u16 pack_fp8(float low, float high) { return to_fp8(low) | (u16)(to_fp8(high) << 8); }

struct Operands { u32 a[4], b[2]; };
void mma_bf16(float c[4], const Operands& mine);
void mma_s8(int c[4], const Operands& mine);
void mma_u8(int c[4], const Operands& mine);
inline void mma_bf16(float c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    mma_bf16(c, {{a0, a1, a2, a3}, {b0, b1}});
}
inline void mma_s8(int c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    mma_s8(c, {{a0, a1, a2, a3}, {b0, b1}});
}
inline void mma_u8(int c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    mma_u8(c, {{a0, a1, a2, a3}, {b0, b1}});
}
inline u32 transpose_8x8(u32 pair) {
    auto lanes = show(pair);
    int g = (now->thread.x & 31) >> 2, t = now->thread.x & 3;
    u16 half[2];
    for (int e = 0; e < 2; e++) half[e] = (u16)(seen<u32>(lanes, (2 * t + e) * 4 + (g >> 1)) >> 16 * (g & 1));
    return half[0] | (u32)half[1] << 16;
}
inline void load_transposed(const Words4* row, u32 out[4]) {
    if ((uintptr_t)row % 16) problem = "a row is not aligned";
    auto lanes = show((u64)row);
    int g = (now->thread.x & 31) >> 2, t = now->thread.x & 3;
    for (int m = 0; m < 4; m++) {
        out[m] = 0;
        for (int e = 0; e < 2; e++) out[m] |= (u32)((const u16*)seen<u64>(lanes, 8 * m + 2 * t + e))[g] << 16 * e;
    }
}

// Products of four warps: what they add up is there when it was waited for, and their operands are read as late.
#define HAS_TEAM_PRODUCTS 1
struct Tiles { const u8* first; u64 rows, row_bytes, number_bytes, at_once; };
#define TILES(name) const Tiles* name
#define TILES_OF(name) name
#define SHARED_TILES(name) SHARED_MEMORY(name)
struct Lines { const u8* at; u32 next; };
inline Lines lines_at(const u8* shared, u32 next = 0) { return {shared, next}; }
inline Lines behind(Lines lines, u32 bytes) { return {lines.at + bytes, lines.next}; }
inline void products_begin() {}
void products_commit();
void wait_for_products(int left);
template <int left> void products_wait() { wait_for_products(left); }
struct TeamProduct { // of 64 rows, under way
    float* sums;
    int eights;       // of columns
    const u32* rows;  // those that are in registers
    Lines left, right;
    bool adds, is_of_bytes;
};
void put_product(TeamProduct product);
inline void multiply_lines(float (&sums)[32], Lines left, Lines right, bool adds) {
    put_product({sums, 8, nullptr, left, right, adds, false});
}
inline void multiply_columns(float (&sums)[64], const u32* left, Lines right) {
    put_product({sums, 16, left, {}, right, true, false});
}
inline void multiply_bytes(float (&sums)[96], Lines left, Lines right, bool adds) {
    put_product({sums, 24, nullptr, left, right, adds, true});
}
template <class T> void keep(T&) {}
inline void show_to_copies() {}
template <int count> void give_registers() {}
template <int count> void take_registers() {}

template <class T> T load_fresh(const T* p) { return *p; }
inline void prefetch_l2(const void*) {}
inline void prefetch_l1(const void*) {}
inline void publish(u64* p, u64 value) { *p = value; }
// A barrier in shared memory: phases done, arrivals so far, arrivals wanted. A kilobyte that is expected is an arrival less
// until it comes.
struct Phases { int done; u16 arrived, wanted; };
inline void barrier_init(u64* barrier, u32 arrivals) { *(Phases*)barrier = {0, 0, (u16)arrivals}; }
inline void barrier_arrive(u64* barrier, int arrivals = 1) {
    Phases& phases = *(Phases*)barrier;
    phases.arrived += arrivals;
    if (phases.arrived == phases.wanted) phases.arrived = 0, phases.done++;
}
inline void arrive_expecting(u64* barrier, u32 bytes) { barrier_arrive(barrier, 1 - (int)bytes / 1024); }
inline void barrier_expect(u64* barrier, u32 bytes) { barrier_init(barrier, bytes / 4); }
inline void barriers_ready() {}

// Put a copy under way to shared memory: a barrier there hears of it when it arrives.
void put_under_way(void* to, const void* from, size_t bytes, u64* barrier, int arrivals);
void store_later(void* to, const void* from, size_t bytes); // what was there stays until then
inline void bulk_load(void* shared, const void* global, u32 bytes, u64* barrier) {
    if (bytes % 16 || (uintptr_t)global % 16 || (uintptr_t)shared % 16) problem = "a copy is not aligned";
    put_under_way(shared, global, bytes, barrier, 1);
}
template <class T> T* place_in(u32 rank, T* p) {
    return (T*)(now->block->cluster[rank]->shared + ((u8*)p - now->block->shared));
}
inline u64 turned(u64 at) { return at ^ (at >> 7 & 7) << 4; } // where the byte of a tile lies
inline void bring_to(u32 rank, u8* shared, const Tiles* tiles, int column, int row, u64* barrier) {
    u8 lines[64 * 128] = {};
    u64 bytes = tiles->at_once * 128;
    if ((uintptr_t)shared % 1024) problem = "a tile is not aligned";
    for (u64 i = 0; i < tiles->at_once * 8; i++) {
        const u8* from = tiles->first + (row + i / 8) * tiles->row_bytes + column * tiles->number_bytes + i % 8 * 16;
        if (row + i / 8 < tiles->rows) memcpy(lines + turned(i * 16), from, 16);
    }
    put_under_way(place_in(rank, shared), lines, bytes, place_in(rank, barrier), bytes / 1024);
}
inline void bring_tile(u8* shared, const Tiles* tiles, int column, int row, u64* barrier) {
    bring_to(now->block->rank, shared, tiles, column, row, barrier);
}
inline void bring_to_both(u8* shared, const Tiles* tiles, int column, int row, u64* barrier) {
    for (u32 rank = 0; rank < 2; rank++) bring_to(rank, shared, tiles, column, row, barrier);
}
inline bool barrier_is_past(u64* barrier, u32 parity) {
    yield_fiber();
    return (((Phases*)barrier)->done & 1) != (int)parity;
}
inline int load_shared(const int* p) { return *p; }
inline void store_shared(int* p, int value) { *p = value; }
inline void barrier_wait(u64* barrier, u32 parity) {
    Phases& phases = *(Phases*)barrier;
    while ((phases.done & 1) == (int)parity) await_change(phases.done);
    moves++;
}
inline u32 cluster_rank() { return now->block->rank; }
inline void cluster_sync() { meet(*now->block->cluster_barrier); }
inline void barrier_arrive_in(u32 rank, u64* barrier) {
    Group& block = *now->block->cluster[rank];
    if (block.ended == block.barrier.total) problem = "a block had ended before another was done with it";
    barrier_arrive(place_in(rank, barrier));
}
inline void cluster_arrive() { arrive(*now->block->cluster_barrier); }
template <class T> void send_any(T* p, u32 rank, T value, u64* barrier) {
    if ((uintptr_t)p % sizeof(T)) problem = "a send is not aligned";
    put_under_way(place_in(rank, p), &value, sizeof(T), place_in(rank, barrier), sizeof(T) / 4);
}
inline void cluster_send(Float2* p, u32 rank, Float2 v, u64* barrier) { send_any(p, rank, v, barrier); }
inline void cluster_send(Float4* p, u32 rank, Float4 v, u64* barrier) { send_any(p, rank, v, barrier); }
inline void cluster_send(float* p, u32 rank, float v, u64* barrier) { send_any(p, rank, v, barrier); }
// Other blocks see it some time later, maybe after what was counted behind it.
inline void store_marked(u64* p, float value, u32 mark) {
    u64 word = (u64)mark << 32 | as_bits(value);
    store_later(p, &word, sizeof(word));
}
inline Words4 load_marked(const u64* two) {
    yield_fiber();  // who waits for it looks again and again
    return {{(u32)two[0], (u32)(two[0] >> 32), (u32)two[1], (u32)(two[1] >> 32)}};
}
inline void count_one(u32* count) { ++*count, moves++; }
inline void await_count(const u32* count, u32 all) {
    while (*count < all) await_change(*(const int*)count);
    moves++;
}
inline void wait_for_previous() {}
inline void let_next_start() {}

// How Python starts a kernel: its sizes and arguments as words.
void launch(const int* size, void (*body)(const void*), const void* given);
template <int... I> struct Places {};
template <int n, int... I> struct First : First<n - 1, n - 1, I...> {};
template <int... I> struct First<0, I...> : Places<I...> {};
template <class A> A argument(u64 word) {
    A value;
    memcpy(&value, &word, sizeof(A));
    return value;
}
template <class... A, int... I> void call(void (*kernel)(A...), const u64* words, Places<I...>) {
    kernel(argument<A>(words[I])...);
}
template <class... A> void launch_with(void (*kernel)(A...), const int* size, const u64* words) {
    struct Given { void (*kernel)(A...); const u64* words; } given{kernel, words};
    auto body = [](const void* p) { call(((const Given*)p)->kernel, ((const Given*)p)->words, First<sizeof...(A)>()); };
    launch(size, body, &given);
}
#define LAUNCHED(kernel) \
    extern "C" __attribute__((visibility("default"))) void launch_##kernel(const int* size, const u64* words) { \
        launch_with(kernel, size, words); \
    }
