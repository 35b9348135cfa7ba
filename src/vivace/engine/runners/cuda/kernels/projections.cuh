// The five products of the decoder: what comes before each (norm, combining the attention's parts) and what comes
// after (bias, rotation, the KV write; residual; SiLU; logits). Weight rows are in the order of layout.py: a tile
// holds 4 rows and their 4 partners (rotation: dimension + 64; gate: up), so pairs meet in one thread.
// All of x, q, h are [tokens][…]; blockIdx.y picks sixteen tokens.

template <int ID, int COLUMNS_OF_W, int SLOTS, int WARPS = HIDDEN_WARPS, int WIDTH = BITS>
using TileRing = Ring<ID, tile_bytes(COLUMNS_OF_W, WIDTH), SLOTS, WARPS>;
typedef TileRing<QKV, HIDDEN, QKV_STAGES> QkvRing;
typedef TileRing<OUT, HEADS * HEAD_WIDTH, O_STAGES, 8> OutRing;
#if !EXPERTS
typedef TileRing<GATE_UP, HIDDEN, UP_STAGES> UpRing;
typedef TileRing<DOWN, DOWN_COLUMNS / DOWN_SPLIT, DOWN_STAGES, DOWN_WARPS> DownRing;
#endif
typedef TileRing<HEAD, HIDDEN, HEAD_STAGES, HIDDEN_WARPS, HEAD_BITS> HeadRing;
typedef Product<QkvRing, HIDDEN, 1, HIDDEN_WARPS, QKV_TILES, 1, BITS, true> QkvProduct;
typedef Product<OutRing, HEADS * HEAD_WIDTH, 1, 8, O_TILES, OUT_PARTS, BITS, true> OutProduct;
#if !EXPERTS
typedef Product<UpRing, HIDDEN, 1, 8, UP_GROUP> UpProduct;
typedef Product<DownRing, DOWN_COLUMNS, DOWN_SPLIT, DOWN_WARPS, DOWN_GROUP, DOWN_PARTS / DOWN_SPLIT> DownProduct;
#endif
typedef Product<HeadRing, HIDDEN, 1, HIDDEN_WARPS, HEAD_GROUP, 1, HEAD_BITS> HeadProduct;

#if !WIDE  // there the products are Triton's
// What one thread will do with its pair of sums; all of it is known before the wait.
struct QkvItem {
    int slot, token, r;
    bool is_real, turns;
    float scale[2], bias[2];
    Float2 turn;  // cosine, sine
#if QK_NORM
    float gain[2];
#endif
    u16* out;
#if KV_BITS == 8
    u8* group;    // where k and v go to
    u16* group_scale;
#endif
};

#if QK_NORM
// The blocks of a head are a cluster: each sends the squares of its tiles to all of them.
#define QKV_CLUSTER (HEAD_TILES / QKV_TILES)
struct HeadSquares {
    u64* all_here;
    float* squares;  // [HEAD_TILES][TILE_TOKENS]

    DEVICE HeadSquares(float* shared) : all_here((u64*)shared), squares(shared + 4) {
        if (threadIdx.x == 0) barrier_expect(all_here, HEAD_TILES * TILE_TOKENS * 4);
        barriers_ready();
        cluster_sync();  // all blocks are there to be written to
    }
    DEVICE void send(const QkvItem& item, Float2 v) {
        float own = tile_squares(v.x, v.y);
        int tile = (QKV_CLUSTER > 1 ? cluster_rank() : 0) * QKV_TILES + item.slot;
        if (item.slot < QKV_TILES)
            for (int rank = item.r; rank < QKV_CLUSTER; rank += 4)
                cluster_send(squares + tile * TILE_TOKENS + item.token, rank, own, all_here);
    }
    DEVICE void normalise(const QkvItem& item, Float2& v, float epsilon) {
        barrier_wait(all_here, 0);
        float unit = head_unit(squares + item.token, TILE_TOKENS, epsilon);
        v = {normalised(v.x, unit, item.gain[0]), normalised(v.y, unit, item.gain[1])};
    }
};
#endif

