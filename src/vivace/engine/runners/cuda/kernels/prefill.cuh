// What a prefill does between torch's matrix products, each step one kernel: embedding, residual and norm, rotation
// and the pages, attention, SiLU. The number of tokens and their position are read from the state, so that one
// captured graph serves any chunk up to its size; rows behind the last token compute on and are never stored.

// Blocks have one row each, the last one first: what was written last is still in L2.
#define LAST_FIRST (gridDim.x - 1 - blockIdx.x)

// x[token] = embedding of tokens[token]; one block a token
KERNEL(256, 1) read_tokens(const int* tokens, const u32* table, float* x) {
    embed_row(table, load_fresh(tokens + blockIdx.x), x + (u64)blockIdx.x * HIDDEN);
}

// x += delta * its row's scale * its unit (unless it is the first layer's), y = rms_norm(x) * gain; one block a row
KERNEL(256, 4) add_norm(float* x, const u32* delta, int has_delta, const float* row_scale, float unit_of_delta,
                        const Float2* gain, u32* y, float epsilon) {
    SHARED_MEMORY(shared);
    int token = LAST_FIRST;
    float* squares = (float*)shared;  // [8]
    const int pairs = (HIDDEN + 511) / 512;
    auto is_there = [](int j) { return HIDDEN % 512 == 0 || threadIdx.x + 256 * j < HIDDEN / 2; };
    Float2 row[pairs];
    float mine = 0.0f, scale = has_delta ? row_scale[token] * unit_of_delta : 0.0f;
    UNROLL for (int j = 0; j < pairs; j++) {
        if (!is_there(j)) continue;
        u64 at = (u64)token * (HIDDEN / 2) + threadIdx.x + 256 * j;
        row[j] = *((Float2*)x + at);
        if (has_delta) {
            u32 more = delta[at];
            row[j] = {row[j].x + bf16_low(more) * scale, row[j].y + bf16_high(more) * scale};
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
        y[(u64)token * (HIDDEN / 2) + threadIdx.x + 256 * j] =
            pack_bf16(row[j].x * unit * g.x, row[j].y * unit * g.y);
    }
}

// ---- the same with 8-bit floats for the products that follow: each row has a scale of its own, beside it.
#define FP8_MOST 448.0f
template <int WARPS> DEVICE float block_most(float mine, float* shared) {
    UNROLL for (int mask = 16; mask; mask >>= 1) mine = greater(mine, shuffle_xor(mine, mask));
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = mine;
    block_sync();
    UNROLL for (int warp = 0; warp < WARPS; warp++) mine = greater(mine, shared[warp]);
    return mine;
}

// x += delta, y = rms_norm(x) * gain = y8 * scale; one block a row
KERNEL(256, 4) add_norm_fp8(float* x, const u32* delta, const Float2* gain, u16* y8, float* scale, float epsilon) {
    SHARED_MEMORY(shared);
    float* squares = (float*)shared;  // [8], and 8 more
    int token = LAST_FIRST;
    const int pairs = HIDDEN / 512;
    Float2 row[pairs];
    float mine = 0.0f, most = 0.0f;
    UNROLL for (int j = 0; j < pairs; j++) {
        u64 at = (u64)token * (HIDDEN / 2) + threadIdx.x + 256 * j;
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
    most = block_most<8>(most, squares + 8);
    float total = 0.0f, to_fp8 = most > 0.0f ? divide(FP8_MOST, most) : 0.0f;
    UNROLL for (int warp = 0; warp < 8; warp++) total += squares[warp];
    if (threadIdx.x == 0) scale[token] = most * (1.0f / FP8_MOST) * rsqrt_fast(total * (1.0f / HIDDEN) + epsilon);
    UNROLL for (int j = 0; j < pairs; j++)
        y8[(u64)token * (HIDDEN / 2) + threadIdx.x + 256 * j] = pack_fp8(row[j].x * to_fp8, row[j].y * to_fp8);
}

// silu(gate) * up of 8 columns; both in units of `unit`
DEVICE void silu_eight(const Words4& gate, const Words4& up, float unit, float* out) {
    UNROLL for (int e = 0; e < 4; e++) {
        float a = bf16_low(gate.w[e]) * unit, b = bf16_high(gate.w[e]) * unit;
        out[2 * e] = divide(a, 1.0f + exp2_fast(-LOG2_E * a)) * (bf16_low(up.w[e]) * unit);
        out[2 * e + 1] = divide(b, 1.0f + exp2_fast(-LOG2_E * b)) * (bf16_high(up.w[e]) * unit);
    }
}

// Blocks for rows of h. A thread has up to four times 8 columns, and all of their loads are on their way before the first is used.
#define H_WARPS ((FFN + 1023) / 1024 < 32 ? (FFN + 1023) / 1024 : 32)
#define H_EIGHTS (FFN / 8)
#define H_EACH ((H_EIGHTS + H_WARPS * 32 - 1) / (H_WARPS * 32))
#define H_KERNEL KERNEL(H_WARPS * 32, H_WARPS <= 9 ? 27 / H_WARPS : 1)

// A row = h8 * scale. What a thread has behind the end is 0.
DEVICE void keep_as_fp8(const float (&row)[H_EACH][8], u64* h8, float* scale, int token, float* shared) {
    float most = 0.0f;
    UNROLL for (int j = 0; j < H_EACH; j++)
        UNROLL for (int e = 0; e < 8; e++) most = greater(most, magnitude(row[j][e]));
    most = block_most<H_WARPS>(most, shared);
    float to_fp8 = most > 0.0f ? divide(FP8_MOST, most) : 0.0f;
    if (threadIdx.x == 0) scale[token] = most * (1.0f / FP8_MOST);
    UNROLL for (int j = 0; j < H_EACH; j++) {
        int at = threadIdx.x + H_WARPS * 32 * j;
        if (at >= H_EIGHTS) continue;
        u64 packed = 0;
        UNROLL for (int e = 0; e < 4; e++)
            packed |= (u64)pack_fp8(row[j][2 * e] * to_fp8, row[j][2 * e + 1] * to_fp8) << 16 * e;
        h8[(u64)token * H_EIGHTS + at] = packed;
    }
}

// silu(gate) * up = h8 * scale, of rows in units of their scale until then; one block a row
H_KERNEL silu_product_fp8(const Words4* rows, u64* h8, float* scale, float unit) {
    SHARED_MEMORY(shared);
    int token = LAST_FIRST;
    const Words4* gates = rows + (u64)token * 2 * H_EIGHTS;
    Words4 gate[H_EACH] = {}, up[H_EACH] = {};
    float row[H_EACH][8];
    UNROLL for (int j = 0; j < H_EACH; j++) {
        int at = threadIdx.x + H_WARPS * 32 * j;
        if (at < H_EIGHTS) gate[j] = load_fresh(gates + at), up[j] = load_fresh(gates + at + H_EIGHTS);
    }
    unit *= scale[token];
    UNROLL for (int j = 0; j < H_EACH; j++) silu_eight(gate[j], up[j], unit, row[j]);
    keep_as_fp8(row, h8, scale, token, (float*)shared);
}

// h = h8 * scale; one block a row
H_KERNEL to_fp8(const Words4* h, u64* h8, float* scale) {
    SHARED_MEMORY(shared);
    int token = LAST_FIRST;
    Words4 words[H_EACH] = {};
    float row[H_EACH][8];
    UNROLL for (int j = 0; j < H_EACH; j++) {
        int at = threadIdx.x + H_WARPS * 32 * j;
        if (at < H_EIGHTS) words[j] = load_fresh(h + (u64)token * H_EIGHTS + at);
    }
    UNROLL for (int j = 0; j < H_EACH; j++)
        UNROLL for (int e = 0; e < 4; e++) row[j][2 * e] = bf16_low(words[j].w[e]), row[j][2 * e + 1] = bf16_high(words[j].w[e]);
    keep_as_fp8(row, h8, scale, token, (float*)shared);
}

// h = silu(gate) * up, of rows [gate; up]; 8 columns a thread
KERNEL(256, 4) silu_product(const Words4* rows, Words4* h, int tokens) {
    u64 i = (u64)blockIdx.x * 256 + threadIdx.x, eights = FFN / 8;
    if (i >= (u64)tokens * eights) return;
    u64 at = i / eights * 2 * eights + i % eights;
    float row[8];
    Words4 out;
    silu_eight(rows[at], rows[at + eights], 1.0f, row);
    UNROLL for (int e = 0; e < 4; e++) out.w[e] = pack_bf16(row[2 * e], row[2 * e + 1]);
    h[i] = out;
}

// Norm (QK_NORM) and rotation of q and k where they lie, and k and v into their pages. rows [tokens][HEADS + 2 * KV_HEADS]
// [HEAD_WIDTH] of bf16, bias added; `head_gain` has two gains of a head's dimensions, q's and k's; one block a token. In 8
// bits k is in its page alone.
KERNEL(256, 1) place(const State* state, u16* rows, const Float2* rotation, const int* pages, Kv* kv PLACE_GAIN) {
    int token = LAST_FIRST, at = load_fresh(&state->position) + token;
    const int heads = HEADS + 2 * KV_HEADS, half = HEAD_WIDTH / 2;
    if (token >= load_fresh(&state->count)) return;
    u16* own = rows + (u64)token * heads * HEAD_WIDTH;
#if QK_NORM
    SHARED_MEMORY(shared);
    float* squares = (float*)shared;
    square_heads(squares, [&](int head, int low) {
        const u16* row = own + head * HEAD_WIDTH;
        return Float2{bf16_low(row[low]), bf16_low(row[low + half])};
    });
#endif
    auto turned = [&](int head, int low, float a, float b) {  // both halves of a pair; v stays as it is
        if (head >= HEADS + KV_HEADS) return Float2{a, b};
#if QK_NORM
        const float* gain = head_gain + (head < HEADS ? 0 : HEAD_DIM);
        float unit = head_unit(squares + head * HEAD_TILES, 1, epsilon);
        a = normalised(a, unit, gain[low]);
        b = normalised(b, unit, gain[low + half]);
#endif
        return turned_by(rotation[(u64)at * (HEAD_DIM / 2) + low], a, b);
    };
    int page = pages[at / PAGE_TOKENS], slot = at % PAGE_TOKENS;
    for (int i = threadIdx.x; i < (KV_BITS == 8 ? HEADS : heads) * half / 8; i += 256) {  // 8 pairs
        int head = i / (half / 8), low = i % (half / 8) * 8;
        Words4* first = (Words4*)(own + head * HEAD_WIDTH + low);
        Words4* second = (Words4*)(own + head * HEAD_WIDTH + low + half);
        Words4 lows = *first, highs = *second;
        UNROLL for (int e = 0; e < 4; e++) {
            Float2 one = turned(head, low + 2 * e, bf16_low(lows.w[e]), bf16_low(highs.w[e]));
            Float2 two = turned(head, low + 2 * e + 1, bf16_high(lows.w[e]), bf16_high(highs.w[e]));
            lows.w[e] = pack_bf16(one.x, two.x);
            highs.w[e] = pack_bf16(one.y, two.y);
        }
        if (head < HEADS + KV_HEADS) *first = lows, *second = highs;
#if KV_BITS != 8
        if (head < HEADS) continue;
        u16* out = kv + kv_row(page, head >= HEADS + KV_HEADS, (head - HEADS) % KV_HEADS, slot) + low;
        *(Words4*)out = lows;
        *(Words4*)(out + HEAD_DIM / 2) = highs;
#if HEAD_WIDTH < HEAD_DIM  // zeros behind each half: of 64 as many
        *(Words4*)(out + half) = *(Words4*)(out + HEAD_DIM / 2 + half) = Words4{};
#endif
#endif
    }
#if KV_BITS == 8
    for (int i = HEADS * half + threadIdx.x; i < heads * half; i += 256) {
        int head = i / half, low = i % half, is_value = head >= HEADS + KV_HEADS, kv_head = (head - HEADS) % KV_HEADS;
        const u16* row = own + head * HEAD_WIDTH;
        Float2 pair = turned(head, low, bf16_low(row[low]), bf16_low(row[low + half]));
        keep_group(pair.x, pair.y, low % 8, kv + byte_row(page, is_value, kv_head, slot) + low / 8 * 16,
                   (u16*)(kv + scale_at(page, is_value, kv_head, slot, low / 8)));
    }
#endif
}

// The last `tail` tokens of a chunk moved to its beginning: x, and q, k, v; and where they stand. A thread has 16 bytes of
// every row and goes from the first to the last: no row is written before it was read.
KERNEL(64, 1) keep_tail(const State* state, State* tail_state, Words4* x, Words4* rows, int tail) {
    const int at_once = 16, of_x = HIDDEN / 4, of_rows = (HEADS + 2 * KV_HEADS) * HEAD_WIDTH / 8;
    int count = load_fresh(&state->count), skipped = count > tail ? count - tail : 0;
    int own = blockIdx.x * 64 + threadIdx.x;
    if (own < (int)sizeof(State) / 4)
        ((int*)tail_state)[own] = load_fresh((const int*)state + own) + (own == 0 ? skipped : own == 1 ? -skipped : 0);
    if (own >= of_x + of_rows || !skipped) return;
    int stride = own < of_x ? of_x : of_rows;
    Words4* to = own < of_x ? x + own : rows + own - of_x;
    NO_UNROLL for (int first = 0; first < tail; first += at_once) {
        Words4 held[at_once];
        UNROLL for (int i = 0; i < at_once; i++) held[i] = to[(u64)(skipped + first + i) * stride];
        UNROLL for (int i = 0; i < at_once; i++) to[(u64)(first + i) * stride] = held[i];
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
