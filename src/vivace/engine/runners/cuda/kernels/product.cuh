// y = W x for a few tokens at the speed of memory. A block owns some tiles of 8 weight rows; its warps share out
// the columns. Weights come through a ring (ring.cuh), so the warps meet only where sums are added. That order is
// fixed, and a token's result does not depend on how many tokens are in the pass.
// 8-bit weights are multiplied as they are: an activation becomes a 16-bit integer, its two digits two columns of
// the tensor core. Owns the digits and the multiplication (of 4-bit weights: int4.cuh); what happens to
// the sums is the caller's.

#define MOST_HELD 72                    // pairs of activations that a thread may have under way
#define ROUNDING 12582912.0f           // 1.5 * 2^23: a float of that size has no fraction
#define DIGITS 32512.0f                // 127 * 256: the largest 16-bit number of two signed digits

// x² + y², said step by step: which of the two is rounded is a compiler's choice, and kernels whose sums must agree to the bit
// were compiled to different ones.
DEVICE float squared(Float2 v) { return multiply_add(v.x, v.x, multiply(v.y, v.y)); }

DEVICE constexpr int tile_bytes(int columns, int width) {
    return width == 4 ? columns / 64 * BLOCK_BYTES
           : width == MXFP4 ? columns / 64 * MXFP4_BYTES : TILE_ROWS * columns * width / 8;
}

template <int WIDTH> struct SumOf { typedef float Type; };
template <> struct SumOf<8> { typedef int Type; };
template <int WIDTH, int COUNT> struct GroupsOf { typedef Int4Weights<COUNT> Type; };
template <int COUNT> struct GroupsOf<MXFP4, COUNT> { typedef Mxfp4Weights<COUNT> Type; };

// With ALL a block has no more tiles than a group.
template <class RING, int K, int SPLIT, int WARPS, int GROUP, int PARTS = 1, int WIDTH = BITS, bool ALL = false,
          int WISHED = TILES_AT_ONCE>
struct Product {
    typedef typename SumOf<WIDTH>::Type Sum;
    static const int THREADS = WARPS * 32;                   // that compute
    static const int SLICE = K / SPLIT;                      // columns of W in one block
    static const int TILE_BYTES = tile_bytes(SLICE, WIDTH);
    static const int ROW_BYTES = SLICE * X_BITS / 8 + (HAS_DIGITS ? 32 : 64);  // padded: no bank conflicts
    static const int SUMS = GROUP * WARPS * TILE_TOKENS * TILE_ROWS;
    static const int PART_WARPS = WARPS / PARTS;             // columns come in parts, each with a scale of its own
    static const int PART_THREADS = PART_WARPS * 32;
    static const int PAIRS = SLICE / PARTS / (2 * PART_THREADS);
    static_assert(SLICE % (WARPS * 512 / X_BITS) == 0, "warps must share the columns evenly");
    static_assert(SLICE % (PARTS * 2 * PART_THREADS) == 0, "threads must share a row evenly");
    // So many tiles at once: while one waits for shared memory or the tensor core, another goes on.
    static const int WISH = COLUMN_TILES > 1 ? 2 : WISHED, MOST = RING::SLOT_COUNT;
    static const int AT_ONCE = WISH < GROUP ? (WISH < MOST ? WISH : MOST) : (GROUP < MOST ? GROUP : MOST);
    static const int TOGETHER = ALL ? GROUP : GROUP - GROUP % AT_ONCE;  // tiles between two meetings of the warps

    // Shared memory behind the ring.
    static const int BYTES = COLUMNS * ROW_BYTES + ((ALL ? 1 : 2) * SUMS + 2 * THREADS + 2 * TILE_TOKENS * PARTS) * 4;

    RING ring;
    u8* x;             // [COLUMNS][ROW_BYTES]
    float* sums;       // [2][GROUP][WARPS][TILE_TOKENS][TILE_ROWS]; with ALL once
    float* scratch;    // [2 * THREADS]
    float* scale;      // [TILE_TOKENS][PARTS] of a token's integers
    const u8* weights; // this block's slice of its first tile
    const float* gains;
    int first, count;  // tiles of this block

