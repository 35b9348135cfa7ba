// Attention of the tokens of one sequence's draft to all of the past: many rows that read the same keys and values. The
// same sums as attention.cuh, in the same order, so a row's result is the same to the bit. There the warps of a block share
// a tile of 16 rows and meet for each, and blocks send each other what they find; here a warp has a tile for itself, the
// warps of a block share what they read, a run of BLOCK_TOKENS positions, and what the ranks find is put together by a second
// kernel: 8 KB a warp are more than blocks send each other quickly. Rows are (token, head of the group).

#if DRAFT_TILES
#define ALL_RANKS (ATTENTION_CLUSTER * ATTENTION_RANKS)
#define ROW_CHUNKS (HEAD_WIDTH / 8)                       // of 16 bytes; what lies between a narrow head's halves is left out
#define RUN_CHUNKS (BLOCK_TOKENS * ROW_CHUNKS)            // of the keys of a run, and of its values
#define LANE_CHUNKS ((2 * RUN_CHUNKS + DRAFT_TILES * 32 - 1) / (DRAFT_TILES * 32))
#define AT_ONCE (LANE_CHUNKS < 16 ? LANE_CHUNKS : 16)     // on their way to a lane

struct DraftPart {
    float o[ROW_CHUNKS][4];                               // rows g, g, g+8, g+8 x a pair of dimensions
    float most[2], sum[2];
};

// Tokens of the draft, with the one before it.
DEVICE int count_of(const Place* place) {
#if BATCH
    if (load_fresh(&place->pages) < 0) return 0;
#endif
    return load_fresh(&place->count);
}

// First dimension of a chunk, in a row of 128.
DEVICE int dimension_of(int chunk) { return 8 * chunk + chunk / (ROW_CHUNKS / 2) * ((HEAD_DIM - HEAD_WIDTH) / 2); }

// Where a chunk of a row lies: four neighbours of two rows, and one chunk of eight rows, share no bank.
DEVICE int chunk_at(int row, int chunk) { return row * ROW_CHUNKS + (chunk ^ ((row & 1) << 2 | (row >> 1 & 3))); }

// Bring positions from … to-1 of run b to shared memory, keys and values; put zeros where there are none, from `end` on.
DEVICE void load_run(Words4* run, const u16* kv, const int* pages, int kv_head, int b, int from, int to, int end) {
    const int lanes = DRAFT_TILES * 32;
    if (b * BLOCK_TOKENS >= end) return;
    const u16* rows = kv + kv_row(pages[b], 0, kv_head, 0);
    NO_UNROLL for (int begin = threadIdx.x; begin < 2 * RUN_CHUNKS; begin += AT_ONCE * lanes) {
        Words4 found[AT_ONCE];
        UNROLL for (int n = 0; n < AT_ONCE; n++) {
            int i = begin + n * lanes, row = i / ROW_CHUNKS % BLOCK_TOKENS, at = b * BLOCK_TOKENS + row;
            found[n] = {};
            if (i < 2 * RUN_CHUNKS && at >= from && at < to)
                found[n] = load_fresh((const Words4*)(rows + i / RUN_CHUNKS * PAGE_ELEMENTS + row * HEAD_DIM +
                                                      dimension_of(i % ROW_CHUNKS)));
        }
        UNROLL for (int n = 0; n < AT_ONCE; n++) {
            int i = begin + n * lanes, row = i / ROW_CHUNKS % BLOCK_TOKENS, at = b * BLOCK_TOKENS + row;
            if (i < 2 * RUN_CHUNKS && at >= from && (at < to || at >= end))
                run[i / RUN_CHUNKS * RUN_CHUNKS + chunk_at(row, i % ROW_CHUNKS)] = found[n];
        }
    }
}