// q, k, v of the new tokens: norm, product, bias, rotation; q to its buffer, k and v into their page.
KERNEL(HIDDEN_WARPS * 32 + 32, NEIGHBOURS(2))
qkv(const Place* state, const float* x, const float* gain, const u8* weights, const float* scales, const float* bias,
    const Float2* rotation, const int* pages, u16* q, Kv* kv, float epsilon HEAD_GAIN) {
    SHARED_MEMORY(shared);
    const int each = (QKV_TILES * TILE_TOKENS * 4 + 255) / 256;  // items of a thread
    static_assert(each == 1 || KV_BITS == 16, "a group of dimensions is of one round of items");
    static_assert(each == 1 || !QK_NORM || HIDDEN_WARPS == 8, "every item of a head is sent once");
    const int tiles = (HEADS + 2 * KV_HEADS) * HEAD_SLOTS;
    int token0 = blockIdx.y * 16;
    QkvProduct product(QkvRing(shared), weights, tiles, blockIdx.x, gridDim.x, 0);
    product.start();
#if QK_NORM
    HeadSquares heads(product.after());
#endif
    if (product.ring.is_fetcher()) return product.keep_full();
    Float2 gains[QkvProduct::PAIRS];
    product.load_gain(gain, gains);
    QkvItem items[each] = {};
    UNROLL for (int i = 0; i < each; i++) {
        QkvItem& item = items[i];
        int number = threadIdx.x + 256 * i;
#if KV_BITS == 8
        static_assert(QKV_TILES % 2 == 0, "two tiles are a group of dimensions");
        item.slot = number / (TILE_TOKENS * 8) * 2 + number / 4 % 2;
        item.token = number / 8 % TILE_TOKENS;
#else
        item.slot = number / (TILE_TOKENS * 4);
        item.token = number / 4 % TILE_TOKENS;
#endif
        item.r = number % 4;
        item.is_real = (each == 1 || threadIdx.x < 256) && item.slot < product.count && IS_REAL(state, token0, item.token);
        if (!item.is_real) continue;
        int tile = product.first + item.slot, head = tile / HEAD_SLOTS, low = tile % HEAD_SLOTS * 4 + item.r;
        int row = tile * TILE_ROWS + item.r, at = POSITION_OF(state, token0, item.token);
        UNROLL for (int e = 0; e < 2; e++) {
            item.scale[e] = product.row_scale(scales, row + 4 * e);
            item.bias[e] = bias[row + 4 * e];
#if QK_NORM
            item.gain[e] = head_gain[row + 4 * e];
#endif
        }
        item.turns = head < HEADS + KV_HEADS;
        item.turn = rotation[(u64)at * (HEAD_DIM / 2) + low];
        int is_value = head >= HEADS + KV_HEADS, kv_head = (head - HEADS) % KV_HEADS;
#if KV_BITS == 8
        item.out = low + q + ((u64)(token0 + item.token) * HEADS + head) * HEAD_DIM;
        if (head >= HEADS) {
            int page = PAGE_OF(state, pages, token0 + item.token, at), place = at % PAGE_TOKENS;
            item.group = kv + byte_row(page, is_value, kv_head, place) + low / 8 * 16;
            item.group_scale = (u16*)(kv + scale_at(page, is_value, kv_head, place, low / 8));
        }
#else
        item.out = low + (head < HEADS ? q + ((u64)(token0 + item.token) * HEADS + head) * HEAD_DIM
                                       : kv + kv_row(PAGE_OF(state, pages, token0 + item.token, at), is_value, kv_head,
                                                     at % PAGE_TOKENS));
#endif
    }
    product.ring.wait();
    product.normalise(x + (u64)token0 * HIDDEN, gains, epsilon);
    product.run([&](int, int, const float* group) {
        Float2 pairs[each] = {};
        UNROLL for (int i = 0; i < each; i++) {
            const QkvItem& item = items[i];
            if (item.is_real)
                pairs[i] = {product.sum(group, item.slot, item.token, item.r) * item.scale[0] + item.bias[0],
                            product.sum(group, item.slot, item.token, item.r + 4) * item.scale[1] + item.bias[1]};
        }
#if QK_NORM
        warp_sync();
        if (product.first / HEAD_TILES < HEADS + KV_HEADS) {  // all of the block
            UNROLL for (int i = 0; i < each; i++) heads.send(items[i], pairs[i]);
            UNROLL for (int i = 0; i < each; i++) heads.normalise(items[i], pairs[i], epsilon);
        }
#endif
        UNROLL for (int i = 0; i < each; i++) {
            const QkvItem& item = items[i];
            Float2 v = pairs[i];
            if (item.turns) v = turned_by(item.turn, v.x, v.y);
#if KV_BITS == 8
            warp_sync();
            if (product.first / HEAD_SLOTS >= HEADS) {  // all of the block is in one head
                keep_group(v.x, v.y, item.slot % 2 * 4 + item.r, item.group, item.group_scale);
                continue;
            }
#endif
            if (!item.is_real) continue;
            item.out[0] = (u16)pack_bf16(v.x, 0.0f);
            item.out[HEAD_DIM / 2] = (u16)pack_bf16(v.y, 0.0f);
            if (HEAD_WIDTH < HEAD_DIM) item.out[HEAD_WIDTH / 2] = item.out[HEAD_DIM / 2 + HEAD_WIDTH / 2] = 0;
        }
    });
}

