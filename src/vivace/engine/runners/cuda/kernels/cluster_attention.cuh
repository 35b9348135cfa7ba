// One token's q, k, v, attention and out projection in one kernel: a cluster of blocks for each key head. All of its weights
// fit into the shared memory of its blocks and are there before the kernel before has ended; what a block makes goes to the
// others' shared memory. Each key head leaves its share of the out projection; who reads x next adds the shares.
// For up to two parts of the attention: then no team of warps has more than one run of positions.
// Owns that order. Numbers are those of qkv, attention and out_projection, to the bit.

#if CLUSTERED
#define GROUP_TILES (GROUP_HEADS + 2)                      // of one block: 16 of the 16 tiles of each head
#define SHARE_TILES (HIDDEN / TILE_ROWS / ATTENTION_CLUSTER)  // rows of the out projection, and of these
#define SHARE_COLUMNS (GROUP_HEADS * HEAD_DIM)             // the columns of one key head
#define SHARE_WARPS (8 / KV_HEADS)                         // slices of these columns
#define SHARE_BYTES tile_bytes(SHARE_COLUMNS, BITS)
#define SHARE_LOADS (SHARE_COLUMNS / SHARE_WARPS / 32)
#define SHARE_TEAMS (8 / SHARE_WARPS)                      // of warps: each takes some tiles
#define SHARE_PAIRS (SHARE_TILES / SHARE_TEAMS / 2)        // of tiles, of one team
#define SHARE_ROW (SHARE_COLUMNS + 32)                     // bytes of a row of digits
#define HELD_PAIRS 2                                       // of tiles, whose weights are in registers before they are needed:
#define HELD_SHARE_PAIRS (HELD_PAIRS < SHARE_PAIRS ? HELD_PAIRS : SHARE_PAIRS)  // shared memory gives all in half a microsecond
#define CLUSTER_PARTS 2                                    // of the attention, at most: each is a team's
#define TEAM_THREADS (ATTENTION_WARPS * 32)
static_assert(CLUSTER_PARTS * ATTENTION_WARPS == 8, "all warps are in a team");
static_assert(HEAD_SLOTS == ATTENTION_CLUSTER, "a block has a tile of each head");
static_assert(SHARE_TILES % (2 * SHARE_TEAMS) == 0, "teams take pairs of tiles");
typedef TileRing<QKV, HIDDEN, GROUP_TILES> GroupRing;
typedef Product<GroupRing, HIDDEN, 1, HIDDEN_WARPS, GROUP_TILES, 1, BITS, true, GROUP_TILES> GroupProduct;

// Tile t of what belongs to a key head: its q heads, k, v.
DEVICE int tile_of_group(int kv_head, int t) {
    int head = t / HEAD_SLOTS;
    int of = head < GROUP_HEADS ? kv_head * GROUP_HEADS + head : HEADS + kv_head + (head - GROUP_HEADS) * KV_HEADS;
    return of * HEAD_SLOTS + t % HEAD_SLOTS;
}

template <int PIECES> struct Held { Words4 at[HELD_PAIRS][2][PIECES]; };
typedef Held<GroupProduct::PIECES> HeldGroup;
typedef Held<SHARE_LOADS / 2> HeldShare;

