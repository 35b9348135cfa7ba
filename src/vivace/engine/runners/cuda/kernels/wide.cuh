// What stands between the products of many rows (rows/product.py): residual, norm and digits; rotation and the pages;
// SiLU; the choice. The products of the other passes do this for themselves, in every block; with 32 rows or more that
// takes longer than a kernel of its own. Numbers and order are those of product.cuh and projections.cuh, so that a
// row comes out the same to the bit. A product leaves raw sums [parts][TOKENS][weight rows]; digits are
// [2][TOKENS][columns], the high ones first, columns in the order of the weights. One block of 256 threads a row.

#if WIDE
#define PICK_BLOCKS 16

// Where column c of a row lies: within 64, as weights/layout.py has it.
DEVICE int lying(int c) { return c / 64 * 64 + c % 32 / 8 * 16 + c % 64 / 32 * 8 + c % 8; }
DEVICE void write_digits(u8* digits, int row, int columns, int pair, Float2 v, float to_integer) {
    u32 a = bits_of_float(multiply_add(v.x, to_integer, ROUNDING));  // the integer is the low half
    u32 b = bits_of_float(multiply_add(v.y, to_integer, ROUNDING));
    u8* at = digits + (u64)row * columns + lying(2 * pair);
    *(u16*)at = (u16)permute_bytes(a + 128, b + 128, 0x51);
    *(u16*)(at + (u64)TOKENS * columns) = (u16)permute_bytes(a, b, 0x40);
}

// Sum and greatest over the block: warps are added in their order.
DEVICE Float2 over_block(float squares, float most, float* scratch) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    UNROLL for (int mask = 16; mask; mask >>= 1) {
        squares += shuffle_xor(squares, mask);
        most = greater(most, shuffle_xor(most, mask));
    }
    if (lane == 0) *(Float2*)(scratch + 2 * warp) = {squares, most};
    block_sync();
    Float2 all = {0.0f, 0.0f};
    UNROLL for (int w = 0; w < 8; w++) {
        Float2 each = *(const Float2*)(scratch + 2 * w);
        all.x += each.x;
        all.y = greater(all.y, each.y);
    }
    return all;
}
DEVICE float digits_of_one(float most) { return most > 0.0f ? divide(DIGITS, most) : 0.0f; }

// x += what a product found (`parts` sums of a row, each with its scale); then the digits of rms_norm(x) * gain
KERNEL(256, 2) add_and_norm(float* x, const float* sums, int parts, const float* sum_scales, const float* row_scales,
                            const float* gain, u8* digits, float* scales, float epsilon) {
    SHARED_MEMORY(shared);
    const int pairs = HIDDEN / 512;
    int token = blockIdx.x;
    Float2 row[pairs];
    wait_for_previous();
    UNROLL for (int j = 0; j < pairs; j++) {
        int pair = threadIdx.x + 256 * j;
        Float2* at = (Float2*)(x + (u64)token * HIDDEN) + pair;
        row[j] = load_fresh(at);
        if (!parts) continue;
        Float2 total = {0.0f, 0.0f}, unit = *((const Float2*)row_scales + pair);
        for (int part = 0; part < parts; part++) {
            Float2 sum = load_fresh((const Float2*)(sums + ((u64)part * TOKENS + token) * HIDDEN) + pair);
            float scale = load_fresh(sum_scales + token * parts + part);
            total = {total.x + multiply(sum.x, scale), total.y + multiply(sum.y, scale)};
        }
        row[j] = {row[j].x + total.x * unit.x, row[j].y + total.y * unit.y};
        *at = row[j];
    }
    float squares = 0.0f, most = 0.0f;
    UNROLL for (int j = 0; j < pairs; j++) {
        Float2& v = row[j];
        Float2 g = *((const Float2*)gain + threadIdx.x + 256 * j);
        squares += squared(v);
        v = {v.x * g.x, v.y * g.y};
        most = greater(most, greater(magnitude(v.x), magnitude(v.y)));
    }
    Float2 all = over_block(squares, most, (float*)shared);
    float unit = rsqrt_fast(all.x * (1.0f / HIDDEN) + epsilon), to_integer = digits_of_one(all.y);
    if (threadIdx.x == 0) scales[token] = all.y * (1.0f / DIGITS) * unit;
    UNROLL for (int j = 0; j < pairs; j++)
        write_digits(digits, token, HIDDEN, threadIdx.x + 256 * j, row[j], to_integer);
}