#endif

// Two neighbouring dimensions of one token's attention, from its parts: each counts for 2^most * total of its own.
template <int parts> DEVICE Float2 combine_parts(const float* part, const Float2* part_stats, int token, int pair) {
    Float2 stats[parts], value[parts], sum = {0.0f, 0.0f};
    const int width = HEAD_WIDTH / 2;
    int lying = width < 64 ? pair % width % (width / 2) + pair % width / (width / 2) * (HEAD_DIM / 4) : pair % width;
    UNROLL for (int p = 0; p < parts; p++) {
        u64 row = ((u64)p * TOKENS + token) * HEADS + pair / width;
        if (parts > 1) stats[p] = load_fresh(part_stats + row * STATS_STRIDE);
        value[p] = load_fresh((const Float2*)(part + row * HEAD_DIM) + lying);
    }
    if (parts == 1) return value[0];
#if BATCH  // a row may have fewer parts: below 0 is the total of one that is not there. No branch: loads would wait
    bool is_only = stats[parts > 1].y < 0.0f;
    UNROLL for (int p = 0; p < parts; p++) {
        bool is_there = stats[p].y >= 0.0f;
        stats[p] = {is_there ? stats[p].x : NO_MAXIMUM, is_there ? stats[p].y : 0.0f};
        if (p) value[p] = {is_there ? value[p].x : 0.0f, is_there ? value[p].y : 0.0f};
    }
#endif
    float most = NO_MAXIMUM, total = 0.0f;
    UNROLL for (int p = 0; p < parts; p++) most = greater(most, stats[p].x);
    UNROLL for (int p = 0; p < parts; p++) {
        float weight = multiply(stats[p].y, exp2_fast(stats[p].x - most));
        sum = {sum.x + value[p].x * weight, sum.y + value[p].y * weight};
        total += weight;
    }
    float inverse = divide(1.0f, total);
#if BATCH
    return {is_only ? value[0].x : sum.x * inverse, is_only ? value[0].y : sum.y * inverse};
#else
    return {sum.x * inverse, sum.y * inverse};
#endif
}
#if !WIDE
template <int parts>
DEVICE void stage_parts(OutProduct& product, const float* part, const Float2* part_stats, int token0) {
    product.stage<false>(
        [&](int token, int pair) { return combine_parts<parts>(part, part_stats, token0 + token, pair); }, nullptr,
        0.0f);
}

