// The names of kernels/intrinsics.cuh for a CPU: every CUDA thread is a fiber, a barrier is a yield, a cluster's
// blocks run side by side. What is copied or sent arrives late and in any order, and until then its place is poisoned,
// as is all shared memory at first. Slow, exact and deterministic: it shows what a kernel computes, never how fast,
// and not races between clusters. Compiled by g++ together with the kernels.
#include <csetjmp>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

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
    Barrier barrier, team;
    std::vector<Warp> warps;
    std::vector<Group*>* cluster;
    Barrier* cluster_barrier;
};
struct Fiber {
    ucontext_t context;
    jmp_buf place;
    Group* block;
    Index thread;
    bool done = false, started = false;
    int exchanges = 0;
    // What the fiber waits for: this number to be another one. The scheduler passes it over until then.
    const int* awaited = nullptr;
    int seen = 0;
};

static Fiber* now;
static ucontext_t scheduler;
static jmp_buf scheduler_place;
static Index grid_size;
static std::function<void()>* body;
static u64 moves;       // waits that ended
static u64 launches;
static const char* problem;
extern "C" const char* take_problem() { return std::exchange(problem, nullptr); }
#define threadIdx now->thread
#define blockIdx now->block->index
#define gridDim grid_size

// The first switch to a fiber is ucontext's; the later ones are jumps, which need no system call.
inline void yield_fiber() {
    if (!_setjmp(now->place)) _longjmp(scheduler_place, 1);
}
inline void await_change(const int& number) {
    now->awaited = &number;
    now->seen = number;
    yield_fiber();
    now->awaited = nullptr;
}
inline void meet(Barrier& barrier) {
    if (++barrier.arrived == barrier.total) {
        barrier.arrived = 0;
        barrier.generation++;
    } else
        await_change(barrier.generation);
    moves++;
}

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
template <int threads> void team_sync() {
    now->block->team.total = threads;
    meet(now->block->team);
}
template <class T> T shuffle_xor(T value, int mask) { return seen<T>(show(value), (now->thread.x & 31) ^ mask); }
inline float exp2_fast(float x) { return exp2f(x); }
inline float minus_infinity() { return -HUGE_VALF; }
inline float magnitude(float a) { return fabsf(a); }
inline int round_to_int(float x) { return (int)nearbyintf(x); }
inline float greater(float a, float b) { return a > b ? a : b; }
inline float rsqrt_fast(float x) { return 1.0f / sqrtf(x); }
inline float log_exact(float x) { return logf(x); }
inline float log_one_plus(float x) { return log1pf(x); }
inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
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
    float size = fabsf(f);
    u8 sign = as_bits(f) >> 31 << 7;
    if (size != size) return 0x7f;
    if (size >= 448.0f) return sign | 0x7e;
    int exponent;
    frexpf(size, &exponent);                               // size in [2^(exponent-1), 2^exponent)
    int scale = exponent - 1 < -6 ? -9 : exponent - 1 - 3; // of the last digit
    int digits = (int)nearbyintf(ldexpf(size, -scale));
    if (digits == 16) digits = 8, scale++;
    return sign | (digits < 8 ? digits : (scale + 3 + 7) << 3 | (digits - 8));
}
inline u16 pack_fp8(float low, float high) { return to_fp8(low) | (u16)(to_fp8(high) << 8); }