struct Shelf {                                             // shared memory behind the product's
    u64 *fresh_here, *all_here, *mixed_here, *share_here;
    u16* fresh;                                            // [GROUP_HEADS + 2][HEAD_DIM] q, k, v of the new token
    u16* made;                                             // [GROUP_TILES][8] of these, this block's
    float* scores;                                         // [teams][8][SCORE_ROW]
    float* inbox;                                          // [parts][cluster][ROWS][OWNED]
    float* stats;                                          // [parts][cluster][ROWS][2]
    float* own;                                            // [ROWS][OWNED]
    float* mixed;                                          // [ROWS][HEAD_DIM]
    u8* digits;                                            // [2][SHARE_ROW]
    float* sums;                                           // [SHARE_TILES][SHARE_WARPS][TILE_ROWS]
    DEVICE Shelf(u8* begin) {
        fresh_here = (u64*)begin;
        all_here = fresh_here + 1, mixed_here = fresh_here + 2, share_here = fresh_here + 3;
        fresh = (u16*)(fresh_here + 4);
        made = fresh + GROUP_TILES * HEAD_DIM;
        scores = (float*)(made + GROUP_TILES * 8);
        inbox = scores + CLUSTER_PARTS * SCORES;
        stats = inbox + CLUSTER_PARTS * ROWS * HEAD_DIM;
        own = stats + CLUSTER_PARTS * ATTENTION_CLUSTER * ROWS * 2;
        mixed = own + ROWS * OWNED;
        digits = (u8*)(mixed + ROWS * HEAD_DIM);
        sums = (float*)(digits + 2 * SHARE_ROW);
    }
};

// What one thread does with a pair of sums of q, k or v: all of it is known before the wait.
struct GroupItem {
    bool is_real, turns;
    float scale[2], bias[2];
    Float2 turn;
    u16* out;                                              // of k and v: in the page

    DEVICE GroupItem(const State* state, const float* scales, const float* bias_of, const Float2* rotation,
                     const int* pages, Kv* kv, int kv_head, int rank) {
        int slot = threadIdx.x / 4, r = threadIdx.x % 4;
        is_real = threadIdx.x < GROUP_TILES * 4;
        out = nullptr;
        if (!is_real) return;
        int t = rank * GROUP_TILES + slot, row = tile_of_group(kv_head, t) * TILE_ROWS + r, low = t % HEAD_SLOTS * 4 + r;
        UNROLL for (int e = 0; e < 2; e++) scale[e] = scales[row + 4 * e], bias[e] = bias_of[row + 4 * e];
        int at = load_fresh(&state->position), head = t / HEAD_SLOTS;
        turns = head <= GROUP_HEADS;
        turn = rotation[(u64)at * (HEAD_DIM / 2) + low];
        if (head >= GROUP_HEADS && load_fresh(&state->count) > 0)
            out = low + kv + kv_row(pages[at / PAGE_TOKENS], head > GROUP_HEADS, kv_head, at % PAGE_TOKENS);
    }
};

// The newest row of a run, which is in no page yet.
DEVICE void add_fresh(Block& block, const u16* fresh, int b, int position) {
    int lane = threadIdx.x & 31, warp = ATTENTION_WARP, g = lane >> 2, t = lane & 3;
    if (position / BLOCK_TOKENS != b) return;
    const u16 *key = fresh + GROUP_HEADS * HEAD_DIM, *value = key + HEAD_DIM;
    UNROLL for (int half = 0; half < 2; half++)
        if (b * BLOCK_TOKENS + 16 * warp + 8 * half + g == position)
            UNROLL for (int i = 0; i < 4; i++) {
                Words4 w = *(const Words4*)(key + 8 * t + 32 * i);
                UNROLL for (int e = 0; e < 4; e++) block.k[half][i][e] = w.w[e];
            }
    UNROLL for (int n = 0; n < BLOCK_TOKENS / 8; n++)
        if (b * BLOCK_TOKENS + 8 * n + g == position)
            UNROLL for (int j = 0; j < VALUE_REGISTERS; j++)
                block.v[n][j] = *(const u32*)(value + warp * DIMENSIONS + (t * VALUE_REGISTERS + j) * 2);
}