// q, k, v from their sums, rows in the order of the tiles: bias, rotation; q to its buffer, k and v into their page
KERNEL(256, 2) place_rows(const Row* rows, const float* sums, const float* sum_scales, const float* row_scales,
                          const float* bias, const Float2* rotation, const int* pages, u16* q, Kv* kv PLACE_GAIN) {
    const int heads = HEADS + 2 * KV_HEADS, half = HEAD_DIM / 2;
    int token = blockIdx.x;
    wait_for_previous();
    if (!IS_REAL(rows, 0, token)) return;
    int at = POSITION_OF(rows, 0, token), page = PAGE_OF(rows, pages, token, at), place = at % PAGE_TOKENS;
    float scale = load_fresh(sum_scales + token);
#if QK_NORM
    SHARED_MEMORY(shared);
    float* squares = (float*)shared;
    square_heads(squares, [&](int head, int low) {
        int row = (head * 16 + low / 4) * TILE_ROWS + low % 4;
        const float* own = sums + (u64)token * heads * HEAD_DIM + row;
        return Float2{load_fresh(own) * scale * row_scales[row] + bias[row],
                      load_fresh(own + 4) * scale * row_scales[row + 4] + bias[row + 4]};
    });
#endif
    for (int i = threadIdx.x; i < heads * half; i += 256) {
        int head = i / half, low = i % half, row = (head * 16 + low / 4) * TILE_ROWS + low % 4;
        const float* own = sums + (u64)token * heads * HEAD_DIM + row;
        float a = load_fresh(own) * scale * row_scales[row] + bias[row];
        float b = load_fresh(own + 4) * scale * row_scales[row + 4] + bias[row + 4];
#if QK_NORM
        if (head < HEADS + KV_HEADS) {
            float unit = head_unit(squares + head * HEAD_TILES, 1, epsilon);
            a = normalised(a, unit, head_gain[row]);
            b = normalised(b, unit, head_gain[row + 4]);
        }
#endif
        Float2 turn = rotation[(u64)at * half + low];
        Float2 turned = turned_by(turn, a, b);
        if (head < HEADS + KV_HEADS) a = turned.x, b = turned.y;
        int is_value = head >= HEADS + KV_HEADS, kv_head = (head - HEADS) % KV_HEADS;
#if KV_BITS == 8
        if (head >= HEADS) {  // as all of this warp
            keep_group(a, b, low % 8, kv + byte_row(page, is_value, kv_head, place) + low / 8 * 16,
                       (u16*)(kv + scale_at(page, is_value, kv_head, place, low / 8)));
            continue;
        }
        u16* out = q + ((u64)token * HEADS + head) * HEAD_DIM + low;
#else
        u16* out = low + (head < HEADS ? q + ((u64)token * HEADS + head) * HEAD_DIM
                                       : kv + kv_row(page, is_value, kv_head, place));
#endif
        out[0] = (u16)pack_bf16(a, 0.0f);
        out[half] = (u16)pack_bf16(b, 0.0f);
    }
}

// The digits of the attention, whose parts are combined first. grid (rows, OUT_PARTS): columns with a scale of their own
template <int parts> DEVICE void stage_attention(const float* part, const Float2* part_stats, u8* digits, float* scales,
                                                 float* scratch) {
    const int columns = HEADS * HEAD_DIM, own_pairs = columns / OUT_PARTS / 2, pairs = (own_pairs + 255) / 256;
    int token = blockIdx.x, first = blockIdx.y * own_pairs;
    Float2 row[pairs] = {};
    float most = 0.0f;
    UNROLL for (int j = 0; j < pairs; j++) {
        int own = threadIdx.x + 256 * j;
        if (own < own_pairs) row[j] = combine_parts<parts>(part, part_stats, token, first + own);
    }
    UNROLL for (int j = 0; j < pairs; j++) most = greater(most, greater(magnitude(row[j].x), magnitude(row[j].y)));
    most = over_block(0.0f, most, scratch).y;
    if (threadIdx.x == 0) scales[token * OUT_PARTS + blockIdx.y] = most * (1.0f / DIGITS);
    UNROLL for (int j = 0; j < pairs; j++) {
        int own = threadIdx.x + 256 * j;
        if (own < own_pairs) write_digits(digits, token, columns, first + own, row[j], digits_of_one(most));
    }
}
KERNEL(256, 2) stage_parts_of_rows(const float* part, const Float2* part_stats, int parts, u8* digits, float* scales) {
    SHARED_MEMORY(shared);
    float* scratch = (float*)shared;
    wait_for_previous();
    switch (parts) {
        case 1: stage_attention<1>(part, part_stats, digits, scales, scratch); break;
        case 2: stage_attention<2>(part, part_stats, digits, scales, scratch); break;
        case 4: stage_attention<4>(part, part_stats, digits, scales, scratch); break;
        default: stage_attention<8>(part, part_stats, digits, scales, scratch);
    }
}

