// A mixture of experts: the router's scores, the products of the experts that a token has chosen, and their weighted sum.
// Tokens choose apart, so a block is of one token: what a token gets depends on nothing else in its pass, to the bit. All
// of this is compiled for one token (TOKENS 1) and serves passes of any size. Owns the choice and what depends on it; the
// multiplication is product.cuh's.
//
// Which weights are fetched is known only when the router has ended. `expert_gate_up` stages x while its first weights are
// on their way (EXPERT_EARLY_X: while the router computes; then it starts when all of `router` have waited, so that x is
// final). `expert_down` starts when all of `expert_gate_up` have waited, so that the scores are final, and its weights come
// while those of gate and up do. These starts are conditions of what is read before a wait, and no matter of tuning.

#if EXPERTS && !BATCH && (TOKENS == 1 || EXPERT_GROUP)
#define UP_ROWS (2 * EXPERT_FFN)                      // of one expert
#define CHOSEN_FFN (EXPERTS_PER_TOKEN * EXPERT_FFN)   // columns of a token's down projection: its experts side by side
#define EXPERT_WIDTH (OSS ? MXFP4 : BITS)

DEVICE Float4 load_four(const float* p) {
    Words4 w = load_fresh((const Words4*)p);
    return {float_of_bits(w.w[0]), float_of_bits(w.w[1]), float_of_bits(w.w[2]), float_of_bits(w.w[3])};
}

// Step by step, as `squared`: these kernels are compiled for one token and for several.
DEVICE float product_of(Float4 a, Float4 b) {
    return multiply_add(a.x, b.x, multiply(a.y, b.y)) + multiply_add(a.z, b.z, multiply(a.w, b.w));
}

// scores[token][expert] = router · rms_norm(x): a warp for each expert, its row times the gain in registers before the
// wait. Blocks are small, so that those of `expert_gate_up` have room for their registers beside them. grid (EXPERTS /
// ROUTER_WARPS, tokens). Blocks behind those bring what the next layer reads first to L2: the memory has nothing
// to do meanwhile.
#define ROUTER_WARPS 4
KERNEL(ROUTER_WARPS * 32, 1) router(const float* x, const float* gain, const u32* weights, float* scores, const u8* later, int later_kb,
                      float epsilon BIAS) {
    const int fours = (HIDDEN + 127) / 128;
    auto is_there = [](int at) { return HIDDEN % 128 == 0 || at < HIDDEN; };
    int lane = threadIdx.x & 31, expert = blockIdx.x * ROUTER_WARPS + (threadIdx.x >> 5), token = blockIdx.y;
    if (expert >= EXPERTS) {
        wait_for_previous();
        let_next_start();
        for (int line = (expert - EXPERTS) * 32 + lane; line < later_kb * 8; line += (gridDim.x * ROUTER_WARPS - EXPERTS) * 32)
            if (token == 0) prefetch_l2(later + (u64)line * 128);
        return;
    }
    if (!EXPERT_EARLY_X) let_next_start();
    Float4 row[fours], v[fours];
    UNROLL for (int j = 0; j < fours; j++) {
        int at = 4 * (lane + 32 * j);
        row[j] = {};
        if (!is_there(at)) continue;
        Words2 w = *(const Words2*)(weights + ((u64)expert * HIDDEN + at) / 2);
        Float4 g = *(const Float4*)(gain + at);
        row[j] = {bf16_low(w.w[0]) * g.x, bf16_high(w.w[0]) * g.y, bf16_low(w.w[1]) * g.z, bf16_high(w.w[1]) * g.w};
    }
    wait_for_previous();
    if (EXPERT_EARLY_X) let_next_start();
    UNROLL for (int j = 0; j < fours; j++)
        v[j] = is_there(4 * (lane + 32 * j)) ? load_four(x + (u64)token * HIDDEN + 4 * (lane + 32 * j)) : Float4{};
    float squares = 0.0f, sum = 0.0f;
    UNROLL for (int j = 0; j < fours; j++) {
        squares += product_of(v[j], v[j]);
        sum += product_of(v[j], row[j]);
    }
    UNROLL for (int mask = 16; mask; mask >>= 1) {
        squares += shuffle_xor(squares, mask);
        sum += shuffle_xor(sum, mask);
    }
#if OSS
    if (lane == 0) scores[token * EXPERTS + expert] = sum * rsqrt_fast(squares * (1.0f / HIDDEN) + epsilon) + more_bias[expert];
#else
    if (lane == 0) scores[token * EXPERTS + expert] = sum * rsqrt_fast(squares * (1.0f / HIDDEN) + epsilon);
#endif
}

