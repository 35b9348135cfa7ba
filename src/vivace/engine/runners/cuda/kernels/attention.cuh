// Attention of a few new tokens to all of the past. A block takes every splits-th run of BLOCK_TOKENS positions, so a
// row's arithmetic depends on its own position only. Its warps share the keys by position and the values by
// dimension: the scores cross through shared memory, the result never has to. The blocks of a cluster push their
// results to each other, each owns some dimensions, and each cluster leaves one part: the result if there were no
// others. Where there are, the out projection weighs them by their statistics. Rows are (token, head of the group), in
// tiles of 16: a block takes ATTENTION_TILES of them, for which it reads keys and values once; blockIdx.z counts these.

#define ROWS (GROUP_HEADS * (BATCH ? 1 : TOKENS))           // of one block's tokens
#define TILE_Q (ROWS < 16 ? ROWS : 16)
#define HALVES (TILE_Q > 8 ? 2 : 1)                       // a tensor-core tile has rows g and g + 8
#define SCORE_ROW (BLOCK_TOKENS + 8)                      // padded: no bank conflicts
#define OWNED (HEAD_DIM / ATTENTION_CLUSTER)              // dimensions that one block of a cluster finishes
#define SCORES (8 * HALVES * SCORE_ROW)                   // of one tile

// With a window (OSS) runs before it are left out: what they would add is nothing, to the bit. `position` is the pass's first.
#if OSS
#define REACH , int reach
#define REACH_OF , window ? window : 1 << 30
#define GIVE_REACH , reach
#define IS_SEEN(at, last) ((at) <= (last) && (at) > (last) - reach)
#define FIRST_RUN(run, splits, position) first_run(run, splits, window ? (position) - window + 1 : 0)
DEVICE int first_run(int run, int splits, int from) {
    int least = from > 0 ? from / BLOCK_TOKENS : 0;
    return least > run ? run + (least - run + splits - 1) / splits * splits : run;
}
#else
#define REACH
#define REACH_OF
#define GIVE_REACH
#define IS_SEEN(at, last) ((at) <= (last))
#define FIRST_RUN(run, splits, position) (run)
#endif

struct Part {
    float o[VALUE_REGISTERS][4];                          // rows g, g, g+8, g+8 x a pair of dimensions
    float most[HALVES], sum[HALVES];
};

// This warp's 16 positions against all rows, into scores[row][position].
DEVICE void score_block(const Block& block, const u32 q[HALVES][4][4], float* scores) {
    int lane = threadIdx.x & 31, warp = ATTENTION_WARP, g = lane >> 2, t = lane & 3;
    float s[2][4] = {};
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int p = 0; p < 4; p += 2)
            UNROLL for (int half = 0; half < 2; half++)
                if (!IS_HOLE(32 * i)) mma_bf16(s[half], q[0][i][p], HALVES == 2 ? q[HALVES - 1][i][p] : 0, q[0][i][p + 1],
                         HALVES == 2 ? q[HALVES - 1][i][p + 1] : 0, key_pair(block, half, i, p),
                         key_pair(block, half, i, p + 1));
    UNROLL for (int row = 0; row < HALVES; row++)
        UNROLL for (int half = 0; half < 2; half++)
            *(Float2*)(scores + (g + 8 * row) * SCORE_ROW + 16 * warp + 8 * half + 2 * t) =
                {s[half][2 * row], s[half][2 * row + 1]};
}

// Softmax so far of one row over all positions of the block, whose scores are of this lane's pairs of positions. Return
// what the results until then are multiplied by.
DEVICE float soften(Float2 s[BLOCK_TOKENS / 8], u32 p[BLOCK_TOKENS / 8], float& most, float& sum, int first, int last,
                    float scale, bool is_first REACH) {
    int t = threadIdx.x & 3;
    float peak = most, keep = 1.0f;
    UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++) {
        int at = first + 8 * n + 2 * t;
        s[n].x = IS_SEEN(at, last) ? s[n].x * scale : minus_infinity();
        s[n].y = IS_SEEN(at + 1, last) ? s[n].y * scale : minus_infinity();
        peak = greater(peak, greater(s[n].x, s[n].y));
    }
    peak = greater(peak, shuffle_xor(peak, 1));
    peak = greater(peak, shuffle_xor(peak, 2));
    if (!is_first) keep = exp2_fast(most - peak), sum *= keep;
    most = peak;
    UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++) {
        s[n] = {exp2_fast(s[n].x - peak), exp2_fast(s[n].y - peak)};
        sum += s[n].x + s[n].y;
        p[n] = pack_bf16(s[n].x, s[n].y);
    }
    return keep;
}

