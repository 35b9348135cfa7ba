// Logits, the choice of the next token, and the step to it: all on the device. Each block of the head keeps the best
// row of its own for every token; `choose` finds the best of all, and in a stream it tells the host (one word in
// pinned memory), moves the state on and lays out the next input. Ties go to the lower token, as everywhere.

struct Best { float score; int token; };
DEVICE bool is_better(float score, int token, const Best& best) {
    return score > best.score || (score == best.score && token < best.token);
}

// Gumbel noise for (seed, position, token), the same as engine/sampler.py draws: a step of splitmix64 for the key of
// a position, then two 32-bit hashes of the token. The logarithm is taken from whichever end keeps its digits.
struct Key { u32 high, low; };
DEVICE Key key_of(u64 seed, u64 position) {
    u64 bits = seed;
    UNROLL for (int round = 0; round < 2; round++) {
        bits += (round ? position : 0) * 0xD1342543DE82EF95ull + 0x9E3779B97F4A7C15ull;
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ull;
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EBull;
        bits ^= bits >> 31;
    }
    return {(u32)(bits >> 32), (u32)bits};
}
DEVICE u32 hash(u32 token, u32 key) {
    u32 bits = token * 0x9E3779B9u + key;
    bits = (bits ^ bits >> 16) * 0x7FEB352Du;
    bits = (bits ^ bits >> 15) * 0x846CA68Bu;
    return bits ^ bits >> 16;
}
DEVICE float gumbel(Key key, u32 token) {
    u64 bits = ((u64)hash(token, key.high) << 20 | hash(token, key.low) >> 12) * 2 + 1;  // of 2^53
    u64 rest = (1ull << 53) - bits;
    const float unit = 1.1102230246251565e-16f;
    float surprise = bits > rest ? -log_one_plus(-(float)rest * unit) : -log_exact((float)bits * unit);
    return -log_exact(surprise);
}

#if !WIDE
KERNEL(HIDDEN_WARPS * 32 + 32, 1) head(const Place* state, const float* x, const float* gain, const u8* weights, const float* scales,
                 float* logits, float* best_score, int* best_token, float epsilon) {
    SHARED_MEMORY(shared);
    int token0 = blockIdx.y * 16;
    HeadProduct product(HeadRing(shared), weights, (VOCAB + TILE_ROWS - 1) / TILE_ROWS, blockIdx.x, gridDim.x, 0);
    product.start();
    if (product.ring.is_fetcher()) return product.keep_full();
    Float2 gains[HeadProduct::PAIRS];
    product.load_gain(gain, gains);
    product.ring.wait();
    const Place* draw = DRAW_OF(state, token0 + threadIdx.x / TILE_ROWS % TILE_TOKENS);  // of this thread's token
    float temperature = load_fresh(&draw->temperature);
    Key key = key_of((u64)(u32)load_fresh(draw->seed + 1) << 32 | (u32)load_fresh(draw->seed),
                     POSITION_OF(state, token0, threadIdx.x / TILE_ROWS % TILE_TOKENS) + 1);
#if BATCH
    int logits_row = load_fresh(&draw->logits) - 1;
#endif
    product.normalise(x + (u64)token0 * HIDDEN, gains, epsilon);
    Best best = {minus_infinity(), VOCAB};
    product.run([&](int base, int n, const float* group) {
        // 256 is a multiple of TILE_TOKENS * TILE_ROWS: a thread meets one token only
        if (HIDDEN_WARPS > 8 && threadIdx.x >= 256) return;
        for (int i = threadIdx.x; i < n * TILE_TOKENS * TILE_ROWS; i += 256) {
            int slot = i / (TILE_TOKENS * TILE_ROWS), token = i / TILE_ROWS % TILE_TOKENS, r = i % TILE_ROWS;
            int row = (product.first + base + slot) * TILE_ROWS + r;
            if (row >= VOCAB) continue;
            float score = product.sum(group, slot, token, r) * product.row_scale(scales, row);
#if BATCH
            if (logits_row >= 0) logits[(u64)logits_row * VOCAB + row] = score;
#else
            logits[(u64)(token0 + token) * VOCAB + row] = score;
#endif
            if (temperature > 0.0f) score = score / temperature + gumbel(key, row);
            if (is_better(score, row, best)) best = {score, row};
        }
    });
    float* scores = product.scratch;                  // [256]
    int* tokens = (int*)(product.scratch + 256);      // [256]
    product.meet();
    if (HIDDEN_WARPS == 8 || threadIdx.x < 256) {
        scores[threadIdx.x] = best.score;
        tokens[threadIdx.x] = best.token;
    }
    product.meet();
    if (threadIdx.x < TILE_TOKENS) {
        Best all = {minus_infinity(), VOCAB};
        for (int i = threadIdx.x * TILE_ROWS; i < 256; i += TILE_TOKENS * TILE_ROWS)
            for (int r = 0; r < TILE_ROWS; r++)
                if (is_better(scores[i + r], tokens[i + r], all)) all = {scores[i + r], tokens[i + r]};
        best_score[(token0 + threadIdx.x) * gridDim.x + blockIdx.x] = all.score;
        best_token[(token0 + threadIdx.x) * gridDim.x + blockIdx.x] = all.token;
    }
}
#endif