// What an expert makes of its gate and up.
DEVICE float gated(float gate, float up) { return divide(gate, 1.0f + exp2_fast(-LOG2_E * gate)) * up; }
#if OSS
DEVICE float gated(float gate, float up, const float* bias, float limit, float slope) {
    gate = -greater(-(gate + bias[0]), -limit);
    up = greater(-greater(-(up + bias[4]), -limit), -limit);
    return divide(gate, 1.0f + exp2_fast(-LOG2_E * slope * gate)) * (up + 1.0f);
}
#define GATED(gate, up, bias) gated(gate, up, bias, limit, slope)
#else
#define GATED(gate, up, bias) gated(gate, up)
#endif

// The share of one of a token's experts: the softmax over the scores of those that it has chosen, the best first.
DEVICE float share_of(const float* score, int which) {
    float total = 0.0f, own = 0.0f;
    UNROLL for (int i = 0; i < EXPERTS_PER_TOKEN; i++) {
        float part = exp2_fast(LOG2_E * (score[i] - score[0]));
        total += part;
        if (i == which) own = part;
    }
    return divide(own, total);
}

// The number below a score.
DEVICE float next_below(float score) {
    int bits = (int)bits_of_float(score);
    return float_of_bits(score > 0.0f ? bits - 1 : score < 0.0f ? bits + 1 : 0x80000001u);
}

// How many are ahead of expert i: with a higher score, or the same and a lower number. Of every STEP-th four from `first` on.
template <int STEP> DEVICE int count_ahead(const float* scores, int i, int first) {
    float own = scores[i], below = next_below(own), ahead = 0.0f;
    int before = i - 4 * first - 3;
    UNROLL for (int j = 0; j < EXPERTS; j += 4 * STEP) {
        float least = j < before ? below : own;
        Float4 other = *(const Float4*)(scores + 4 * first + j);
        ahead += (one_if_greater(other.x, least) + one_if_greater(other.y, least)) +
                 (one_if_greater(other.z, least) + one_if_greater(other.w, least));
    }
    int same = 0;  // before it among its own four
    if (i / 4 % STEP == first) UNROLL for (int e = 0; e < 3; e++) same += e < i % 4 && scores[i / 4 * 4 + e] == own;
    return (int)ahead + same;
}

// The experts of one token, the best first. In shared memory.
struct Choice {
    float* scores;  // [EXPERTS]
    int* expert;    // [EXPERTS_PER_TOKEN]
    float* score;   // of each; once they are shares, its part of the sum

    DEVICE Choice(float* shared) {
        scores = shared + (16 - shared_address(shared) % 16) % 16 / 4;
        expert = (int*)(scores + EXPERTS);
        score = (float*)(expert + EXPERTS_PER_TOKEN);
    }
    // Where scores are no numbers it is the first expert: a padded row may hold anything, and must read from somewhere.
    // `meet` is the meeting of all who call.
    template <class Meet> DEVICE void find(const float* from, int threads, Meet meet) {
        static_assert(EXPERTS % 16 == 0, "whole warps compare, four scores at a time");
        for (int i = threadIdx.x; i < EXPERTS; i += threads) scores[i] = load_fresh(from + i);
        if (threadIdx.x < EXPERTS_PER_TOKEN) expert[threadIdx.x] = 0, score[threadIdx.x] = 0.0f;
        meet();
        for (int item = threadIdx.x; item < 2 * EXPERTS; item += threads) {  // two threads share the others
            int i = item / 2, better = count_ahead<2>(scores, i, item % 2);
            better += shuffle_xor(better, 1);
            if (item % 2 == 0 && better < EXPERTS_PER_TOKEN && scores[i] == scores[i])
                expert[better] = i, score[better] = scores[i];
        }
    }
};
#endif

