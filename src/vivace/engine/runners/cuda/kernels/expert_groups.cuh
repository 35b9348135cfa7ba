// A mixture of experts where several tokens of a pass have chosen the same expert: its weights are read once for all of
// them. Tokens of one expert are a group of up to TOKENS; a list of groups is made on the device, and blocks share out the
// groups and their rows. A token's sums are those of experts.cuh, in the same order, so it comes out the same to the
// bit. Compiled for groups (EXPERT_GROUP); it serves passes of any size. Owns the groups; the multiplication is product.cuh's.

#if EXPERT_GROUP
#define GROUP_DOWN_WARPS (EXPERT_DOWN_WARPS / EXPERTS_PER_TOKEN)  // as many as share an expert's columns there
#define CHOOSING_WARPS 16
typedef TileRing<GATE_UP, HIDDEN, EXPERT_UP_STAGES, HIDDEN_WARPS, EXPERT_WIDTH> GroupUpRing;
typedef TileRing<DOWN, EXPERT_FFN, GROUP_DOWN_STAGES, GROUP_DOWN_WARPS, EXPERT_WIDTH> GroupDownRing;
typedef Product<GroupUpRing, HIDDEN, 1, HIDDEN_WARPS, GROUP_TILES, 1, EXPERT_WIDTH> GroupUpProduct;
typedef Product<GroupDownRing, EXPERT_FFN, 1, GROUP_DOWN_WARPS, GROUP_TILES, 1, EXPERT_WIDTH> GroupDownProduct;

// In device memory, behind a word with their number. A place is token * EXPERTS_PER_TOKEN + which of its experts.
struct ExpertGroup {
    int expert;
    int count;          // of its tokens
    int place[TOKENS];  // past the count the first again
};
DEVICE ExpertGroup* groups_of(int* list) { return (ExpertGroup*)(list + 4); }

// How many of the first `places` have chosen an expert.
DEVICE int count_places(const int* expert, int places, int which) {
    int count = 0;
    for (int place = 0; place < places; place += 4) {
        Words4 four = *(const Words4*)(expert + place);
        UNROLL for (int i = 0; i < 4; i++) count += (int)four.w[i] == which && place + i < places;
    }
    return count;
}

// The groups of a pass, and the shares of all experts. One block: a warp finds the experts of a token, a thread counts an
// expert's places, then a thread finds which of them its own place is, and so its group.
KERNEL(CHOOSING_WARPS * 32, 1) choose_experts(const int* count, const float* scores, int tokens, int* list, float* shares) {
    SHARED_MEMORY(shared);
    static_assert(EXPERTS % 4 == 0 && EXPERTS <= CHOOSING_WARPS * 32, "an expert a thread");
    static_assert(EXPERTS_PER_TOKEN % 4 == 0, "places are read four at a time");
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float* own = (float*)shared + warp * EXPERTS;                      // [CHOOSING_WARPS][EXPERTS]
    int* expert = (int*)((float*)shared + CHOOSING_WARPS * EXPERTS);   // [tokens][EXPERTS_PER_TOKEN]
    float* score = (float*)(expert + tokens * EXPERTS_PER_TOKEN);      // of each
    int* found = (int*)(score + tokens * EXPERTS_PER_TOKEN);           // [EXPERTS] places
    int* first = found + EXPERTS;                                      // [EXPERTS] group
    let_next_start();
    wait_for_previous();
    int real = load_fresh(count), places = real * EXPERTS_PER_TOKEN;
    for (int token = warp; token < real; token += CHOOSING_WARPS) {
        for (int i = lane; i < EXPERTS; i += 32) own[i] = load_fresh(scores + token * EXPERTS + i);
        int* chosen = expert + token * EXPERTS_PER_TOKEN;
        float* its = score + token * EXPERTS_PER_TOKEN;
        if (lane < EXPERTS_PER_TOKEN) chosen[lane] = 0, its[lane] = 0.0f;
        warp_sync();
        for (int i = lane; i < EXPERTS; i += 32) {
            int better = count_ahead<1>(own, i, 0);
            if (better < EXPERTS_PER_TOKEN && own[i] == own[i]) chosen[better] = i, its[better] = own[i];
        }
        warp_sync();
        if (lane < EXPERTS_PER_TOKEN) shares[token * EXPERTS_PER_TOKEN + lane] = share_of(its, lane);
        warp_sync();  // the scores are overwritten by those of another token
    }
    block_sync();
    int mine = threadIdx.x, before = 0;
    if (mine < EXPERTS) found[mine] = count_places(expert, places, mine);
    block_sync();
    if (mine < EXPERTS) {
        UNROLL for (int i = 0; i < EXPERTS; i++) before += i < mine ? (found[i] + TOKENS - 1) / TOKENS : 0;
        first[mine] = before;
        if (mine == EXPERTS - 1) list[0] = before + (found[mine] + TOKENS - 1) / TOKENS;
    }
    block_sync();
    for (int place = threadIdx.x; place < places; place += CHOOSING_WARPS * 32) {
        int own = expert[place], rank = count_places(expert, place, own), left = found[own] - rank;
        ExpertGroup* group = groups_of(list) + first[own] + rank / TOKENS;
        group->place[rank % TOKENS] = place;
        if (rank % TOKENS) continue;
        group->expert = own;
        group->count = left < TOKENS ? left : TOKENS;
        UNROLL for (int i = 1; i < TOKENS; i++) if (i >= left) group->place[i] = place;
    }
}