// Softmax so far over all positions of the block, then the weighted values in this warp's dimensions.
DEVICE void weigh_block(Part& part, const Block& block, const float* scores, int first, const int last[HALVES],
                        float scale, bool is_first REACH) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    u32 p[HALVES][BLOCK_TOKENS / 8];
    UNROLL for (int row = 0; row < HALVES; row++) {
        Float2 s[BLOCK_TOKENS / 8];
        UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++)
            s[n] = *(const Float2*)(scores + (g + 8 * row) * SCORE_ROW + 8 * n + 2 * t);
        float keep = soften(s, p[row], part.most[row], part.sum[row], first, last[row], scale, is_first GIVE_REACH);
        if (!is_first)
            UNROLL for (int j = 0; j < VALUE_REGISTERS; j++)
                part.o[j][2 * row] *= keep, part.o[j][2 * row + 1] *= keep;
    }
    UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n += 2)
        UNROLL for (int j = 0; j < VALUE_REGISTERS; j++)
            mma_bf16(part.o[j], p[0][n], HALVES == 2 ? p[HALVES - 1][n] : 0, p[0][n + 1],
                     HALVES == 2 ? p[HALVES - 1][n + 1] : 0, transpose_8x8(value_pair(block, n, j)),
                     transpose_8x8(value_pair(block, n + 1, j)));
}

#if OSS
// The sink's share of a row's sum: the first part has it, once.
DEVICE void add_sink(float sink, float& most, float& total) {
    most = greater(most, LOG2_E * sink);
    total += exp2_fast(LOG2_E * sink - most);
}
#endif

// Send this block's part to the blocks of its cluster: each dimension to its owner, the statistics to all.
DEVICE void push_part(Part& part, float* inbox, float* stats, u64* all_here, u32 rank) {
    int lane = threadIdx.x & 31, warp = ATTENTION_WARP, g = lane >> 2, t = lane & 3;
    UNROLL for (int half = 0; half < HALVES; half++) {
        int row = g + 8 * half;
        float total = part.sum[half];
        total += shuffle_xor(total, 1);
        total += shuffle_xor(total, 2);
        if (row >= TILE_Q) continue;
        UNROLL for (int j = 0; j < VALUE_REGISTERS; j += 2) {
            int d = DIMENSION_OF(warp * DIMENSIONS + (t * VALUE_REGISTERS + j) * 2);
            Float4 four = {part.o[j][2 * half], part.o[j][2 * half + 1], part.o[j + 1][2 * half],
                           part.o[j + 1][2 * half + 1]};
            cluster_send((Float4*)(inbox + (rank * TILE_Q + row) * OWNED + d % OWNED), d / OWNED, four, all_here);
        }
        for (int other = warp * 4 + t; other < ATTENTION_CLUSTER; other += ATTENTION_WARPS * 4)
            cluster_send((Float2*)(stats + (rank * TILE_Q + row) * 2), other, {part.most[half], total}, all_here);
    }
}