    DEVICE Product(RING ring, const u8* all_weights, int tiles, int block, int blocks, int split) : ring(ring) {
        x = ring.after();
        sums = (float*)(x + COLUMNS * ROW_BYTES);
        scratch = sums + (ALL ? 1 : 2) * SUMS;
        scale = scratch + 2 * THREADS;
        first = (int)((long long)tiles * block / blocks);
        count = (int)((long long)tiles * (block + 1) / blocks) - first;
        weights = all_weights + ((u64)first * SPLIT + split) * TILE_BYTES;
    }
    DEVICE float* after() const { return scale + 2 * TILE_TOKENS * PARTS; }  // shared memory that is left to the caller
    DEVICE static void meet() { team_sync<THREADS>(); }

    // ---- the tiles of this block
    DEVICE void fetch(int tile) { ring.bring(tile, weights + (u64)tile * SPLIT * TILE_BYTES, TILE_BYTES); }
    DEVICE void start() { ring.start(count, [&](int tile) { fetch(tile); }); }
    DEVICE void keep_full() { ring.keep_full(count, [&](int tile) { fetch(tile); }); }
    // AT_ONCE tiles in a row, a lane for each. Looking takes a few hundred cycles even where all is there: so we look well
    // before, and wait only for what was not there then.
    DEVICE static int step(int left) { return left < AT_ONCE ? left : AT_ONCE; }
    DEVICE bool look(int tile) {
        int lane = threadIdx.x & 31;
        return lane >= step(count - tile) || ring.is_here(tile + lane);
    }
    DEVICE void take(int tile, bool is_here) {
        if (!is_here) ring.take(tile + (threadIdx.x & 31));
        warp_sync();  // also because the tensor core wants all lanes together
    }
    DEVICE void give_back(int tile, int tiles) {
        int lane = threadIdx.x & 31;
        warp_sync();
        if (lane < tiles) ring.give_back(tile + lane);
    }
    DEVICE const u8* own(int tile) const {  // this warp's columns
        return ring.slot(tile) + (threadIdx.x >> 5) * (TILE_BYTES / WARPS);
    }

    // What the end of the kernel will read a few of a row, brought near before the wait.
    DEVICE void expect(const float* per_row) {
        for (int i = threadIdx.x * 32; i < count * TILE_ROWS; i += THREADS * 32)
            prefetch_l1(per_row + first * TILE_ROWS + i);
    }

    // ---- activations into shared memory. `load(token, pair)` gives two neighbouring columns of this block's slice.
    DEVICE static int part() { return (threadIdx.x >> 5) / PART_WARPS; }
    DEVICE static int pair_of(int j) {
        return part() * (SLICE / PARTS / 2) + threadIdx.x % PART_THREADS + j * PART_THREADS;
    }
    DEVICE void write_pair(int token, int pair, Float2 v, float to_integer) {
#if HAS_DIGITS
        u32 a = bits_of_float(multiply_add(v.x, to_integer, ROUNDING));  // the integer is the low half
        u32 b = bits_of_float(multiply_add(v.y, to_integer, ROUNDING));
        u16* row = (u16*)(x + 2 * token * ROW_BYTES) + pair;
        row[0] = (u16)permute_bytes(a + 128, b + 128, 0x51);
        row[ROW_BYTES / 2] = (u16)permute_bytes(a, b, 0x40);
#else
        *((u32*)(x + token * ROW_BYTES) + pair) = pack_bf16(v.x, v.y);
#endif
    }

    // With a gain: x = rms_norm(source) * gain. A token or two: all threads share a row, each holds PAIRS pairs of it.
    // More: a warp takes a row for itself and adds in the same order, so that the sums are the same to the bit.
    template <bool NORM, class Load> DEVICE void stage(Load load, const Float2* gain, float epsilon) {
        if (TILE_TOKENS <= 2) stage_together<NORM>(load, gain, epsilon);
        else stage_apart<NORM>(load, gain, epsilon);
        meet();
    }
    // One token; `load(pair, j)` also gets which of its pairs it is.
    template <bool NORM, class Load> DEVICE void stage_one(Load load, const Float2* gain, float epsilon) {
        int j = 0;
        stage_together<NORM>([&](int, int pair) { return load(pair, j++); }, gain, epsilon);
        meet();
    }