// The part of the work that a block has: some rows of one group.
struct GroupShare {
    int blocks, index, slice;
    DEVICE GroupShare(const int* list) {
        int groups = load_fresh(list);
        blocks = groups ? gridDim.x / groups : gridDim.x;  // of one group: there are blocks enough
        index = blockIdx.x / blocks;
        slice = blockIdx.x % blocks;
        if (index >= groups) index = -1;
    }
};

// h[place] = silu(gate) * up. grid: as many blocks as run at once, or groups if there can be more of them
KERNEL(HIDDEN_WARPS * 32 + 32, GROUP_UP_BLOCKS) group_gate_up(const int* list, const float* x, const float* gain,
                              const u8* weights, const float* scales, float* h, float epsilon CLAMP) {
    SHARED_MEMORY(shared);
    const int tiles = UP_ROWS / TILE_ROWS;
    wait_for_previous();
    let_next_start();
    GroupShare own(list);
    if (own.index < 0) return;
    const ExpertGroup* group = groups_of((int*)list) + own.index;
    int expert = load_fresh(&group->expert), count = load_fresh(&group->count);
    GroupUpProduct product(GroupUpRing(shared), weights + (u64)expert * tiles * GroupUpProduct::TILE_BYTES, tiles, own.slice,
                           own.blocks, 0);
    product.ring.prepare(1);
    if (product.ring.is_fetcher()) return product.ring.fill(product.count, [&](int tile) { product.fetch(tile); });
    Float2 gains[GroupUpProduct::PAIRS];
    product.load_gain(gain, gains);
    product.stage<true>(
        [&](int token, int pair) {
            int of = load_fresh(group->place + token) / EXPERTS_PER_TOKEN;
            return load_fresh((const Float2*)(x + (u64)of * HIDDEN) + pair);
        },
        gains, epsilon);
    scales += expert * UP_ROWS;
    if (HAS_DIGITS && EXPERT_WIDTH != MXFP4) product.expect(scales);
    product.run([&](int base, int n, const float* sums) {
        NO_UNROLL for (int i = threadIdx.x; i < n * 4 * TOKENS; i += GroupUpProduct::THREADS) {
            int slot = i / (4 * TOKENS), token = i / 4 % TOKENS, r = i % 4;
            if (token >= count) continue;
            int tile = product.first + base + slot, row = tile * TILE_ROWS + r;
            float gate = product.sum(sums, slot, token, r) * product.row_scale(scales, row);
            float up = product.sum(sums, slot, token, r + 4) * product.row_scale(scales, row + 4);
            h[(u64)load_fresh(group->place + token) * EXPERT_FFN + tile * 4 + r] =
                GATED(gate, up, more_bias + expert * UP_ROWS + row);
        }
    });
}

// made[place] = share · W_down · h[place]. Starts when all of `group_gate_up` have waited: then the groups are final
KERNEL(GROUP_DOWN_WARPS * 32 + 32, GROUP_DOWN_BLOCKS) group_down(const int* list, const float* h, const float* shares,
                              const u8* weights, const float* scales, float* made BIAS) {
    SHARED_MEMORY(shared);
    const int tiles = HIDDEN / TILE_ROWS;
    GroupShare own(list);
    if (own.index < 0) return wait_for_previous();  // who ends early must not end the wait of others
    const ExpertGroup* group = groups_of((int*)list) + own.index;
    int expert = load_fresh(&group->expert), count = load_fresh(&group->count);
    GroupDownProduct product(GroupDownRing(shared), weights + (u64)expert * tiles * GroupDownProduct::TILE_BYTES, tiles,
                             own.slice, own.blocks, 0);
    product.ring.prepare(1);
    if (product.ring.is_fetcher()) return product.ring.fill(product.count, [&](int tile) { product.fetch(tile); });
    scales += expert * HIDDEN;
    wait_for_previous();
    let_next_start();
    product.stage<false>(
        [&](int token, int pair) {
            return load_fresh((const Float2*)(h + (u64)load_fresh(group->place + token) * EXPERT_FFN) + pair);
        },
        nullptr, 0.0f);
    product.run([&](int base, int n, const float* sums) {
        NO_UNROLL for (int i = threadIdx.x; i < n * TILE_ROWS * TOKENS; i += GroupDownProduct::THREADS) {
            int slot = i / (TILE_ROWS * TOKENS), token = i / TILE_ROWS % TOKENS, r = i % TILE_ROWS;
            if (token >= count) continue;
            int place = load_fresh(group->place + token), row = (product.first + base + slot) * TILE_ROWS + r;
            float share = load_fresh(shares + place);
            float sum = multiply(product.sum(sums, slot, token, r), share * product.row_scale(scales, row));
#if OSS
            sum = multiply_add(share, more_bias[expert * HIDDEN + row], sum);
#endif
            made[(u64)place * HIDDEN + row] = sum;
        }
    });
}

// x += what a token's experts made, pairwise, the best two first. grid (tokens, columns / 256)
KERNEL(256, 4) sum_experts(const int* count, const float* made, float* x) {
    let_next_start();
    wait_for_previous();
    int token = blockIdx.x, column = blockIdx.y * 256 + threadIdx.x;
    if (token >= load_fresh(count) || column >= HIDDEN) return;
    float sum[EXPERTS_PER_TOKEN];
    UNROLL for (int i = 0; i < EXPERTS_PER_TOKEN; i++)
        sum[i] = load_fresh(made + ((u64)token * EXPERTS_PER_TOKEN + i) * HIDDEN + column);
    UNROLL for (int step = 1; step < EXPERTS_PER_TOKEN; step <<= 1)
        UNROLL for (int i = 0; i < EXPERTS_PER_TOKEN; i += 2 * step) sum[i] += sum[i + step];
    float* out = x + (u64)token * HIDDEN + column;
    *out = load_fresh(out) + sum[0];
}
#endif
