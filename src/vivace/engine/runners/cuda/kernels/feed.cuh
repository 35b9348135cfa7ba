// Gate, up and down of one token in one kernel, on multiprocessors that cluster_attention.cuh leaves: one ring has the
// weights of both, so memory need not wait until down has room. All blocks are resident, and h goes from one to all others by
// numbers that say which round they are of. Owns that ring, its pace and that meeting.

#if CLUSTERED
#define FEED_TILE tile_bytes(HIDDEN, BITS)                 // a slot
#define FEED_DOWN_TILE tile_bytes(DOWN_COLUMNS / DOWN_SPLIT, BITS)
#define FEED_EACH ((FEED_DOWN_TILE + FEED_TILE - 1) / FEED_TILE)  // slots of a tile of down: a room
#define FEED_ROOMS (FEED_SLOTS / FEED_EACH)
#define FEED_PACE (PACE_BYTES / FEED_TILE > 1 ? PACE_BYTES / FEED_TILE : 1)  // tiles under way
#define FEED_AT_ONCE 2                                     // tiles that a warp multiplies
#define FEED_LOOKER (DOWN_WARPS > 8 ? 256 : 0)             // the thread that looks who has arrived
static_assert(FEED_SLOTS % FEED_EACH == 0, "rooms are whole");
static_assert(DOWN_COLUMNS == FFN && DOWN_SPLIT == 2, "each half of the blocks makes what one block of a cluster reads");

struct FeedMemory {
    u8* slots;
    u64 *full, *empty, *down_full, *down_empty, *is_met;
    DEVICE FeedMemory(u8* shared) : slots(shared) {
        full = (u64*)(slots + FEED_SLOTS * FEED_TILE);
        empty = full + FEED_SLOTS, down_full = empty + FEED_SLOTS, down_empty = down_full + FEED_ROOMS;
        is_met = down_empty + FEED_ROOMS;
    }
    DEVICE u8* after() const { return slots + FEED_SLOTS * FEED_TILE + ALIGNED((2 * FEED_SLOTS + 2 * FEED_ROOMS + 1) * 8); }
};
struct UpRooms : FeedMemory {
    static const int SLOT_COUNT = FEED_SLOTS;
    DEVICE UpRooms(u8* shared) : FeedMemory(shared) {}
    DEVICE u8* slot(int tile) const { return slots + tile % FEED_SLOTS * FEED_TILE; }
    DEVICE bool is_here(int tile) { return barrier_is_past(full + tile % FEED_SLOTS, tile / FEED_SLOTS & 1); }
    DEVICE void take(int tile) { barrier_wait(full + tile % FEED_SLOTS, tile / FEED_SLOTS & 1); }
    DEVICE void give_back(int tile) { barrier_arrive(empty + tile % FEED_SLOTS); }
    DEVICE void bring(int tile, const u8* from, int bytes) { bulk_load(slot(tile), from, bytes, full + tile % FEED_SLOTS); }
    // Until the tile before this one in its slot has been given back, if there is one.
    DEVICE void await_slot(int tile) {
        if (tile >= FEED_SLOTS) barrier_wait(empty + tile % FEED_SLOTS, (tile / FEED_SLOTS - 1) & 1);
    }
};
struct DownRooms : FeedMemory {
    static const int SLOT_COUNT = FEED_ROOMS;
    int first;         // room that gate and up give back first
    DEVICE DownRooms(u8* shared, int first) : FeedMemory(shared), first(first) {}
    DEVICE int room(int tile) const { return (first + tile) % FEED_ROOMS; }
    DEVICE u8* slot(int tile) const { return slots + room(tile) * FEED_EACH * FEED_TILE; }
    DEVICE bool is_here(int tile) { return barrier_is_past(down_full + tile % FEED_ROOMS, tile / FEED_ROOMS & 1); }
    DEVICE void take(int tile) { barrier_wait(down_full + tile % FEED_ROOMS, tile / FEED_ROOMS & 1); }
    DEVICE void give_back(int tile) { barrier_arrive(down_empty + tile % FEED_ROOMS); }
    DEVICE void bring(int tile, const u8* from, int bytes) { bulk_load(slot(tile), from, bytes, down_full + tile % FEED_ROOMS); }
};
typedef Product<UpRooms, HIDDEN, 1, 8, FEED_TILES, 1, BITS, true, FEED_AT_ONCE> UpFeed;
typedef Product<DownRooms, DOWN_COLUMNS, DOWN_SPLIT, DOWN_WARPS, FEED_DOWN_TILES, DOWN_PARTS / DOWN_SPLIT, BITS, true,
                FEED_AT_ONCE> DownFeed;

