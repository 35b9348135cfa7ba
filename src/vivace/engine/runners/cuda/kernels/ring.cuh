// Weights on their way: slots in shared memory that one thread fills with bulk copies, in the order in which the warps
// will take them, begun before the kernel before has ended: weights depend on nothing. Owns the slots, the waiting for
// them and the pace. What lies in a slot is product.cuh's.

template <int ID, int SLOT_BYTES, int SLOTS, int WARPS> struct Ring {
    static const int THREADS = WARPS * 32;                // that take; 32 more fetch
    static const int SLOT_COUNT = SLOTS;
    static const int PACE_SLOTS = PACE_BYTES / SLOT_BYTES > 1 ? PACE_BYTES / SLOT_BYTES : 1;
    static const int PACE = PACE_SLOTS < SLOTS ? PACE_SLOTS : SLOTS;

    u8* slots;    // [SLOTS][SLOT_BYTES]
    u64* full;    // [SLOTS] a piece has come
    u64* empty;   // [SLOTS] all warps are done with it
    int* is_on;   // the wait is over: no more pacing

    DEVICE Ring(u8* shared) {
        slots = shared;
        full = (u64*)(slots + SLOTS * SLOT_BYTES);
        empty = full + SLOTS;
        is_on = (int*)(empty + SLOTS);
    }
    DEVICE u8* after() const { return (u8*)(is_on + 4); }  // shared memory that is left to others

    DEVICE bool is_fetcher() const { return threadIdx.x >= THREADS; }
    DEVICE u8* slot(int piece) const { return slots + piece % SLOTS * SLOT_BYTES; }
    DEVICE void bring(int piece, const u8* from, int bytes) {
        bulk_load(slot(piece), from, bytes, full + piece % SLOTS);
    }
    // Pieces are numbered from 0 in the order in which they are fetched.
    DEVICE bool is_here(int piece) { return barrier_is_past(full + piece % SLOTS, piece / SLOTS & 1); }
    DEVICE void take(int piece) { barrier_wait(full + piece % SLOTS, piece / SLOTS & 1); }
    DEVICE void give_back(int piece) { barrier_arrive(empty + piece % SLOTS); }  // once a warp, after taking it

    // Begin to fill the ring. Nothing here depends on the kernel before.
    template <class Fetch> DEVICE void start(int pieces, Fetch fetch) {
        if (!IS_LATE(ID)) let_next_start();
        if (threadIdx.x == THREADS) {
            *is_on = 0;
            for (int slot = 0; slot < SLOTS; slot++) {
                barrier_init(full + slot, 1);
                barrier_init(empty + slot, WARPS);
            }
            barriers_ready();
            for (int piece = 0; piece < PACE && piece < pieces; piece++) fetch(piece);
        }
        block_sync();
    }

    // The fetching warp's whole life after the start. Until the kernel before has ended only PACE pieces are under
    // way: a long queue of weights would delay the few small loads that the chain of kernels is waiting for.
    template <class Fetch> DEVICE void keep_full(int pieces, Fetch fetch) {
        if (threadIdx.x != THREADS) return;
        for (int piece = PACE; piece < pieces; piece++) {
            if (piece < SLOTS)
                while (!barrier_is_past(full + piece - PACE, 0) && !load_shared(is_on)) {}
            else barrier_wait(empty + piece % SLOTS, (piece / SLOTS - 1) & 1);
            fetch(piece);
        }
    }

    // Where one is who takes pieces in turn: no division for each, as by the number of a piece.
    struct Turn {
        int slot, parity;
        DEVICE void next(int pieces = 1) {
            slot += pieces;
            if (slot >= SLOTS) slot -= SLOTS, parity ^= 1;
        }
    };
    DEVICE void take(const Turn& turn) { barrier_wait(full + turn.slot, turn.parity); }

    // For what nobody knows before the kernel before has ended: no start, no pace. A slot is full after `copies`, and empty
    // when so many warps have given it back.
    DEVICE void prepare(int copies, int takers = WARPS) {
        if (threadIdx.x == THREADS) {
            for (int slot = 0; slot < SLOTS; slot++) {
                barrier_init(full + slot, copies);
                barrier_init(empty + slot, takers);
            }
            barriers_ready();
        }
        block_sync();
    }
    DEVICE void await_room(int piece) {
        if (piece >= SLOTS) barrier_wait(empty + piece % SLOTS, (piece / SLOTS - 1) & 1);
    }
    template <class Fetch> DEVICE void fill(int pieces, Fetch fetch) {
        if (threadIdx.x != THREADS) return;
        for (int piece = 0; piece < pieces; piece++) {
            await_room(piece);
            fetch(piece);
        }
    }

    // Wait for the kernel before, and let the weights flow.
    DEVICE void wait() {
        wait_for_previous();
        if (IS_LATE(ID)) let_next_start();
        if (threadIdx.x == 0) store_shared(is_on, 1);
    }
};