    // A row's integers or bf16 from its pairs, given the sums over the row.
    template <bool NORM> DEVICE void write_row(const Float2* row, int pairs, int token, int part, int at, int stride,
                                               float squares, float most, float epsilon, bool is_first) {
        float unit = NORM ? rsqrt_fast(squares * (1.0f / SLICE) + epsilon) : 1.0f, to_integer = 1.0f;
        if (HAS_DIGITS) {
            to_integer = most > 0.0f ? divide(DIGITS, most) : 0.0f;
            if (is_first) scale[token * PARTS + part] = most * (1.0f / DIGITS) * unit;
        }
        UNROLL for (int j = 0; j < pairs; j++) {
            Float2 v = BITS == 16 ? Float2{row[j].x * unit, row[j].y * unit} : row[j];
            write_pair(token, at + j * stride, v, to_integer);
        }
    }

    template <bool NORM, class Load> DEVICE void stage_together(Load load, const Float2* gain, float epsilon) {
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        Float2 row[TILE_TOKENS][PAIRS];
        UNROLL for (int token = 0; token < TILE_TOKENS; token++) {
            float squares = 0.0f, most = 0.0f;
            UNROLL for (int j = 0; j < PAIRS; j++) row[token][j] = load(token, pair_of(j));
            UNROLL for (int j = 0; j < PAIRS; j++) {
                Float2& v = row[token][j];
                if (NORM) {
                    squares += squared(v);
                    v = {v.x * gain[j].x, v.y * gain[j].y};
                }
                most = greater(most, greater(magnitude(v.x), magnitude(v.y)));
            }
            UNROLL for (int mask = 16; mask; mask >>= 1) {
                if (NORM) squares += shuffle_xor(squares, mask);
                if (HAS_DIGITS) most = greater(most, shuffle_xor(most, mask));
            }
            if (lane == 0) *(Float2*)(scratch + (token * WARPS + warp) * 2) = {squares, most};
        }
        if (NORM || HAS_DIGITS) meet();
        UNROLL for (int token = 0; token < TILE_TOKENS; token++) {
            float squares = 0.0f, most = 0.0f;
            UNROLL for (int w = 0; w < PART_WARPS; w++) {
                Float2 each = *(const Float2*)(scratch + (token * WARPS + part() * PART_WARPS + w) * 2);
                squares += each.x;
                most = greater(most, each.y);
            }
            write_row<NORM>(row[token], PAIRS, token, part(), pair_of(0), PART_THREADS, squares, most, epsilon,
                            threadIdx.x % PART_THREADS == 0);
        }
    }

    // A warp has two rows under way where there are more rows than warps: what they wait for is the same.
    template <bool NORM, class Load> DEVICE void stage_apart(Load load, const Float2*, float epsilon) {
        const int units = TILE_TOKENS * PARTS, length = PART_WARPS * PAIRS;
        const int at_once = units > WARPS && length <= MOST_HELD / 2 ? 2 : 1;
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        NO_UNROLL for (int first = warp * at_once; first < units; first += WARPS * at_once) {
            Float2 row[at_once][length];  // pair j of the thread that would be (w, lane): w + j * PART_WARPS
            UNROLL for (int r = 0; r < at_once; r++) {
                int token = (first + r) / PARTS, begin = (first + r) % PARTS * (SLICE / PARTS / 2) + lane;
                if (first + r < units) UNROLL for (int i = 0; i < length; i++) row[r][i] = load(token, begin + 32 * i);
            }
            UNROLL for (int r = 0; r < at_once; r++)
                if (first + r < units) stage_row<NORM>(row[r], (first + r) / PARTS, (first + r) % PARTS, epsilon);
        }
    }
    template <bool NORM> DEVICE void stage_row(Float2* row, int token, int part, float epsilon) {
        int lane = threadIdx.x & 31, begin = part * (SLICE / PARTS / 2) + lane;
        float squares = 0.0f, most = 0.0f;
        UNROLL for (int w = 0; w < PART_WARPS; w++) {
            float own = 0.0f;
            UNROLL for (int j = 0; j < PAIRS; j++) {
                Float2& v = row[w + j * PART_WARPS];
                if (NORM) {
                    own += squared(v);
                    Float2 g = *((const Float2*)gains + begin + 32 * (w + j * PART_WARPS));
                    v = {v.x * g.x, v.y * g.y};
                }
                most = greater(most, greater(magnitude(v.x), magnitude(v.y)));
            }
            if (NORM) {
                UNROLL for (int mask = 16; mask; mask >>= 1) own += shuffle_xor(own, mask);
                squares += own;
            }
        }
        if (HAS_DIGITS) UNROLL for (int mask = 16; mask; mask >>= 1) most = greater(most, shuffle_xor(most, mask));
        write_row<NORM>(row, PART_WARPS * PAIRS, token, part, begin, 32, squares, most, epsilon, lane == 0);
    }
    DEVICE void load_gain(const float* gain, Float2 out[PAIRS]) {
        gains = gain;
        if (TILE_TOKENS <= 2) UNROLL for (int j = 0; j < PAIRS; j++) out[j] = *((const Float2*)gain + pair_of(j));
    }
    DEVICE void normalise(const float* source, const Float2 gain[PAIRS], float epsilon) {
        stage<true>([&](int token, int pair) { return load_fresh((const Float2*)(source + token * K) + pair); }, gain,
                    epsilon);
    }