// A dimension of a row, from what the blocks have found for one part.
DEVICE float finish_part(const float* inbox, const float* stats, int i, Float2& weighs) {
    float most = NO_MAXIMUM, total = 0.0f, value = 0.0f;
    Float2 each[ATTENTION_CLUSTER];
    UNROLL for (int other = 0; other < ATTENTION_CLUSTER; other++) {
        each[other] = *(const Float2*)(stats + (other * ROWS + i / OWNED) * 2);
        most = greater(most, each[other].x);
    }
    UNROLL for (int other = 0; other < ATTENTION_CLUSTER; other++) {
        float weight = exp2_fast(each[other].x - most);
        total += each[other].y * weight;
        value += inbox[other * ROWS * OWNED + i] * weight;
    }
    weighs = {most, total};
    return total > 0.0f ? divide(value, total) : 0.0f;
}

// The attention of a team's run, if there is one, to the blocks that own the dimensions.
DEVICE void attend_run(Block& block, const Shelf& shelf, int run, int team, int rank, int position, int length, float scale) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    Part part = {};
    part.most[0] = NO_MAXIMUM;
    if (run * BLOCK_TOKENS < length) {
        u32 queries[1][4][4] = {};
        int last[1] = {g < ROWS ? position : -1};
        if (g < ROWS)
            UNROLL for (int i = 0; i < 4; i++) {
                Words4 w = *(const Words4*)(shelf.fresh + g * HEAD_DIM + 8 * t + 32 * i);
                UNROLL for (int e = 0; e < 4; e++) queries[0][i][e] = w.w[e];
            }
        add_fresh(block, shelf.fresh, run, position);
        float* scores = shelf.scores + team * SCORES;
        warp_sync();
        score_block(block, queries, scores);
        team_sync<TEAM_THREADS>(1 + team);
        warp_sync();
        weigh_block(part, block, scores, run * BLOCK_TOKENS, last, scale, true);
    }
    warp_sync();
    push_part(part, shelf.inbox + team * ROWS * HEAD_DIM, shelf.stats + team * ATTENTION_CLUSTER * ROWS * 2, shelf.all_here, rank);
}

// This block's dimensions of the result, from what all blocks have found: neighbouring lanes have a number's parts.
DEVICE void join_parts(const Shelf& shelf, int parts) {
    static_assert(CLUSTER_PARTS == 2 && ROWS * OWNED * 2 <= GroupProduct::THREADS && ROWS * OWNED % 16 == 0, "lanes for all");
    int i = threadIdx.x / 2, p = threadIdx.x % 2;
    barrier_wait(shelf.all_here, 0);
    if (i < ROWS * OWNED) {
        Float2 weighs = {NO_MAXIMUM, 0.0f};
        float value = 0.0f;
        if (p < parts)
            value = finish_part(shelf.inbox + p * ROWS * HEAD_DIM, shelf.stats + p * ATTENTION_CLUSTER * ROWS * 2, i, weighs);
        warp_sync();
        if (parts > 1) {                                   // as combine_parts does: the first lane has them in their order
            float most = greater(weighs.x, shuffle_xor(weighs.x, 1)), sum = 0.0f, total = 0.0f;
            float weight = multiply(weighs.y, exp2_fast(weighs.x - most));
            UNROLL for (int other = 0; other < CLUSTER_PARTS; other++) {
                float its = shuffle_xor(weight, other);
                sum += shuffle_xor(value, other) * its, total += its;
            }
            value = sum * divide(1.0f, total);
        }
        if (p == 0) shelf.own[i] = value;
    }
    GroupProduct::meet();
}

// To all blocks.
DEVICE void share_mixed(const Shelf& shelf, int rank) {
    const int chunks = ROWS * OWNED / 4;
    for (int i = threadIdx.x; i < chunks * ATTENTION_CLUSTER; i += GroupProduct::THREADS) {
        int chunk = i % chunks, at = chunk * 4;
        cluster_send((Float4*)(shelf.mixed + at / OWNED * HEAD_DIM + rank * OWNED + at % OWNED), i / chunks,
                     *(const Float4*)(shelf.own + at), shelf.mixed_here);
    }
}

