// Attention of rows that have a sequence each: blockIdx.z is the row. The same sums as attention.cuh for one token, in
// the same order, so a row's result is the same to the bit. There a cluster's blocks take a run of positions each; with
// many rows there are blocks enough, so here a block takes the runs of ATTENTION_RANKS of them, one after the other:
// fewer blocks that start, wait and meet. ATTENTION_CLUSTER * ATTENTION_RANKS is what the cluster has there.

#if BATCH
#define RANKS (ATTENTION_CLUSTER * ATTENTION_RANKS)
#define PAST (1 << 23)                                    // a block of positions that nobody has

// The blocks of positions of one block of the GPU, in order: all of its first rank, then of the next.
struct Walk {
    int rank, b;
#if OSS  // a rank may have nothing of the window
    int window, position;
    DEVICE void step(int first, int splits, int length) {
        b += splits;
        if (rank >= 0 && b * BLOCK_TOKENS < length) return;
        while (++rank < ATTENTION_RANKS)
            if ((b = FIRST_RUN(first + rank, splits, position)) * BLOCK_TOKENS < length) return;
        b = PAST;
    }
#else
    DEVICE void step(int first, int splits, int length) {
        b += splits;
        if (b * BLOCK_TOKENS < length) return;
        rank++;
        b = rank < ATTENTION_RANKS && (first + rank) * BLOCK_TOKENS < length ? first + rank : PAST;
    }
#endif
};

DEVICE Part empty_part() {
    Part part = {};
    UNROLL for (int half = 0; half < HALVES; half++) part.most[half] = NO_MAXIMUM;
    return part;
}

// Which parts there are: the out projection must not read what nobody has written.
DEVICE void deny_part(Float2* part_stats, int part, int token, int kv_head) {
    if (threadIdx.x < GROUP_HEADS)
        part_stats[(((u64)part * TOKENS + token) * HEADS + kv_head * GROUP_HEADS + threadIdx.x) * STATS_STRIDE] =
            {NO_MAXIMUM, -1.0f};
}