// Fragments as the PTX manual lays them out: g = lane / 4, t = lane % 4.
// A register holds `per` elements; lane t's come `per` apart in the first half of the columns, then in the second.
// The lane that comes last multiplies for all 32. Each sum is over k in order, whatever the compiler makes of the loops.
struct Operands { u32 a[4], b[2]; };
template <int per, class Sum, class Left, class Right>
void multiply(const u8 (*slots)[32], u8 (*sums)[16], Left left, Right right) {
    Sum a[8 * per][16], b[8 * per][8], total[16][8] = {};
    for (int lane = 0; lane < 32; lane++) {
        const Operands& mine = *(const Operands*)slots[lane];
        int g = lane >> 2, t = lane & 3;
        for (int upper = 0; upper < 2; upper++)
            for (int i = 0; i < per; i++) {
                int k = (4 * upper + t) * per + i, shift = 32 / per * i;
                a[k][g] = left(mine.a[2 * upper] >> shift);
                a[k][g + 8] = left(mine.a[2 * upper + 1] >> shift);
                b[k][g] = right(mine.b[upper] >> shift);
            }
    }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 8 * per; k++)
            for (int column = 0; column < 8; column++) total[row][column] += a[k][row] * b[k][column];
    for (int lane = 0; lane < 32; lane++)
        for (int e = 0; e < 4; e++)
            ((Sum*)sums[lane])[e] = total[(lane >> 2) + 8 * (e >> 1)][2 * (lane & 3) + (e & 1)];
}
template <int per, class Sum, class Left, class Right>
void mma(Sum c[4], const Operands& mine, Left left, Right right) {
    Warp& warp = now->block->warps[now->thread.x / 32];
    int turn = now->exchanges++ & 1, lane = now->thread.x & 31;
    memcpy(warp.slots[turn][lane], &mine, sizeof mine);
    if (warp.barrier.arrived + 1 == warp.barrier.total) multiply<per, Sum>(warp.slots[turn], warp.sums[turn], left, right);
    meet(warp.barrier);
    for (int e = 0; e < 4; e++) c[e] += ((const Sum*)warp.sums[turn][lane])[e];
}
inline void mma_bf16(float c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    auto number = [](u32 h) { return as_float(h << 16); };
    mma<2>(c, Operands{{a0, a1, a2, a3}, {b0, b1}}, number, number);
}
inline void mma_s8(int c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    auto number = [](u32 b) { return (int)(signed char)(b & 255); };
    mma<4>(c, Operands{{a0, a1, a2, a3}, {b0, b1}}, number, number);
}
inline void mma_u8(int c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    auto number = [](u32 b) { return (int)(signed char)(b & 255); };
    mma<4>(c, Operands{{a0, a1, a2, a3}, {b0, b1}}, [](u32 b) { return (int)(b & 255); }, number);
}
inline u32 transpose_8x8(u32 pair) {
    auto lanes = show(pair);
    int g = (now->thread.x & 31) >> 2, t = now->thread.x & 3;
    u16 half[2];
    for (int e = 0; e < 2; e++) half[e] = (u16)(seen<u32>(lanes, (2 * t + e) * 4 + (g >> 1)) >> 16 * (g & 1));
    return half[0] | (u32)half[1] << 16;
}

template <class T> T load_fresh(const T* p) { return *p; }
inline void prefetch_l2(const void*) {}
inline void prefetch_l1(const void*) {}
inline void publish(u64* p, u64 value) { *p = value; }
// A barrier in shared memory: phases done, arrivals so far, arrivals wanted.
struct Phases { int done; u16 arrived, wanted; };
inline void barrier_init(u64* barrier, u32 arrivals) { *(Phases*)barrier = {0, 0, (u16)arrivals}; }
inline void barrier_arrive(u64* barrier) {
    Phases& phases = *(Phases*)barrier;
    if (++phases.arrived == phases.wanted) phases.arrived = 0, phases.done++;
}
inline void barrier_expect(u64* barrier, u32 bytes) { barrier_init(barrier, bytes / 4); }
inline void barriers_ready() {}

