// What a prefill does between torch's matrix products, each step one kernel: embedding, residual and norm, rotation
// and the pages, attention, SiLU. The number of tokens and their position are read from the state, so that one
// captured graph serves any chunk up to its size; rows behind the last token compute on and are never stored.

// x[token] = embedding of tokens[token]; one block a token
KERNEL(256, 1) read_tokens(const int* tokens, const u32* table, float* x) {
    embed_row(table, load_fresh(tokens + blockIdx.x), x + (u64)blockIdx.x * HIDDEN);
}

// x += delta (unless it is the first layer's), y = rms_norm(x) * gain; one block a row
KERNEL(256, 4) add_norm(float* x, const u32* delta, int has_delta, const Float2* gain, u32* y, float epsilon) {
    SHARED_MEMORY(shared);
    float* squares = (float*)shared;  // [8]
    const int pairs = (HIDDEN + 511) / 512;
    auto is_there = [](int j) { return HIDDEN % 512 == 0 || threadIdx.x + 256 * j < HIDDEN / 2; };
    Float2 row[pairs];
    float mine = 0.0f;
    UNROLL for (int j = 0; j < pairs; j++) {
        if (!is_there(j)) continue;
        u64 at = (u64)blockIdx.x * (HIDDEN / 2) + threadIdx.x + 256 * j;
        row[j] = *((Float2*)x + at);
        if (has_delta) {
            u32 more = delta[at];
            row[j] = {row[j].x + bf16_low(more), row[j].y + bf16_high(more)};
            *((Float2*)x + at) = row[j];
        }
        mine += squared(row[j]);
    }
    UNROLL for (int mask = 16; mask; mask >>= 1) mine += shuffle_xor(mine, mask);
    if ((threadIdx.x & 31) == 0) squares[threadIdx.x >> 5] = mine;
    block_sync();
    float total = 0.0f;
    UNROLL for (int warp = 0; warp < 8; warp++) total += squares[warp];
    float unit = rsqrt_fast(total * (1.0f / HIDDEN) + epsilon);
    UNROLL for (int j = 0; j < pairs; j++) {
        if (!is_there(j)) continue;
        Float2 g = gain[threadIdx.x + 256 * j];
        y[(u64)blockIdx.x * (HIDDEN / 2) + threadIdx.x + 256 * j] =
            pack_bf16(row[j].x * unit * g.x, row[j].y * unit * g.y);
    }
}

// ---- the same with 8-bit floats for the products that follow: each row has a scale of its own, beside it.
#define FP8_MOST 448.0f
DEVICE float block_most(float mine, float* shared) {  // over 256 threads
    UNROLL for (int mask = 16; mask; mask >>= 1) mine = greater(mine, shuffle_xor(mine, mask));
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = mine;
    block_sync();
    UNROLL for (int warp = 0; warp < 8; warp++) mine = greater(mine, shared[warp]);
    return mine;
}

// x += delta, y = rms_norm(x) * gain = y8 * scale; one block a row
KERNEL(256, 4) add_norm_fp8(float* x, const u32* delta, const Float2* gain, u16* y8, float* scale, float epsilon) {
    SHARED_MEMORY(shared);
    float* squares = (float*)shared;  // [8], and 8 more
    const int pairs = HIDDEN / 512;
    Float2 row[pairs];
    float mine = 0.0f, most = 0.0f;
    UNROLL for (int j = 0; j < pairs; j++) {
        u64 at = (u64)blockIdx.x * (HIDDEN / 2) + threadIdx.x + 256 * j;
        u32 more = delta[at];
        row[j] = *((Float2*)x + at);
        row[j] = {row[j].x + bf16_low(more), row[j].y + bf16_high(more)};
        *((Float2*)x + at) = row[j];
        mine += squared(row[j]);
        Float2 g = gain[threadIdx.x + 256 * j];
        row[j] = {row[j].x * g.x, row[j].y * g.y};
        most = greater(most, greater(magnitude(row[j].x), magnitude(row[j].y)));
    }
    UNROLL for (int mask = 16; mask; mask >>= 1) mine += shuffle_xor(mine, mask);
    if ((threadIdx.x & 31) == 0) squares[threadIdx.x >> 5] = mine;
    most = block_most(most, squares + 8);
    float total = 0.0f, to_fp8 = most > 0.0f ? divide(FP8_MOST, most) : 0.0f;
    UNROLL for (int warp = 0; warp < 8; warp++) total += squares[warp];
    if (threadIdx.x == 0) scale[blockIdx.x] = most * (1.0f / FP8_MOST) * rsqrt_fast(total * (1.0f / HIDDEN) + epsilon);
    UNROLL for (int j = 0; j < pairs; j++)
        y8[(u64)blockIdx.x * (HIDDEN / 2) + threadIdx.x + 256 * j] = pack_fp8(row[j].x * to_fp8, row[j].y * to_fp8);
}

// silu(gate) * up = h8 * scale; one block a row
KERNEL(256, 2) silu_product_fp8(const u32* rows, u16* h8, float* scale) {
    SHARED_MEMORY(shared);
    const int pairs = (FFN / 2 + 255) / 256;
    const u32* gates = rows + (u64)blockIdx.x * FFN;
    Float2 row[pairs];
    float most = 0.0f;
    UNROLL for (int j = 0; j < pairs; j++) {
        int at = threadIdx.x + 256 * j;
        if (at >= FFN / 2) continue;
        u32 gate = gates[at], up = gates[at + FFN / 2];
        float a = bf16_low(gate), b = bf16_high(gate);
        row[j] = {divide(a, 1.0f + exp2_fast(-LOG2_E * a)) * bf16_low(up),
                  divide(b, 1.0f + exp2_fast(-LOG2_E * b)) * bf16_high(up)};
        most = greater(most, greater(magnitude(row[j].x), magnitude(row[j].y)));
    }
    most = block_most(most, (float*)shared);
    float to_fp8 = most > 0.0f ? divide(FP8_MOST, most) : 0.0f;
    if (threadIdx.x == 0) scale[blockIdx.x] = most * (1.0f / FP8_MOST);
    UNROLL for (int j = 0; j < pairs; j++) {
        int at = threadIdx.x + 256 * j;
        if (at < FFN / 2) h8[(u64)blockIdx.x * (FFN / 2) + at] = pack_fp8(row[j].x * to_fp8, row[j].y * to_fp8);
    }
}