#if EXPERTS && !BATCH && TOKENS == 1
typedef TileRing<GATE_UP, HIDDEN, EXPERT_UP_STAGES, HIDDEN_WARPS, EXPERT_WIDTH> ExpertUpRing;
typedef TileRing<DOWN, CHOSEN_FFN, EXPERT_DOWN_STAGES, EXPERT_DOWN_WARPS, EXPERT_WIDTH> ExpertDownRing;
typedef Product<ExpertUpRing, HIDDEN, 1, HIDDEN_WARPS, EXPERT_UP_STAGES, 1, EXPERT_WIDTH> ExpertUpProduct;
typedef Product<ExpertDownRing, CHOSEN_FFN, 1, EXPERT_DOWN_WARPS, EXPERT_DOWN_GROUP, EXPERTS_PER_TOKEN, EXPERT_WIDTH>
    ExpertDownProduct;

// h[token][which] = silu(gate) * up of the token's expert `which`. grid (tokens * EXPERTS_PER_TOKEN, blocks of one expert):
// blocks beside each other have the same rows of several experts, so those that tokens share are still in L2.
KERNEL(HIDDEN_WARPS * 32 + 32, EXPERT_UP_BLOCKS) expert_gate_up(const int* count, const float* x, const float* gain, const float* scores, const u8* weights,
                              const float* scales, float* h, float epsilon CLAMP) {
    SHARED_MEMORY(shared);
    const int tiles = UP_ROWS / TILE_ROWS;
    int token = blockIdx.x / EXPERTS_PER_TOKEN, which = blockIdx.x % EXPERTS_PER_TOKEN;
    if (token >= load_fresh(count)) return wait_for_previous();  // padding. Who ends early must not end the wait of others
    ExpertUpProduct product(ExpertUpRing(shared), weights, tiles, blockIdx.y, gridDim.y, 0);
    Choice choice(product.after());
    product.ring.prepare(1);
    if (product.ring.is_fetcher()) {
        block_sync();  // the choice is made
        product.weights += (u64)choice.expert[which] * tiles * ExpertUpProduct::TILE_BYTES;
        return product.ring.fill(product.count, [&](int tile) { product.fetch(tile); });
    }
    Float2 gains[ExpertUpProduct::PAIRS], row[ExpertUpProduct::PAIRS];
    product.load_gain(gain, gains);
    if (EXPERT_EARLY_X) product.normalise(x + (u64)token * HIDDEN, gains, epsilon);
    wait_for_previous();
    let_next_start();
    if (!EXPERT_EARLY_X)  // the loads are on their way while the choice is made
        UNROLL for (int j = 0; j < ExpertUpProduct::PAIRS; j++)
            row[j] = load_fresh((const Float2*)(x + (u64)token * HIDDEN) + product.pair_of(j));
    choice.find(scores + token * EXPERTS, ExpertUpProduct::THREADS, product.meet);
    block_sync();
    if (!EXPERT_EARLY_X)
        product.stage<true>(
            [&](int, int pair) { return row[(pair - product.pair_of(0)) / ExpertUpProduct::THREADS]; }, gains, epsilon);
    scales += choice.expert[which] * UP_ROWS;
    if (HAS_DIGITS && EXPERT_WIDTH != MXFP4) product.expect(scales);
    product.run([&](int base, int n, const float* group) {
        NO_UNROLL for (int i = threadIdx.x; i < n * 4; i += ExpertUpProduct::THREADS) {
            int slot = i / 4, r = i % 4, tile = product.first + base + slot, row = tile * TILE_ROWS + r;
            float gate = product.sum(group, slot, 0, r) * product.row_scale(scales, row);
            float up = product.sum(group, slot, 0, r + 4) * product.row_scale(scales, row + 4);
            h[(u64)blockIdx.x * EXPERT_FFN + tile * 4 + r] = GATED(gate, up, more_bias + choice.expert[which] * UP_ROWS + row);
        }
    });
}

