// Attention of a chunk of a prompt, out of the pages of its sequence, with the matrix instructions of four warps. A block has
// two or three such teams, and a warp that brings pages. A task is 64 tokens of one head. The teams of a block have tasks of one
// key head and share the pages that come; or they share one task and take pages in turn, which is sooner where there are few
// tasks. While the values of one page are added, the scores of the next become weights. Owns nothing of how a chunk is cut.

#define PROMPT_ROWS 64
#define TILE_BYTES (PAGE_TOKENS * HEAD_DIM * 2)     // of 64 rows: dimensions 0 … 63 of all, then the others
#define HALF_TILE (TILE_BYTES / 2)

// What one thread has found: rows g and g + 8 of its warp's 16, columns 8j + 2t and the next one of each.
struct Found {
    float sum[HEAD_DIM / 2], most[2], total[2];
};

// Scores of 64 keys become weights. `last`: the last key that a row sees, counted from the first of these.
template <bool IS_CUT> DEVICE void weigh(float (&scores)[32], Found& found, float (&shrink)[2], float scale, int last) {
    int first = 2 * (threadIdx.x & 3);
    float most[4], total[4] = {};                                     // of each row: even columns, odd ones
    UNROLL for (int i = 0; i < 32; i++) {
        if (IS_CUT && first + i / 4 * 8 + (i & 1) > last + (i & 2) * 4) scores[i] = NO_MAXIMUM;
        most[i & 3] = i < 4 ? scores[i] : greater(most[i & 3], scores[i]);
    }
    UNROLL for (int row = 0; row < 2; row++) most[row] = greater(most[2 * row], most[2 * row + 1]);
    UNROLL for (int mask = 1; mask < 4; mask <<= 1)
        UNROLL for (int row = 0; row < 2; row++) most[row] = greater(most[row], shuffle_xor(most[row], mask));
    UNROLL for (int row = 0; row < 2; row++) {
        most[row] = greater(found.most[row], most[row] * scale);
        shrink[row] = exp2_fast(found.most[row] - most[row]);
        found.most[row] = most[row];
    }
    UNROLL for (int i = 0; i < 32; i++) {
        scores[i] = exp2_fast(scores[i] * scale - most[i >> 1 & 1]);
        total[i & 3] += scores[i];
    }
    UNROLL for (int row = 0; row < 2; row++)
        found.total[row] = found.total[row] * shrink[row] + (total[2 * row] + total[2 * row + 1]);
}

DEVICE void shrink_sums(Found& found, const float (&by)[2]) {
    if (!is_any_in_warp(by[0] != 1.0f || by[1] != 1.0f)) return;      // most pages have no greater score
    UNROLL for (int i = 0; i < HEAD_DIM / 2; i++) found.sum[i] *= by[i >> 1 & 1];
}

// Of all columns of a row, which four lanes have.
DEVICE void add_up(Found& found) {
    UNROLL for (int row = 0; row < 2; row++)
        UNROLL for (int mask = 1; mask < 4; mask <<= 1) found.total[row] += shuffle_xor(found.total[row], mask);
}

// What the teams have found of one task becomes the first team's. `room` has HEAD_DIM / 2 + 4 floats of every other thread.
template <int TEAMS> DEVICE void merge_teams(Found& found, float* room, int team, int thread) {
    const int words = HEAD_DIM / 2 + 4, apart = 128;
    float* own = room + (team - 1) * words * apart + thread;
    if (team > 0) {
        UNROLL for (int i = 0; i < HEAD_DIM / 2; i++) own[i * apart] = found.sum[i];
        UNROLL for (int row = 0; row < 2; row++) {
            own[(HEAD_DIM / 2 + row) * apart] = found.most[row];
            own[(HEAD_DIM / 2 + 2 + row) * apart] = found.total[row];
        }
    }
    team_sync<TEAMS * 128>(TEAMS);
    if (team > 0) return;
    UNROLL for (int other = 0; other < TEAMS - 1; other++) {
        const float* its = room + other * words * apart + thread;
        float mine[2], share[2];
        UNROLL for (int row = 0; row < 2; row++) {
            float its_most = its[(HEAD_DIM / 2 + row) * apart], most = greater(found.most[row], its_most);
            mine[row] = exp2_fast(found.most[row] - most);
            share[row] = exp2_fast(its_most - most);
            found.most[row] = most;
            found.total[row] = found.total[row] * mine[row] + its[(HEAD_DIM / 2 + 2 + row) * apart] * share[row];
        }
        UNROLL for (int i = 0; i < HEAD_DIM / 2; i++)
            found.sum[i] = found.sum[i] * mine[i >> 1 & 1] + its[i * apart] * share[i >> 1 & 1];
    }
}