// The digits of silu(gate) * up. grid (rows, DOWN_PARTS): a part of the columns has a scale of its own
KERNEL(256, 2) silu_digits(const float* sums, const float* sum_scales, const float* row_scales, u8* digits,
                           float* scales) {
    SHARED_MEMORY(shared);
    const int part_pairs = DOWN_COLUMNS / DOWN_PARTS / 2, pairs = (part_pairs + 255) / 256;
    int token = blockIdx.x, part = blockIdx.y;
    Float2 h[pairs];
    float most = 0.0f;
    wait_for_previous();
    float scale = load_fresh(sum_scales + token);
    UNROLL for (int j = 0; j < pairs; j++) {
        int own = threadIdx.x + 256 * j, column = 2 * (part * part_pairs + own);
#if DOWN_COLUMNS > FFN
        h[j] = {0.0f, 0.0f};
        if (column >= FFN) continue;
#endif
        if (own >= part_pairs) continue;
        int row = column / 4 * TILE_ROWS + column % 4;
        const float* at = sums + (u64)token * 2 * FFN + row;
        Float2 gate = load_fresh((const Float2*)at), up = load_fresh((const Float2*)(at + 4));
        Float2 gate_unit = *(const Float2*)(row_scales + row), up_unit = *(const Float2*)(row_scales + row + 4);
        gate = {gate.x * scale * gate_unit.x, gate.y * scale * gate_unit.y};
        up = {up.x * scale * up_unit.x, up.y * scale * up_unit.y};
        h[j] = {divide(gate.x, 1.0f + exp2_fast(-LOG2_E * gate.x)) * up.x,
                divide(gate.y, 1.0f + exp2_fast(-LOG2_E * gate.y)) * up.y};
        most = greater(most, greater(magnitude(h[j].x), magnitude(h[j].y)));
    }
    most = over_block(0.0f, most, (float*)shared).y;
    if (threadIdx.x == 0) scales[token * DOWN_PARTS + part] = most * (1.0f / DIGITS);
    UNROLL for (int j = 0; j < pairs; j++) {
        int own = threadIdx.x + 256 * j;
        if (own < part_pairs) write_digits(digits, token, DOWN_COLUMNS, part * part_pairs + own, h[j], digits_of_one(most));
    }
}

// The best token of some of the head's rows. grid (rows, PICK_BLOCKS)
KERNEL(256, 2) pick(const Row* rows, const float* sums, const float* sum_scales, const float* row_scales, int count,
                    float* logits, float* best_score, int* best_token) {
    SHARED_MEMORY(shared);
    float* scores = (float*)shared;             // [256]
    int* tokens = (int*)(scores + 256);         // [256]
    int token = blockIdx.x;
    wait_for_previous();
    float temperature = load_fresh(&rows[token].temperature), scale = load_fresh(sum_scales + token);
    Key key = key_of((u64)(u32)load_fresh(rows[token].seed + 1) << 32 | (u32)load_fresh(rows[token].seed),
                     POSITION_OF(rows, 0, token) + 1);
    int logits_row = load_fresh(&rows[token].logits) - 1;
    Best best = {minus_infinity(), VOCAB};
    const float* own = sums + (u64)token * count;
    for (int row = blockIdx.y * 256 + threadIdx.x; row < VOCAB; row += PICK_BLOCKS * 256) {
        float score = load_fresh(own + row) * scale * row_scales[row];
        if (logits_row >= 0) logits[(u64)logits_row * VOCAB + row] = score;
        if (temperature > 0.0f) score = score / temperature + gumbel(key, row);
        if (is_better(score, row, best)) best = {score, row};
    }
    scores[threadIdx.x] = best.score;
    tokens[threadIdx.x] = best.token;
    block_sync();
    if (threadIdx.x >= 32) return;
    for (int i = threadIdx.x; i < 256; i += 32)
        if (is_better(scores[i], tokens[i], best)) best = {scores[i], tokens[i]};
    UNROLL for (int mask = 16; mask; mask >>= 1) {
        float score = shuffle_xor(best.score, mask);
        int row = shuffle_xor(best.token, mask);
        if (is_better(score, row, best)) best = {score, row};
    }
    if (threadIdx.x) return;
    best_score[token * PICK_BLOCKS + blockIdx.y] = best.score;
    best_token[token * PICK_BLOCKS + blockIdx.y] = best.token;
}
#endif
