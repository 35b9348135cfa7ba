// 4-bit weights: 32 columns of a row are a group with a step and a zero, w = (16 * (0 … 15) - zero) * step, in the unit
// of its row. The tensor core multiplies the 16-bit activations by the integers; from that the zero times the sum of the
// activations is taken, still in integers, and the group's sum is scaled in fp32. With one token or two most of the
// tensor core's columns are free: up to four groups take their places side by side, and one scaling serves them
// all. Owns the format (int4.py has the same in torch) and the sums of one warp and two tiles; where the weights and
// the activations come from is product.cuh's.

#if HAS_DIGITS
#define COLUMNS (2 * TILE_TOKENS)      // of the tensor core's right side: two digits a token
#else
#define COLUMNS TILE_TOKENS
#endif
#define COLUMN_TILES ((COLUMNS + 7) / 8)
#define SHARE (TILE_TOKENS < 4 ? 4 / TILE_TOKENS : 1)  // groups side by side
struct Right { u32 b[COLUMN_TILES][X_BITS / 4]; };     // activations of 32 columns
struct Added { int x[COLUMN_TILES]; };                 // sums of SHARE groups' activations, each in its own lanes

// A block is 64 columns of 8 rows. Lane (g, t) has 8 bytes: columns 8t … 8t+7 of row g, low halves of the first 32, high
// halves of the next: these are multiplied where they stand, 16 times as large. Behind them step and zero, a byte
// each, [2 groups][8 rows].
#define BLOCK_BYTES (8 * 32 + 2 * 8 * 2)
#define LOW_HALVES 0x0f0f0f0fu
#define HIGH_HALVES 0xf0f0f0f0u
#define ONES 0x01010101u

template <int COUNT> struct Int4Weights {                    // COUNT groups of a row
    static const int PASSES = (COUNT + SHARE - 1) / SHARE;

    DEVICE static u32 step_and_zero(const u8* tile, int group) {
        return *(const u16*)(tile + group / 2 * BLOCK_BYTES + 256 + (group % 2 * 8 + (threadIdx.x >> 2 & 7)) * 2);
    }

    // This lane's group of a pass, from both digits. The tensor core adds the groups of a pass: in the columns of others
    // a sum is 0.
    DEVICE static int joined(const int c[COLUMN_TILES][4], int n, int tile) {
        return 256 * c[n][2 * tile] + c[n][2 * tile + 1];
    }

    // The activations of a pass: ones on the left add them up, right where they are needed.
    template <class RightOf> DEVICE static Added add(int pass, RightOf right_of) {
        int c[COLUMN_TILES][4] = {};
        UNROLL for (int i = pass * SHARE; i < (pass + 1) * SHARE && i < COUNT; i++) {
            Right right = right_of(i);
            UNROLL for (int n = 0; n < COLUMN_TILES; n++)
                mma_u8(c[n], ONES, ONES, ONES, ONES, right.b[n][0], right.b[n][1]);
        }
        Added out;
        UNROLL for (int n = 0; n < COLUMN_TILES; n++) out.x[n] = joined(c, n, 0);
        return out;
    }

    // total[n][0] and [n][2]: rows g of both tiles times token 4n + t. Groups are added as ((0 + 1) + (2 + 3)), each the
    // sum of its own and every fourth after it: the same for any number of tokens.
    template <class RightOf, class AddedOf>
    DEVICE static void multiply(const u8* upper, const u8* lower, RightOf right_of, AddedOf added_of,
                                float total[COLUMN_TILES][4]) {
        int lane = threadIdx.x & 31, own = SHARE > 1 ? lane % 4 / TILE_TOKENS : 0;
        float sums[4 / SHARE][COLUMN_TILES][2] = {};
        UNROLL for (int pass = 0; pass < PASSES; pass++) {
            int c[COLUMN_TILES][4] = {};
            UNROLL for (int i = pass * SHARE; i < (pass + 1) * SHARE && i < COUNT; i++) {
                Words2 a = *(const Words2*)(upper + i / 2 * BLOCK_BYTES + lane * 8);
                Words2 b = *(const Words2*)(lower + i / 2 * BLOCK_BYTES + lane * 8);
                u32 half = i % 2 ? HIGH_HALVES : LOW_HALVES;
                Right right = right_of(i);
                UNROLL for (int n = 0; n < COLUMN_TILES; n++)
                    mma_u8(c[n], a.w[0] & half, b.w[0] & half, a.w[1] & half, b.w[1] & half, right.b[n][0],
                           right.b[n][1]);
            }
            int group = pass * SHARE + own < COUNT ? pass * SHARE + own : COUNT - 1;  // past the end sums are 0
            int to_16ths = (SHARE > 1 ? own : pass) % 2 ? 0 : 4;
            u32 scales[2] = {step_and_zero(upper, group), step_and_zero(lower, group)};
            Added added = added_of(pass);
            UNROLL for (int n = 0; n < COLUMN_TILES; n++)
                UNROLL for (int tile = 0; tile < 2; tile++) {
                    float& sum = sums[pass % (4 / SHARE)][n][tile];
                    int exact = (joined(c, n, tile) << to_16ths) - (int)(scales[tile] >> 8) * added.x[n];  // < 2^28
                    sum = multiply_add((float)(scales[tile] & 255), (float)exact, sum);
                }
        }
        UNROLL for (int n = 0; n < COLUMN_TILES; n++)
            UNROLL for (int tile = 0; tile < 2; tile++) total[n][2 * tile] = add_groups(sums, n, tile);
    }
    DEVICE static float add_groups(const float sums[4 / SHARE][COLUMN_TILES][2], int n, int tile) {
        auto part = [&](int i) { return sums[i % (4 / SHARE)][n][tile]; };
        if (SHARE == 1) return (part(0) + part(1)) + (part(2) + part(3));
        if (SHARE == 2) {
            float first = part(0) + shuffle_xor(part(0), 2), second = part(1) + shuffle_xor(part(1), 2);
            return first + second;
        }
        float pair = part(0) + shuffle_xor(part(0), 1);
        return pair + shuffle_xor(pair, 2);
    }
};