DEVICE void embed_row(const u32* table, int token, float* x) {
    for (int pair = threadIdx.x; pair < HIDDEN / 2; pair += 256) {
        u32 value = table[(u64)token * (HIDDEN / 2) + pair];
        *((Float2*)x + pair) = {bf16_low(value), bf16_high(value)};
    }
}

#if BATCH
// x[row] = embedding of its token, or of what the pass before has chosen; one block a row
KERNEL(256, 1) embed(const Row* rows, const int* chosen, const u32* table, float* x) {
    let_next_start();
    wait_for_previous();
    int token = load_fresh(&rows[blockIdx.x].token);
    embed_row(table, token < 0 ? load_fresh(chosen - 1 - token) : token, x + (u64)blockIdx.x * HIDDEN);
}
#else
// x[token] = embedding of tokens[token]; one block a token
KERNEL(256, 1) embed(const int* tokens, const u32* table, float* x) {
    let_next_start();
    wait_for_previous();
    embed_row(table, load_fresh(tokens + blockIdx.x), x + (u64)blockIdx.x * HIDDEN);
}

#endif

// The best of all blocks for every token of the pass; a warp takes a token.
DEVICE void find_best(const float* best_score, const int* best_token, int blocks, int* chosen) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int token = warp; token < TOKENS; token += 8) {
        Best best = {minus_infinity(), VOCAB};
        for (int i = lane; i < blocks; i += 32) {
            float score = load_fresh(best_score + token * blocks + i);
            int row = load_fresh(best_token + token * blocks + i);
            if (is_better(score, row, best)) best = {score, row};
        }
        UNROLL for (int mask = 16; mask; mask >>= 1) {
            float score = shuffle_xor(best.score, mask);
            int row = shuffle_xor(best.token, mask);
            if (is_better(score, row, best)) best = {score, row};
        }
        if (lane == 0) chosen[token] = best.token < VOCAB ? best.token : 0;
    }
}

#if BATCH
// One block. Every row's token to the next pass and to the host, in one of two rings of `ring_size` words: two passes
// may be in flight.
KERNEL(256, 1) choose(const Row* rows, const float* best_score, const int* best_token, int blocks, int* all_chosen,
                      u64* ring, int ring_size) {
    SHARED_MEMORY(shared);
    int* chosen = (int*)shared;  // [TOKENS]
    wait_for_previous();
    find_best(best_score, best_token, blocks, chosen);
    block_sync();
    if (threadIdx.x >= TOKENS) return;
    int number = load_fresh(&rows[threadIdx.x].number);
    all_chosen[threadIdx.x] = chosen[threadIdx.x];
    publish(ring + number % 2 * ring_size + threadIdx.x, (u64)number << 32 | (u32)chosen[threadIdx.x]);
}
#else
// The stream's step: one token to the host, then position, budget and stop tokens.
DEVICE void advance(State* state, int token, u64* ring, int ring_size) {
    int step = state->step;
    publish(ring + step % ring_size, (u64)(step + 1) << 32 | (u32)token);
    state->step = step + 1;
    state->position += 1;
    state->remaining -= 1;
    bool is_last = state->remaining <= 0;
    for (int i = 0; i < state->stops; i++) is_last |= state->stop[i] == token;
    if (is_last) state->active = 0;
}

// One block. `streams`: 1 for a decode stream, 0 to hand TOKENS choices to `ring` and change nothing.
KERNEL(256, 1) choose(State* state, const float* best_score, const int* best_token, int blocks, const u32* table,
                   float* x, u64* ring, int ring_size, int streams) {
    SHARED_MEMORY(shared);
    int* chosen = (int*)shared;  // [TOKENS]
    wait_for_previous();  // and no early start for the next: whatever it reads of the state must be final
    find_best(best_score, best_token, blocks, chosen);
    int active = load_fresh(&state->active);
    block_sync();
    if (!streams) {
        u64 number = (u64)(load_fresh(&state->step) + 1) << 32;
        if (threadIdx.x < TOKENS) publish(ring + threadIdx.x, number | (u32)chosen[threadIdx.x]);
        return;
    }
    if (!active) return;
    embed_row(table, chosen[0], x);
    if (threadIdx.x == 0) advance(state, chosen[0], ring, ring_size);
}
#endif