// A warp's tile of rows and one run: scores, softmax so far, weighted values.
DEVICE void attend_run(DraftPart& part, const Words4* run, const u32 q[2][ROW_CHUNKS / 4][4], int first, const int last[2],
                       float scale, bool is_first REACH) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    float s[BLOCK_TOKENS / 8][4] = {};
    UNROLL for (int i = 0; i < ROW_CHUNKS / 4; i++) {     // one sum does not wait for the next
        Words4 k[BLOCK_TOKENS / 8];
        UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++) k[n] = run[chunk_at(8 * n + g, 4 * i + t)];
        UNROLL for (int p = 0; p < 4; p += 2)
            UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++)
                mma_bf16(s[n], q[0][i][p], q[1][i][p], q[0][i][p + 1], q[1][i][p + 1], k[n].w[p], k[n].w[p + 1]);
    }
    u32 p[2][BLOCK_TOKENS / 8];
    UNROLL for (int row = 0; row < 2; row++) {
        Float2 own[BLOCK_TOKENS / 8];
        UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++) own[n] = {s[n][2 * row], s[n][2 * row + 1]};
        float keep = soften(own, p[row], part.most[row], part.sum[row], first, last[row], scale, is_first GIVE_REACH);
        if (!is_first)
            UNROLL for (int j = 0; j < ROW_CHUNKS; j++) part.o[j][2 * row] *= keep, part.o[j][2 * row + 1] *= keep;
    }
    const Words4* values = run + RUN_CHUNKS;
    UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n += 2)
        UNROLL for (int j = 0; j < ROW_CHUNKS; j += 2) {
            u32 v[4];
            load_transposed(values + chunk_at(8 * n + (lane & 15), j + (lane >> 4)), v);
            mma_bf16(part.o[j], p[0][n], p[1][n], p[0][n + 1], p[1][n + 1], v[0], v[1]);
            mma_bf16(part.o[j + 1], p[0][n], p[1][n], p[0][n + 1], p[1][n + 1], v[2], v[3]);
        }
}

// grid (KV_HEADS * parts * ALL_RANKS, 1, row tiles / DRAFT_TILES)
KERNEL(DRAFT_TILES * 32, DRAFT_BLOCKS)
draft_attention(const Place* place, const u16* q, const Kv* kv, const int* pages, int parts, float* rank_out,
                Float2* rank_stats, float scale VIEW) {
    SHARED_MEMORY(shared);
    static_assert(BLOCK_TOKENS == PAGE_TOKENS, "a run is a page");
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    int splits = parts * ALL_RANKS, kv_head = blockIdx.x / splits, split = blockIdx.x % splits;
    int first_row = blockIdx.z * DRAFT_TILES * 16, row0 = first_row + (threadIdx.x >> 5) * 16;
    let_next_start();
    // The kernel before writes the new tokens' rows only: all older ones, and the places, may be read at once.
    int position = load_fresh(&place->position), count = count_of(place), length = position + count;
    int begin = FIRST_RUN(split, splits, position);
    if (first_row >= count * GROUP_HEADS || begin * BLOCK_TOKENS >= length) {
        wait_for_previous();
        return;
    }
#if BATCH
    pages += load_fresh(&place->pages);
#endif
    Words4* run = (Words4*)shared;                        // keys, values
    load_run(run, kv, pages, kv_head, begin, 0, position, length);
    for (int b = begin + splits; (b + 1) * BLOCK_TOKENS <= position; b += splits) expect_block(kv, pages, kv_head, b);
    u64 out[2];                                           // a row's place among all heads of all tokens
    int last[2];
    UNROLL for (int half = 0; half < 2; half++) {
        int row = row0 + g + 8 * half, token = row / GROUP_HEADS;
        last[half] = token < count ? position + token : -1;
        out[half] = (u64)token * HEADS + kv_head * GROUP_HEADS + row % GROUP_HEADS;
    }
    wait_for_previous();
    u32 queries[2][ROW_CHUNKS / 4][4] = {};
    UNROLL for (int half = 0; half < 2; half++)
        if (last[half] >= 0)
            UNROLL for (int i = 0; i < ROW_CHUNKS / 4; i++)
                load_registers<4>(q + out[half] * HEAD_DIM + dimension_of(4 * i) + 8 * t, queries[half][i]);
    if ((begin + 1) * BLOCK_TOKENS > position) load_run(run, kv, pages, kv_head, begin, position, length, length);
    DraftPart part = {};
    UNROLL for (int half = 0; half < 2; half++) part.most[half] = NO_MAXIMUM;
    for (int b = begin; b * BLOCK_TOKENS < length; b += splits) {
        if (b != begin) load_run(run, kv, pages, kv_head, b, 0, length, length);
        block_sync();
        attend_run(part, run, queries, b * BLOCK_TOKENS, last, scale, b == begin REACH_OF);
        block_sync();
    }
    UNROLL for (int half = 0; half < 2; half++) {
        float total = part.sum[half];
        total += shuffle_xor(total, 1);
        total += shuffle_xor(total, 2);
        if (last[half] < 0) continue;
        u64 at = (u64)split * TOKENS * HEADS + out[half];
        UNROLL for (int j = 0; j < ROW_CHUNKS; j++)
            *(Float2*)(rank_out + at * HEAD_DIM + dimension_of(j) + 2 * t) = {part.o[j][2 * half], part.o[j][2 * half + 1]};
        if (t == 0) rank_stats[at] = {part.most[half], total};
    }
}