// x += W_o · attention. The parts of the attention are combined first: every block does it for itself.
KERNEL(288, NEIGHBOURS(2)) out_projection(const float* part, const Float2* part_stats, int parts, const u8* weights,
                                          const float* scales, float* x BIAS) {
    SHARED_MEMORY(shared);
    const int all_items = O_TILES * TILE_TOKENS * TILE_ROWS, items = (all_items + 255) / 256;  // of a thread
    int token0 = blockIdx.y * 16;
    OutProduct product(OutRing(shared), weights, HIDDEN / TILE_ROWS, blockIdx.x, gridDim.x, 0);
    product.start();
    if (product.ring.is_fetcher()) return product.keep_full();
    float scale[items], before[items];
    float* out[items];
    UNROLL for (int j = 0; j < items; j++) {
        int i = threadIdx.x + 256 * j, slot = i / (TILE_TOKENS * TILE_ROWS), token = i / TILE_ROWS % TILE_TOKENS;
        int row = (product.first + slot) * TILE_ROWS + i % TILE_ROWS;
        out[j] = slot < product.count ? x + (u64)(token0 + token) * HIDDEN + row : nullptr;
        scale[j] = out[j] ? product.row_scale(scales, row) : 0.0f;
    }
    product.ring.wait();
    UNROLL for (int j = 0; j < items; j++) before[j] = out[j] ? load_fresh(out[j]) : 0.0f;
#if OSS
    UNROLL for (int j = 0; j < items; j++) if (out[j]) before[j] += more_bias[(out[j] - x) % HIDDEN];
#endif
    switch (parts) {
        case 1: stage_parts<1>(product, part, part_stats, token0); break;
        case 2: stage_parts<2>(product, part, part_stats, token0); break;
        case 4: stage_parts<4>(product, part, part_stats, token0); break;
        default: stage_parts<8>(product, part, part_stats, token0);
    }
    product.run([&](int, int, const float* group) {
        UNROLL for (int j = 0; j < items; j++) {
            int i = threadIdx.x + 256 * j, slot = i / (TILE_TOKENS * TILE_ROWS), token = i / TILE_ROWS % TILE_TOKENS;
            if (!out[j]) continue;
            float total = product.sum(group, slot, token, i % TILE_ROWS);
            UNROLL for (int part = 1; part < OUT_PARTS; part++) total += product.sum(group, slot, token, i % TILE_ROWS, part);
            *out[j] = before[j] + total * scale[j];
        }
    });
}

#if !EXPERTS
DEVICE float gated(float gate, float up) { return divide(gate, 1.0f + exp2_fast(-LOG2_E * gate)) * up; }

// h = silu(gate) * up; columns of h past FFN stay 0
KERNEL(288, NEIGHBOURS(3))
gate_up(const float* x, const float* gain, const u8* weights, const float* scales, float* h, float epsilon) {
    SHARED_MEMORY(shared);
    int token0 = blockIdx.y * 16;
    UpProduct product(UpRing(shared), weights, 2 * FFN / TILE_ROWS, blockIdx.x, gridDim.x, 0);
    product.start();
    if (HAS_DIGITS) product.expect(scales);
    if (product.ring.is_fetcher()) return product.keep_full();
    Float2 gains[UpProduct::PAIRS];
    product.load_gain(gain, gains);
    product.ring.wait();
    product.normalise(x + (u64)token0 * HIDDEN, gains, epsilon);
    product.run([&](int base, int n, const float* group) {
        NO_UNROLL for (int i = threadIdx.x; i < n * TILE_TOKENS * 4; i += UpProduct::THREADS) {
            int slot = i / (TILE_TOKENS * 4), token = i / 4 % TILE_TOKENS, r = i % 4;
            int tile = product.first + base + slot, row = tile * TILE_ROWS + r;
            float gate = product.sum(group, slot, token, r) * product.row_scale(scales, row);
            float up = product.sum(group, slot, token, r + 4) * product.row_scale(scales, row + 4);
            h[(u64)(token0 + token) * DOWN_COLUMNS + tile * 4 + r] = gated(gate, up);
        }
    });
}