    // ---- the multiplication. Within 32 columns of W lane (g, t) holds columns 8t … 8t+7 of row g, and the
    // activations are taken in the same order, so the product is unchanged.
    static const int LOADS = SLICE / WARPS / 32;             // 32 columns each
    static const int KEPT = LOADS * COLUMN_TILES * X_BITS / 4 <= KEEP_REGISTERS ? LOADS : 0;  // else read for each tile
    static const bool IN_GROUPS = WIDTH == 4 || WIDTH == MXFP4;
    typedef typename GroupsOf<WIDTH, LOADS>::Type Groups;          // of 4-bit weights; their sums of activations: kept, too
    // Else they are added up for each tile. Down of gpt-oss has 30 of them, or 60, and room for these.
    static const int ADDED_MOST = WIDTH == MXFP4 ? 64 : 2 * KEEP_REGISTERS;
    static const int ADDED = IN_GROUPS && Groups::PASSES * COLUMN_TILES <= ADDED_MOST ? Groups::PASSES : 0;

    DEVICE Right load_right(int i) {
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
        Right out = {};
        UNROLL for (int c = 0; c < COLUMN_TILES; c++) {
            int column = 8 * c + g - (IN_GROUPS ? i % SHARE * COLUMNS : 0);
            if (column < 0 || column >= COLUMNS) continue;
            const u8* at = x + column * ROW_BYTES + ((warp * LOADS + i) * 32 + 8 * t) * X_BITS / 8;
#if HAS_DIGITS
            Words2 w = *(const Words2*)at;
            out.b[c][0] = w.w[0], out.b[c][1] = w.w[1];
#else
            Words4 w = *(const Words4*)at;
            UNROLL for (int e = 0; e < 4; e++) out.b[c][e] = w.w[e];
#endif
        }
        return out;
    }

    // This warp's columns of two tiles against all columns of x.
    static const int PIECES = LOADS * WIDTH / 16;            // of a tile, 16 bytes a lane
    DEVICE static Words4 piece_of(const u8* own_tile, int i) {
        return *(const Words4*)(own_tile + (threadIdx.x & 31) * 16 + i * 512);
    }
    DEVICE void multiply(const u8* upper, const u8* lower, const Right* kept, Sum total[COLUMN_TILES][4]) {
        multiply_pieces([&](int i) { return piece_of(upper, i); }, [&](int i) { return piece_of(lower, i); }, kept, total);
    }
    template <class Upper, class Lower>
    DEVICE void multiply_pieces(Upper upper, Lower lower, const Right* kept, Sum total[COLUMN_TILES][4]) {
        Sum c[2][COLUMN_TILES][4] = {};
        UNROLL for (int i = 0; i < PIECES; i++) {
            Words4 a = upper(i), b = lower(i);
#if HAS_DIGITS
            UNROLL for (int s = 0; s < 2; s++) {
                Right right = KEPT ? kept[2 * i + s] : load_right(2 * i + s);
                UNROLL for (int n = 0; n < COLUMN_TILES; n++)
                    mma_s8(c[s][n], a.w[2 * s], b.w[2 * s], a.w[2 * s + 1], b.w[2 * s + 1], right.b[n][0],
                           right.b[n][1]);
            }
#else
            Right right = KEPT ? kept[i] : load_right(i);
            UNROLL for (int s = 0; s < 2; s++)
                UNROLL for (int n = 0; n < COLUMN_TILES; n++)
                    mma_bf16(c[s][n], a.w[2 * s], b.w[2 * s], a.w[2 * s + 1], b.w[2 * s + 1], right.b[n][2 * s],
                             right.b[n][2 * s + 1]);
#endif
        }
        UNROLL for (int n = 0; n < COLUMN_TILES; n++)
            UNROLL for (int e = 0; e < 4; e++) total[n][e] = c[0][n][e] + c[1][n][e];
    }