// What the ranks have found, put together as attention.cuh does. grid (tokens, parts, KV_HEADS), a warp for each head
KERNEL(GROUP_HEADS * 32, 2)
merge_ranks(const Place* place, const float* rank_out, const Float2* rank_stats, float* part_out, Float2* part_stats VIEW) {
    int token = blockIdx.x, part = blockIdx.y, lane = threadIdx.x & 31;
    u64 row = (u64)token * HEADS + blockIdx.z * GROUP_HEADS + (threadIdx.x >> 5), every = (u64)TOKENS * HEADS;
    let_next_start();
    int position = load_fresh(&place->position), count = count_of(place), length = position + count;
    wait_for_previous();
    if (token >= count) return;
    Float2 each[ALL_RANKS];
    Words4 found[ALL_RANKS];
    UNROLL for (int rank = 0; rank < ALL_RANKS; rank++) {
        int split = part * ALL_RANKS + rank;
        u64 at = split * every + row;
        bool is_there = FIRST_RUN(split, (int)gridDim.y * ALL_RANKS, position) * BLOCK_TOKENS < length;
        each[rank] = is_there ? load_fresh(rank_stats + at) : Float2{NO_MAXIMUM, 0.0f};
        found[rank] = {};
        if (is_there && !IS_HOLE(4 * lane)) found[rank] = load_fresh((const Words4*)(rank_out + at * HEAD_DIM) + lane);
    }
    float most = NO_MAXIMUM, total = 0.0f, value[4] = {};
    UNROLL for (int rank = 0; rank < ALL_RANKS; rank++) most = greater(most, each[rank].x);
#if OSS
    if (part == 0) add_sink(sinks[row % HEADS], most, total);
#endif
    UNROLL for (int rank = 0; rank < ALL_RANKS; rank++) {
        float weight = exp2_fast(each[rank].x - most);
        total += each[rank].y * weight;
        UNROLL for (int e = 0; e < 4; e++) value[e] += float_of_bits(found[rank].w[e]) * weight;
    }
    UNROLL for (int e = 0; e < 4; e++) value[e] = total > 0.0f ? divide(value[e], total) : 0.0f;
    u64 out = part * every + row;
    *(Float4*)(part_out + out * HEAD_DIM + 4 * lane) = {value[0], value[1], value[2], value[3]};
    if (lane == 0) part_stats[out * STATS_STRIDE] = {most, total};
}
#endif