// Under way to shared memory: a barrier there hears of it when it arrives.
struct Cargo {
    void* to;
    std::vector<u8> data;
    u64* barrier;
    int arrivals;
};
static std::vector<Cargo> under_way;
inline void put_under_way(void* to, const void* from, size_t bytes, u64* barrier, int arrivals) {
    const u8* begin = (const u8*)from;
    under_way.push_back({to, std::vector<u8>(begin, begin + bytes), barrier, arrivals});
    memset(to, 0xff, bytes);
}
static void land_one() {
    static u32 draw = 1;
    if (under_way.empty()) return;
    draw = draw * 1664525u + 1013904223u;
    std::swap(under_way[(draw >> 16) % under_way.size()], under_way.back());
    Cargo cargo = std::move(under_way.back());
    under_way.pop_back();
    memcpy(cargo.to, cargo.data.data(), cargo.data.size());
    for (int i = 0; i < cargo.arrivals; i++) barrier_arrive(cargo.barrier);
}
inline void bulk_load(void* shared, const void* global, u32 bytes, u64* barrier) {
    if (bytes % 16 || (uintptr_t)global % 16 || (uintptr_t)shared % 16) problem = "a copy is not aligned";
    put_under_way(shared, global, bytes, barrier, 1);
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
template <class T> T* place_in(u32 rank, T* p) {
    return (T*)((*now->block->cluster)[rank]->shared + ((u8*)p - now->block->shared));
}
template <class T> void send_any(T* p, u32 rank, T value, u64* barrier) {
    if ((uintptr_t)p % sizeof(T)) problem = "a send is not aligned";
    put_under_way(place_in(rank, p), &value, sizeof(T), place_in(rank, barrier), sizeof(T) / 4);
}
inline void cluster_send(Float2* p, u32 rank, Float2 v, u64* barrier) { send_any(p, rank, v, barrier); }
inline void cluster_send(Float4* p, u32 rank, Float4 v, u64* barrier) { send_any(p, rank, v, barrier); }
inline void cluster_send(float* p, u32 rank, float v, u64* barrier) { send_any(p, rank, v, barrier); }
inline void wait_for_previous() {}
inline void let_next_start() {}

static void enter() {
    (*body)();
    now->done = true;
    _longjmp(scheduler_place, 1);
}

static u8* stack_of(size_t fiber) {
    static std::vector<std::unique_ptr<u8[]>> stacks; // kept: memory that is new to the process costs more than a launch
    while (stacks.size() <= fiber) stacks.emplace_back(new u8[1 << 16]);
    return stacks[fiber].get();
}

// Run one cluster of blocks to its end.
static void run_cluster(std::vector<Group*>& blocks, int threads) {
    std::vector<std::unique_ptr<Fiber>> fibers;
    for (Group* block : blocks)
        for (int i = 0; i < threads; i++) {
            fibers.push_back(std::make_unique<Fiber>());
            Fiber& fiber = *fibers.back();
            fiber.block = block;
            fiber.thread = {i, 0, 0};
            getcontext(&fiber.context);
            fiber.context.uc_stack.ss_sp = stack_of(fibers.size() - 1);
            fiber.context.uc_stack.ss_size = 1 << 16;
            makecontext(&fiber.context, enter, 0);
        }
    for (bool is_running = true; is_running;) {
        is_running = false;
        u64 moves_before = moves;
        for (auto& fiber : fibers)
            if (!fiber->done) {
                is_running = true;
                if (fiber->awaited && *fiber->awaited == fiber->seen) continue;
                now = fiber.get();
                if (_setjmp(scheduler_place)) continue;
                if (now->started) _longjmp(now->place, 1);
                now->started = true;
                setcontext(&now->context);
            }
        // In every other launch nothing arrives before all wait for something.
        bool is_time = launches % 2 || moves == moves_before;
        for (size_t i = is_time ? under_way.size() / 3 + 1 : 0; i; i--) land_one();
    }
    if (!under_way.empty()) problem = "a block ended before all that was sent to it had come";
    under_way.clear();
}

static void launch(Index grid, int threads, int cluster, int shared_bytes, std::function<void()> kernel) {
    grid_size = grid;
    body = &kernel;
    launches++;
    for (int z = 0; z < grid.z; z++)
        for (int y = 0; y < grid.y; y++)
            for (int x = 0; x < grid.x; x += cluster) {
                std::vector<Group> blocks(cluster);
                std::vector<Group*> pointers;
                std::vector<u8> shared((size_t)cluster * (shared_bytes + 128), 0xff);
                Barrier meeting;
                meeting.total = cluster * threads;
                for (int r = 0; r < cluster; r++) {
                    Group& b = blocks[r];
                    u8* raw = shared.data() + (size_t)r * (shared_bytes + 128);
                    b.index = {x + r, y, z};
                    b.rank = r;
                    b.shared = (u8*)(((uintptr_t)raw + 127) / 128 * 128);
                    b.barrier.total = threads;
                    b.warps.resize(threads / 32);
                    for (auto& warp : b.warps) warp.barrier.total = 32;
                    b.cluster = &pointers;
                    b.cluster_barrier = &meeting;
                    pointers.push_back(&b);
                }
                run_cluster(pointers, threads);
            }
}
