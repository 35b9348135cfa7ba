// The Hopper instructions that the kernels use, each behind one small function, without any header: NVRTC needs
// none then. tests/gpu/emulator.h defines the same names for a CPU. Owns no shapes and no arithmetic of the model.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__
// `blocks`: so many should fit on one multiprocessor, which bounds the registers of a thread
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define KERNEL_OF_REGISTERS(registers) extern "C" __global__ void __maxnreg__(registers)  // a thread's, at most
#define SHARED_MEMORY(name) extern __shared__ __align__(128) u8 name[]
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

struct alignas(16) Words4 { u32 w[4]; };
struct alignas(8) Words2 { u32 w[2]; };

DEVICE void block_sync() { __syncthreads(); }
DEVICE void warp_sync() { __syncwarp(); }
// Only the first `threads` of the block meet.
// Not the `aligned` form, here and below: lanes may come from a loop that they left one by one.
template <int threads> DEVICE void team_sync(int team = 0) {
    asm volatile("barrier.sync %0, %1;" ::"r"(team + 1), "n"(threads) : "memory");
}
DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE int shuffle_xor(int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEVICE bool is_any_in_warp(bool value) { return __any_sync(0xffffffffu, value); }
DEVICE int same_in_warp(int value) { return __shfl_sync(0xffffffffu, value, 0); }  // now the compiler knows it too
DEVICE float exp2_fast(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float minus_infinity() { return __int_as_float(0xff800000); }
DEVICE float rsqrt_fast(float x) { float y; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float magnitude(float a) { return fabsf(a); }
DEVICE int round_to_int(float x) { return __float2int_rn(x); }
DEVICE float greater(float a, float b) { return fmaxf(a, b); }
DEVICE float one_if_greater(float a, float b) {  // else 0
    float one;
    asm("set.gt.f32.f32 %0, %1, %2;" : "=f"(one) : "f"(a), "f"(b));
    return one;
}
DEVICE float log_exact(float x) { return logf(x); }
DEVICE float log_one_plus(float x) { return log1pf(x); }
DEVICE float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }  // rounded, whatever is added to it
DEVICE float divide(float a, float b) { return __fdividef(a, b); }

// ---- 16-bit pairs: the low half is the even element
DEVICE u32 pack_bf16(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
DEVICE float bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float bf16_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float float_of_bits(u32 bits) { return __uint_as_float(bits); }
DEVICE u32 bits_of_float(float x) { return __float_as_uint(x); }
// Four bytes out of eight: a digit of `which` names each, the lowest first; 0 … 3 are of `low`, 4 … 7 of `high`.
DEVICE u32 permute_bytes(u32 low, u32 high, u32 which) { return __byte_perm(low, high, which); }

// The same; a digit of 8 and more gives the highest bit of the byte that it names less 8, eight times.
DEVICE u32 permute_or_sign(u32 low, u32 high, u32 which) {
    u32 out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(which));
    return out;
}

// Two numbers as 8-bit floats (4 bits of exponent, 3 of fraction), at most 448: the low byte is the even element
DEVICE u16 pack_fp8(float low, float high) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

// ---- tensor core: 16 rows x 8 columns, over 16 bf16 or 32 integers of 8 bits
DEVICE void mma_bf16(float c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEVICE void mma_s8(int c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// The left side's bytes are 0 … 255.
DEVICE void mma_u8(int c[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Lane (g, t) holds elements 2t, 2t+1 of row g of an 8x8 matrix, and gets those of its transpose.
DEVICE u32 transpose_8x8(u32 pair) {
    u32 turned;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}
// Four 8x8 matrices out of shared memory: each of 8 lanes names a row of 16 bytes. Lane (g, t) gets elements 2t, 2t+1 of
// column g of each.
DEVICE void load_transposed(const Words4* row, u32 out[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}

// ---- global memory. Activations change between kernels that overlap: they must never be served from L1.
DEVICE float load_fresh(const float* p) { return __ldcg(p); }
DEVICE int load_fresh(const int* p) { return __ldcg(p); }
DEVICE u16 load_fresh(const u16* p) { return __ldcg(p); }
struct alignas(8) Float2 { float x, y; };
struct alignas(16) Float4 { float x, y, z, w; };
DEVICE Float2 load_fresh(const Float2* p) {
    float2 v = __ldcg(reinterpret_cast<const float2*>(p));
    return {v.x, v.y};
}
DEVICE Words2 load_fresh(const Words2* p) {
    uint2 v = __ldcg(reinterpret_cast<const uint2*>(p));
    return {{v.x, v.y}};
}
DEVICE Words4 load_fresh(const Words4* p) {
    uint4 v = __ldcg(reinterpret_cast<const uint4*>(p));
    return {{v.x, v.y, v.z, v.w}};
}
DEVICE void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
DEVICE void prefetch_l1(const void* p) { asm volatile("prefetch.global.L1 [%0];" ::"l"(p)); }
// One word to the host's memory: everything written before is visible when it is.
DEVICE void publish(u64* p, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

// ---- bulk copies into shared memory, counted by a barrier there
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void barrier_init(u64* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
DEVICE void barrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// One phase of a barrier that is past when so many bytes have come.
DEVICE void barrier_expect(u64* barrier, u32 bytes) {
    barrier_init(barrier, 1);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
DEVICE void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void bulk_load(void* shared, const void* global, u32 bytes, u64* barrier) {
    u32 at = shared_address(barrier);
    u64 policy;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
        ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(at), "l"(policy) : "memory");
}
DEVICE bool barrier_is_past(u64* barrier, u32 parity) {
    u32 done;
    asm volatile(
        "{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
        : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    return done;
}
DEVICE int load_shared(const int* p) { return *(const volatile int*)p; }
DEVICE void store_shared(int* p, int value) { *(volatile int*)p = value; }
DEVICE void barrier_wait(u64* barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}"
        ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}

// ---- tensor core of four warps: 64 rows, out of tiles in shared memory whose lines of 128 bytes have their sixteens turned by
// the number of the line; a tile begins at a multiple of 1024 bytes. Sums come later: between `products_begin` and
// `products_wait` nobody touches them, and `keep` says so to the compiler.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_TEAM_PRODUCTS 1
#else
#define HAS_TEAM_PRODUCTS 0                                 // kernels that need them are there and do nothing
#endif
struct alignas(64) Tiles { u64 words[16]; };                // the driver's description of rows, and of how many make a tile
#define TILES(name) const __grid_constant__ Tiles name      // as an argument
#define TILES_OF(name) (&name)
#define SHARED_TILES(name) extern __shared__ __align__(1024) u8 name[]
DEVICE void arrive_expecting(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// A tile from `row` on, 128 bytes of each row from number `column` on. The barrier counts its bytes, which are expected apart.
DEVICE void bring_tile(u8* shared, const Tiles* tiles, int column, int row, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(shared_address(shared)), "l"(tiles), "r"(column), "r"(row), "r"(shared_address(barrier)) : "memory");
}
// The same into both blocks of a cluster, whose barriers count the bytes.
DEVICE void bring_to_both(u8* shared, const Tiles* tiles, int column, int row, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;"
        ::"r"(shared_address(shared)), "l"(tiles), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"((u16)3) : "memory");
}
DEVICE void show_to_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }  // and to products: what was stored
template <int count> DEVICE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)); }
template <int count> DEVICE void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)); }
typedef u64 Lines;
// `next`: bytes from 64 columns to the next 64, where columns are multiplied
DEVICE Lines lines_at(const u8* shared, u32 next = 16) {
    return (u64)(shared_address(shared) >> 4 & 0x3fff) | (u64)(next >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
DEVICE Lines behind(Lines lines, u32 bytes) { return lines >> 32 << 32 | ((u32)lines + (bytes >> 4)); }
DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int left> DEVICE void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory"); }
template <int n> DEVICE void keep(float (&sums)[n]) { UNROLL for (int i = 0; i < n; i++) asm volatile("" : "+f"(sums[i])::"memory"); }
DEVICE void keep(u32& word) { asm volatile("" : "+r"(word)::"memory"); }
#define EIGHT_SUMS(s, i) \
    "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), "+f"(s[i + 7])
#define SUMS_32(s, i) EIGHT_SUMS(s, i), EIGHT_SUMS(s, i + 8), EIGHT_SUMS(s, i + 16), EIGHT_SUMS(s, i + 24)
// (+)= 64 rows times 64 rows, over 16 of their numbers
DEVICE void multiply_lines(float (&sums)[32], Lines left, Lines right, bool adds) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,"
        "%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, adds, 1, 1, 0, 0;\n}"
        : SUMS_32(sums, 0) : "l"(left), "l"(right), "r"((int)adds));
}
// += 64 rows, 16 numbers of each in registers, times 16 rows of 128 numbers
DEVICE void multiply_columns(float (&sums)[64], const u32* left, Lines right) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,"
        "%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;\n"
        : SUMS_32(sums, 0), SUMS_32(sums, 32) : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

// (+)= 64 rows times 192 rows, over 32 of their numbers of 8 bits
DEVICE void multiply_bytes(float (&sums)[96], Lines left, Lines right, bool adds) {
    asm volatile(
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,"
        "%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"
        "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,"
        "%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
        "}, %96, %97, adds, 1, 1;\n}"
        : SUMS_32(sums, 0), SUMS_32(sums, 32), SUMS_32(sums, 64) : "l"(left), "l"(right), "r"((int)adds));
}

// ---- blocks that work together, kernels that overlap
DEVICE u32 cluster_rank() { u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }  // and do not wait
DEVICE u32 address_in(u32 rank, const void* p) {
    u32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(p)), "r"(rank));
    return remote;
}
DEVICE void barrier_arrive_in(u32 rank, u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in(rank, barrier)) : "memory");
}
// Into the same place of another block's shared memory; that block's barrier counts the bytes.
DEVICE void cluster_send(Float2* p, u32 rank, Float2 value, u64* barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                     address_in(rank, p)), "f"(value.x), "f"(value.y), "r"(address_in(rank, barrier)) : "memory");
}
DEVICE void cluster_send(Float4* p, u32 rank, Float4 value, u64* barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     address_in(rank, p)), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w),
                 "r"(address_in(rank, barrier)) : "memory");
}
DEVICE void cluster_send(float* p, u32 rank, float value, u64* barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                     address_in(rank, p)), "f"(value), "r"(address_in(rank, barrier)) : "memory");
}
// Between blocks of one launch that are all resident. A number goes with a mark, in one word: to wait until numbers are
// visible before one says so takes as long as they do.
DEVICE void store_marked(u64* p, float value, u32 mark) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"((u64)mark << 32 | __float_as_uint(value)) : "memory");
}
DEVICE Words4 load_marked(const u64* two) {
    u64 low, high;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "l"(two) : "memory");
    return {{(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)}};
}
DEVICE void count_one(u32* count) { asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory"); }
DEVICE void await_count(const u32* count, u32 all) {
    u32 seen;
    do asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory");
    while (seen < all);
}
DEVICE void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEVICE void let_next_start() { asm volatile("griddepcontrol.launch_dependents;"); }