    DEVICE void store_sums(float* group, int slot, int tiles, const Sum total[COLUMN_TILES][4]) {
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
        float* at = group + (slot * WARPS + warp) * TILE_TOKENS * TILE_ROWS + g;
        UNROLL for (int n = 0; n < COLUMN_TILES; n++)
            UNROLL for (int tile = 0; tile < 2; tile++) {
                if (tile >= tiles) continue;
                float* to = at + tile * WARPS * TILE_TOKENS * TILE_ROWS;
#if HAS_DIGITS
                int token = 4 * n + t;
                if (token < TILE_TOKENS)
                    to[token * TILE_ROWS] = IN_GROUPS ? total[n][2 * tile]
                                                      : 256.0f * (float)total[n][2 * tile] + (float)total[n][2 * tile + 1];
#else
                UNROLL for (int e = 0; e < 2; e++) {
                    int token = 8 * n + 2 * t + e;
                    if (token < TILE_TOKENS) to[token * TILE_ROWS] = total[n][2 * tile + e];
                }
#endif
            }
    }

    // Over the warps of one part, in their order, in the activations' unit.
    DEVICE float sum(const float* group, int slot, int token, int row, int part = 0) {
        const float* at = group + ((slot * WARPS + part * PART_WARPS) * TILE_TOKENS + token) * TILE_ROWS + row;
        float each[PART_WARPS], total = 0.0f;
        UNROLL for (int warp = 0; warp < PART_WARPS; warp++) each[warp] = at[warp * TILE_TOKENS * TILE_ROWS];
        UNROLL for (int warp = 0; warp < PART_WARPS; warp++) total += each[warp];
        return HAS_DIGITS ? ::multiply(total, scale[token * PARTS + part]) : total;
    }

    DEVICE static float row_scale(const float* scales, int row) {
        return WIDTH == 16 ? 1.0f : WIDTH == MXFP4 ? 0.5f : scales[row];
    }

    // All tiles of this block. `finish(base, n, group)` gets the sums of tiles base … base+n-1 of this block.
    template <class Finish> DEVICE void run(Finish finish) {
        bool is_here = look(0);
        Right kept[KEPT ? KEPT : 1];
        UNROLL for (int i = 0; i < KEPT; i++) kept[i] = load_right(i);
        auto right_of = [&](int i) { return KEPT ? kept[i] : load_right(i); };
        Added added[ADDED ? ADDED : 1];
        UNROLL for (int pass = 0; pass < ADDED; pass++) added[pass] = Groups::add(pass, right_of);
        auto added_of = [&](int pass) { return ADDED ? added[pass] : Groups::add(pass, right_of); };
        int parity = 0;
        for (int base = 0; base < count; base += TOGETHER, parity ^= 1) {
            int n = count - base < TOGETHER ? count - base : TOGETHER;
            float* group = sums + parity * SUMS;
            for (int slot = 0; slot < n; slot += AT_ONCE) {
                int tile = base + slot, tiles = step(count - tile);
                take(tile, is_here);
                is_here = look(tile + tiles);
                const int pairs = (AT_ONCE + 1) / 2;
                Sum total[pairs][COLUMN_TILES][4];
                UNROLL for (int p = 0; p < pairs; p++) {  // past the end the last tile again, to no avail
                    int above = 2 * p < tiles ? 2 * p : tiles - 1, below = 2 * p + 1 < tiles ? 2 * p + 1 : tiles - 1;
                    const u8 *upper = own(tile + above), *lower = own(tile + below);
                    if constexpr (IN_GROUPS) Groups::multiply(upper, lower, right_of, added_of, total[p]);
                    else multiply(upper, lower, kept, total[p]);
                }
                give_back(tile, tiles);
                UNROLL for (int p = 0; p < pairs; p++) store_sums(group, slot + 2 * p, tiles - 2 * p, total[p]);
            }
            meet();
            finish(base, n, group);
        }
    }
};