// x += the sum of share · W_down · h over the token's experts: their columns side by side are one product, and each expert
// is a part of it with warps of its own. Parts are added pairwise, the best two first. grid (tokens, blocks of one token)
KERNEL_OF_REGISTERS(EXPERT_DOWN_REGISTERS)
expert_down(const int* count, const float* h, const float* scores, const u8* weights, const float* scales, float* x BIAS) {
    SHARED_MEMORY(shared);
    const int parts = EXPERTS_PER_TOKEN, piece = ExpertDownProduct::TILE_BYTES / parts;
    static_assert(EXPERT_DOWN_GROUP * TILE_ROWS * parts <= ExpertDownProduct::THREADS, "one item a thread");
    static_assert(parts == 4 || parts == 8 || parts == 16, "lanes beside each other add the parts of a row");
    int token = blockIdx.x;
    if (token >= load_fresh(count)) return wait_for_previous();
    ExpertDownProduct product(ExpertDownRing(shared), weights, HIDDEN / TILE_ROWS, blockIdx.y, gridDim.y, 0);
    Choice choice(product.after());
    float* factors = choice.score + parts;  // [rows of this block][parts]: an expert's share times its row's scale
    if (!IS_LATE(DOWN)) let_next_start();
    product.ring.prepare(parts);
    choice.find(scores + token * EXPERTS, ExpertDownProduct::THREADS + 32, block_sync);
    block_sync();
    if (product.ring.is_fetcher())
        return product.ring.fill(product.count, [&](int tile) {
            for (int part = 0; part < parts; part++)
                bulk_load(product.ring.slot(tile) + part * piece,
                          weights + ((u64)choice.expert[part] * (HIDDEN / TILE_ROWS) + product.first + tile) * piece, piece,
                          product.ring.full + tile % EXPERT_DOWN_STAGES);
        });
    int part = threadIdx.x % parts, row0 = product.first * TILE_ROWS;
    float share = share_of(choice.score, part), *out = x + (u64)token * HIDDEN + row0;
    for (int i = threadIdx.x; i < product.count * TILE_ROWS * parts; i += ExpertDownProduct::THREADS)
        factors[i] = share * product.row_scale(scales + choice.expert[part] * HIDDEN, row0 + i / parts);
    int item = threadIdx.x / parts;  // a row of those between two meetings
    auto load_before = [&](int row) { return part == 0 && row < product.count * TILE_ROWS ? load_fresh(out + row) : 0.0f; };
    float before = load_before(item);
    wait_for_previous();
    if (IS_LATE(DOWN)) let_next_start();
    product.stage<false>(
        [&](int, int pair) { return load_fresh((const Float2*)(h + (u64)token * CHOSEN_FFN) + pair); }, nullptr, 0.0f);
    product.run([&](int base, int n, const float* group) {
        if (threadIdx.x / 32 * 32 >= n * TILE_ROWS * parts) return;  // all of the warp
        int row = base * TILE_ROWS + item;
        bool is_needed = item < n * TILE_ROWS;
        float sum = 0.0f;
        if (is_needed)
            sum = multiply(product.sum(group, item / TILE_ROWS, 0, item % TILE_ROWS, part), factors[row * parts + part]);
#if OSS
        if (is_needed) sum = multiply_add(share, more_bias[choice.expert[part] * HIDDEN + row0 + row], sum);
#endif
        UNROLL for (int mask = 1; mask < parts; mask <<= 1) sum += shuffle_xor(sum, mask);
        if (is_needed && part == 0) out[row] = before + sum;
        before = load_before(row + n * TILE_ROWS);  // for the next time
    });
}
#endif