// grid (KV_HEADS * most_parts * ATTENTION_CLUSTER, 1, rows), clusters along x
KERNEL(ATTENTION_WARPS * 32, 12 / ATTENTION_WARPS)
attention(const Row* rows, const u16* q, const Kv* kv, const int* all_pages, int most_parts, float* part_out,
          Float2* part_stats, float scale VIEW) {
    SHARED_MEMORY(shared);
    static_assert(GROUP_HEADS <= 16, "the heads of a row are one tile");
    float* scores = (float*)shared;                       // [2][8 * HALVES][SCORE_ROW]
    float* inbox = scores + 2 * SCORES;                   // [RANKS][TILE_Q][OWNED]
    float* stats = inbox + RANKS * TILE_Q * OWNED;        // [RANKS][TILE_Q][2]
    u64* all_here = (u64*)(stats + RANKS * TILE_Q * 2);   // inbox and stats are complete
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, token = blockIdx.z;
    int group = blockIdx.x / ATTENTION_CLUSTER, kv_head = group / most_parts, own_part = group % most_parts;
    int rank = ATTENTION_CLUSTER > 1 ? cluster_rank() : 0;
    if (!IS_LATE(ATTENTION)) let_next_start();
    int parts = load_fresh(&rows[token].parts), position = POSITION_OF(rows, 0, token), length = position + 1;
#if OSS
    parts = parts < most_parts ? parts : most_parts;         // a layer with a window has one
#endif
    if (!IS_REAL(rows, 0, token)) return;                    // all blocks of the cluster, here and below
    if (own_part >= parts) {
        wait_for_previous();
        if (rank == 0) deny_part(part_stats, own_part, token, kv_head);
        return;
    }
    const int* pages = all_pages + load_fresh(&rows[token].pages);
    int fresh = load_fresh(&rows[token].fresh), splits = parts * RANKS;
    int first = own_part * RANKS + rank * ATTENTION_RANKS;
    // The kernel before writes rows from `fresh` on: all older ones may be read at once.
    Block block;
    clear_keys(block);
    clear_values(block);
#if OSS
    Walk at = {-1, 0, window, position};
    at.step(first, splits, length);
    Walk ahead = at;
#else
    Walk at = {0, first}, ahead = at;
#endif
    ahead.step(first, splits, length);
    Pages near(pages, at.b, length), upcoming(pages, ahead.b, length);
    load_block(block, kv, near, kv_head, at.b, 0, fresh);
    Walk early = ahead;
    for (int i = 0; i < EARLY_BLOCKS && (early.b + 1) * BLOCK_TOKENS <= fresh; i++) {
        expect_block(kv, pages, kv_head, early.b);
        early.step(first, splits, length);
    }
    int last[HALVES];
    UNROLL for (int half = 0; half < HALVES; half++) last[half] = g + 8 * half < GROUP_HEADS ? position : -1;
    const u16* query = q + ((u64)token * HEADS + kv_head * GROUP_HEADS + g) * HEAD_DIM + 8 * t;
    if (threadIdx.x == 0) barrier_expect(all_here, 4 * RANKS * TILE_Q * (OWNED + 2));
    barriers_ready();
    cluster_sync();                                       // all blocks of the cluster are there to be written to
    wait_for_previous();
    if (IS_LATE(ATTENTION)) let_next_start();
    u32 queries[HALVES][4][4] = {};
    UNROLL for (int half = 0; half < HALVES; half++)
        if (last[half] >= 0)
            UNROLL for (int i = 0; i < 4; i++)
                load_registers<4>(query + 8 * half * HEAD_DIM + 32 * i, queries[half][i]);
    if ((at.b + 1) * BLOCK_TOKENS > fresh) load_block(block, kv, near, kv_head, at.b, fresh, length);
    Part part = empty_part();
    int done = 0;                                         // ranks that were sent
    for (int parity = 0; at.b * BLOCK_TOKENS < length; parity ^= 1) {
        float* mine = scores + parity * SCORES;
        Walk later = ahead;
        later.step(first, splits, length);
        Pages later_pages(pages, later.b, length);
        warp_sync();  // the tensor core wants all lanes together
        score_block(block, queries, mine);
        bool goes_on = ahead.b != PAST;
        if (goes_on) load_keys(block, kv, upcoming, kv_head, ahead.b, 0, length);
        block_sync();
        warp_sync();
        weigh_block(part, block, mine, at.b * BLOCK_TOKENS, last, scale, at.b == first + at.rank REACH_OF);
        if (goes_on) {
            clear_values(block);
            load_values(block, kv, upcoming, kv_head, ahead.b, 0, length);
        }
        if (!goes_on || ahead.rank != at.rank) {
            warp_sync();
#if OSS
            Part none = empty_part();
            for (; done < at.rank; done++) push_part(none, inbox, stats, all_here, rank * ATTENTION_RANKS + done);
#endif
            push_part(part, inbox, stats, all_here, rank * ATTENTION_RANKS + at.rank);
            part = empty_part();
            done++;
        }
        at = ahead;
        ahead = later;
        upcoming = later_pages;
    }
    warp_sync();
    for (; done < ATTENTION_RANKS; done++) push_part(part, inbox, stats, all_here, rank * ATTENTION_RANKS + done);
    barrier_wait(all_here, 0);
    for (int i = threadIdx.x; i < TILE_Q * OWNED; i += ATTENTION_WARPS * 32) {
        int row = i / OWNED;
        float most = NO_MAXIMUM, total = 0.0f, value = 0.0f;
        Float2 each[RANKS];
        UNROLL for (int other = 0; other < RANKS; other++) {
            each[other] = *(const Float2*)(stats + (other * TILE_Q + row) * 2);
            most = greater(most, each[other].x);
        }
#if OSS
        if (own_part == 0) add_sink(sinks[kv_head * GROUP_HEADS + row], most, total);
#endif
        UNROLL for (int other = 0; other < RANKS; other++) {
            float weight = exp2_fast(each[other].x - most);
            total += each[other].y * weight;
            value += inbox[other * TILE_Q * OWNED + i] * weight;
        }
        u64 out = ((u64)own_part * TOKENS + token) * HEADS + kv_head * GROUP_HEADS + row;
        part_out[out * HEAD_DIM + rank * OWNED + i % OWNED] = total > 0.0f ? divide(value, total) : 0.0f;
        if (most_parts > 1 && rank == 0 && i % OWNED == 0) part_stats[out * STATS_STRIDE] = {most, total};
    }
}
#endif