#if !BATCH
// grid (KV_HEADS * parts * ATTENTION_CLUSTER, 1, row tiles), clusters along x
KERNEL(ATTENTION_WARPS * 32, NEIGHBOURS(12 / ATTENTION_WARPS))
attention(const State* state, const u16* q, const Kv* kv, const int* pages, int parts, float* part_out,
          Float2* part_stats, float scale VIEW) {
    SHARED_MEMORY(shared);
    const int tiles = ATTENTION_TILES, stats_floats = ATTENTION_CLUSTER * TILE_Q * 2;  // of one tile
    float* scores = (float*)shared;                       // [2][tiles][8 * HALVES][SCORE_ROW]
    float* inbox = scores + 2 * tiles * SCORES;           // [tiles][cluster][TILE_Q][OWNED]
    float* stats = inbox + tiles * TILE_Q * HEAD_DIM;     // [tiles][cluster][TILE_Q][2]
    u64* all_here = (u64*)(stats + tiles * stats_floats); // inbox and stats are complete
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int splits = parts * ATTENTION_CLUSTER, kv_head = blockIdx.x / splits, split = blockIdx.x % splits;
    int row0 = blockIdx.z * 16 * tiles, rank = ATTENTION_CLUSTER > 1 ? cluster_rank() : 0;
    if (!IS_LATE(ATTENTION)) let_next_start();
    // The kernel before writes the new tokens' rows only: all older ones, and the state, may be read at once.
    int position = load_fresh(&state->position), length = position + load_fresh(&state->count);
    Block block;
    clear_keys(block);
    clear_values(block);
    int begin = FIRST_RUN(split, splits, position);
    Pages near(pages, begin, length), upcoming(pages, begin + splits, length);
    load_block(block, kv, near, kv_head, begin, 0, position);
    for (int b = begin + splits; (b + 1) * BLOCK_TOKENS <= position; b += splits) expect_block(kv, pages, kv_head, b);
    const u16* query[tiles][HALVES];
    int last[tiles][HALVES];
    UNROLL for (int tile = 0; tile < tiles; tile++)
        UNROLL for (int half = 0; half < HALVES; half++) {
            int row = row0 + 16 * tile + g + 8 * half, token = row / GROUP_HEADS, head = row % GROUP_HEADS;
            last[tile][half] = row < ROWS ? position + token : -1;
            query[tile][half] = q + ((u64)token * HEADS + kv_head * GROUP_HEADS + head) * HEAD_DIM + 8 * t;
        }
    u32 queries[HALVES][4][4] = {};
    auto load_queries = [&](int tile) {
        UNROLL for (int half = 0; half < HALVES; half++)
            if (last[tile][half] >= 0)
                UNROLL for (int i = 0; i < 4; i++) load_registers<4>(query[tile][half] + 32 * i, queries[half][i]);
    };
    if (threadIdx.x == 0) barrier_expect(all_here, 4 * tiles * (TILE_Q * HEAD_DIM + stats_floats));
    barriers_ready();
    cluster_sync();                                       // all blocks of the cluster are there to be written to
    wait_for_previous();
    if (IS_LATE(ATTENTION)) let_next_start();
    if (tiles == 1) load_queries(0);                      // else there is no room to keep them
    if ((begin + 1) * BLOCK_TOKENS > position) load_block(block, kv, near, kv_head, begin, position, length);
    Part part[tiles] = {};
    UNROLL for (int tile = 0; tile < tiles; tile++)
        UNROLL for (int half = 0; half < HALVES; half++) part[tile].most[half] = NO_MAXIMUM;
    int parity = 0;
    for (int b = begin; b * BLOCK_TOKENS < length; b += splits, parity ^= 1) {
        float* mine = scores + parity * tiles * SCORES;
        UNROLL for (int tile = 0; tile < tiles; tile++) {
            if (tiles > 1) load_queries(tile);
            warp_sync();  // the tensor core wants all lanes together
            score_block(block, queries, mine + tile * SCORES);
        }
        bool goes_on = (b + splits) * BLOCK_TOKENS < length;
        Pages later(pages, b + 2 * splits, length);
        if (goes_on) load_keys(block, kv, upcoming, kv_head, b + splits, 0, length);
        block_sync();
        warp_sync();
        UNROLL for (int tile = 0; tile < tiles; tile++)
            weigh_block(part[tile], block, mine + tile * SCORES, b * BLOCK_TOKENS, last[tile], scale, b == begin REACH_OF);
        if (goes_on) {
            clear_values(block);
            load_values(block, kv, upcoming, kv_head, b + splits, 0, length);
        }
        upcoming = later;
    }
    warp_sync();
    UNROLL for (int tile = 0; tile < tiles; tile++)
        push_part(part[tile], inbox + tile * TILE_Q * HEAD_DIM, stats + tile * stats_floats, all_here, rank);
    barrier_wait(all_here, 0);
    for (int i = threadIdx.x; i < tiles * TILE_Q * OWNED; i += ATTENTION_WARPS * 32) {
        int tile = i / (TILE_Q * OWNED), row = i / OWNED % TILE_Q, r = row0 + 16 * tile + row;
        const float* values = inbox + tile * TILE_Q * HEAD_DIM + i % (TILE_Q * OWNED);
        float most = NO_MAXIMUM, total = 0.0f, value = 0.0f;
        Float2 each[ATTENTION_CLUSTER];
        UNROLL for (int other = 0; other < ATTENTION_CLUSTER; other++) {
            each[other] = *(const Float2*)(stats + tile * stats_floats + (other * TILE_Q + row) * 2);
            most = greater(most, each[other].x);
        }
#if OSS
        if (split < ATTENTION_CLUSTER) add_sink(sinks[kv_head * GROUP_HEADS + r % GROUP_HEADS], most, total);
#endif
        UNROLL for (int other = 0; other < ATTENTION_CLUSTER; other++) {
            float weight = exp2_fast(each[other].x - most);
            total += each[other].y * weight;
            value += values[other * TILE_Q * OWNED] * weight;
        }
        if (r >= ROWS) continue;
        u64 out = ((u64)(split / ATTENTION_CLUSTER) * TOKENS + r / GROUP_HEADS) * HEADS + kv_head * GROUP_HEADS +
                  r % GROUP_HEADS;
        part_out[out * HEAD_DIM + rank * OWNED + i % OWNED] = total > 0.0f ? divide(value, total) : 0.0f;
        if (parts > 1 && rank == 0 && i % OWNED == 0) part_stats[out * STATS_STRIDE] = {most, total};
    }
}
#endif