DEVICE void start_feed(UpFeed& up, DownFeed& down) {
    for (int slot = 0; slot < FEED_SLOTS; slot++) {
        barrier_init(up.ring.full + slot, 1);
        barrier_init(up.ring.empty + slot, 8);
    }
    for (int room = 0; room < FEED_ROOMS; room++) {
        barrier_init(down.ring.down_full + room, 1);
        barrier_init(down.ring.down_empty + room, DOWN_WARPS);
    }
    barrier_init(up.ring.is_met, 2);
    barriers_ready();
    for (int tile = 0; tile < FEED_PACE && tile < up.count; tile++) up.fetch(tile);
}
// The fetching thread's whole life after the start. What is under way is never much more than keeps the memory busy: what a
// block asks for comes in that order, and the small loads that all wait for would come behind it.
DEVICE void fetch_feed(UpFeed& up, DownFeed& down) {
    for (int tile = FEED_PACE; tile < up.count; tile++) {
        up.ring.take(tile - FEED_PACE);
        up.ring.await_slot(tile);
        up.fetch(tile);
    }
    for (int tile = 0; tile < down.count; tile++) {
        if (tile > 0) down.ring.take(tile - 1);
        if (tile >= FEED_ROOMS) barrier_wait(down.ring.down_empty + tile % FEED_ROOMS, (tile / FEED_ROOMS - 1) & 1);
        else
            for (int slot = down.ring.room(tile) * FEED_EACH; slot < (down.ring.room(tile) + 1) * FEED_EACH; slot++)
                up.ring.await_slot((up.count - slot + FEED_SLOTS - 1) / FEED_SLOTS * FEED_SLOTS + slot);
        down.fetch(tile);
    }
}

DEVICE void gate_and_up(UpFeed& up, const float* x, const float* gain, const float* scales, u64* h, const u32* round,
                        float epsilon, const float* shares, const float* share_scales) {
    Float2 gains[UpFeed::PAIRS], units[UpFeed::PAIRS], unit[(FEED_TILES * 4 + 255) / 256];
    up.load_gain(gain, gains);
    UNROLL for (int j = 0; j < UpFeed::PAIRS; j++) units[j] = *((const Float2*)share_scales + up.pair_of(j));
    const int each = (FEED_TILES * 4 + 255) / 256;         // numbers of h that a thread makes
    UNROLL for (int i = 0; i < each; i++) {
        int slot = (threadIdx.x + 256 * i) / 4, row = (up.first + slot) * TILE_ROWS + threadIdx.x % 4;
        if (slot < up.count) unit[i] = {up.row_scale(scales, row), up.row_scale(scales, row + 4)};
    }
    wait_for_previous();
    u32 mark = (u32)load_fresh((const int*)round);
    up.stage_one<true>(
        [&](int pair, int j) {
            Float2 v = load_fresh((const Float2*)x + pair), all[KV_HEADS];
            UNROLL for (int s = 0; s < KV_HEADS; s++) all[s] = load_fresh((const Float2*)(shares + s * HIDDEN) + pair);
            UNROLL for (int s = 1; s < KV_HEADS; s++) all[0] = {all[0].x + all[s].x, all[0].y + all[s].y};
            return Float2{v.x + all[0].x * units[j].x, v.y + all[0].y * units[j].y};
        },
        gains, epsilon);
    up.run([&](int, int, const float* group) {
        UNROLL for (int i = 0; i < each; i++) {
            int slot = (threadIdx.x + 256 * i) / 4, r = threadIdx.x % 4;
            if (slot < up.count)
                store_marked(h + (up.first + slot) * 4 + r,
                             gated(up.sum(group, slot, 0, r) * unit[i].x, up.sum(group, slot, 0, r + 4) * unit[i].y), mark);
        }
    });
}

// One number of x that a block adds to, if any; all but the sum is known early.
struct FeedItem {
    float *at, before, scale;
    DEVICE FeedItem(DownFeed& down, float* x, const float* scales, int rank) : at(nullptr) {
        static_assert(FEED_DOWN_TILES * TILE_ROWS / DOWN_SPLIT <= DOWN_WARPS * 32, "a thread adds to one number of x");
        int i = threadIdx.x * DOWN_SPLIT + rank;
        if (i >= down.count * TILE_ROWS) return;
        at = x + down.first * TILE_ROWS + i;
        scale = down.row_scale(scales, at - x);
    }
    DEVICE void load(const float* x, const float* shares, const float* share_scales) {
        if (!at) return;
        int row = at - x;
        float all = load_fresh(shares + row);
        UNROLL for (int s = 1; s < KV_HEADS; s++) all += load_fresh(shares + s * HIDDEN + row);
        before = load_fresh(at) + all * share_scales[row];
    }
    DEVICE void add(DownFeed& down, const Inbox& inbox, int rank) {
        if (!at) return;
        barrier_wait(inbox.is_full, 0);
        int items = down.count * TILE_ROWS, i = threadIdx.x * DOWN_SPLIT + rank;
        float total = 0.0f;
        UNROLL for (int part = 0; part < DOWN_PARTS; part++) total += inbox.sums[part * IN_INBOX(items) + IN_INBOX(i)];
        *at = before + total * scale;
    }
};

