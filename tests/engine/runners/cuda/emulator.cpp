// What the emulator does whatever the kernel is: switch fibers, let copies land, multiply. Compiled once, and linked
// with the kernels of every plan.
#include <ucontext.h>

#include <memory>
#include <utility>
#include <vector>

#include "emulator.h"

// A place to jump back to. GCC's own: the library's saves and checks more, and takes a fifth of a run.
#ifdef __clang__  // has none for ARM
#include <setjmp.h>
typedef jmp_buf Place;
#define SET_PLACE(place) _setjmp(place)
#define JUMP_TO(place) _longjmp(place, 1)
#else
typedef void* Place[5];
#define SET_PLACE(place) __builtin_setjmp(place)
#define JUMP_TO(place) __builtin_longjmp(place, 1)
#endif

Fiber* now;
Index grid_size;
const char* problem;
u64 moves;
static u64 launches;
static Place round_end; // where all fibers that can run have run once
static Fiber *first, *last;
static int unfinished;
static void (*body)(const void*);
static const void* given;
extern "C" __attribute__((visibility("default"))) const char* take_problem() { return std::exchange(problem, nullptr); }

// Where a fiber runs. Kept between launches, and a body is begun by the end of the one before it: a new stack costs
// more than a launch. So only the first switch to it is ucontext's, with system calls; the later ones are jumps.
struct Stack {
    bool started = false;
    std::vector<std::pair<TeamProduct, Words4>> products; // under way, with the rows that were in registers
    std::vector<size_t> groups; // how many of them, counted at each commit
    Place place;
    ucontext_t context;
    u8 memory[1 << 16];
};

static Warp& warp_of(const Fiber* fiber) { return fiber->block->warps[fiber->thread.x / 32]; }

// Go on with the next fiber that does not wait, from `fiber` on. The one that yields jumps to it by itself. A warp whose
// lanes have met goes on at once, up to `ROUNDS` times: its 32 stacks are in the cache then, those of all warps are not.
static const int ROUNDS = 64;
static int met, rounds; // the meetings of the warp that runs, and how often it went on
[[noreturn, gnu::noinline]] static void run_next(Fiber* fiber) {
    for (;; fiber++) {
        if (fiber == last || !(fiber->thread.x & 31)) {
            int meetings = fiber == first ? met : warp_of(fiber - 1).barrier.generation;
            if (meetings != met && ++rounds < ROUNDS) {
                met = meetings;
                fiber -= 32;
            } else {
                if (fiber == last) JUMP_TO(round_end);
                met = warp_of(fiber).barrier.generation;
                rounds = 0;
            }
        }
        if (!fiber->done && (!fiber->awaited || *fiber->awaited != fiber->seen)) {
            now = fiber;
            if (fiber->stack->started) JUMP_TO(fiber->stack->place);
            fiber->stack->started = true;
            setcontext(&fiber->stack->context);
        }
    }
}
void yield_fiber() {
    if (!SET_PLACE(now->stack->place)) run_next(now + 1);
}
void await_change(const int& number) {
    now->awaited = &number;
    now->seen = number;
    yield_fiber();
    now->awaited = nullptr;
}
bool arrive(Barrier& barrier) {
    moves++;
    if (++barrier.arrived < barrier.total) return false;
    barrier.arrived = 0;
    barrier.generation++;
    return true;
}
void meet(Barrier& barrier) {
    if (!arrive(barrier)) await_change(barrier.generation);
    moves++;
}

static void run_bodies() {
    while (true) {
        body(given);
        now->done = true;
        now->block->ended++;
        unfinished--;
        yield_fiber();
    }
}

static Stack* stack_of(size_t fiber) {
    static std::vector<std::unique_ptr<Stack>> stacks;
    while (stacks.size() <= fiber) {
        Stack* stack = new Stack;
        stacks.emplace_back(stack);
        getcontext(&stack->context);
        stack->context.uc_stack.ss_sp = stack->memory;
        stack->context.uc_stack.ss_size = sizeof stack->memory;
        makecontext(&stack->context, run_bodies, 0);
    }
    return stacks[fiber].get();
}