// The down projection. A cluster of DOWN_SPLIT blocks shares the columns. Sums are taken over DOWN_PARTS equal parts of
// the columns and added in their order, however many blocks and warps that is; each block finishes some rows.
#if DOWN_PARTS > 4  // there is no room for more than the rows of this block
#define IN_INBOX(item) ((item) / DOWN_SPLIT)
#else
#define IN_INBOX(item) item
#endif
struct Inbox {
    u64* is_full;
    float* sums;  // [DOWN_PARTS][tiles of this block][TILE_TOKENS][TILE_ROWS]

    DEVICE Inbox(float* shared, int items) : is_full((u64*)shared), sums(shared + 4) {
        if (threadIdx.x == 0) barrier_expect(is_full, DOWN_PARTS * items / DOWN_SPLIT * 4);
        barriers_ready();
        cluster_sync();  // all blocks are there to be written to
    }
};
DEVICE void send_sums(DownProduct& product, const float* h, const Inbox& inbox, int token0, int rank) {
    const int parts = DOWN_PARTS / DOWN_SPLIT;  // of this block
    int items = product.count * TILE_TOKENS * TILE_ROWS;
    const float* slice = h + (u64)token0 * DOWN_COLUMNS + rank * DownProduct::SLICE;
    product.stage<false>(
        [&](int token, int pair) { return load_fresh((const Float2*)(slice + (u64)token * DOWN_COLUMNS) + pair); }, nullptr,
        0.0f);
    product.run([&](int base, int n, const float* group) {
        NO_UNROLL for (int i = threadIdx.x; i < n * TILE_TOKENS * TILE_ROWS * parts; i += DownProduct::THREADS) {
            int part = i % parts, item = i / parts;
            int slot = item / (TILE_TOKENS * TILE_ROWS), token = item / TILE_ROWS % TILE_TOKENS, r = item % TILE_ROWS;
            float* at = inbox.sums + (rank * parts + part) * IN_INBOX(items) +
                        IN_INBOX(base * TILE_TOKENS * TILE_ROWS + item);
            cluster_send(at, r % DOWN_SPLIT, product.sum(group, slot, token, r, part), inbox.is_full);
        }
    });
}
DEVICE void add_sums(DownProduct& product, const Inbox& inbox, const float* scales, float* x, int token0, int rank) {
    barrier_wait(inbox.is_full, 0);
    int items = product.count * TILE_TOKENS * TILE_ROWS;
    NO_UNROLL for (int i = threadIdx.x * DOWN_SPLIT + rank; i < items; i += (DownProduct::THREADS + 32) * DOWN_SPLIT) {
        int token = i / TILE_ROWS % TILE_TOKENS;
        int row = (product.first + i / (TILE_TOKENS * TILE_ROWS)) * TILE_ROWS + i % TILE_ROWS;
        float* at = x + (u64)(token0 + token) * HIDDEN + row;
        float total = 0.0f, before = load_fresh(at);
        UNROLL for (int part = 0; part < DOWN_PARTS; part++)
            total += inbox.sums[part * IN_INBOX(items) + IN_INBOX(i)];
        *at = before + total * product.row_scale(scales, row);
    }
}

// x += W_down · h
KERNEL(DOWN_WARPS * 32 + 32, NEIGHBOURS(DOWN_BLOCKS))
down_projection(const float* h, const u8* weights, const float* scales, float* x) {
    SHARED_MEMORY(shared);
    int token0 = blockIdx.y * 16, rank = DOWN_SPLIT > 1 ? cluster_rank() : 0;
    DownProduct product(DownRing(shared), weights, HIDDEN / TILE_ROWS, blockIdx.x / DOWN_SPLIT, gridDim.x / DOWN_SPLIT,
                        rank);
    product.start();
    if (HAS_DIGITS) product.expect(scales);
    Inbox inbox(product.after(), product.count * TILE_TOKENS * TILE_ROWS);
    if (product.ring.is_fetcher()) product.keep_full();
    else {
        product.ring.wait();
        send_sums(product, h, inbox, token0, rank);
    }
    add_sums(product, inbox, scales, x, token0, rank);
}
#endif
#endif