// The sums of this block's columns, to who adds to x. Whoever finds a number without the mark of this round looks again.
DEVICE void multiply_h(DownFeed& down, const u64* h, u32 mark, const Inbox& inbox, int rank) {
    const int parts = DOWN_PARTS / DOWN_SPLIT;
    const u64* slice = h + rank * DownFeed::SLICE;
    Words4 found[DownFeed::PAIRS];
    bool is_all;
    do {
        UNROLL for (int j = 0; j < DownFeed::PAIRS; j++) found[j] = load_marked(slice + 2 * down.pair_of(j));
        is_all = true;
        UNROLL for (int j = 0; j < DownFeed::PAIRS; j++) is_all = is_all && found[j].w[1] == mark && found[j].w[3] == mark;
    } while (!is_all);
    warp_sync();
    down.stage_one<false>(
        [&](int, int j) { return Float2{float_of_bits(found[j].w[0]), float_of_bits(found[j].w[2])}; }, nullptr, 0.0f);
    down.run([&](int, int n, const float* group) {
        int items = down.count * TILE_ROWS;
        NO_UNROLL for (int i = threadIdx.x; i < n * TILE_ROWS * parts; i += DownFeed::THREADS) {
            int part = i % parts, item = i / parts;
            float* at = inbox.sums + (rank * parts + part) * IN_INBOX(items) + IN_INBOX(item);
            cluster_send(at, item % DOWN_SPLIT, down.sum(group, item / TILE_ROWS, 0, item % TILE_ROWS, part), inbox.is_full);
        }
    });
}

// x += W_down · silu(gate) * up; arrived: [DOWN_SPLIT] blocks that have written their half of h, then the round, each in a line
KERNEL(DOWN_WARPS * 32 + 32, 1)
feed(float* x, const float* gain, const u8* weights, const float* scales, u64* h, float epsilon, const u8* down_weights,
     const float* down_scales, u32* arrived, const float* shares, const float* share_scales) {
    SHARED_MEMORY(shared);
    const int fetcher = DOWN_WARPS * 32;
    int rank = cluster_rank(), half = gridDim.x / DOWN_SPLIT;
    UpFeed up(UpRooms(shared), weights, 2 * FFN / TILE_ROWS, blockIdx.x, gridDim.x, 0);
    DownFeed down(DownRooms(shared, (up.count + FEED_EACH - 1) / FEED_EACH), down_weights, HIDDEN / TILE_ROWS,
                  blockIdx.x / DOWN_SPLIT, half, rank);
    if (!IS_LATE(GATE_UP)) let_next_start();
    if (threadIdx.x >= fetcher) {
        if (threadIdx.x == fetcher) start_feed(up, down);
        warp_sync();
        cluster_arrive();
        if (threadIdx.x == fetcher) fetch_feed(up, down);
        return;
    }
    const int most = UpFeed::BYTES > DownFeed::BYTES ? UpFeed::BYTES : DownFeed::BYTES;  // they lie in the same place
    Inbox inbox((float*)(up.ring.after() + ALIGNED(most)), down.count * TILE_ROWS);
    FeedItem item(down, x, down_scales, rank);
    const u32* round = arrived + DOWN_SPLIT * LINE_WORDS;
    if (threadIdx.x < 256) {
        gate_and_up(up, x, gain, scales, h, round, epsilon, shares, share_scales);
        UpFeed::meet();
        if (threadIdx.x == 0) {
            count_one(arrived + (blockIdx.x >= half) * LINE_WORDS);
            barrier_arrive(down.ring.is_met);              // down's activations lie where up's did
        }
    } else wait_for_previous();
    u32 mark = (u32)load_fresh((const int*)round);
    if (IS_LATE(GATE_UP)) let_next_start();
    item.load(x, shares, share_scales);
    if (threadIdx.x == FEED_LOOKER) {                      // before it would be no use to look for numbers
        await_count(arrived + rank * LINE_WORDS, half);
        barrier_arrive(down.ring.is_met);
    }
    barrier_wait(down.ring.is_met, 0);
    warp_sync();
    multiply_h(down, h, mark, inbox, rank);
    item.add(down, inbox, rank);
}
#endif