template <bool IS_SHARED_TASK, int TEAMS, int REGISTERS, int SLOTS> DEVICE void attend_prompt(
        u8* shared, const State* state, const u16* q, int q_stride, const Tiles* kv, const int* pages, u16* mixed, float scale) {
    const int tasks_here = IS_SHARED_TASK ? 1 : TEAMS, step = IS_SHARED_TASK ? TEAMS : 1;
    static_assert(SLOTS % step == 0, "a slot has one team's pages or all teams': else one could take the next page for its own");
    typedef Ring<0, 2 * TILE_BYTES, SLOTS, TEAMS * 4> Pages;
    int position = load_fresh(&state->position), count = load_fresh(&state->count), kv_head = blockIdx.y;
    int tasks = (count + PROMPT_ROWS - 1) / PROMPT_ROWS * GROUP_HEADS;
    int first_task = (gridDim.x - 1 - blockIdx.x) * tasks_here;       // the longest are begun first
    if (first_task >= tasks) return;
    auto pages_of = [&](int task) {
        int end = (task / GROUP_HEADS + 1) * PROMPT_ROWS;
        return task < tasks ? (position + (end < count ? end : count) + PAGE_TOKENS - 1) / PAGE_TOKENS : 0;
    };
    int all_pages = pages_of(first_task + tasks_here <= tasks ? first_task + tasks_here - 1 : tasks - 1);
    u8* queries = shared;                                             // [tasks_here][TILE_BYTES]
    Pages ring(shared + tasks_here * TILE_BYTES);
    prefetch_l1(pages);
    ring.prepare(1, IS_SHARED_TASK ? 4 : TEAMS * 4);
    int team = same_in_warp(threadIdx.x >> 7), thread = threadIdx.x & 127, warp = thread >> 5, lane = thread & 31;
    if (team == TEAMS) {
        give_registers<24>();
        ring.fill(all_pages, [&](int page) {
            int row = (pages[page] * 2 * KV_HEADS + kv_head) * PAGE_TOKENS;
            u64* full = ring.full + page % SLOTS;
            arrive_expecting(full, 2 * TILE_BYTES);
            UNROLL for (int half = 0; half < 4; half++)               // two of the keys, two of the values
                bring_tile(ring.slot(page) + half * HALF_TILE, kv, half % 2 * 64, row + half / 2 * KV_HEADS * PAGE_TOKENS, full);
        });
        return;
    }
    take_registers<REGISTERS>();
    int task = first_task + (IS_SHARED_TASK ? 0 : team), own_pages = pages_of(task);
    int head = kv_head * GROUP_HEADS + task % GROUP_HEADS, row0 = task / GROUP_HEADS * PROMPT_ROWS;
    int rows_here = task < tasks ? (count - row0 < PROMPT_ROWS ? count - row0 : PROMPT_ROWS) : 0;
    u8* own = queries + (IS_SHARED_TASK ? 0 : team) * TILE_BYTES;
    for (int i = IS_SHARED_TASK ? threadIdx.x : thread; i < PROMPT_ROWS * 16; i += step * 128) {
        int row = i / 16, column = i % 16;
        Words4 words = {};
        if (row < rows_here) words = load_fresh((const Words4*)(q + (u64)(row0 + row) * q_stride + head * HEAD_DIM) + column);
        *(Words4*)(own + column / 8 * HALF_TILE + row * 128 + (column % 8 ^ row % 8) * 16) = words;
    }
    show_to_copies();
    if (IS_SHARED_TASK) team_sync<TEAMS * 128>(TEAMS);
    else team_sync<128>(team);

    Found found = {};
    found.most[0] = found.most[1] = NO_MAXIMUM;
    int first_row = position + row0 + 16 * warp + (lane >> 2);        // as a position
    int whole_pages = (position + row0 + 1) / PAGE_TOKENS;            // that every row sees all of
    int page = IS_SHARED_TASK ? team : 0;
    typename Pages::Turn turn = {page, 0};
    float scores[32], shrink[2];
    u32 weights[16];
    const Lines own_lines = lines_at(own), key_lines = lines_at(ring.slots), value_lines = lines_at(ring.slots + TILE_BYTES, HALF_TILE);
    auto ask = [&]() {
        ring.take(turn);
        Lines keys = behind(key_lines, turn.slot * 2 * TILE_BYTES);
        products_begin();
        UNROLL for (int i = 0; i < HEAD_DIM / 16; i++) {
            int at = i / 4 * HALF_TILE + i % 4 * 32;
            multiply_lines(scores, behind(own_lines, at), behind(keys, at), i > 0);
        }
        products_commit();
    };
    auto weigh_page = [&](int page) {
        int last = first_row - page * PAGE_TOKENS;
        if (page < whole_pages) weigh<false>(scores, found, shrink, scale, last);
        else weigh<true>(scores, found, shrink, scale, last);
    };
    auto pack_weights = [&]() {
        UNROLL for (int i = 0; i < 16; i++) {
            weights[i] = pack_bf16(scores[2 * i], scores[2 * i + 1]);
            keep(weights[i]);
        }
    };
    auto add_values = [&](int slot) {
        Lines values = behind(value_lines, slot * 2 * TILE_BYTES);
        UNROLL for (int i = 0; i < PAGE_TOKENS / 16; i++) multiply_columns(found.sum, weights + 4 * i, behind(values, i * 16 * 128));
        products_commit();
    };
    auto give_back = [&](int slot) {
        if (lane == 0) barrier_arrive(ring.empty + slot);
    };
    if (page < own_pages) {
        keep(scores);
        ask();
        products_wait<0>();
        keep(scores);
        weigh_page(page);
        pack_weights();
        for (; page + step < own_pages; page += step) {
            int slot = turn.slot;
            turn.next(step);
            keep(scores);
            keep(found.sum);
            ask();
            add_values(slot);
            products_wait<1>();
            keep(scores);
            weigh_page(page + step);
            products_wait<0>();
            keep(found.sum);
            give_back(slot);
            shrink_sums(found, shrink);
            pack_weights();
        }
        int filled = position + count - page * PAGE_TOKENS;           // what lies behind may be anything
        if (filled < PAGE_TOKENS) {
            u8* values = ring.slot(turn.slot) + TILE_BYTES;
            for (int i = thread + filled * 8; i < PAGE_TOKENS * 8; i += 128)
                *(Words4*)(values + i * 16) = *(Words4*)(values + HALF_TILE + i * 16) = Words4{};
            show_to_copies();
            team_sync<128>(team);
        }
        keep(found.sum);
        products_begin();
        add_values(turn.slot);
        products_wait<0>();
        keep(found.sum);
        give_back(turn.slot);
        turn.next(step);
    }
    if (!IS_SHARED_TASK)                                              // the other teams may need more pages
        for (page = own_pages; page < all_pages; page++, turn.next()) {
            ring.take(turn);
            give_back(turn.slot);
        }
    add_up(found);
    if (IS_SHARED_TASK) {
        team_sync<TEAMS * 128>(TEAMS);                                // nobody reads pages any more
        merge_teams<TEAMS>(found, (float*)ring.slots, team, thread);
        if (team > 0) return;
    }
    UNROLL for (int row = 0; row < 2; row++) {
        int at = 16 * warp + (lane >> 2) + 8 * row;
        if (at >= rows_here) continue;
        float share = divide(1.0f, found.total[row]);
        u32* to = (u32*)(mixed + ((u64)(row0 + at) * HEADS + head) * HEAD_DIM) + (lane & 3);
        UNROLL for (int j = 0; j < 16; j++)
            to[4 * j] = pack_bf16(found.sum[4 * j + 2 * row] * share, found.sum[4 * j + 2 * row + 1] * share);
    }
}

// q [tokens][q_stride] and mixed [tokens][HEADS][HEAD_DIM] of bf16; grid (tasks of a key head, by threes, KV_HEADS)
#define LONG_TEAMS 3
KERNEL(LONG_TEAMS * 128 + 128, 1) prompt_attention(const State* state, const u16* q, int q_stride, TILES(kv), const int* pages,
                                                   u16* mixed, float scale) {
#if HAS_TEAM_PRODUCTS
    SHARED_TILES(tiles);
    attend_prompt<false, LONG_TEAMS, 160, 5>(tiles, state, q, q_stride, TILES_OF(kv), pages, mixed, scale);
#endif
}

// The same; a block has one task
#define SHORT_TEAMS 2
KERNEL(SHORT_TEAMS * 128 + 128, 1) short_prompt_attention(const State* state, const u16* q, int q_stride, TILES(kv), const int* pages,
                                                          u16* mixed, float scale) {
#if HAS_TEAM_PRODUCTS
    SHARED_TILES(tiles);
    attend_prompt<true, SHORT_TEAMS, 232, 6>(tiles, state, q, q_stride, TILES_OF(kv), pages, mixed, scale);
#endif
}