// Fragments as the PTX manual lays them out: g = lane / 4, t = lane % 4.
// A register holds `per` elements; lane t's come `per` apart in the first half of the columns, then in the second.
// The lane that comes last multiplies for all 32. Each sum is over k in order, whatever the compiler makes of the loops.
template <int per, auto left, auto right, class Sum>
static void multiply(const u8 (*slots)[32], u8 (*sums)[16], Sum) {
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
template <int per, auto left, auto right, class Sum>
static void mma(Sum c[4], const Operands& mine) {
    Warp& warp = now->block->warps[now->thread.x / 32];
    int turn = now->exchanges++ & 1, lane = now->thread.x & 31;
    memcpy(warp.slots[turn][lane], &mine, sizeof mine);
    if (warp.barrier.arrived + 1 == warp.barrier.total) multiply<per, left, right>(warp.slots[turn], warp.sums[turn], Sum());
    meet(warp.barrier);
    for (int e = 0; e < 4; e++) c[e] += ((const Sum*)warp.sums[turn][lane])[e];
}
static float bf16(u32 half) { return as_float(half << 16); }
static float fp8(u32 byte) {
    int exponent = byte >> 3 & 15, digits = byte & 7;
    float size = exponent ? __builtin_ldexpf(8 + digits, exponent - 10) : __builtin_ldexpf(digits, -9);
    return byte & 128 ? -size : size;
}
static int s8(u32 byte) { return (signed char)(byte & 255); }
static int u8_of(u32 byte) { return byte & 255; }
void mma_bf16(float c[4], const Operands& mine) { mma<2, bf16, bf16>(c, mine); }
void mma_s8(int c[4], const Operands& mine) { mma<4, s8, s8>(c, mine); }
void mma_u8(int c[4], const Operands& mine) { mma<4, u8_of, s8>(c, mine); }

static u32 word_at(const u8* at) { return *(const u32*)turned((u64)at); }
static u32 half_at(const u8* at) { return *(const u16*)turned((u64)at); }
void put_product(TeamProduct product) {
    Words4 rows = {};
    if (product.rows) memcpy(&rows, product.rows, sizeof rows);
    now->stack->products.push_back({product, rows});
}
void products_commit() { now->stack->groups.push_back(now->stack->products.size()); }
// A warp's 16 rows: as many products of 16 rows as there are eights of columns.
static void finish(const TeamProduct& product, Words4 rows) {
    int warp = now->thread.x >> 5 & 3, g = (now->thread.x & 31) >> 2, t = now->thread.x & 3;
    for (int i = 0; i < 4 && !product.rows; i++)
        rows.w[i] = word_at(product.left.at + (16 * warp + g + i % 2 * 8) * 128 + 4 * t + i / 2 * 16);
    for (int j = 0; j < product.eights; j++) {
        Operands both = {{rows.w[0], rows.w[1], rows.w[2], rows.w[3]}, {}};
        for (int upper = 0; upper < 2; upper++) {
            int column = 8 * j + g, k = 2 * t + 8 * upper;
            const u8* from = product.right.at + column / 64 * product.right.next + column % 64 * 2 + k * 128;
            if (product.rows) both.b[upper] = half_at(from) | half_at(from + 128) << 16;
            else both.b[upper] = word_at(product.right.at + column * 128 + 4 * t + 16 * upper);
        }
        float* sums = product.sums + 4 * j;
        if (!product.adds) memset(sums, 0, 16);
        if (product.is_of_bytes) mma<4, fp8, fp8>(sums, both);
        else mma_bf16(sums, both);
    }
}
void wait_for_products(int left) {
    Stack& stack = *now->stack;
    if ((int)stack.groups.size() <= left) return;
    size_t done = stack.groups[stack.groups.size() - left - 1];
    for (size_t i = 0; i < done; i++) finish(stack.products[i].first, stack.products[i].second);
    stack.products.erase(stack.products.begin(), stack.products.begin() + done);
    stack.groups.erase(stack.groups.begin(), stack.groups.end() - left);
    for (auto& group : stack.groups) group -= done;
}

struct Cargo {
    void* to;
    std::vector<u8> data;
    u64* barrier;
    int arrivals;
};
static std::vector<Cargo> under_way;
void put_under_way(void* to, const void* from, size_t bytes, u64* barrier, int arrivals) {
    const u8* begin = (const u8*)from;
    under_way.push_back({to, std::vector<u8>(begin, begin + bytes), barrier, arrivals});
    memset(to, 0xff, bytes);
}
void store_later(void* to, const void* from, size_t bytes) {
    const u8* begin = (const u8*)from;
    under_way.push_back({to, std::vector<u8>(begin, begin + bytes), nullptr, 0});
}
static void land_one() {
    static u32 draw = 1;
    if (under_way.empty()) return;
    draw = draw * 1664525u + 1013904223u;
    std::swap(under_way[(draw >> 16) % under_way.size()], under_way.back());
    Cargo cargo = std::move(under_way.back());
    under_way.pop_back();
    memcpy(cargo.to, cargo.data.data(), cargo.data.size());
    if (cargo.arrivals) barrier_arrive(cargo.barrier, cargo.arrivals);
}

// Run some blocks to their end.
static void run_blocks(std::vector<Group*>& blocks, int threads) {
    std::vector<Fiber> fibers;
    for (Group* block : blocks)
        for (int i = 0; i < threads; i++) {
            Fiber fiber;
            fiber.block = block;
            fiber.thread = {i, 0, 0};
            fiber.stack = stack_of(fibers.size());
            fibers.push_back(fiber);
        }
    first = fibers.data();
    last = first + fibers.size();
    unfinished = fibers.size();
    while (unfinished) {
        u64 moves_before = moves;
        if (!SET_PLACE(round_end)) run_next(first);
        // In every other launch nothing arrives before all wait for something.
        bool is_time = launches % 2 || moves == moves_before;
        for (size_t i = is_time ? under_way.size() / 3 + 1 : 0; i; i--) land_one();
    }
    if (!under_way.empty()) problem = "a block ended before all that was sent to it had come";
    under_way.clear();
}

void launch(const int* size, void (*kernel)(const void*), const void* arguments) {
    grid_size = {size[0], size[1], size[2]};
    int threads = size[3], cluster = size[4], shared_bytes = size[5];
    int together = size[6] ? grid_size.x : cluster;  // blocks that run at once
    body = kernel;
    given = arguments;
    launches++;
    for (int z = 0; z < grid_size.z; z++)
        for (int y = 0; y < grid_size.y; y++)
            for (int x = 0; x < grid_size.x; x += together) {
                std::vector<Group> blocks(together);
                std::vector<Group*> pointers;
                std::vector<Warp> warps(together * (threads / 32));
                std::vector<u8> shared((size_t)together * (shared_bytes + 1024), 0xff);
                std::vector<Barrier> meetings(together / cluster);
                for (auto& meeting : meetings) meeting.total = cluster * threads;
                for (auto& warp : warps) warp.barrier.total = 32;
                for (int i = 0; i < together; i++) {
                    Group& b = blocks[i];
                    u8* raw = shared.data() + (size_t)i * (shared_bytes + 1024);
                    b.index = {x + i, y, z};
                    b.rank = i % cluster;
                    b.shared = (u8*)(((uintptr_t)raw + 1023) / 1024 * 1024);
                    b.barrier.total = threads;
                    b.warps = warps.data() + i * (threads / 32);
                    b.cluster_barrier = &meetings[i / cluster];
                    pointers.push_back(&b);
                }
                for (int i = 0; i < together; i++) blocks[i].cluster = pointers.data() + i / cluster * cluster;
                run_blocks(pointers, threads);
            }
}