DEVICE const u8* share_of(const u8* tiles, int pair) {
    int slice = (threadIdx.x >> 5) % SHARE_WARPS, team = (threadIdx.x >> 5) / SHARE_WARPS;
    return tiles + (team * (SHARE_TILES / SHARE_TEAMS) + 2 * pair) * SHARE_BYTES + slice * (SHARE_BYTES / SHARE_WARPS) +
           (threadIdx.x & 31) * 16;
}
DEVICE void hold_share(const Shelf& shelf, const u8* tiles, HeldShare& held) {
    barrier_wait(shelf.share_here, 0);
    UNROLL for (int p = 0; p < HELD_SHARE_PAIRS; p++)
        UNROLL for (int side = 0; side < 2; side++)
            UNROLL for (int i = 0; i < SHARE_LOADS / 2; i++)
                held.at[p][side][i] = *(const Words4*)(share_of(tiles, p) + side * SHARE_BYTES + i * 512);
}
// This block's rows of the out projection, over the columns of its key head. A warp writes the digits that it reads itself.
DEVICE void project_share(const Shelf& shelf, const u8* tiles, const HeldShare& held, float* share) {
    int lane = threadIdx.x & 31, slice = (threadIdx.x >> 5) % SHARE_WARPS, team = (threadIdx.x >> 5) / SHARE_WARPS;
    int g = lane >> 2, t = lane & 3;
    float most = 0.0f;
    UNROLL for (int i = 0; i < SHARE_COLUMNS / 128; i++) {
        Float4 v = *(const Float4*)(shelf.mixed + (lane + 32 * i) * 4);
        most = greater(most, greater(greater(magnitude(v.x), magnitude(v.y)), greater(magnitude(v.z), magnitude(v.w))));
    }
    UNROLL for (int mask = 16; mask; mask >>= 1) most = greater(most, shuffle_xor(most, mask));
    float to_integer = most > 0.0f ? divide(DIGITS, most) : 0.0f;
    const int pairs = SHARE_COLUMNS / SHARE_WARPS / 2;
    UNROLL for (int i = lane; i < pairs; i += 32) {
        int pair = slice * pairs + i;
        Float2 v = *(const Float2*)(shelf.mixed + 2 * pair);
        u32 a = bits_of_float(multiply_add(v.x, to_integer, ROUNDING));
        u32 b = bits_of_float(multiply_add(v.y, to_integer, ROUNDING));
        u16* row = (u16*)shelf.digits + pair;
        row[0] = (u16)permute_bytes(a + 128, b + 128, 0x51);
        row[SHARE_ROW / 2] = (u16)permute_bytes(a, b, 0x40);
    }
    warp_sync();
    u32 right[SHARE_LOADS][2] = {};
    if (g < 2)
        UNROLL for (int i = 0; i < SHARE_LOADS; i++) {
            Words2 w = *(const Words2*)(shelf.digits + g * SHARE_ROW + (slice * SHARE_LOADS + i) * 32 + 8 * t);
            right[i][0] = w.w[0], right[i][1] = w.w[1];
        }
    warp_sync();
    const int each = SHARE_TILES / SHARE_TEAMS;
    UNROLL for (int p = 0; p < each; p += 2) {
        int tile = team * each + p, c[2][4] = {};
        const u8* upper = share_of(tiles, p / 2);
        UNROLL for (int i = 0; i < SHARE_LOADS / 2; i++) {
            bool is_held = p / 2 < HELD_SHARE_PAIRS;
            Words4 a = is_held ? held.at[p / 2][0][i] : *(const Words4*)(upper + i * 512);
            Words4 b = is_held ? held.at[p / 2][1][i] : *(const Words4*)(upper + SHARE_BYTES + i * 512);
            UNROLL for (int s = 0; s < 2; s++)
                mma_s8(c[s], a.w[2 * s], b.w[2 * s], a.w[2 * s + 1], b.w[2 * s + 1], right[2 * i + s][0],
                       right[2 * i + s][1]);
        }
        float* at = shelf.sums + (tile * SHARE_WARPS + slice) * TILE_ROWS + g;
        if (t == 0) {
            at[0] = 256.0f * (float)(c[0][0] + c[1][0]) + (float)(c[0][1] + c[1][1]);
            at[SHARE_WARPS * TILE_ROWS] = 256.0f * (float)(c[0][2] + c[1][2]) + (float)(c[0][3] + c[1][3]);
        }
    }
    team_sync<256>();
    float unit = most * (1.0f / DIGITS);
    for (int i = threadIdx.x; i < SHARE_TILES * TILE_ROWS; i += 256) {
        float total = 0.0f;
        UNROLL for (int s = 0; s < SHARE_WARPS; s++)
            total += shelf.sums[(i / TILE_ROWS * SHARE_WARPS + s) * TILE_ROWS + i % TILE_ROWS];
        share[i] = multiply(total, unit);
    }
}

