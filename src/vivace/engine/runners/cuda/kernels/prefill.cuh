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
    const int pairs = HIDDEN / 512;
    Float2 row[pairs];
    float mine = 0.0f;
    UNROLL for (int j = 0; j < pairs; j++) {
        u64 at = (u64)blockIdx.x * (HIDDEN / 2) + threadIdx.x + 256 * j;
        row[j] = *((Float2*)x + at);
        if (has_delta) {
            u32 more = delta[at];
            row[j] = {row[j].x + bf16_low(more), row[j].y + bf16_high(more)};
            *((Float2*)x + at) = row[j];
        }
        mine += row[j].x * row[j].x + row[j].y * row[j].y;
    }
    UNROLL for (int mask = 16; mask; mask >>= 1) mine += shuffle_xor(mine, mask);
    if ((threadIdx.x & 31) == 0) squares[threadIdx.x >> 5] = mine;
    block_sync();
    float total = 0.0f;
    UNROLL for (int warp = 0; warp < 8; warp++) total += squares[warp];
    float unit = rsqrt_fast(total * (1.0f / HIDDEN) + epsilon);
    UNROLL for (int j = 0; j < pairs; j++) {
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
        mine += row[j].x * row[j].x + row[j].y * row[j].y;
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

// Rotation of q and k, and k and v into their pages. rows [tokens][HEADS + 2 * KV_HEADS][HEAD_DIM] of bf16, bias
// added; one block a token
KERNEL(256, 1) place(const State* state, const u16* rows, const Float2* rotation, const int* pages, u16* q, u16* kv) {
    int token = blockIdx.x, at = load_fresh(&state->position) + token;
    const int heads = HEADS + 2 * KV_HEADS, half = HEAD_DIM / 2;
    if (token >= load_fresh(&state->count)) return;
    for (int i = threadIdx.x; i < heads * half; i += 256) {
        int head = i / half, low = i % half;
        const u16* row = rows + ((u64)token * heads + head) * HEAD_DIM;
        float a = bf16_low(row[low]), b = bf16_low(row[low + half]);
        if (head < HEADS + KV_HEADS) {
            Float2 turn = rotation[(u64)at * half + low];  // cosine, sine
            float turned = a * turn.x - b * turn.y;
            b = b * turn.x + a * turn.y;
            a = turned;
        }
        int is_value = head >= HEADS + KV_HEADS, kv_head = (head - HEADS) % KV_HEADS;
        u16* out = head < HEADS ? q + ((u64)token * HEADS + head) * HEAD_DIM
                                : kv + kv_row(pages[at / PAGE_TOKENS], is_value, kv_head, at % PAGE_TOKENS);
        out[low] = (u16)pack_bf16(a, 0.0f);
        out[low + half] = (u16)pack_bf16(b, 0.0f);
    }
}

// ---- attention of a chunk to itself and all before it. A block has 128 tokens of one head, a warp 32 of them; the
// past comes page by page into shared memory, the next page while this one is used. Rows there are 16 pieces of 16
// bytes; piece c of row r lies at c ^ r % 8, so that eight rows of a piece are in different banks.
#define QUERY_ROWS 128
#define QUERY_WARPS 4
#define TILE_BYTES(rows) ((rows) * HEAD_DIM * 2)

DEVICE u8* piece(u8* tile, int row, int c) { return tile + row * (HEAD_DIM * 2) + ((c ^ (row & 7)) << 4); }

DEVICE void fetch_rows(u8* tile, const u16* source, int rows, u64 stride, int real) {
    for (int i = threadIdx.x; i < rows * 16; i += QUERY_WARPS * 32)
        async_copy(piece(tile, i >> 4, i & 15), source + (i >> 4 < real ? i >> 4 : 0) * stride + (i & 15) * 8,
                   i >> 4 < real);
}
DEVICE void fetch_page(u8* tiles, const u16* kv, const int* pages, int kv_head, int b, int length) {
    int real = length - b * PAGE_TOKENS;
    fetch_rows(tiles, kv + kv_row(pages[b], 0, kv_head, 0), PAGE_TOKENS, HEAD_DIM, real);
    fetch_rows(tiles + TILE_BYTES(PAGE_TOKENS), kv + kv_row(pages[b], 1, kv_head, 0), PAGE_TOKENS, HEAD_DIM, real);
}

struct Answer {                       // of one warp: rows g, g+8 of two tiles of 16 tokens
    float o[2][HEAD_DIM / 8][4];
    float most[2][2], sum[2][2];
};

// scores[m][n]: 16 tokens x 8 keys, against one page of keys
DEVICE void score_page(float scores[2][8][4], u8* queries, u8* keys) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    UNROLL for (int m = 0; m < 2; m++)
        UNROLL for (int n = 0; n < 8; n++)
            UNROLL for (int e = 0; e < 4; e++) scores[m][n][e] = 0.0f;
    UNROLL for (int k = 0; k < HEAD_DIM / 16; k++) {
        u32 a[2][4];
        UNROLL for (int m = 0; m < 2; m++)
            load_matrices(a[m], piece(queries, warp * 32 + 16 * m + (lane & 15), 2 * k + (lane >> 4)));
        UNROLL for (int n = 0; n < 8; n += 2) {
            u32 b[4];
            load_matrices(b, piece(keys, 8 * n + (lane & 7) + (lane >> 4) * 8, 2 * k + (lane >> 3 & 1)));
            UNROLL for (int m = 0; m < 2; m++) {
                mma_bf16(scores[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
                mma_bf16(scores[m][n + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
            }
        }
    }
}

// Scores to weights to the base 2, relative to the largest so far; what was summed up before is brought in line.
DEVICE void weigh_page(Answer& answer, float scores[2][8][4], float scale) {
    UNROLL for (int m = 0; m < 2; m++)
        UNROLL for (int half = 0; half < 2; half++) {
            float peak = answer.most[m][half];
            UNROLL for (int n = 0; n < 8; n++)
                peak = greater(peak, greater(scores[m][n][2 * half], scores[m][n][2 * half + 1]) * scale);
            peak = greater(peak, shuffle_xor(peak, 1));
            peak = greater(peak, shuffle_xor(peak, 2));
            float keep = exp2_fast(answer.most[m][half] - peak), sum = 0.0f;
            answer.most[m][half] = peak;
            UNROLL for (int n = 0; n < 8; n++)
                UNROLL for (int e = 0; e < 2; e++) {
                    float weight = exp2_fast(scores[m][n][2 * half + e] * scale - peak);
                    scores[m][n][2 * half + e] = weight;
                    sum += weight;
                }
            answer.sum[m][half] = answer.sum[m][half] * keep + sum;
            UNROLL for (int d = 0; d < HEAD_DIM / 8; d++)
                UNROLL for (int e = 0; e < 2; e++) answer.o[m][d][2 * half + e] *= keep;
        }
}

DEVICE void add_values(Answer& answer, float weights[2][8][4], u8* values) {
    int lane = threadIdx.x & 31;
    UNROLL for (int k = 0; k < PAGE_TOKENS / 16; k++) {
        u32 a[2][4];
        UNROLL for (int m = 0; m < 2; m++)
            UNROLL for (int e = 0; e < 4; e++) {
                const float* pair = weights[m][2 * k + (e >> 1)] + 2 * (e & 1);
                a[m][e] = pack_bf16(pair[0], pair[1]);
            }
        UNROLL for (int d = 0; d < HEAD_DIM / 8; d += 2) {
            u32 b[4];
            load_turned_matrices(b, piece(values, 16 * k + (lane & 15), d + (lane >> 4)));
            UNROLL for (int m = 0; m < 2; m++) {
                mma_bf16(answer.o[m][d], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
                mma_bf16(answer.o[m][d + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
            }
        }
    }
}

// Keys that come after a token do not count for it.
DEVICE void hide_later(float scores[2][8][4], int first_token, int first_key) {
    int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    UNROLL for (int m = 0; m < 2; m++)
        UNROLL for (int n = 0; n < 8; n++)
            UNROLL for (int e = 0; e < 4; e++)
                if (first_key + 8 * n + 2 * t + (e & 1) > first_token + 16 * m + g + 8 * (e >> 1))
                    scores[m][n][e] = minus_infinity();
}

// grid (blocks of tokens, HEADS); the longest rows first. mixed [tokens][HEADS][HEAD_DIM] of bf16
KERNEL(QUERY_WARPS * 32, 2)
chunk_attention(const State* state, const u16* q, const u16* kv, const int* pages, u16* mixed, float scale) {
    SHARED_MEMORY(shared);
    int count = load_fresh(&state->count), start = load_fresh(&state->position);
    int row0 = (int)(gridDim.x - 1 - blockIdx.x) * QUERY_ROWS, head = blockIdx.y, kv_head = head / GROUP_HEADS;
    if (row0 >= count) return;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    int last_row = row0 + QUERY_ROWS < count ? row0 + QUERY_ROWS : count, length = start + last_row;
    int blocks = (length + PAGE_TOKENS - 1) / PAGE_TOKENS, first_token = start + row0 + warp * 32;
    u8* queries = shared;                                            // [QUERY_ROWS]
    u8* tiles = shared + TILE_BYTES(QUERY_ROWS);                     // [2] of keys, values
    fetch_rows(queries, q + ((u64)row0 * HEADS + head) * HEAD_DIM, QUERY_ROWS, HEADS * HEAD_DIM, count - row0);
    fetch_page(tiles, kv, pages, kv_head, 0, length);
    async_commit();
    Answer answer;
    UNROLL for (int m = 0; m < 2; m++) {
        UNROLL for (int d = 0; d < HEAD_DIM / 8; d++)
            UNROLL for (int e = 0; e < 4; e++) answer.o[m][d][e] = 0.0f;
        UNROLL for (int half = 0; half < 2; half++) answer.most[m][half] = NO_MAXIMUM, answer.sum[m][half] = 0.0f;
    }
    for (int b = 0; b < blocks; b++) {
        u8* keys = tiles + (b & 1) * TILE_BYTES(2 * PAGE_TOKENS);
        async_wait<0>();
        block_sync();  // this page is here for all, and all are done with the one before it
        if (b + 1 < blocks) {
            fetch_page(tiles + (~b & 1) * TILE_BYTES(2 * PAGE_TOKENS), kv, pages, kv_head, b + 1, length);
            async_commit();
        }
        float scores[2][8][4];
        score_page(scores, queries, keys);
        if ((b + 1) * PAGE_TOKENS > first_token) hide_later(scores, first_token, b * PAGE_TOKENS);
        weigh_page(answer, scores, scale);
        add_values(answer, scores, keys + TILE_BYTES(PAGE_TOKENS));
    }
    UNROLL for (int m = 0; m < 2; m++)
        UNROLL for (int half = 0; half < 2; half++) {
            int row = row0 + warp * 32 + 16 * m + g + 8 * half;
            float total = answer.sum[m][half];
            total += shuffle_xor(total, 1);
            total += shuffle_xor(total, 2);
            float inverse = divide(1.0f, total);
            if (row >= count) continue;
            u32* out = (u32*)(mixed + ((u64)row * HEADS + head) * HEAD_DIM);
            UNROLL for (int d = 0; d < HEAD_DIM / 8; d++) {
                const float* pair = answer.o[m][d] + 2 * half;
                out[4 * d + t] = pack_bf16(pair[0] * inverse, pair[1] * inverse);
            }
        }
}
