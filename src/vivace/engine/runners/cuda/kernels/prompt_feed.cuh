// Gate and up of a prompt's tokens in 8-bit floats, and SiLU, in one kernel: with the matrix instructions of four warps. A tile is
// 128 tokens and 96 columns of both; two blocks of a cluster have the same columns, and each brings half of their weights to both.
// A team has 64 of the tokens, and finishes the columns of one tile while the next is multiplied. There are as many blocks as
// multiprocessors. Owns nothing of the product that follows.

#define FEED_COLUMNS 96
#define FEED_ROWS 128
#define FEED_TEAM_BYTES (FEED_ROWS / 2 * 128)          // 128 numbers of a team's tokens
#define FEED_HALF_BYTES (FEED_COLUMNS / 2 * 128)       // and of half the columns
#define FEED_SLOT_BYTES (2 * FEED_TEAM_BYTES + 4 * FEED_HALF_BYTES)
#define FEED_SLOTS 5
#define FEED_STEPS (HIDDEN / 128)
#define FEED_EIGHTS (FEED_COLUMNS / 8)                 // of columns: those of a tile, finished in the first steps of the next
#define FEED_AT_ONCE ((FEED_EIGHTS + FEED_STEPS - 1) / FEED_STEPS)

struct FeedPlace {                                     // of a thread's sums: rows `token` and the 8th behind it
    int token, column;
    float units[2];
};

// silu(gate) * up of 8 columns of a tile
DEVICE void finish_columns(const float (&sums)[FEED_COLUMNS], const FeedPlace& place, int eight, u16* h, int tokens) {
    int column = place.column + 8 * eight;
    UNROLL for (int row = 0; row < 2; row++) {
        int token = place.token + 8 * row;
        float out[2];
        UNROLL for (int e = 0; e < 2; e++) {
            int i = 4 * eight + 2 * row + e;
            float gate = sums[i] * place.units[row], up = sums[FEED_COLUMNS / 2 + i] * place.units[row];
            out[e] = divide(gate, 1.0f + exp2_fast(-LOG2_E * gate)) * up;
        }
        if (column < FFN && token < tokens)
            *(u32*)(h + (u64)token * FFN + column + 2 * (threadIdx.x & 3)) = pack_bf16(out[0], out[1]);
    }
}

// h [tokens][FFN] = silu(gate) * up of rows [tokens][HIDDEN], whose units are scale * unit; weights [2 * FFN][HIDDEN], gate first
KERNEL(384, 1) prompt_gate_up(TILES(rows), TILES(weights), const float* scale, float unit, u16* h, int tokens) {
#if HAS_TEAM_PRODUCTS && HIDDEN % 128 == 0               // as of all dense models
    SHARED_TILES(shared);
    typedef Ring<0, FEED_SLOT_BYTES, FEED_SLOTS, 8> Slots;
    int rank = cluster_rank(), team = same_in_warp(threadIdx.x >> 7);
    int pairs = gridDim.x / 2, row_pairs = (tokens + 2 * FEED_ROWS - 1) / (2 * FEED_ROWS);
    int tiles = row_pairs * ((FFN + FEED_COLUMNS - 1) / FEED_COLUMNS), first_tile = blockIdx.x / 2;
    Slots ring(shared);
    ring.prepare(1, 16);                                              // warps of both blocks
    cluster_sync();
    if (team == 2) {
        give_registers<24>();
        int piece = 0;
        for (int tile = first_tile; tile < tiles && threadIdx.x == Slots::THREADS; tile += pairs) {
            int row = (tile % row_pairs * 2 + rank) * FEED_ROWS, column = tile / row_pairs * FEED_COLUMNS + rank * FEED_COLUMNS / 2;
            for (int step = 0; step < FEED_STEPS; step++, piece++) {
                ring.await_room(piece);
                u64* full = ring.full + piece % FEED_SLOTS;
                u8* slot = ring.slot(piece);
                arrive_expecting(full, FEED_SLOT_BYTES);
                UNROLL for (int half = 0; half < 2; half++)
                    bring_tile(slot + half * FEED_TEAM_BYTES, TILES_OF(rows), step * 128, row + half * FEED_ROWS / 2, full);
                UNROLL for (int up = 0; up < 2; up++)
                    bring_to_both(slot + 2 * FEED_TEAM_BYTES + (2 * up + rank) * FEED_HALF_BYTES, TILES_OF(weights), step * 128,
                                  column + up * FFN, full);
            }
        }
    } else {
        take_registers<240>();
        int lane = threadIdx.x & 31, own_row = rank * FEED_ROWS + team * FEED_ROWS / 2 + (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
        const Lines row_lines = lines_at(shared + team * FEED_TEAM_BYTES), weight_lines = lines_at(shared + 2 * FEED_TEAM_BYTES);
        FeedPlace place_before = {tokens, 0, {}};                     // none: nothing is stored behind the last token
        Slots::Turn turn = {};
        int slot_before = 0;
        auto give_back = [&](int slot) {
            if (lane < 2) barrier_arrive_in(lane, ring.empty + slot);
        };
        auto one_step = [&](float (&sums)[FEED_COLUMNS], int step) {
            ring.take(turn);
            u32 at = turn.slot * FEED_SLOT_BYTES;
            keep(sums);
            products_begin();
            UNROLL for (int i = 0; i < 4; i++)
                multiply_bytes(sums, behind(row_lines, at + 32 * i), behind(weight_lines, at + 32 * i), step > 0 || i > 0);
            products_commit();
            products_wait<1>();
            if (step > 0) give_back(slot_before);
            slot_before = turn.slot;
            turn.next();
        };
        auto one_tile = [&](float (&sums)[FEED_COLUMNS], const float (&sums_before)[FEED_COLUMNS], int tile) {
            FeedPlace place = {tile % row_pairs * 2 * FEED_ROWS + own_row, tile / row_pairs * FEED_COLUMNS, {}};
            UNROLL for (int row = 0; row < 2; row++)
                place.units[row] = place.token + 8 * row < tokens ? load_fresh(scale + place.token + 8 * row) * unit : 0.0f;
            const int finishing = (FEED_EIGHTS + FEED_AT_ONCE - 1) / FEED_AT_ONCE;
            UNROLL for (int step = 0; step < finishing; step++) {
                one_step(sums, step);
                UNROLL for (int i = 0; i < FEED_AT_ONCE; i++)
                    if (step * FEED_AT_ONCE + i < FEED_EIGHTS)
                        finish_columns(sums_before, place_before, step * FEED_AT_ONCE + i, h, tokens);
            }
            NO_UNROLL for (int step = finishing; step < FEED_STEPS; step++) one_step(sums, step);
            products_wait<0>();
            keep(sums);
            give_back(slot_before);
            place_before = place;
        };
        auto finish = [&](const float (&sums)[FEED_COLUMNS]) {
            UNROLL for (int eight = 0; eight < FEED_EIGHTS; eight++) finish_columns(sums, place_before, eight, h, tokens);
        };
        float even[FEED_COLUMNS] = {}, odd[FEED_COLUMNS] = {};        // registers have no numbers: tiles are taken by twos
        for (int tile = first_tile; tile < tiles; tile += pairs) {
            one_tile(even, odd, tile);
            tile += pairs;
            if (tile >= tiles) finish(even);
            else {
                one_tile(odd, even, tile);
                if (tile + pairs >= tiles) finish(odd);
            }
        }
    }
    cluster_sync();                                                   // the other may still send and give back
#endif
}