// All tiles of the block at once, into the product's sums.
DEVICE void multiply_group(GroupProduct& product, const HeldGroup& held) {
    static_assert(GroupProduct::KEPT && GROUP_TILES % 2 == 0, "activations are in registers, tiles in pairs");
    Right kept[GroupProduct::KEPT];
    GroupProduct::Sum total[GROUP_TILES / 2][COLUMN_TILES][4];
    UNROLL for (int i = 0; i < GroupProduct::KEPT; i++) kept[i] = product.load_right(i);
    warp_sync();
    UNROLL for (int p = 0; p < GROUP_TILES / 2; p++) {
        auto piece = [&](int side, int i) {
            return p < HELD_PAIRS ? held.at[p % HELD_PAIRS][side][i] : product.piece_of(product.own(2 * p + side), i);
        };
        product.multiply_pieces([&](int i) { return piece(0, i); }, [&](int i) { return piece(1, i); }, kept, total[p]);
    }
    UNROLL for (int p = 0; p < GROUP_TILES / 2; p++) product.store_sums(product.sums, 2 * p, 2, total[p]);
    GroupProduct::meet();
}

// grid (KV_HEADS * ATTENTION_CLUSTER), clusters along x; shares: [KV_HEADS][HIDDEN], to be scaled and added to x
KERNEL(256, 1)
cluster_attention(const State* state, const float* x, const float* gain, const u8* weights, const float* scales,
                  const float* bias, const Float2* rotation, const int* pages, Kv* kv, int parts,
                  float epsilon, const u8* out_weights, float* shares, u32* arrived, float score_scale) {
    SHARED_MEMORY(shared);
    int kv_head = blockIdx.x / ATTENTION_CLUSTER, rank = cluster_rank();
    u8* out_tiles = shared;
    GroupProduct product(GroupRing(shared + SHARE_TILES * SHARE_BYTES), weights, GROUP_TILES, 0, 1, 0);
    const int before = SHARE_TILES * SHARE_BYTES + GROUP_TILES * (GroupProduct::TILE_BYTES + 16) + 16 + GroupProduct::BYTES;
    Shelf shelf(shared + ALIGNED(before));
    if (!IS_LATE(QKV)) let_next_start();
    if (threadIdx.x == 0) {
        barrier_expect(shelf.fresh_here, GROUP_TILES * HEAD_DIM * 2);
        barrier_expect(shelf.all_here, parts * 4 * (ROWS * HEAD_DIM + ATTENTION_CLUSTER * ROWS * 2));
        barrier_expect(shelf.mixed_here, 4 * ROWS * HEAD_DIM);
        barrier_init(shelf.share_here, SHARE_TILES);
        for (int tile = 0; tile < GROUP_TILES; tile++) barrier_init(product.ring.full + tile, 1);
        barriers_ready();
        for (int tile = 0; tile < GROUP_TILES; tile++)
            product.ring.bring(tile, weights + (u64)tile_of_group(kv_head, rank * GROUP_TILES + tile) * GroupProduct::TILE_BYTES,
                               GroupProduct::TILE_BYTES);
        for (int tile = 0; tile < SHARE_TILES; tile++)
            bulk_load(out_tiles + tile * SHARE_BYTES,
                      out_weights + ((u64)(rank * SHARE_TILES + tile) * KV_HEADS + kv_head) * SHARE_BYTES, SHARE_BYTES,
                      shelf.share_here);
    }
    cluster_sync();                                        // all blocks are there to be written to
    int team = threadIdx.x / TEAM_THREADS, run = team * ATTENTION_CLUSTER + rank;
    int position = load_fresh(&state->position), length = position + load_fresh(&state->count);
    Block block;
    clear_keys(block);
    clear_values(block);
    if (team < parts) load_block(block, kv, Pages(pages, run, position), kv_head, run, 0, position);
    Float2 gains[GroupProduct::PAIRS];
    product.load_gain(gain, gains);
    GroupItem item(state, scales, bias, rotation, pages, kv, kv_head, rank);
    if ((threadIdx.x & 31) < GROUP_TILES) product.ring.take(threadIdx.x & 31);
    warp_sync();
    HeldGroup held;
    UNROLL for (int p = 0; p < HELD_PAIRS; p++)
        UNROLL for (int side = 0; side < 2; side++)
            UNROLL for (int i = 0; i < GroupProduct::PIECES; i++)
                held.at[p][side][i] = product.piece_of(product.own(2 * p + side), i);
    wait_for_previous();
    if (IS_LATE(QKV)) let_next_start();
    if (blockIdx.x == 0 && threadIdx.x < DOWN_SPLIT) arrived[threadIdx.x * LINE_WORDS] = 0;  // for feed.cuh
    if (blockIdx.x == 0 && threadIdx.x == DOWN_SPLIT) arrived[DOWN_SPLIT * LINE_WORDS]++;
    product.normalise(x, gains, epsilon);
    multiply_group(product, held);
    if (item.is_real) {
        int slot = threadIdx.x / 4, r = threadIdx.x % 4;
        Float2 v = {product.sum(product.sums, slot, 0, r) * item.scale[0] + item.bias[0],
                    product.sum(product.sums, slot, 0, r + 4) * item.scale[1] + item.bias[1]};
        if (item.turns) v = turned_by(item.turn, v.x, v.y);
        u16 low = (u16)pack_bf16(v.x, 0.0f), high = (u16)pack_bf16(v.y, 0.0f);
        shelf.made[slot * 8 + r] = low, shelf.made[slot * 8 + 4 + r] = high;
        if (item.out) item.out[0] = low, item.out[HEAD_DIM / 2] = high;
    }
    GroupProduct::meet();
    for (int i = threadIdx.x; i < GROUP_TILES * 2 * ATTENTION_CLUSTER; i += GroupProduct::THREADS) {
        int chunk = i % (GROUP_TILES * 2), t = rank * GROUP_TILES + chunk / 2;
        u16* to = shelf.fresh + t / HEAD_SLOTS * HEAD_DIM + chunk % 2 * (HEAD_DIM / 2) + t % HEAD_SLOTS * 4;
        cluster_send((Float2*)to, i / (GROUP_TILES * 2), *(const Float2*)(shelf.made + chunk * 4), shelf.fresh_here);
    }
    HeldShare held_share;
    hold_share(shelf, out_tiles, held_share);              // while q, k, v come
    barrier_wait(shelf.fresh_here, 0);
    if (team < parts) attend_run(block, shelf, run, team, rank, position, length, score_scale);
    join_parts(shelf, parts);
    share_mixed(shelf, rank);
    barrier_wait(shelf.mixed_here, 0);
    warp_sync();
    project_share(shelf, out_tiles, held_share, shares + kv_head * HIDDEN + rank * SHARE_TILES * TILE_ROWS);
}
#endif