// h = silu(gate) * up, of rows [gate; up]; 8 columns a thread
KERNEL(256, 4) silu_product(const Words4* rows, Words4* h, int tokens) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x, eights = FFN / 8;
    if (i >= (u64)tokens * eights) return;
    u64 at = i / eights * 2 * eights + i % eights;
    Words4 gate = rows[at], up = rows[at + eights], out;
    UNROLL for (int e = 0; e < 4; e++) {
        float a = bf16_low(gate.w[e]), b = bf16_high(gate.w[e]);
        out.w[e] = pack_bf16(divide(a, 1.0f + exp2_fast(-LOG2_E * a)) * bf16_low(up.w[e]),
                             divide(b, 1.0f + exp2_fast(-LOG2_E * b)) * bf16_high(up.w[e]));
    }
    h[i] = out;
}

// Norm (QK_NORM) and rotation of q and k, and k and v into their pages. rows [tokens][HEADS + 2 * KV_HEADS][HEAD_DIM] of
// bf16, bias added; `head_gain` has two gains of a head's dimensions, q's and k's; one block a token
KERNEL(256, 1)
place(const State* state, const u16* rows, const Float2* rotation, const int* pages, u16* q, Kv* kv PLACE_GAIN) {
    int token = blockIdx.x, at = load_fresh(&state->position) + token;
    const int heads = HEADS + 2 * KV_HEADS, half = HEAD_DIM / 2;
    if (token >= load_fresh(&state->count)) return;
#if QK_NORM
    SHARED_MEMORY(shared);
    float* squares = (float*)shared;
    square_heads(squares, [&](int head, int low) {
        const u16* row = rows + ((u64)token * heads + head) * HEAD_DIM;
        return Float2{bf16_low(row[low]), bf16_low(row[low + half])};
    });
#endif
    for (int i = threadIdx.x; i < heads * half; i += 256) {
        int head = i / half, low = i % half;
        const u16* row = rows + ((u64)token * heads + head) * HEAD_DIM;
        float a = bf16_low(row[low]), b = bf16_low(row[low + half]);
#if QK_NORM
        if (head < HEADS + KV_HEADS) {
            const float* gain = head_gain + (head < HEADS ? 0 : HEAD_DIM);
            float unit = head_unit(squares + head * HEAD_TILES, 1, epsilon);
            a = normalised(a, unit, gain[low]);
            b = normalised(b, unit, gain[low + half]);
        }
#endif
        if (head < HEADS + KV_HEADS) {
            Float2 turned = turned_by(rotation[(u64)at * half + low], a, b);
            a = turned.x, b = turned.y;
        }
        int is_value = head >= HEADS + KV_HEADS, kv_head = (head - HEADS) % KV_HEADS;
#if KV_BITS == 8
        if (head >= HEADS) {  // as all of this warp
            int page = pages[at / PAGE_TOKENS], slot = at % PAGE_TOKENS;
            keep_group(a, b, low % 8, kv + byte_row(page, is_value, kv_head, slot) + low / 8 * 16,
                       (u16*)(kv + scale_at(page, is_value, kv_head, slot, low / 8)));
            continue;
        }
        u16* out = q + ((u64)token * HEADS + head) * HEAD_DIM;
#else
        u16* out = head < HEADS ? q + ((u64)token * HEADS + head) * HEAD_DIM
                                : kv + kv_row(pages[at / PAGE_TOKENS], is_value, kv_head, at % PAGE_TOKENS);
#endif
        out[low] = (u16)pack_bf16(a, 0.0f);
        out[low + half] = (u16)pack_bf16(b, 0.0f);
    }
}

#if KV_BITS == 8
// The rows that a sequence holds in bf16, in the order of their positions: `out` is pages 0, 1, 2 … of one layer. grid
// (blocks that share the pages, 2 * KV_HEADS)
KERNEL(256, 1) unpack_pages(const State* state, const u8* kv, const int* pages, u16* out) {
    int length = load_fresh(&state->position) + load_fresh(&state->count);
    int is_value = blockIdx.y / KV_HEADS, head = blockIdx.y % KV_HEADS;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < length * GROUPS; i += gridDim.x * 256) {
        int at = i / GROUPS, group = i % GROUPS, slot = at % PAGE_TOKENS, page = pages[at / PAGE_TOKENS];
        Words4 bytes = *(const Words4*)(kv + byte_row(page, is_value, head, slot) + 16 * group);
        float scale = bf16_low(*(const u16*)(kv + scale_at(page, is_value, head, slot, group)));
        u16* row = out + kv_row(at / PAGE_TOKENS, is_value, head, slot) + 8 * group;
        UNROLL for (int half = 0; half < 2; half++) {
            Words4 pairs;
            UNROLL for (int p = 0; p < 4; p++)
                pairs.w[p] = unpack_pair(bytes.w[2 * half + p / 2], 2 * (p & 1), scale);
            *(Words4*)(row + half * (HEAD_DIM / 2)) = pairs;
        }
    }
}
#endif
